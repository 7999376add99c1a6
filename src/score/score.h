// Measuring quality: how likely a model finds a text, and how far two models' predictions are apart. Knows sessions and
// their logits; knows no tensors, and prints nothing.
//
//   rows.h        one row of logits: log-probabilities, the k likeliest tokens, the mass of all others
//   windows.h     a long text cut into windows that score every token once
//   statistics.h  means with standard errors, quantiles, paired tests
//   base_file.h   a reference model's predictions over a text, kept in a file
//   text.h        perplexity of a text, and the divergence from a base file
//   manifest.h    cases of prompt and continuation, and their results, as JSON lines
//   cases.h       a model on a manifest: likelihood and greedy answers
//   compare.h     two models' results on the same cases
//
// docs/score.md has the definitions of every number in one place.
#pragma once

#include "score/cases.h"
#include "score/compare.h"
#include "score/manifest.h"
#include "score/text.h"
