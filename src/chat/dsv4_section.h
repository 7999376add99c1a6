// Parses one tool-call section: from just after the wrapper's start tag (or from a bare invoke) to the wrapper's end.
// Knows nothing of reasoning and content; the owner decides what a broken section means and keeps its raw bytes.
//
//   section := (space | invoke)* "</｜DSML｜tool_calls>"
//   invoke  := "<｜DSML｜invoke" attributes ">" (space | parameter)* "</｜DSML｜invoke>"
//   parameter := "<｜DSML｜parameter" attributes ">" value "</｜DSML｜parameter>"
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/dsv4_parse.h"
#include "chat/dsv4_scan.h"

namespace vesta::chat::dsv4 {

// How the tags of a section may be written. "<｜DSML｜" is the official one; in "<DSML｜" the first bar is missing.
struct Spelling {
    std::string open;
    std::string close;
};
std::vector<Spelling> accepted_spellings(const ParseOptions& options);

// Appends to the last event when it is of the same kind (and call), so that a piece fed makes few events.
void add_event(std::vector<OutputEvent>& events, OutputEvent::Kind kind, size_t call, std::string_view text);

class SectionParser {
 public:
    enum class Status { open, ended, broken };

    // `options` must outlive the parser. first_call: index of the first call in events. bare: no wrapper start was
    // seen; the invoke tag itself is fed, and only declared names are accepted.
    SectionParser(const ParseOptions& options, const std::vector<Spelling>& spellings, size_t first_call, bool bare);

    // Returns how many bytes were consumed: all of them, unless the section ended or broke. The byte that breaks a
    // section is not consumed, unless it completes a tag that has no place here.
    size_t feed(std::string_view bytes);

    // The output ends here. With `complete_open_call`, a call that lacks only its closing tags counts.
    void finish(bool complete_open_call);

    Status status() const { return status_; }
    bool bare() const { return bare_; }
    bool has_open_call() const { return in_call_; }
    size_t n_begun() const { return n_begun_; }
    std::vector<ParsedCall>& calls() { return calls_; }
    std::vector<OutputEvent>& events() { return events_; }
    std::vector<std::string>& notes() { return notes_; }
    bool repaired() const { return repaired_; }

 private:
    enum class State { between, invoke, tag, value };
    enum class Name { tool_calls, invoke, parameter };
    struct TagForm {
        std::string text;  // up to and including the name
        bool is_close;
        Name name;
        size_t spelling;
    };
    struct Attribute {
        std::string name, value;
    };
    struct Argument {
        std::string key, json;
    };

    bool on_space_or_tag(char c);  // false: broken, the byte is not consumed
    bool on_tag_byte(char c);
    void close_tag();
    std::vector<Attribute> attributes() const;
    void open_invoke();
    void close_invoke();
    void open_parameter();
    size_t on_value(std::string_view bytes);
    void value_text(std::string_view bytes);
    void close_parameter();
    bool unwrap();
    void fragment(std::string_view text);
    void broken(std::string_view why);
    void note(std::string text);
    const DeclaredTool* declared(std::string_view name) const;

    const ParseOptions& options_;
    const std::vector<Spelling>& spellings_;
    std::vector<TagForm> forms_;
    const bool bare_;
    size_t next_call_;
    size_t n_begun_ = 0;
    size_t offset_ = 0;  // bytes consumed, for notes
    Status status_ = Status::open;
    State state_ = State::between;
    State after_tag_ = State::between;  // where the tag was found

    std::string tag_;                // the tag being read, from '<'
    const TagForm* form_ = nullptr;  // decided once the name is complete
    size_t quote_ = 0;               // position in tag_ of the open quote, 0: none

    bool in_call_ = false;
    ParsedCall call_;
    const DeclaredTool* tool_ = nullptr;
    std::vector<Argument> arguments_;
    bool holding_ = false;  // fragments wait in held_: the only argument may be a wrapper to be taken off
    std::string held_;

    std::string key_;
    bool is_string_ = false;
    std::string value_;  // string: its JSON so far; otherwise the raw bytes
    CharacterGate gate_;
    MarkerFinder value_end_{{}};
    size_t n_value_end_ = 0;  // markers below this index close the value

    std::vector<ParsedCall> calls_;
    std::vector<OutputEvent> events_;
    std::vector<std::string> notes_;
    bool repaired_ = false;
};

}  // namespace vesta::chat::dsv4
