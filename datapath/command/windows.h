// Memory of the service's that clients write payload into, and read from, one window a session
// (client/client_window.h).
//
// Threads: any.
#pragma once

#include <string>

#include "fairlead/memory.h"
#include "fairlead/status.h"

namespace fairlead::datapath::command {

struct Window {
  Memory memory;
  std::string capability;     // by which its client, and nobody else, finds it
  bool is_for_reads = false;  // alone: what it copies in comes faster by messages
};

/// Where windows come from: the service's engine.
class Windows {
 public:
  /// For a session of that principal; `shared`: with another process. Errors: there is none to be had.
  virtual Result<Window> open(const std::string& principal, bool shared) = 0;
  /// When it returns, no client reaches it any more.
  virtual void close(const Window& window) noexcept = 0;

 protected:
  ~Windows() = default;
};

}  // namespace fairlead::datapath::command
