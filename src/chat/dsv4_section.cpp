#include "chat/dsv4_section.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "chat/dsv4_markers.h"
#include "chat/python_json.h"

namespace vesta::chat::dsv4 {
namespace {

// A tag longer than this is not one. The longest attribute is a parameter's name.
constexpr size_t kMaxTagBytes = 16 * 1024;
constexpr size_t kMaxNameBytes = 128;
constexpr size_t kMaxNotes = 16;

// A model sometimes puts all arguments into one parameter of such a name that the tool does not have.
constexpr std::array<std::string_view, 2> kWrapperNames = {"arguments", "input"};

bool is_well_formed_name(std::string_view name) {
    if (name.empty() || name.size() > kMaxNameBytes) return false;
    return std::all_of(name.begin(), name.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
               c == '.';
    });
}

bool contains(const std::vector<std::string>& names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

std::string quoted_json(std::string_view text) {
    std::string out(1, '"');
    append_json_escaped(out, text);
    out.push_back('"');
    return out;
}

}  // namespace

std::vector<Spelling> accepted_spellings(const ParseOptions& options) {
    std::vector<Spelling> spellings = {{"<｜DSML｜", "</｜DSML｜"}, {"<DSML｜", "</DSML｜"}};
    if (options.accept_ascii_bar) spellings.push_back({"<|DSML|", "</|DSML|"});
    if (options.accept_plain_xml) spellings.push_back({"<", "</"});
    return spellings;
}

void add_event(std::vector<OutputEvent>& events, OutputEvent::Kind kind, size_t call, std::string_view text) {
    using Kind = OutputEvent::Kind;
    const bool is_text = kind == Kind::reasoning || kind == Kind::content || kind == Kind::call_arguments;
    if (is_text && text.empty()) return;
    if (is_text && !events.empty() && events.back().kind == kind && events.back().call == call)
        events.back().text += text;
    else
        events.push_back({kind, call, std::string(text)});
}

SectionParser::SectionParser(const ParseOptions& options, const std::vector<Spelling>& spellings, size_t first_call,
                             bool bare)
    : options_(options), spellings_(spellings), bare_(bare), next_call_(first_call) {
    constexpr std::array<std::pair<Name, std::string_view>, 3> kNames = {
        std::pair{Name::tool_calls, std::string_view("tool_calls")},
        std::pair{Name::invoke, std::string_view("invoke")}, std::pair{Name::parameter, std::string_view("parameter")}};
    for (size_t s = 0; s < spellings_.size(); ++s)
        for (const auto& [name, text] : kNames) {
            forms_.push_back({spellings_[s].open + std::string(text), false, name, s});
            forms_.push_back({spellings_[s].close + std::string(text), true, name, s});
        }
}

size_t SectionParser::feed(std::string_view bytes) {
    size_t at = 0;
    while (at < bytes.size() && status_ == Status::open) {
        if (state_ == State::value) {
            const size_t n = on_value(bytes.substr(at));
            at += n;
            offset_ += n;
            continue;
        }
        const bool consumed = state_ == State::tag ? on_tag_byte(bytes[at]) : on_space_or_tag(bytes[at]);
        if (!consumed) break;
        ++at;
        ++offset_;
    }
    return at;
}

bool SectionParser::on_space_or_tag(char c) {
    if (is_space(c)) return true;
    if (c != '<') {
        broken("text where a tag is expected");
        return false;
    }
    tag_.assign(1, '<');
    form_ = nullptr;
    quote_ = 0;
    after_tag_ = state_;
    state_ = State::tag;
    return true;
}

// A quote opens after '=' and closes at the '"' that is followed by white space or '>': names may contain quotes, and
// the official encoder writes them as they are.
bool SectionParser::on_tag_byte(char c) {
    if (form_ == nullptr) {
        for (const TagForm& form : forms_)
            if (form.text == tag_ && (is_space(c) || c == '>')) form_ = &form;
        if (form_ == nullptr) {
            const bool viable = std::any_of(forms_.begin(), forms_.end(), [&](const TagForm& form) {
                return form.text.size() > tag_.size() && form.text.compare(0, tag_.size(), tag_) == 0 &&
                       form.text[tag_.size()] == c;
            });
            if (!viable) {
                broken("an unknown tag");
                return false;
            }
            tag_.push_back(c);
            return true;
        }
    }
    if (tag_.size() >= kMaxTagBytes) {
        broken("a tag without end");
        return false;
    }
    if (quote_ != 0 && (is_space(c) || c == '>') && tag_.back() == '"' && tag_.size() - 1 > quote_) quote_ = 0;
    if (quote_ == 0) {
        if (c == '<') {
            broken("a tag inside a tag");
            return false;
        }
        if (c == '"' && tag_.back() == '=') quote_ = tag_.size();
    }
    tag_.push_back(c);
    if (c == '>' && quote_ == 0) close_tag();
    return true;
}

void SectionParser::close_tag() {
    state_ = after_tag_;
    if (form_->is_close) {
        if (state_ == State::between && form_->name == Name::tool_calls)
            status_ = Status::ended;
        else if (state_ == State::invoke && form_->name == Name::invoke)
            close_invoke();
        else
            broken("a closing tag that closes nothing");
        return;
    }
    if (state_ == State::between && form_->name == Name::invoke)
        open_invoke();
    else if (state_ == State::invoke && form_->name == Name::parameter)
        open_parameter();
    else if (state_ == State::between && form_->name == Name::tool_calls && n_begun_ == 0)
        return;  // the wrapper's start written twice
    else
        broken("an opening tag that has no place here");
}

std::vector<SectionParser::Attribute> SectionParser::attributes() const {
    std::vector<Attribute> out;
    const std::string_view text =
        std::string_view(tag_).substr(form_->text.size(), tag_.size() - form_->text.size() - 1);
    size_t at = 0;
    while (at < text.size()) {
        if (is_space(text[at])) {
            ++at;
            continue;
        }
        Attribute attribute;
        while (at < text.size() && !is_space(text[at]) && text[at] != '=') attribute.name.push_back(text[at++]);
        if (at + 1 < text.size() && text[at] == '=' && text[at + 1] == '"') {
            const size_t begin = at + 2;
            size_t end = begin;
            while (end < text.size() && !(text[end] == '"' && (end + 1 == text.size() || is_space(text[end + 1]))))
                ++end;
            attribute.value = text.substr(begin, end - begin);
            at = end + 1;
        } else if (at < text.size() && text[at] == '=') {
            ++at;  // a value without quotes
            while (at < text.size() && !is_space(text[at])) attribute.value.push_back(text[at++]);
        }
        attribute.value = replace_invalid_utf8(attribute.value);
        out.push_back(std::move(attribute));
    }
    return out;
}

const DeclaredTool* SectionParser::declared(std::string_view name) const {
    for (const DeclaredTool& tool : options_.tools)
        if (tool.name == name) return &tool;
    return nullptr;
}

void SectionParser::open_invoke() {
    const auto list = attributes();
    const auto name = std::find_if(list.begin(), list.end(), [](const Attribute& a) { return a.name == "name"; });
    if (name == list.end()) return broken("an invoke without a name");
    tool_ = declared(name->value);
    const bool is_declared = tool_ != nullptr || (options_.any_tool && is_well_formed_name(name->value));
    if (!is_declared && !is_well_formed_name(name->value)) return broken("a malformed tool name");
    if (!is_declared && bare_) return broken("a bare invoke of a tool that is not declared");
    if (!is_declared) note(strf("call of '{}', which the request does not declare", name->value));
    call_ = {name->value, {}, is_declared};
    in_call_ = true;
    ++n_begun_;
    arguments_.clear();
    holding_ = false;
    held_.clear();
    state_ = State::invoke;
    add_event(events_, OutputEvent::Kind::call_begin, next_call_, call_.name);
}

void SectionParser::open_parameter() {
    const auto list = attributes();
    const auto name = std::find_if(list.begin(), list.end(), [](const Attribute& a) { return a.name == "name"; });
    if (name == list.end()) return broken("a parameter without a name");
    const auto type = std::find_if(list.begin(), list.end(), [](const Attribute& a) { return a.name == "string"; });
    key_ = name->value;
    is_string_ = type == list.end() || type->value == "true";
    value_.clear();
    gate_ = {};

    // The tag that closes the value: as its own start tag is written, or the official way.
    std::vector<std::string> markers = {spellings_[form_->spelling].close + "parameter>"};
    if (form_->spelling != 0) markers.push_back(spellings_[0].close + "parameter>");
    n_value_end_ = markers.size();
    if (is_string_) markers.emplace_back(kParameterEndEscaped);
    value_end_ = MarkerFinder(std::move(markers));
    state_ = State::value;

    if (holding_) {  // a second argument: the first is no wrapper
        holding_ = false;
        fragment(std::exchange(held_, {}));
    }
    if (arguments_.empty() && tool_ != nullptr && tool_->has_parameters && !contains(tool_->parameters, key_) &&
        std::find(kWrapperNames.begin(), kWrapperNames.end(), key_) != kWrapperNames.end())
        holding_ = true;
    fragment((arguments_.empty() ? "{" : ", ") + quoted_json(key_) + ": ");
    if (is_string_) {
        value_.assign(1, '"');
        fragment("\"");
    }
}

size_t SectionParser::on_value(std::string_view bytes) {
    size_t found = MarkerFinder::kNone;
    const size_t n = value_end_.run(bytes, found, [&](std::string_view text) { value_text(text); });
    if (found == MarkerFinder::kNone) return n;
    if (found < n_value_end_)
        close_parameter();
    else
        value_text(kParameterEnd);
    return n;
}

void SectionParser::value_text(std::string_view bytes) {
    if (!is_string_) {
        value_ += bytes;
        return;
    }
    std::string escaped;
    append_json_escaped(escaped, gate_.pass(bytes));
    value_ += escaped;
    fragment(escaped);
}

void SectionParser::close_parameter() {
    if (is_string_) {
        const std::string rest = gate_.flush() + "\"";
        value_ += rest;
        fragment(rest);
    } else {
        // Sent as it was written when it is JSON; otherwise as a string, so that the arguments can always be read.
        std::string value = replace_invalid_utf8(value_);
        if (!scan_json(value, kMaxJsonDepth - 1).ok()) {
            note(strf("call of '{}': the value of '{}' is not JSON, sent as a string", call_.name, key_));
            repaired_ = true;
            value = quoted_json(value);
        }
        fragment(value);
        value_ = std::move(value);
    }
    arguments_.push_back({key_, std::exchange(value_, {})});
    state_ = State::invoke;
}

// Takes the wrapper off: {"arguments": {"path": "x"}} becomes {"path": "x"} when the tool has no parameter `arguments`
// and has all that are inside.
bool SectionParser::unwrap() {
    const auto outer = scan_json(arguments_[0].json);
    if (!outer.ok()) return false;
    const std::string text = outer.value().is_string() ? outer.value().text() : arguments_[0].json;
    const auto inner = scan_json(text);
    if (!inner.ok() || !inner.value().is_object()) return false;
    for (const JsonMember& member : inner.value().children)
        if (!contains(tool_->parameters, member.key)) return false;
    call_.arguments = inner.value().raw;
    return true;
}

void SectionParser::close_invoke() {
    if (holding_ && unwrap()) {
        note(strf("call of '{}': arguments were wrapped in a parameter '{}'", call_.name, arguments_[0].key));
        repaired_ = true;
        holding_ = false;
        fragment(call_.arguments);
    } else {
        if (holding_) {
            holding_ = false;
            fragment(std::exchange(held_, {}));
        }
        fragment(arguments_.empty() ? "{}" : "}");
        // A repeated key: first place, last value.
        std::unordered_map<std::string_view, size_t> last;
        for (size_t i = 0; i < arguments_.size(); ++i) last[arguments_[i].key] = i;
        if (last.size() < arguments_.size()) {
            note(strf("call of '{}': a parameter is given twice, the last one counts", call_.name));
            repaired_ = true;
        }
        call_.arguments.assign(1, '{');
        for (const Argument& argument : arguments_) {
            const auto place = last.find(argument.key);
            if (place == last.end()) continue;
            if (call_.arguments.size() > 1) call_.arguments += ", ";
            call_.arguments += quoted_json(argument.key) + ": " + arguments_[place->second].json;
            last.erase(place);
        }
        call_.arguments.push_back('}');
    }
    add_event(events_, OutputEvent::Kind::call_end, next_call_, {});
    calls_.push_back(std::exchange(call_, {}));
    ++next_call_;
    in_call_ = false;
    state_ = State::between;
}

void SectionParser::fragment(std::string_view text) {
    if (holding_)
        held_ += text;
    else
        add_event(events_, OutputEvent::Kind::call_arguments, next_call_, text);
}

void SectionParser::broken(std::string_view why) {
    note(strf("tool section: {} at its byte {}", why, offset_));
    status_ = Status::broken;
    if (in_call_) add_event(events_, OutputEvent::Kind::call_dropped, next_call_, {});
}

void SectionParser::note(std::string text) {
    if (notes_.size() < kMaxNotes) notes_.push_back(std::move(text));
}

void SectionParser::finish(bool complete_open_call) {
    if (status_ != Status::open) return;
    if (!in_call_) return;
    if (complete_open_call && !bare_ && state_ == State::invoke && !arguments_.empty()) {
        note(strf("call of '{}': the output ended before its closing tags", call_.name));
        repaired_ = true;
        return close_invoke();
    }
    note(strf("call of '{}': the output ended inside it", call_.name));
    add_event(events_, OutputEvent::Kind::call_dropped, next_call_, {});
}

}  // namespace vesta::chat::dsv4
