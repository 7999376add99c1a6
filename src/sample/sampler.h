// Logits to the next token. This room knows numbers and token ids; it does not know text, models or conversations.
//
// The steps, in this order:
//   1. penalties     repetition, presence, frequency: they correct what the model said, so they see its raw logits
//   2. bias          the caller's own addition, after the penalties, so that ±100 means the same with and without them
//   3. temperature   0 stops here: the largest logit wins. It comes before the filters, so that "keep tokens with at
//                    least 5 % of the top probability" speaks about the probabilities that are drawn from
//   4. top-k         the k largest
//   5. min-p         those with at least min_p times the largest probability
//   6. top-p         the smallest set of largest that holds top_p of the mass which 4 and 5 left. Last, because it is
//   the
//                    only one that depends on the others' result: 4 and 5 give the same set in either order
//   7. draw          with the probabilities renormalised over what is left
// Ties go to the lower token id everywhere.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "sample/rng.h"

namespace vesta::sample {

struct SamplerParams {
    double temperature = 1;  // [0, 100]; 0 = greedy
    int32_t top_k = 0;       // >= 0; 0 = off
    double top_p = 1;        // (0, 1]; 1 = off
    double min_p = 0.05;     // [0, 1]; 0 = off

    // l > 0 ? l / penalty : l * penalty, for every token of prompt and text (Keskar et al. 2019, CTRL, section 4.1,
    // with the sign made to matter: dividing a negative logit would favour the token).
    double repetition_penalty = 1;  // [0.01, 100]; 1 = off
    // l - presence * (n > 0) - frequency * n, with n = times the token was generated (the prompt does not count; this
    // is what the OpenAI API documents).
    double presence_penalty = 0;   // [-2, 2]
    double frequency_penalty = 0;  // [-2, 2]
    int32_t penalty_window = 0;    // the penalties see the last so many tokens; 0 = all of them

    std::vector<std::pair<int32_t, double>>
        logit_bias;  // token id, addend in [-100, 100]; the last entry of an id wins
    uint64_t seed = 0;
};

// Checks every field against the range above and the ids of logit_bias against n_vocab; the message names the field.
Status validate(const SamplerParams& params, int32_t n_vocab);

struct Candidate {
    int32_t id;
    double p;  // probability after all steps; sums to 1 over a distribution
};

// State of one conversation's sampling. All memory is taken by create(); sample(), distribution() and accept() allocate
// nothing. Not thread-safe; movable.
class Sampler {
 public:
    // Requires: n_vocab > 0.
    static Result<Sampler> create(const SamplerParams& params, int32_t n_vocab);

    // The next token. A logit that is NaN or infinite is Code::numeric and nothing is drawn (the random state does not
    // move either). Does not accept() the token: the caller may refuse it. Requires: logits.size() == n_vocab.
    Result<int32_t> sample(std::span<const float> logits);

    // What sample() draws from: every candidate with p > 0. Sorted by falling probability if top_k or top_p cut
    // something, by id otherwise. Valid until the next call. Speculative verification needs it, and so do tests.
    Result<std::span<const Candidate>> distribution(std::span<const float> logits);

    // Tells the penalties about a token: of the prompt (accept_prompt) or of the generated text (accept).
    // Requires: 0 <= id < n_vocab.
    void accept_prompt(std::span<const int32_t> ids);
    void accept(int32_t id);
    // Forgets all accepted tokens; the random state goes on.
    void forget();

    const SamplerParams& params() const { return params_; }

 private:
    struct Seen {
        int32_t n_any = 0;        // in prompt and text
        int32_t n_generated = 0;  // in text
    };
    struct Token {
        int32_t id;
        bool generated;
    };

    Sampler(const SamplerParams& params, int32_t n_vocab);
    void remember(Token token);
    Status adjust(std::span<const float> logits);
    int32_t argmax() const;
    void filter();

    SamplerParams params_;
    Rng rng_;
    bool penalise_;
    double log_min_p_;               // minus infinity when min_p is off
    std::vector<double> adjusted_;   // [n_vocab] logits after steps 1 and 2
    std::vector<Candidate> kept_;    // [<= n_vocab] after steps 3 to 6, p unnormalised until distribution() ends
    std::vector<Seen> seen_;         // [n_vocab]; empty when no penalty is set
    std::vector<int32_t> seen_ids_;  // ids with n_any > 0 at some time since forget(), each once
    std::vector<char> listed_;       // [n_vocab] is in seen_ids_
    std::vector<Token> window_;      // ring of the last penalty_window tokens; empty when the window is "all"
    size_t window_next_ = 0, window_used_ = 0;
};

}  // namespace vesta::sample
