// What no file tells, and only a system call answers. Empty functions: it cannot be asked, as of another machine.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace fairlead::doctor {

struct Probes {
  /// 0 where this process gets a userfaultfd of its own faults with write-protection; else the errno.
  std::function<int()> userfaultfd;
  /// Priorities of an interface that pause by PFC, a bit each; nullopt where its driver does not say.
  std::function<std::optional<std::uint8_t>(const std::string& interface)> pfc;
};

/// Those that ask this machine's kernel: userfaultfd(2), DCB over rtnetlink (linux/dcbnl.h).
[[nodiscard]] Probes probes_of_this_machine();

}  // namespace fairlead::doctor
