// Which CPUs lanes of engines are pinned to, this process's and others', so that no two take the same one while another
// is free.
//
// A claim is a lock on the CPU's byte of one file in shared memory, which all engines of a machine open (those of one
// container, where it has its own /dev/shm). It ends with its owner, however that ends. It is advice among engines:
// what else runs there is not known, and who cannot open the file claims nothing and sees no claims.
//
// Threads: one. Owner: an engine.
#pragma once

#include <string>

#include "base/private_fd.h"

namespace fairlead::datapath {

class CoreClaims {
 public:
  explicit CoreClaims(const std::string& file = "/dev/shm/fairlead-cores");

  /// Another has claimed it.
  [[nodiscard]] bool is_taken(unsigned cpu) const noexcept;
  /// False: another was first.
  bool claim(unsigned cpu) noexcept;
  /// Gives all back.
  void release() noexcept { file_.reset(); }

 private:
  PrivateFd file_;
};

}  // namespace fairlead::datapath
