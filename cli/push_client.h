// A client of the server of models: what it does, and what it has been told. Threads: as PushServer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "bench/base/cpu_time.h"
#include "cli/push_server.h"
#include "cli/server/push.h"

namespace fairlead::cli {

struct PushServer::Client {
  static constexpr std::uint64_t kMaxUnread = std::uint64_t{1} << 20;  // bytes of answers that it may leave unread

  Peer peer;
  std::string who;
  struct Pull {
    std::string model;
    std::uint64_t bytes = 0;
    bench::CpuStopwatch watch;
  };
  std::unique_ptr<Push> push;
  std::optional<Pull> pull;
  std::uint64_t arrived = 0;       // bytes of its push
  std::uint64_t arrived_ever = 0;  // and of all before it
  bool path_shown = false;
  std::size_t refusals = 0;
  std::uint64_t files_to_skip = 0, tensors_to_skip = 0;   // of a push that was refused while it was described
  std::deque<std::pair<Transfer, std::uint64_t>> unread;  // answers on their way, with their bytes
  std::uint64_t unread_bytes = 0;
  std::optional<Transfer> notice;  // that the server is draining, on its way
  bool dismissed = false;          // it was told to go, and is not heard any more
  bool came_late = false;          // when it was: it was refused as it came

  [[nodiscard]] bool reads_nothing() {
    for (; !unread.empty() && unread.front().first.done(); unread.pop_front()) unread_bytes -= unread.front().second;
    return unread_bytes > kMaxUnread;
  }
};

}  // namespace fairlead::cli
