// The interactive chat: reads lines, runs commands, keeps the conversation.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chat_turn.h"
#include "conversations.h"
#include "line_editor.h"
#include "run_options.h"

namespace vesta::app {

class ChatLoop {
 public:
    // `conversant` has an open session, made with `session`. Everything is borrowed.
    ChatLoop(Engine& engine, Conversant& conversant, const RunOptions& options, const SessionOptions& session);

    int run();  // until /quit, Ctrl+D, or Ctrl+C twice; returns the exit code

 private:
    enum class Next { go_on, quit };
    Next command(const std::string& line);
    void send(std::string text);
    void help() const;
    void set_context(std::string_view argument);
    void read_file(std::string_view path);
    void show_stats() const;
    void save(std::string_view where);
    void load(std::string_view where);
    void switch_to(std::string_view name);
    void list() const;
    void start_over();
    Conversation current(std::string name);  // with the session's state, unless there is no memory for it
    void park();  // puts the current conversation aside, if there is one
    void go_on_with(Conversation conversation);
    void say(const std::string& text) const;  // a remark of the program, on stderr
    void complain(const std::string& text) const;

    Engine& engine_;
    Conversant& conversant_;
    const RunOptions& options_;
    SessionOptions session_;
    Thinking thinking_;
    bool fold_;
    Conversations conversations_;
    std::vector<chat::Message> messages_;
    std::string name_;      // of the current conversation; empty: none yet
    std::string own_file_;  // what /save or /load used last: may be overwritten by /save
    TurnStats last_, total_;
    int64_t n_turn_ = 0;
};

}  // namespace vesta::app
