#include "store/prefix_store.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <list>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace vesta::store {
namespace {

struct Node;

// A stored snapshot, in the list of all of them.
struct Item {
    Snapshot snapshot;
    Node* node = nullptr;
    double hits = 0, last_used = 0;
    uint64_t order = 0;  // of the last use; times may be equal
    int n_hold = 0;
    int64_t n_byte = 0;
};
using Items = std::list<Item>;

struct Node {
    Node* parent = nullptr;     // null: the root
    std::vector<int32_t> edge;  // tokens from the parent to here; empty only for the root
    std::unordered_map<int32_t, std::unique_ptr<Node>> children;  // by the first token of their edge
    std::optional<Items::iterator> item;
    size_t n_item = 0;  // here and below
};

size_t common(std::span<const int32_t> a, std::span<const int32_t> b) {
    return static_cast<size_t>(
        std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(std::min(a.size(), b.size())), b.begin()).first -
        a.begin());
}

double steady_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

class PrefixStore::Tree {
 public:
    explicit Tree(PrefixOptions options) : options_(std::move(options)) {}
    // Children are taken apart one by one: a conversation saved at every token is a chain that recursion would not
    // survive.
    ~Tree() {
        std::vector<std::unique_ptr<Node>> left;
        const auto take = [&](Node& n) {
            for (auto& [first, child] : n.children) left.push_back(std::move(child));
            n.children.clear();
        };
        for (take(root_); !left.empty();) {
            const std::unique_ptr<Node> node = std::move(left.back());
            left.pop_back();
            take(*node);
        }
    }

    struct Found {
        Items::iterator item;  // held
        Snapshot snapshot;
    };
    std::optional<Found> find(std::span<const int32_t> prompt, int64_t max_tokens, int64_t min_tokens) {
        const std::lock_guard guard(mutex_);
        std::optional<Items::iterator> best;
        const Node* node = &root_;
        for (size_t at = 0; at < prompt.size();) {
            const auto child = node->children.find(prompt[at]);
            if (child == node->children.end()) break;
            node = child->second.get();
            if (common(node->edge, prompt.subspan(at)) < node->edge.size()) break;
            at += node->edge.size();
            if (static_cast<int64_t>(at) > max_tokens) break;
            if (node->item && static_cast<int64_t>(at) > min_tokens) best = node->item;
        }
        if (!best) return std::nullopt;
        Item& item = **best;
        // What was counted before fades up to now, so that the sum stays what the formula says of the latest use.
        const double time = now();
        item.hits = item.hits * fading(item, time) + 1;
        touch(item, time);
        ++item.n_hold;
        return Found{*best, item.snapshot};
    }

    void release(Items::iterator item) {
        const std::lock_guard guard(mutex_);
        --item->n_hold;
    }

    Inserted insert(const Snapshot& snapshot) {
        const std::lock_guard guard(mutex_);
        const std::span<const int32_t> tokens = snapshot.tokens();
        const int64_t n_byte = snapshot.n_byte() + static_cast<int64_t>(tokens.size_bytes());
        if (tokens.empty() || n_byte > options_.budget_bytes) return Inserted::no_room;

        const std::vector<Node*> path = walk(tokens);
        Node* const last = path.empty() ? nullptr : path.back();
        const bool there = last != nullptr && last->item && depth(path) == tokens.size();
        const int64_t replaced = there ? (*last->item)->n_byte : 0;
        if (!make_room(used_bytes_ - replaced + n_byte - options_.budget_bytes, path, there ? &**last->item : nullptr))
            return Inserted::no_room;
        const double time = now();
        if (there) {
            Item& item = **last->item;
            used_bytes_ += n_byte - item.n_byte;
            item.snapshot = snapshot;  // who holds the old one has a copy
            item.n_byte = n_byte;
            touch(item, time);
            return Inserted::replaced;
        }
        Node* const node = place(tokens);
        items_.push_back({.snapshot = snapshot, .node = node, .last_used = time, .n_byte = n_byte});
        node->item = std::prev(items_.end());
        for (Node* n = node; n != nullptr; n = n->parent) ++n->n_item;
        used_bytes_ += n_byte;
        touch(items_.back(), time);
        return Inserted::stored;
    }

    void clear() {
        const std::lock_guard guard(mutex_);
        for (auto item = items_.begin(); item != items_.end();) {
            const auto next = std::next(item);
            if (item->n_hold == 0) remove(item);
            item = next;
        }
    }

    int64_t used_bytes() const {
        const std::lock_guard guard(mutex_);
        return used_bytes_;
    }
    size_t n_snapshot() const {
        const std::lock_guard guard(mutex_);
        return items_.size();
    }

 private:
    double now() const { return options_.clock ? options_.clock() : steady_seconds(); }
    double fading(const Item& item, double time) const {
        return std::exp2(-std::max(0.0, time - item.last_used) / options_.half_life_seconds);
    }
    void touch(Item& item, double time) {
        item.last_used = time;
        item.order = ++n_use_;
    }
    static size_t depth(const std::vector<Node*>& path) {
        size_t n = 0;
        for (const Node* node : path) n += node->edge.size();
        return n;
    }

    // The nodes whose whole edges begin `tokens`, from the top; without the root.
    std::vector<Node*> walk(std::span<const int32_t> tokens) {
        std::vector<Node*> path;
        Node* node = &root_;
        for (size_t at = 0; at < tokens.size();) {
            const auto child = node->children.find(tokens[at]);
            if (child == node->children.end()) break;
            node = child->second.get();
            if (common(node->edge, tokens.subspan(at)) < node->edge.size()) break;
            at += node->edge.size();
            path.push_back(node);
        }
        return path;
    }

    // The node where `tokens` end; made where there is none, and an edge that goes on elsewhere is split.
    Node* place(std::span<const int32_t> tokens) {
        Node* node = &root_;
        for (size_t at = 0; at < tokens.size();) {
            std::unique_ptr<Node>& slot = node->children[tokens[at]];
            const std::span<const int32_t> rest = tokens.subspan(at);
            if (slot == nullptr) {
                slot = std::make_unique<Node>();
                slot->parent = node;
                slot->edge.assign(rest.begin(), rest.end());
            } else if (const size_t n = common(slot->edge, rest); n < slot->edge.size()) {
                auto upper = std::make_unique<Node>();
                upper->parent = node;
                upper->edge.assign(slot->edge.begin(), slot->edge.begin() + static_cast<ptrdiff_t>(n));
                upper->n_item = slot->n_item;
                slot->edge.erase(slot->edge.begin(), slot->edge.begin() + static_cast<ptrdiff_t>(n));
                slot->parent = upper.get();
                const int32_t first = slot->edge[0];
                upper->children[first] = std::move(slot);
                slot = std::move(upper);
            }
            node = slot.get();
            at += node->edge.size();
        }
        return node;
    }

    // Room for `need` more bytes (nothing when that is not positive). `path`: nodes that begin the newcomer;
    // `replaced`: the item whose place it takes. False: not possible, and nothing was removed.
    bool make_room(int64_t need, const std::vector<Node*>& path, const Item* replaced) {
        if (need <= 0) return true;
        struct Ranked {
            Items::iterator item;
            double value;
        };
        const double time = now();
        std::vector<Ranked> order;
        for (auto item = items_.begin(); item != items_.end(); ++item) {
            if (item->n_hold > 0 || &*item == replaced) continue;
            const bool continued =
                item->node->n_item > 1 || std::find(path.begin(), path.end(), item->node) != path.end();
            const double value = ((continued ? 0 : 1) + item->hits) * fading(*item, time);
            // The newcomer's own is 1: one use, now. Its hits if it had a place already.
            if (value <= 1 + (replaced != nullptr ? replaced->hits : 0)) order.push_back({item, value});
        }
        std::sort(order.begin(), order.end(), [](const Ranked& a, const Ranked& b) {
            return a.value != b.value ? a.value < b.value : a.item->order < b.item->order;
        });
        size_t n = 0;
        int64_t freed = 0;
        for (; n < order.size() && freed < need; ++n) freed += order[n].item->n_byte;
        if (freed < need) return false;
        for (size_t i = n; i-- > 0;) {  // the best first: stays if the others are enough
            if (freed - order[i].item->n_byte >= need)
                freed -= order[i].item->n_byte;
            else
                remove(order[i].item);
        }
        return true;
    }

    void remove(Items::iterator item) {
        Node* node = item->node;
        used_bytes_ -= item->n_byte;
        node->item.reset();
        items_.erase(item);
        for (Node* n = node; n != nullptr; n = n->parent) --n->n_item;
        // A node without a snapshot is there only where two conversations part.
        while (node != &root_ && !node->item && node->children.size() <= 1) {
            Node* const parent = node->parent;
            const auto slot = parent->children.find(node->edge[0]);
            if (node->children.empty()) {
                parent->children.erase(slot);
                node = parent;
                continue;
            }
            std::unique_ptr<Node> child = std::move(node->children.begin()->second);
            child->edge.insert(child->edge.begin(), node->edge.begin(), node->edge.end());
            child->parent = parent;
            slot->second = std::move(child);
            break;
        }
    }

    const PrefixOptions options_;
    mutable std::mutex mutex_;  // guards everything below
    Node root_;
    Items items_;
    int64_t used_bytes_ = 0;
    uint64_t n_use_ = 0;
};

struct PrefixStore::Hit::Hold {
    std::shared_ptr<Tree> tree;
    Items::iterator item;
    Snapshot snapshot;  // as it was when it was found
    Hold(std::shared_ptr<Tree> t, Items::iterator i, Snapshot s)
        : tree(std::move(t)), item(i), snapshot(std::move(s)) {}
    ~Hold() { tree->release(item); }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
};

const Snapshot& PrefixStore::Hit::snapshot() const { return hold_->snapshot; }

PrefixStore::PrefixStore(PrefixOptions options) : tree_(std::make_shared<Tree>(std::move(options))) {}
PrefixStore::~PrefixStore() { tree_->clear(); }

std::optional<PrefixStore::Hit> PrefixStore::find(std::span<const int32_t> prompt, int64_t max_tokens,
                                                  int64_t min_tokens) {
    auto found = tree_->find(prompt, max_tokens, min_tokens);
    if (!found) return std::nullopt;
    return Hit(std::make_shared<const Hit::Hold>(tree_, found->item, std::move(found->snapshot)));
}

Inserted PrefixStore::insert(const Snapshot& snapshot) { return tree_->insert(snapshot); }
void PrefixStore::clear() { tree_->clear(); }
int64_t PrefixStore::used_bytes() const { return tree_->used_bytes(); }
size_t PrefixStore::n_snapshot() const { return tree_->n_snapshot(); }

}  // namespace vesta::store
