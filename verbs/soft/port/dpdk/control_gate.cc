#include "verbs/soft/port/dpdk/control_gate.h"

#include <rte_interrupts.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <vector>

namespace fairlead::dpdk {
namespace {

constexpr std::chrono::milliseconds kHold{100};
constexpr std::chrono::milliseconds kHoldWhileAwaited{2};

}  // namespace

struct ControlGate::State {
  std::mutex mutex;
  std::condition_variable news;  // a port came
  std::vector<Port*> ports;
  int bell = -1;  // readable while there are ports, so that the callback is called again and again
};

ControlGate& ControlGate::instance() {
  static ControlGate& gate = *new ControlGate;  // DPDK's thread outlives statics
  return gate;
}

ControlGate::ControlGate() : state_(*new State) {
  state_.bell = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  rte_intr_handle* handle = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
  if (state_.bell < 0 || handle == nullptr || rte_intr_fd_set(handle, state_.bell) != 0 ||
      rte_intr_type_set(handle, RTE_INTR_HANDLE_EXT) != 0 || rte_intr_callback_register(handle, &hold, this) != 0) {
    throw std::runtime_error("DPDK's interrupt thread takes no callback, which memif needs");
  }
}

// On DPDK's interrupt thread. Whatever else that thread does, it does between two calls of this.
void ControlGate::hold(void* gate) {
  State& state = static_cast<ControlGate*>(gate)->state_;
  std::unique_lock lock(state.mutex);
  if (state.ports.empty()) {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(state.bell, &count, sizeof(count));
    return;
  }
  control_runs().store(false);
  const bool awaited = std::any_of(state.ports.begin(), state.ports.end(),
                                   [](const Port* port) { return port->waiting_.load(std::memory_order_relaxed); });
  state.news.wait_for(lock, awaited ? kHoldWhileAwaited : kHold);
  control_runs().store(true, std::memory_order_seq_cst);
  for (const Port* port : state.ports) {
    while (port->busy_.load(std::memory_order_seq_cst)) ::sched_yield();
  }
}

ControlGate::Port::Port() {
  State& state = instance().state_;
  const std::lock_guard lock(state.mutex);
  state.ports.push_back(this);
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t put = ::write(state.bell, &one, sizeof(one));
  state.news.notify_all();
}

ControlGate::Port::~Port() {
  State& state = instance().state_;
  const std::lock_guard lock(state.mutex);
  std::erase(state.ports, this);
}

}  // namespace fairlead::dpdk
