// A copy from another device of the session that is under way: what that gives, until it is given on. A value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fairlead/command_service.h"

namespace fairlead::datapath::command {

class CopyAcross {
 public:
  std::vector<std::byte> bytes;          // are written until the other device is past it
  bool begun = false, is_here = false;   // it was handed over there; all is, or nothing will come,
  fairlead::command::Outcome outcome{};  // for this reason

  /// That of this command of the channel; what was of another is no more.
  [[nodiscard]] CopyAcross& of(std::uint64_t sequence) {
    if (sequence_ != sequence) *this = CopyAcross();
    sequence_ = sequence;
    return *this;
  }
  /// Whether that command waits for the other device.
  [[nodiscard]] bool waits(std::uint64_t sequence) const noexcept { return sequence_ == sequence && !is_here; }

 private:
  std::uint64_t sequence_ = 0;  // 0: of none yet
};

}  // namespace fairlead::datapath::command
