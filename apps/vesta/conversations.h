// The conversations of a chat: the ones open beside the current one, with their session's state in memory, and the ones
// saved under a name. Switching to either computes nothing.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/message.h"
#include "vesta/engine.h"

namespace vesta::app {

struct Conversation {
    std::string name;                    // empty: not named yet
    std::vector<chat::Message> messages;
    std::optional<Snapshot> state;       // what the session held of it; none: it is computed with the next message
};

class Conversations {
 public:
    // `folder` empty: nothing can be saved by name (no home folder). The engine is borrowed.
    Conversations(const Engine& engine, std::string folder) : engine_(engine), folder_(std::move(folder)) {}

    // Letters, digits, '.', '_', '-', up to 64, beginning with a letter or digit: a file name everywhere.
    static bool valid_name(std::string_view name);
    // $XDG_DATA_HOME/vesta/conversations, else under ~/.local/share; empty when neither is an absolute path.
    static std::string default_folder();

    // Keeps a conversation aside. One without a name gets "unnamed-N"; returns the name.
    std::string park(Conversation conversation);
    bool is_parked(const std::string& name) const { return parked_.contains(name); }
    Conversation take(const std::string& name);  // requires is_parked(name)

    // NAME.json has the messages, NAME.vkv the session's state. `own`: this chat already goes by that name, so its files
    // are replaced; otherwise an existing one is refused. Errors name the file. A state that cannot be written leaves
    // the messages saved and is reported.
    Status save(const Conversation& conversation, bool own);
    bool is_saved(const std::string& name) const;
    // A state file that is damaged or of another model is no error: `remark` says why there is no state.
    Result<Conversation> load(const std::string& name, std::string& remark) const;

    struct Entry {
        std::string name;
        bool open = false, saved = false;
        int64_t n_message = 0, n_token = 0, n_byte = 0;  // of the open one; of a saved one, what its file says
        int64_t changed = 0;                             // seconds since 1970, of a saved one
    };
    std::vector<Entry> list() const;  // by name

 private:
    std::string path(const std::string& name, const char* extension) const { return folder_ + "/" + name + extension; }

    const Engine& engine_;
    std::string folder_;
    std::map<std::string, Conversation> parked_;
};

}  // namespace vesta::app
