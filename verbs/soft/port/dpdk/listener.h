// The sockets at which memif's server ports are found, and their end.
//
// memif's driver frees what it knows of a socket with the last port that uses it, but neither closes the socket nor
// takes it from DPDK's interrupt thread. The next one to connect (a client that tries again) then wakes that thread
// into memory that is free: for ever, since nobody accepts; or, where another socket got that memory, into an accept()
// that nobody ends. So the socket is closed here, and its number kept by something that never wakes anybody.
#pragma once

#include <string>

namespace fairlead::dpdk {

/// One port's use of a socket: "@NAME" in the abstract namespace, else a path; empty: none.
/// Threads: as ControlGate::alone().
class Listener {
 public:
  explicit Listener(std::string name);
  ~Listener() { close(); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  /// The port has been removed: the socket goes with the last of them.
  void close() noexcept;
  /// It is the parent's.
  void forget() noexcept { name_.clear(); }

 private:
  std::string name_;
};

}  // namespace fairlead::dpdk
