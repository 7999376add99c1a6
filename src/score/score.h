// Measuring quality: how likely a model finds a text, and how far two models' predictions are apart.
#pragma once

namespace vesta::score {}
