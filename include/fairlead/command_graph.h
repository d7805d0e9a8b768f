// A list of commands that crosses once, and runs as often as wanted by one record of 16 bytes.
//
//   fairlead::command::Graph graph;
//   (void)graph.launch({.function = scale}, pack(0.5f, Pointer{x}, Pointer{y}, count));
//   (void)graph.copy_within(x, 0, y, 0, bytes);
//   (void)channel->upload(step, graph);
//   for (int i = 0; i < 1000; ++i) (void)channel->launch_graph(step);
//
// docs/commands.md says what becomes of graphs, and what they do not take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fairlead/command.h"
#include "fairlead/export.h"
#include "fairlead/status.h"

namespace fairlead::inline v0::command {

/// A value. Each member that adds a command gives its number, from 1, by which failures name it. What they refer to is
/// looked up when the graph is uploaded: functions as their handles name them then, memory as it is allocated then.
/// Errors: kInvalidArgument, what can be seen here to be wrong; then nothing was added. Threads: one at a time.
class FAIRLEAD_EXPORT Graph {
 public:
  Result<std::uint32_t> launch(const Launch& launch, std::span<const std::byte> parameters);
  Result<std::uint32_t> fill(Handle to, std::uint64_t offset, std::uint64_t bytes, std::uint8_t value);
  /// The two do not overlap, other than Channel::copy_within().
  Result<std::uint32_t> copy_within(Handle to, std::uint64_t to_offset, Handle from, std::uint64_t from_offset,
                                    std::uint64_t bytes);

  /// How many commands, and how many bytes they take.
  [[nodiscard]] std::uint32_t records() const noexcept { return records_; }
  [[nodiscard]] std::size_t size() const noexcept { return bytes_.size(); }
  /// As they cross (docs/commands.md).
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
  std::uint32_t records_ = 0;
};

}  // namespace fairlead::inline v0::command
