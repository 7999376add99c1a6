#include "commands.h"

namespace vesta::app {
namespace {

constexpr Command kCommands[] = {
    {"run", "chat with a model, or answer one prompt", cmd_run},
    {"convert", "turn a checkpoint (safetensors) into a model file (GGUF)", cmd_convert},
    {"quantize", "make a model file smaller: other formats for its weights", cmd_quantize},
    {"splice", "take the tensors of some layers from a second model file", cmd_splice},
    {"bench", "measure prefill and decode speed at growing contexts", cmd_bench},
    {"synth", "write a model file of any shape with random weights, for measuring", cmd_synth},
    {"inspect", "show what a model file holds and whether this build can run it", cmd_inspect},
    {"score", "measure quality: perplexity, divergence from a reference, likelihood of answers", cmd_score},
    {"tokenize", "text to token ids and back", cmd_tokenize},
    {"kv", "look after a folder of saved conversations: list, show, verify, prune", cmd_kv},
    {"imatrix", "measure which weight columns matter, for quantizing", cmd_imatrix},
};

}  // namespace

std::span<const Command> commands() { return kCommands; }

}  // namespace vesta::app
