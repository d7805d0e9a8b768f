#include "verbs/soft/port/ungreeted.h"

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

namespace fairlead::soft {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::minutes kLongestKept{1};
constexpr std::size_t kMostKept = 16;

struct Kept {
  PrivateFd connection;
  Clock::time_point since;
};

// Never destroyed: ports may be statics.
struct All {
  std::mutex mutex;
  std::vector<Kept> kept;
};
All& all() {
  static auto& connections = *new All;
  return connections;
}

}  // namespace

bool is_silent(int connection) noexcept {
  pollfd of{connection, POLLIN | POLLRDHUP, 0};
  return ::poll(&of, 1, 0) == 0;
}

void keep_ungreeted(PrivateFd connection) noexcept {
  const std::lock_guard lock(all().mutex);
  const Clock::time_point now = Clock::now();
  std::erase_if(all().kept, [now](const Kept& each) {
    return !is_silent(each.connection.get()) || now - each.since > kLongestKept;
  });
  if (!connection) return;
  if (all().kept.size() == kMostKept) all().kept.erase(all().kept.begin());
  all().kept.push_back({std::move(connection), now});
}

}  // namespace fairlead::soft
