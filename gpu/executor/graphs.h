// The graphs of a session by their handles: what each is made into, and which memory it uses.
//
// Memory may be released while a graph uses it: then the graph is of no use any more, and says why. Owns them. Threads:
// one at a time.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "fairlead/command_service.h"
#include "gpu/executor/refuse.h"

namespace fairlead::gpu {

/// What went wrong with that command of a graph, from 1.
[[nodiscard]] inline command::Outcome in_graph(command::Outcome outcome, std::size_t number, command::Handle graph) {
  outcome.text = fmt::format("command {} of graph {}: {}", number, graph.bits, outcome.text);
  return outcome;
}

/// Allocations that a graph uses: the first command that does, from 1.
class GraphUses {
 public:
  void add(command::Handle allocation, std::size_t number) { first_.try_emplace(allocation.bits, number); }
  /// By allocation.
  [[nodiscard]] const std::unordered_map<std::uint64_t, std::size_t>& all() const noexcept { return first_; }

 private:
  std::unordered_map<std::uint64_t, std::size_t> first_;
};

template <typename Body>
class Graphs {
 public:
  [[nodiscard]] command::Outcome check_new(command::Handle graph) const {
    if (graph.bits != 0 && !graphs_.contains(graph.bits)) return {};
    return refuse(command::kInvalidValue, fmt::format("handle {} names a graph already, or nothing", graph.bits));
  }
  void add(command::Handle graph, Body body, GraphUses uses) {
    for (const auto& [allocation, number] : uses.all()) users_[allocation].insert(graph.bits);
    graphs_.emplace(graph.bits, Entry{std::move(body), std::move(uses), {}});
  }
  /// Null: it cannot be launched, and in `why` the reason.
  [[nodiscard]] Body* find(command::Handle graph, command::Outcome& why) {
    const auto found = graphs_.find(graph.bits);
    if (found == graphs_.end()) {
      why = unknown(graph);
    } else if (found->second.ended.empty()) {
      return &found->second.body;
    } else {
      why = refuse(command::kInvalidHandle, found->second.ended);
    }
    return nullptr;
  }
  command::Outcome release(command::Handle graph) {
    const auto found = graphs_.find(graph.bits);
    if (found == graphs_.end()) return unknown(graph);
    for (const auto& [allocation, number] : found->second.uses.all()) {
      const auto users = users_.find(allocation);
      if (users == users_.end()) continue;
      users->second.erase(graph.bits);
      if (users->second.empty()) users_.erase(users);
    }
    graphs_.erase(found);
    return {};
  }
  /// That memory is not there any more.
  void released(command::Handle allocation) {
    const auto users = users_.extract(allocation.bits);
    if (users.empty()) return;
    for (const std::uint64_t handle : users.mapped()) {
      Entry& entry = graphs_.at(handle);
      if (!entry.ended.empty()) continue;
      entry.ended = fmt::format(
          "command {} of graph {} uses allocation {}, which was released since it was uploaded; "
          "upload it anew",
          entry.uses.all().at(allocation.bits), handle, allocation.bits);
    }
  }

 private:
  struct Entry {
    Body body;
    GraphUses uses;
    std::string ended;  // not empty: it cannot be launched any more
  };
  static command::Outcome unknown(command::Handle graph) {
    return refuse(command::kInvalidHandle, fmt::format("handle {} names no graph (any more)", graph.bits));
  }

  std::unordered_map<std::uint64_t, Entry> graphs_;
  std::unordered_map<std::uint64_t, std::unordered_set<std::uint64_t>> users_;  // of allocations: graphs
};

}  // namespace fairlead::gpu
