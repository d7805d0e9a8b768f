#include "verbs/soft/port/dpdk/control_gate.h"

#include <poll.h>
#include <rte_interrupts.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace fairlead::dpdk {
namespace {

constexpr int kMostHoldMs = 1000;
constexpr int kBlindHoldMs = 20;  // where it cannot be seen what the thread waits for
constexpr unsigned kMostPasses = 1000;
constexpr unsigned kPassesToRest = 2;  // the second comes when whatever was fetched with the first is dealt with
constexpr std::chrono::seconds kMostRestWait{5};

// What an epoll descriptor watches, as the kernel tells: lines "tfd: NUMBER events: ...".
std::vector<int> watched_by(int epoll) {
  std::vector<int> watched;
  std::ifstream info("/proc/self/fdinfo/" + std::to_string(epoll));
  for (std::string line; std::getline(info, line);) {
    int fd = -1;
    if (std::sscanf(line.c_str(), "tfd: %d", &fd) == 1) watched.push_back(fd);
  }
  return watched;
}

bool contains(const std::vector<int>& all, int one) { return std::find(all.begin(), all.end(), one) != all.end(); }

// What the epoll descriptor watches that watches `bell`; it is replaced whenever what it watches changes.
std::vector<int> watched_beside(int bell, int& epoll) {
  std::vector<int> watched = watched_by(epoll);
  if (contains(watched, bell)) return watched;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
    if (std::filesystem::read_symlink(entry.path(), ignored) != "anon_inode:[eventpoll]") continue;
    epoll = std::atoi(entry.path().filename().c_str());
    watched = watched_by(epoll);
    if (contains(watched, bell)) return watched;
  }
  return {};
}

void ring(int event) {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t put = ::write(event, &one, sizeof(one));
}

void silence(int event) {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(event, &count, sizeof(count));
}

// What the interrupt thread waits for besides the bell.
std::vector<pollfd> others_beside(int bell, int& epoll) {
  std::vector<pollfd> fds;
  for (const int fd : watched_beside(bell, epoll)) {
    if (fd != bell) fds.push_back({fd, POLLIN | POLLPRI | POLLRDHUP, 0});
  }
  return fds;
}

}  // namespace

struct ControlGate::State {
  std::mutex mutex;
  std::vector<Queue*> queues;
  bool interrupt_thread_runs = true;  // outside of our callback
  int bell = -1;                      // readable while there are queues, so that the callback is called again and again
  int epoll = -1;                     // of the interrupt thread, when it was last seen
  int let_go = -1;                    // readable when the last queue has gone, so that nobody is held any more
  unsigned passes = 0;                // of the callback in a row that held nobody
  unsigned rest_passes = 0;           // of the callback since the last queue has gone
};

ControlGate& ControlGate::instance() {
  static ControlGate& gate = *new ControlGate;  // DPDK's thread outlives statics
  return gate;
}

ControlGate::ControlGate() : state_(*new State) {
  state_.bell = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  state_.let_go = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  rte_intr_handle* handle = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
  const bool registered =
      state_.bell >= 0 && state_.let_go >= 0 && handle != nullptr && rte_intr_fd_set(handle, state_.bell) == 0 &&
      rte_intr_type_set(handle, RTE_INTR_HANDLE_EXT) == 0 && rte_intr_callback_register(handle, &hold, this) == 0;
  rte_intr_instance_free(handle);  // DPDK has made a copy
  if (!registered) throw std::runtime_error("DPDK's interrupt thread takes no callback, which memif needs");
}

void ControlGate::shut() noexcept {
  shut_.fetch_add(1, std::memory_order_seq_cst);
  for (const Queue* queue : state_.queues) {
    while (queue->busy_.load(std::memory_order_seq_cst)) ::sched_yield();
  }
}

// On DPDK's interrupt thread. Whatever else that thread does, it does between two calls of this.
void ControlGate::hold(void* gate) {
  auto& self = *static_cast<ControlGate*>(gate);
  State& state = self.state_;
  std::unique_lock lock(state.mutex);
  if (state.queues.empty()) {
    if (++state.rest_passes == kPassesToRest) silence(state.bell);
    return;
  }
  // The thread has fetched this event together with others, some of which it may still have to deal with, by the
  // numbers of their descriptors. While it is held here ports come and go, and numbers with them: a listener that has
  // the number of a connection that ended would wait for ever for somebody to accept. So these come first.
  std::vector<pollfd> others = others_beside(state.bell, state.epoll);
  if (::poll(others.data(), others.size(), 0) > 0 && ++state.passes < kMostPasses) return;
  state.passes = 0;
  if (std::exchange(state.interrupt_thread_runs, false)) shut_.fetch_sub(1);
  lock.unlock();
  const int most = others.empty() ? kBlindHoldMs : kMostHoldMs;
  others.push_back({state.let_go, POLLIN, 0});
  ::poll(others.data(), others.size(), most);
  lock.lock();
  state.interrupt_thread_runs = true;
  self.shut();
}

ControlGate::Alone::Alone(ControlGate& gate) noexcept : lock_(gate.state_.mutex) {
  while (gate.state_.interrupt_thread_runs) {
    lock_.unlock();
    ::sched_yield();
    lock_.lock();
  }
  gate.shut();
}

ControlGate::Alone::~Alone() { shut_.fetch_sub(1); }

ControlGate::Queue::Queue() {
  State& state = instance().state_;
  const std::lock_guard lock(state.mutex);
  state.queues.push_back(this);
  silence(state.let_go);
  ring(state.bell);
}

ControlGate::Queue::~Queue() {
  State& state = instance().state_;
  std::unique_lock lock(state.mutex);
  std::erase(state.queues, this);
  if (!state.queues.empty()) return;
  // The program may end DPDK next, which unmaps what its interrupt thread looks at whenever anything rings: so nothing
  // of ours rings any more.
  state.rest_passes = 0;
  ring(state.let_go);
  const auto limit = std::chrono::steady_clock::now() + kMostRestWait;
  while (state.queues.empty() && state.rest_passes < kPassesToRest && std::chrono::steady_clock::now() < limit) {
    lock.unlock();
    ::sched_yield();
    lock.lock();
  }
}

}  // namespace fairlead::dpdk
