// A launch as it crosses: what stands in front of its parameters is a Launch as programs have it.
//
// So it is copied at once, both ways: put together out of a copy on the stack it cost a tenth of the time of a launch
// that does nothing, as a CPU waits where it reads across two fresh stores. Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "datapath/command/codec.h"
#include "datapath/command/wire.h"
#include "fairlead/command.h"

namespace fairlead::datapath::command {

static_assert(offsetof(fairlead::command::Launch, function) == offsetof(LaunchBody, function) &&
              offsetof(fairlead::command::Launch, grid) == offsetof(LaunchBody, grid) &&
              offsetof(fairlead::command::Launch, block) == offsetof(LaunchBody, block) &&
              offsetof(fairlead::command::Launch, shared_bytes) == offsetof(LaunchBody, shared_bytes));

/// The fixed part of the launch's body; `at` has room for a LaunchBody.
inline void put_launch(std::byte* at, const fairlead::command::Launch& launch, std::uint32_t parameter_bytes) noexcept {
  std::memcpy(at, static_cast<const void*>(&launch), offsetof(LaunchBody, parameter_bytes));
  std::memcpy(at + offsetof(LaunchBody, parameter_bytes), &parameter_bytes, sizeof parameter_bytes);
}

/// Of a record that has a LaunchBody.
[[nodiscard]] inline std::uint32_t parameter_bytes_of(const Record& record) noexcept {
  std::uint32_t bytes = 0;
  std::memcpy(&bytes, record.body.data() + offsetof(LaunchBody, parameter_bytes), sizeof bytes);
  return bytes;
}

[[nodiscard]] inline bool is_well_formed_launch(const Record& record) noexcept {
  if (!record.is(Opcode::kLaunch) || record.body.size() < sizeof(LaunchBody)) return false;
  const std::uint32_t bytes = parameter_bytes_of(record);
  return bytes <= kMaxParameters && bytes <= record.body.size() - sizeof(LaunchBody);
}

// Of such a record.

[[nodiscard]] inline fairlead::command::Launch launch_of(const Record& record) noexcept {
  fairlead::command::Launch launch;
  std::memcpy(static_cast<void*>(&launch), record.body.data(), offsetof(LaunchBody, parameter_bytes));
  return launch;
}

[[nodiscard]] inline std::uint64_t function_of(const Record& record) noexcept {
  std::uint64_t function = 0;
  std::memcpy(&function, record.body.data() + offsetof(LaunchBody, function), sizeof function);
  return function;
}

[[nodiscard]] inline Bytes parameters_of(const Record& record) noexcept {
  return record.body.subspan(sizeof(LaunchBody), parameter_bytes_of(record));
}

}  // namespace fairlead::datapath::command
