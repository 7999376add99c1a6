#include "synth_options.h"

#include "convert/recipe.h"

namespace vesta::app {

void declare_synth(CLI::App& app, SynthFlags& f) {
    app.add_option("--like", f.like, "whose layer sizes: flash, pro, pocket")->capture_default_str();
    app.add_option("--layers", f.n_layer,
                   "number of layers; fewer than the model's: one window-only layer (Pro: none), "
                   "then 4 and 128 in turn")
        ->check(CLI::Range(1, 1024));
    app.add_option("--ratios", f.ratios, "compression ratio of every layer, e.g. 0,4,128")->delimiter(',');
    app.add_option("--hash-layers", f.n_hash_layer, "layers routed by token id; default: the model's, 1 when cut");
    app.add_option("--experts", f.n_expert, "routed experts per layer")->check(CLI::Range(1, 1 << 14));
    app.add_option("--vocab", f.n_vocab, "vocabulary entries")->check(CLI::Range(512, 1 << 22));
    app.add_option("--ctx-train", f.n_ctx, "context the file declares")->check(CLI::Range(1u, 1u << 30));
    app.add_option("--recipe", f.recipe, "which format each tensor gets: a recipe's name or file")
        ->capture_default_str();
    app.add_option("--seed", f.seed, "another seed, other weights")->capture_default_str();
}

Result<synth::Options> synth_options(const CLI::App& app, const SynthFlags& f) {
    synth::Options o;
    o.shape.like = f.like;
    const auto given = [&](const char* flag, uint32_t value, std::optional<uint32_t>& out) {
        if (app.count(flag) > 0) out = value;
    };
    given("--layers", f.n_layer, o.shape.n_layer);
    given("--hash-layers", f.n_hash_layer, o.shape.n_hash_layer);
    given("--experts", f.n_expert, o.shape.n_expert);
    given("--vocab", f.n_vocab, o.shape.n_vocab);
    given("--ctx-train", f.n_ctx, o.shape.n_ctx);
    o.shape.ratios = f.ratios;
    o.seed = f.seed;
    VESTA_TRY(o.recipe, convert::load_recipe(f.recipe));
    return o;
}

Result<synth::Options> parse_synth(const std::string& text) {
    SynthFlags flags;
    CLI::App app("synthetic model");
    app.set_help_flag();
    declare_synth(app, flags);
    const bool bare = !text.empty() && text[0] != '-';
    try {
        app.parse((bare ? "--like " : "") + text);
    } catch (const CLI::ParseError& e) {
        return Error{Code::invalid_argument, strf("--synth \"{}\": {}", text, e.what())};
    }
    return synth_options(app, flags);
}

}  // namespace vesta::app
