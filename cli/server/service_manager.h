// The service manager that started this server, systemd say: it is told when the server is ready, reloads, ends, and
// that it is alive. The protocol is that of sd_notify(3): a datagram of lines NAME=VALUE to the Unix socket that
// NOTIFY_SOCKET names ('@' for an abstract one); WATCHDOG_USEC says how often it wants to hear WATCHDOG=1, and
// WATCHDOG_PID from whom. Without NOTIFY_SOCKET all of it does nothing.
//
// Threads: one. Errors: a manager that does not take a datagram is not waited for.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "base/unique_fd.h"

namespace fairlead::cli {

class ServiceManager {
 public:
  /// Takes the variables out of the environment, so that processes of the server's do not speak for it. Before there
  /// are other threads.
  [[nodiscard]] static ServiceManager from_environment();

  [[nodiscard]] bool is_there() const noexcept { return static_cast<bool>(socket_); }
  /// What `systemctl status` shows.
  void say(std::string_view what);
  /// Still beginning: it may take so much longer.
  void starting(std::string_view what, std::chrono::seconds longer);
  void ready(std::string_view what);
  /// Reads its files again; ready() when that is done.
  void reloading();
  /// It ends, in so much time at most.
  void stopping(std::string_view what, std::chrono::seconds most);
  /// The server's thread goes its rounds: tells the watchdog when that is due.
  void alive();
  /// Until alive() is due again; -1: never.
  [[nodiscard]] int poll_ms() const;

 private:
  void send(const std::string& lines) const;

  UniqueFd socket_;
  std::string address_;                              // of sun_path; begins with 0 where it is abstract
  std::optional<std::chrono::microseconds> rounds_;  // half of what the watchdog allows
  std::chrono::steady_clock::time_point due_{};
};

}  // namespace fairlead::cli
