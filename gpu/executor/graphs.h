// The graphs of a session by their handles: what each is made into, and which memory it uses.
//
// Memory may be released while a graph uses it: then the graph is of no use, and says why, until the commands that used
// it are updated. Owns them. Threads: one at a time.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "fairlead/command_service.h"
#include "gpu/executor/refuse.h"

namespace fairlead::gpu {

/// What went wrong with that command of a graph, from 1.
[[nodiscard]] inline command::Outcome in_graph(command::Outcome outcome, std::size_t number, command::Handle graph) {
  outcome.text = fmt::format("command {} of graph {}: {}", number, graph.bits, outcome.text);
  return outcome;
}

[[nodiscard]] inline command::Outcome no_launch(std::size_t number, command::Handle graph) {
  return refuse(command::kInvalidValue, fmt::format("command {} of graph {} is no launch: only such are given other "
                                                    "parameters",
                                                    number, graph.bits));
}

/// Allocations that the commands of a graph use, which are counted from 1.
class GraphUses {
 public:
  using Allocations = std::vector<std::uint64_t>;  // by handle, each once

  void add(command::Handle allocation, std::size_t number) {
    if (of_.size() < number) of_.resize(number);
    Allocations& own = of_[number - 1];
    if (std::ranges::find(own, allocation.bits) != own.end()) return;
    own.push_back(allocation.bits);
    ++users_[allocation.bits];
  }
  /// That command uses nothing any more. What no other uses either.
  Allocations clear(std::size_t number) {
    Allocations unused;
    if (of_.size() < number) return unused;
    for (const std::uint64_t allocation : std::exchange(of_[number - 1], {})) {
      if (--users_.at(allocation) != 0) continue;
      users_.erase(allocation);
      unused.push_back(allocation);
    }
    return unused;
  }
  /// Nothing uses it any more; those that did.
  std::vector<std::size_t> remove(std::uint64_t allocation) {
    std::vector<std::size_t> numbers;
    for (std::size_t i = 0; i < of_.size(); ++i) {
      if (std::erase(of_[i], allocation) != 0) numbers.push_back(i + 1);
    }
    users_.erase(allocation);
    return numbers;
  }
  /// By allocation: how many commands use it.
  [[nodiscard]] const std::unordered_map<std::uint64_t, std::size_t>& all() const noexcept { return users_; }
  [[nodiscard]] const Allocations& of(std::size_t number) const noexcept { return of_[number - 1]; }

 private:
  std::vector<Allocations> of_;
  std::unordered_map<std::uint64_t, std::size_t> users_;
};

template <typename Body>
class Graphs {
 public:
  [[nodiscard]] command::Outcome check_new(command::Handle graph) const {
    if (graph.bits != 0 && !graphs_.contains(graph.bits)) return {};
    return refuse(command::kInvalidValue, fmt::format("handle {} names a graph already, or nothing", graph.bits));
  }
  void add(command::Handle graph, Body body, GraphUses uses) {
    for (const auto& [allocation, count] : uses.all()) users_[allocation].insert(graph.bits);
    graphs_.emplace(graph.bits, Entry{std::move(body), std::move(uses), {}});
  }
  /// Null: it cannot be launched, and in `why` the reason.
  [[nodiscard]] Body* find(command::Handle graph, command::Outcome& why) {
    const auto found = graphs_.find(graph.bits);
    if (found == graphs_.end()) {
      why = unknown(graph);
    } else if (found->second.without.empty()) {
      return &found->second.body;
    } else {
      const auto& [number, allocation] = *found->second.without.begin();
      why = refuse(command::kInvalidHandle,
                   fmt::format("command {} of graph {} uses allocation {}, which was released since; upload the graph "
                               "anew, or give its launch other parameters",
                               number, graph.bits, allocation));
    }
    return nullptr;
  }
  /// The same of one that is to be updated: it need not be one that can be launched.
  [[nodiscard]] Body* find_to_update(command::Handle graph, command::Outcome& why) {
    const auto found = graphs_.find(graph.bits);
    if (found != graphs_.end()) return &found->second.body;
    why = unknown(graph);
    return nullptr;
  }
  /// That command of it uses what `uses` says it does, and nothing else.
  void update(command::Handle graph, std::size_t number, const GraphUses& uses) {
    Entry& entry = graphs_.at(graph.bits);
    for (const std::uint64_t unused : entry.uses.clear(number)) forget(unused, graph.bits);
    entry.without.erase(number);
    if (uses.all().empty()) return;
    for (const std::uint64_t allocation : uses.of(number)) {
      entry.uses.add({allocation}, number);
      users_[allocation].insert(graph.bits);
    }
  }
  command::Outcome release(command::Handle graph) {
    const auto found = graphs_.find(graph.bits);
    if (found == graphs_.end()) return unknown(graph);
    for (const auto& [allocation, count] : found->second.uses.all()) forget(allocation, graph.bits);
    graphs_.erase(found);
    return {};
  }
  /// That memory is not there any more.
  void released(command::Handle allocation) {
    const auto users = users_.extract(allocation.bits);
    if (users.empty()) return;
    for (const std::uint64_t handle : users.mapped()) {
      Entry& entry = graphs_.at(handle);
      for (const std::size_t number : entry.uses.remove(allocation.bits)) {
        entry.without.try_emplace(number, allocation.bits);
      }
    }
  }

 private:
  struct Entry {
    Body body;
    GraphUses uses;
    std::map<std::size_t, std::uint64_t> without;  // commands whose memory is gone, and which: it cannot be launched
  };
  void forget(std::uint64_t allocation, std::uint64_t graph) {
    const auto users = users_.find(allocation);
    if (users == users_.end()) return;
    users->second.erase(graph);
    if (users->second.empty()) users_.erase(users);
  }
  static command::Outcome unknown(command::Handle graph) {
    return refuse(command::kInvalidHandle, fmt::format("handle {} names no graph (any more)", graph.bits));
  }

  std::unordered_map<std::uint64_t, Entry> graphs_;
  std::unordered_map<std::uint64_t, std::unordered_set<std::uint64_t>> users_;  // of allocations: graphs
};

}  // namespace fairlead::gpu
