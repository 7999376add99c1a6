// `vesta tokenize`: text to token ids and back, with the vocabulary of a model file. Bytes are kept exactly: no newline
// is trimmed from what is read, none is added to what --decode writes (except on a terminal).
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "command_line.h"
#include "commands.h"
#include "gguf/file.h"
#include "model_path.h"
#include "terminal.h"
#include "tokenizer/tokenizer.h"

namespace vesta::app {
namespace {

using tokenizer::SpecialMode;
using tokenizer::Tokenizer;
using Ids = std::vector<int32_t>;

struct Arguments {
    std::string model, file;
    std::vector<std::string> words;  // the text, or with --decode the ids
    bool ids = false, json = false, specials = false, decode = false;
};

// Everything in a file ("-": stdin); pipes too, so it cannot be a mapping.
Result<std::string> read_input(const std::string& path) {
    const bool is_stdin = path == "-";
    if (is_stdin && ::isatty(STDIN_FILENO) == 1) fmt::print(stderr, "reading from the terminal; Ctrl+D ends\n");
    struct Close {
        void operator()(std::FILE* f) const {
            if (f != stdin) std::fclose(f);
        }
    };
    const std::unique_ptr<std::FILE, Close> in(is_stdin ? stdin : std::fopen(path.c_str(), "rb"));
    const std::string name = is_stdin ? "stdin" : path;
    if (in == nullptr)
        return Error{errno == ENOENT ? Code::not_found : Code::io, strf("{}: {}", name, std::strerror(errno))};
    std::string all;
    char buffer[1 << 16];
    for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, in.get())) != 0;) {
        all.append(buffer, n);
        if (all.size() > Tokenizer::kMaxTextBytes)
            return Error{Code::unsupported, strf("{}: more than {} bytes; split it", name, Tokenizer::kMaxTextBytes)};
    }
    if (std::ferror(in.get()) != 0) return Error{Code::io, strf("{}: {}", name, std::strerror(errno))};
    return all;
}

// Ids as this command or a JSON array prints them: numbers between spaces, commas and brackets.
Result<Ids> parse_ids(std::string_view text) {
    constexpr std::string_view kBetween = " \t\r\n,[]";
    Ids ids;
    for (;;) {
        text.remove_prefix(std::min(text.find_first_not_of(kBetween), text.size()));
        if (text.empty()) return ids;
        const std::string_view word = text.substr(0, text.find_first_of(kBetween));
        int32_t id = 0;
        const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
        if (error != std::errc() || end != word.data() + word.size())
            return Error{Code::invalid_argument,
                         strf("'{}' is not a token id; --decode takes numbers", printable(word.substr(0, 40)))};
        ids.push_back(id);
        text.remove_prefix(word.size());
    }
}

// In quotes, one line, harmless to a terminal: \n, \t, \", \\ and \xNN for bytes that show nothing on their own.
std::string in_quotes(std::string_view bytes) {
    std::string out = "\"";
    while (!bytes.empty()) {
        const std::string_view c = bytes.substr(0, static_cast<size_t>(decode_utf8(bytes).length));
        if (c == "\n")
            out += "\\n";
        else if (c == "\r")
            out += "\\r";
        else if (c == "\t")
            out += "\\t";
        else if (c == "\"" || c == "\\")
            out.append("\\").append(c);
        else
            out += printable(c);
        bytes.remove_prefix(c.size());
    }
    out += '"';
    return out;
}

std::string token_bytes(const Tokenizer& t, int32_t id) {
    std::string bytes;
    t.append_token_bytes(id, bytes);
    return bytes;
}

// {"text": ...}; bytes that are no UTF-8 cannot be JSON text, so then the exact bytes stand beside it.
void add_text(nlohmann::ordered_json& object, const std::string& bytes) {
    object["text"] = replace_invalid_utf8(bytes);
    if (is_valid_utf8(bytes)) return;
    std::string hex;
    for (const char b : bytes) hex += strf("{:02x}", static_cast<unsigned char>(b));
    object["bytes_hex"] = std::move(hex);
}

void print_ids(const Ids& ids) {
    std::string line;
    for (const int32_t id : ids) line += (line.empty() ? "" : " ") + std::to_string(id);
    fmt::print("{}\n", line);
}

void print_json(const Tokenizer& t, const Ids& ids) {
    nlohmann::ordered_json out;
    out["n_tokens"] = ids.size();
    out["ids"] = ids;
    out["tokens"] = nlohmann::ordered_json::array();
    for (const int32_t id : ids) {
        nlohmann::ordered_json token;
        token["id"] = id;
        add_text(token, token_bytes(t, id));
        token["special"] = t.is_special(id);
        out["tokens"].push_back(std::move(token));
    }
    fmt::print("{}\n", out.dump());
}

void print_table(const Tokenizer& t, const Ids& ids) {
    const size_t width = std::to_string(t.n_vocab() - 1).size();
    for (const int32_t id : ids)
        fmt::print("{:>{}}  {}{}\n", id, width, in_quotes(token_bytes(t, id)), t.is_special(id) ? "  special" : "");
}

Status encode_main(const Arguments& args, const Tokenizer& t) {
    std::string text;
    if (args.words.empty()) {
        VESTA_TRY(text, read_input(args.file.empty() ? "-" : args.file));
    } else {
        text = args.words[0];
    }
    Ids ids;
    t.encode(text, args.specials ? SpecialMode::recognise : SpecialMode::text, ids);
    if (args.json)
        print_json(t, ids);
    else if (args.ids)
        print_ids(ids);
    else
        print_table(t, ids);
    return {};
}

Status decode_main(const Arguments& args, const Tokenizer& t) {
    std::string list;
    if (args.words.empty()) {
        VESTA_TRY(list, read_input(args.file.empty() ? "-" : args.file));
    } else {
        for (const std::string& word : args.words) list += word + " ";
    }
    VESTA_TRY(const Ids ids, parse_ids(list));
    VESTA_TRY(const std::string text, t.decode(ids));
    if (args.json) {
        nlohmann::ordered_json out;
        out["n_tokens"] = ids.size();
        add_text(out, text);
        fmt::print("{}\n", out.dump());
        return {};
    }
    std::fwrite(text.data(), 1, text.size(), stdout);
    if (::isatty(STDOUT_FILENO) == 1 && !text.ends_with('\n')) fmt::print("\n");
    return {};
}

Status tokenize_main(const Arguments& args) {
    VESTA_TRY(const std::string model, find_model(args.model));
    VESTA_TRY(const gguf::File file, gguf::File::open(model));
    VESTA_TRY(const Tokenizer t, Tokenizer::from_gguf(file));
    VESTA_TRY_STATUS(args.decode ? decode_main(args, t) : encode_main(args, t));
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
        return Error{Code::io, strf("stdout: {}", std::strerror(errno))};
    return {};
}

constexpr const char* kNotes =
    "output: one line per token, its id and its bytes in quotes; no BOS is added, no newline trimmed.\n"
    "\nexamples:\n"
    "  vesta tokenize \"Where is Rome?\"                        a line per token\n"
    "  vesta tokenize -m M.gguf -f chapter.txt --ids | wc -w  how many tokens\n"
    "  vesta tokenize --specials \"<think>hm</think>\"          markers become their tokens\n"
    "  vesta tokenize --decode 2323 297 531 417 33            back to text\n"
    "  vesta tokenize --json < request.txt                    for programs\n";

}  // namespace

int cmd_tokenize(int argc, char** argv) {
    Arguments args;
    CLI::App app{"Text to token ids and back, with the vocabulary of a model file.", "vesta tokenize"};
    app.add_option("text", args.words, "text to tokenize, in quotes (default: stdin); with --decode: token ids");
    app.add_option("-m,--model", args.model,
                   "model file (GGUF); default: $VESTA_MODEL, else the built-in pocket model");
    CLI::Option* file = app.add_option("-f,--file", args.file, "read the text (or the ids) from this file; -: stdin");
    CLI::Option* ids = app.add_flag("--ids", args.ids, "print only the ids, on one line");
    app.add_flag("--json", args.json, "print one JSON object")->excludes(ids);
    CLI::Option* specials =
        app.add_flag("--specials", args.specials,
                     "markers in the text (<think>, <｜User｜>, ...) become special tokens; without "
                     "it they are ordinary text, as in a user's message");
    app.add_flag("--decode", args.decode, "turn ids into text")->excludes(ids)->excludes(specials);
    app.footer(kNotes);
    if (const auto code = parse_or_exit(app, argc, argv, [&] {
            if (!args.words.empty() && *file) throw CLI::ExcludesError("TEXT", "--file");
            if (!args.decode && args.words.size() > 1)
                throw CLI::ArgumentMismatch(strf("{} texts given; put one text in quotes", args.words.size()));
        }))
        return *code;
    const Status status = tokenize_main(args);
    return status.ok() ? kExitOk : report("tokenize", status.error());
}

}  // namespace vesta::app
