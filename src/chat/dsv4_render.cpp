// The order of work follows the official encoder: merge messages into turns, sort tool results, drop old reasoning,
// then write turn after turn. The assistant marker is written after the turn before it, so that a prompt ends with it.
#include "chat/dsv4_render.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "chat/dsv4_markers.h"
#include "chat/python_json.h"

namespace vesta::chat {
namespace {

using namespace dsv4;

// Prompt texts the model was trained with. Data: every byte counts.
constexpr std::string_view kMaximumEffort =
    "Reasoning Effort: Absolute maximum with no shortcuts permitted.\n"
    "You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the root cause, "
    "rigorously stress-testing your logic against all potential paths, edge cases, and adversarial scenarios.\n"
    "Explicitly write out your entire deliberation process, documenting every intermediate step, considered "
    "alternative, "
    "and rejected hypothesis to ensure absolutely no assumption is left unchecked.\n\n";
constexpr std::string_view kBeyondMaximumEffort =
    "Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.\n"
    "You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: exhaustively decompose the "
    "problem into its most fundamental components, trace every causal chain to its root, and resolve the underlying "
    "cause "
    "rather than any surface symptom.\n"
    "Do not stop reasoning until you have independently verified the solution from multiple angles and are certain "
    "that no "
    "assumption remains unchecked and no error remains undiscovered.\n\n";
constexpr std::string_view kToolsHead =
    "## Tools\n\n"
    "You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "
    "\"<｜DSML｜tool_calls>\" block like the following:\n\n"
    "<｜DSML｜tool_calls>\n"
    "<｜DSML｜invoke name=\"$TOOL_NAME\">\n"
    "<｜DSML｜parameter name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE</｜DSML｜parameter>\n"
    "...\n"
    "</｜DSML｜invoke>\n"
    "<｜DSML｜invoke name=\"$TOOL_NAME2\">\n"
    "...\n"
    "</｜DSML｜invoke>\n"
    "</｜DSML｜tool_calls>\n\n"
    "String parameters should be specified as is and set `string=\"true\"`. For all other types (numbers, booleans, "
    "arrays, "
    "objects), pass the value in JSON format and set `string=\"false\"`.\n\n"
    "If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside "
    "<think>...</think> "
    "BEFORE any tool calls or final response.\n\n"
    "Otherwise, output directly after </think> with tool calls or final response.\n\n"
    "### Available Tool Schemas\n\n";
constexpr std::string_view kToolsTail =
    "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n";
constexpr std::string_view kFormatHead =
    "## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n";

// Collects segments; the only place where a control segment is made.
class Writer {
 public:
    void text(std::string_view bytes) {
        if (bytes.empty()) return;
        if (!segments_.empty() && !segments_.back().control)
            segments_.back().text += bytes;
        else
            segments_.push_back({false, std::string(bytes)});
    }
    void control(std::string_view marker) { segments_.push_back({true, std::string(marker)}); }

    // Text of our own: the markers in it are meant.
    void own(std::string_view bytes) {
        constexpr std::array kMarkers = {kDsml, kThink, kEndThink};
        while (!bytes.empty()) {
            size_t at = bytes.size();
            std::string_view found;
            for (const std::string_view marker : kMarkers)
                if (const size_t here = bytes.find(marker); here < at) at = here, found = marker;
            text(bytes.substr(0, at));
            if (!found.empty()) control(found);
            bytes.remove_prefix(at + found.size());
        }
    }

    std::vector<Segment> take() { return std::move(segments_); }

 private:
    std::vector<Segment> segments_;
};

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
    std::string out;
    for (size_t at = 0;;) {
        const size_t here = text.find(from, at);
        out += text.substr(at, here - at);
        if (here == std::string_view::npos) return out;
        out += to;
        at = here + from.size();
    }
}

// A part of a user turn.
struct Block {
    bool is_result;
    std::string call_id;  // of a result, may be empty
    std::string text;
};

// What is written between two role markers: one message, or several that were merged.
struct Turn {
    Role role;
    const Message* message;  // the first one; its task, wo_eos, tools count
    bool in_context;
    std::vector<Block> blocks;  // of a user turn
};

// Content that may have been sent as a list. Only tool results may hold what we cannot show to the model: a result
// comes from a program that has no way to do it differently, a user's picture should not vanish without an error.
Result<std::string> flat_content(const Message& message) {
    if (message.parts.empty()) return message.content;
    std::string out;
    for (size_t i = 0; i < message.parts.size(); ++i) {
        const ContentPart& part = message.parts[i];
        if (i > 0) out += "\n\n";
        if (part.type == "text")
            out += part.text;
        else if (message.role == Role::tool)
            out += strf("[Unsupported {}]", part.type);
        else
            return Error{Code::unsupported, strf("{} message: content of type '{}' is not supported, expected text",
                                                 role_name(message.role), part.type)};
    }
    return out;
}

class Renderer {
 public:
    Renderer(const Conversation& conversation, const RenderOptions& options)
        : conversation_(conversation), options_(options) {}

    Result<std::vector<Segment>> run() {
        VESTA_TRY(const std::string_view effort, effort_prefix());
        VESTA_TRY_STATUS(merge());
        sort_results();
        if (options_.repair) VESTA_TRY_STATUS(move_system_turns());
        drop_ = options_.mode == Mode::thinking && options_.drop_thinking && !any_tools_;
        if (drop_) forget_developers();
        last_user_ = find_last_user();

        const bool fresh = conversation_.context.empty();
        if (fresh && options_.add_bos) out_.control(kBos);
        if (fresh && !turns_.empty()) out_.text(effort);
        for (size_t i = 0; i < turns_.size(); ++i) {
            if (turns_[i].in_context) continue;
            VESTA_TRY_STATUS(write_turn(i));
            write_transition(i);
        }
        return out_.take();
    }

 private:
    Result<std::string_view> effort_prefix() const {
        if (options_.mode != Mode::thinking) return std::string_view();
        const bool revised = options_.dialect == Dialect::dsv4_0731;
        switch (options_.effort) {
            case Effort::unset:
                return std::string_view();
            case Effort::low:
                if (revised) return std::string_view();
                return Error{Code::invalid_argument, "effort low: dialect dsv4 knows high and max only"};
            case Effort::high:
                return revised ? kMaximumEffort : std::string_view();
            case Effort::max:
                return revised ? kBeyondMaximumEffort : kMaximumEffort;
        }
        return std::string_view();
    }

    // Consecutive user and tool messages become one user turn of several blocks.
    Status merge() {
        const bool has_head = !conversation_.tools.empty() || conversation_.response_format.has_value();
        bool head_pending = has_head;
        const bool head_in_context = !conversation_.context.empty();
        for (const auto* list : {&conversation_.context, &conversation_.messages})
            for (const Message& message : *list) {
                const bool in_context = list == &conversation_.context;
                if (head_pending) {
                    head_pending = false;
                    if (message.role == Role::system) {
                        VESTA_TRY_STATUS(add(make_head(&message), in_context));
                        continue;
                    }
                    VESTA_TRY_STATUS(add(make_head(nullptr), in_context));
                }
                VESTA_TRY_STATUS(add(message, in_context));
            }
        if (head_pending) VESTA_TRY_STATUS(add(make_head(nullptr), head_in_context));
        return {};
    }

    // The leading system message with what the request adds to it.
    const Message& make_head(const Message* leading) {
        if (leading != nullptr) head_ = *leading;
        head_.role = Role::system;
        head_.tools.insert(head_.tools.end(), conversation_.tools.begin(), conversation_.tools.end());
        if (!head_.response_format) head_.response_format = conversation_.response_format;
        return head_;
    }

    Status add(const Message& message, bool in_context) {
        any_tools_ = any_tools_ || !message.tools.empty();
        const bool is_tool = message.role == Role::tool;
        if (!is_tool && message.role != Role::user) {
            turns_.push_back({message.role, &message, in_context, {}});
            return {};
        }
        std::vector<Block> blocks;
        if (!is_tool && options_.dialect == Dialect::dsv4_0731 && !message.blocks.empty()) {
            for (const ContentPart& part : message.blocks) {
                if (part.type != "text" && part.type != "tool_result")
                    return Error{Code::unsupported,
                                 strf("user message: content block of type '{}' is not supported, expected "
                                      "text or tool_result",
                                      part.type)};
                blocks.push_back({part.type == "tool_result", part.tool_call_id, part.text});
            }
        } else {
            VESTA_TRY(std::string text, flat_content(message));
            blocks.push_back({is_tool, message.tool_call_id, std::move(text)});
        }
        // A result joins even a turn with a task; text does not, the task's marker ends that turn.
        const bool joins = !turns_.empty() && turns_.back().role == Role::user &&
                           (is_tool || turns_.back().message->task == Task::none);
        if (!joins) {
            turns_.push_back({Role::user, &message, in_context, std::move(blocks)});
            return {};
        }
        if (turns_.back().in_context != in_context)
            return Error{
                Code::invalid_argument,
                "context: it ends inside a user turn, whose closing marker is already in the cache; give the whole "
                "turn as new messages"};
        std::move(blocks.begin(), blocks.end(), std::back_inserter(turns_.back().blocks));
        return {};
    }

    // Results of one turn come in the order of the calls, whatever order they finished in. Unknown ids count as the
    // first call, and ties stay as they are: so does the official encoder.
    void sort_results() {
        std::unordered_map<std::string_view, size_t> place;
        for (Turn& turn : turns_) {
            if (turn.role == Role::assistant && !turn.message->tool_calls.empty()) {
                place.clear();
                const auto& calls = turn.message->tool_calls;
                for (size_t i = 0; i < calls.size(); ++i)
                    if (!calls[i].id.empty()) place[calls[i].id] = i;
            }
            if (turn.role != Role::user || place.empty()) continue;
            const auto place_of = [&](const Block& block) {
                const auto found = place.find(block.call_id);
                return found == place.end() ? size_t{0} : found->second;
            };
            std::vector<size_t> slots;
            std::vector<Block> results;
            for (size_t i = 0; i < turn.blocks.size(); ++i)
                if (turn.blocks[i].is_result) {
                    slots.push_back(i);
                    results.push_back(std::move(turn.blocks[i]));
                }
            std::stable_sort(results.begin(), results.end(),
                             [&](const Block& a, const Block& b) { return place_of(a) < place_of(b); });
            for (size_t i = 0; i < slots.size(); ++i) turn.blocks[slots[i]] = std::move(results[i]);
        }
    }

    static bool takes_answer(Role role) { return role == Role::user || role == Role::developer; }

    // A system message between a user turn and its answer would swallow the assistant marker; it goes before the turn.
    Status move_system_turns() {
        for (size_t i = 0; i < turns_.size(); ++i) {
            if (!takes_answer(turns_[i].role)) continue;
            size_t end = i + 1;
            while (end < turns_.size() && turns_[end].role == Role::system) ++end;
            if (end == i + 1) continue;
            const bool answered = end == turns_.size() || turns_[end].role == Role::assistant ||
                                  turns_[end].role == Role::latest_reminder;
            if (!answered) continue;
            if (turns_[i].in_context != turns_[end - 1].in_context)
                return Error{
                    Code::invalid_argument,
                    "system message: it follows a user turn that is already in the cache, and the model was never "
                    "shown a system message in that place; put it before the user message"};
            std::rotate(turns_.begin() + static_cast<std::ptrdiff_t>(i),
                        turns_.begin() + static_cast<std::ptrdiff_t>(i + 1),
                        turns_.begin() + static_cast<std::ptrdiff_t>(end));
            i = end - 1;
        }
        return {};
    }

    std::ptrdiff_t find_last_user() const {
        for (size_t i = turns_.size(); i-- > 0;)
            if (takes_answer(turns_[i].role)) return static_cast<std::ptrdiff_t>(i);
        return -1;
    }

    // Dropping old reasoning also drops developer turns before the last question (they belong to a search pipeline).
    void forget_developers() {
        const std::ptrdiff_t last = find_last_user();
        std::vector<Turn> kept;
        for (size_t i = 0; i < turns_.size(); ++i)
            if (static_cast<std::ptrdiff_t>(i) >= last || turns_[i].role != Role::developer)
                kept.push_back(std::move(turns_[i]));
        turns_ = std::move(kept);
    }

    // Whether the answer after (or at) turn i shows its reasoning.
    bool keeps_reasoning(size_t i) const { return !drop_ || static_cast<std::ptrdiff_t>(i) > last_user_; }

    Status write_turn(size_t i) {
        const Turn& turn = turns_[i];
        const Message& message = *turn.message;
        if (turn.role == Role::user) {
            out_.control(kUser);
            for (size_t b = 0; b < turn.blocks.size(); ++b) {
                if (b > 0) out_.text("\n\n");
                write_block(turn.blocks[b]);
            }
            return {};
        }
        VESTA_TRY(const std::string content, flat_content(message));
        switch (turn.role) {
            case Role::developer:
                if (content.empty()) return Error{Code::invalid_argument, "developer message: content is empty"};
                out_.control(kUser);
                [[fallthrough]];
            case Role::system:
                out_.text(content);
                VESTA_TRY_STATUS(write_tools(message.tools));
                return write_format(message.response_format);
            case Role::latest_reminder:
                out_.control(kReminder);
                out_.text(content);
                return {};
            default:
                break;
        }
        const bool after_task = i > 0 && turns_[i - 1].message->task != Task::none;
        if (options_.mode == Mode::thinking && keeps_reasoning(i) && !after_task) {
            out_.text(message.reasoning);
            out_.control(kEndThink);
        }
        out_.text(content);
        if (!message.tool_calls.empty()) VESTA_TRY_STATUS(write_calls(message.tool_calls));
        if (!message.wo_eos) out_.control(kEos);
        return {};
    }

    void write_block(const Block& block) {
        if (!block.is_result) return out_.text(block.text);
        out_.text("<tool_result>");
        out_.text(options_.escape_tool_result ? replace_all(block.text, "</tool_result>", "&lt;/tool_result>")
                                              : block.text);
        out_.text("</tool_result>");
    }

    void write_transition(size_t i) {
        if (i + 1 < turns_.size()) {
            const Role next = turns_[i + 1].role;
            if (next != Role::assistant && next != Role::latest_reminder) return;
        }
        const bool thinking = options_.mode == Mode::thinking;
        switch (turns_[i].message->task) {
            case Task::none:
                break;
            case Task::action:
                out_.control(kAssistant);
                out_.control(thinking ? kThink : kEndThink);
                return out_.control(kAction);
            case Task::query:
                return out_.control(kQuery);
            case Task::authority:
                return out_.control(kAuthority);
            case Task::domain:
                return out_.control(kDomain);
            case Task::title:
                return out_.control(kTitle);
            case Task::read_url:
                return out_.control(kReadUrl);
        }
        if (!takes_answer(turns_[i].role)) return;
        out_.control(kAssistant);
        const bool thinks = thinking && (!drop_ || static_cast<std::ptrdiff_t>(i) >= last_user_);
        out_.control(thinks ? kThink : kEndThink);
    }

    Status write_tools(const std::vector<std::string>& tools) {
        if (tools.empty()) return {};
        std::string schemas;
        for (size_t i = 0; i < tools.size(); ++i) {
            auto schema = scan_json(tools[i]);
            if (!schema.ok()) return Error{schema.error().code, strf("tool {}: {}", i, schema.error().message)};
            if (i > 0) schemas.push_back('\n');
            append_python_json(schemas, schema.value());
        }
        out_.text("\n\n");
        out_.own(kToolsHead);
        out_.text(schemas);
        out_.own(kToolsTail);
        return {};
    }

    Status write_format(const std::optional<std::string>& format) {
        if (!format) return {};
        auto schema = scan_json(*format);
        if (!schema.ok()) return Error{schema.error().code, strf("response_format: {}", schema.error().message)};
        out_.text("\n\n");
        out_.text(kFormatHead);
        out_.text(python_json(schema.value()));
        return {};
    }

    Status write_calls(const std::vector<ToolCall>& calls) {
        out_.own("\n\n<｜DSML｜tool_calls>\n");
        for (const ToolCall& call : calls) {
            out_.own("<｜DSML｜invoke name=\"");
            out_.text(call.name);
            out_.text("\">\n");
            VESTA_TRY_STATUS(write_arguments(call));
            out_.own("\n</｜DSML｜invoke>\n");
        }
        out_.own("</｜DSML｜tool_calls>");
        return {};
    }

    Status write_arguments(const ToolCall& call) {
        auto arguments = scan_json(call.arguments);
        const bool is_object = arguments.ok() && arguments.value().is_object();
        if (!is_object) {
            if (arguments.ok() && !options_.repair)
                return Error{Code::invalid_argument, strf("tool call {}: arguments are not an object", call.name)};
            write_parameter("arguments", true, call.arguments);
            return {};
        }
        bool first = true;
        for (const JsonMember& member : arguments.value().children) {
            if (!first) out_.text("\n");
            first = false;
            if (member.value.is_string())
                write_parameter(member.key, true, member.value.text());
            else
                write_parameter(member.key, false, python_json(member.value));
        }
        return {};
    }

    void write_parameter(std::string_view key, bool is_string, std::string_view value) {
        out_.own("<｜DSML｜parameter name=\"");
        out_.text(key);
        out_.text(is_string ? "\" string=\"true\">" : "\" string=\"false\">");
        if (options_.repair)
            out_.text(replace_all(value, kParameterEnd, is_string ? kParameterEndEscaped : kParameterEndInJson));
        else
            out_.text(value);
        out_.own(kParameterEnd);
    }

    const Conversation& conversation_;
    const RenderOptions& options_;
    Message head_;  // turns_ point to it
    std::vector<Turn> turns_;
    bool any_tools_ = false;
    bool drop_ = false;
    std::ptrdiff_t last_user_ = -1;
    Writer out_;
};

}  // namespace

Result<std::vector<Segment>> render(const Conversation& conversation, const RenderOptions& options) {
    return Renderer(conversation, options).run();
}

std::string join(const std::vector<Segment>& segments) {
    std::string out;
    for (const Segment& segment : segments) out += segment.text;
    return out;
}

bool opens_reasoning(const std::vector<Segment>& segments) {
    return !segments.empty() && segments.back().control && segments.back().text == kThink;
}

}  // namespace vesta::chat
