// Keeps DPDK's control thread and the bursts of memif ports apart.
//
// When a peer goes, memif's driver frees and unmaps the rings on DPDK's interrupt thread, while another thread may be
// in the middle of a burst on them: a crash, or, if the address is in use again by then, stray writes. The driver has
// no lock for it. So the interrupt thread is held inside a callback of ours until one of the descriptors that it waits
// for has an event, and is let go only between two bursts; until it is back in the callback, bursts find the gate shut.
//
// Threads: enter() and leave() by the thread that drives the port; the rest any.
#pragma once

#include <sched.h>

#include <atomic>

namespace fairlead::dpdk {

class ControlGate {
 public:
  class Port {
   public:
    Port();
    ~Port();
    Port(const Port&) = delete;
    Port& operator=(const Port&) = delete;

    /// Whether a burst may begin; if so, leave() ends it.
    [[nodiscard]] bool enter() noexcept {
      // Pairs with the callback: it sees the burst, or the burst sees the open gate.
      busy_.store(true, std::memory_order_seq_cst);
      if (!control_runs().load(std::memory_order_seq_cst)) return true;
      leave();
      return false;
    }
    void leave() noexcept { busy_.store(false, std::memory_order_release); }
    /// Holds the control thread while `work` does what that thread does too: stops, starts and closes the port.
    template <typename Work>
    auto alone(const Work& work) noexcept {
      while (!enter()) ::sched_yield();
      struct Leave {
        Port& port;
        ~Leave() { port.leave(); }
      } leaving{*this};
      return work();
    }

   private:
    friend class ControlGate;
    std::atomic<bool> busy_{false};
  };

 private:
  static std::atomic<bool>& control_runs() noexcept {
    static std::atomic<bool> runs{true};
    return runs;
  }
  static ControlGate& instance();
  static void hold(void* gate);
  struct State;
  State& state_;
  ControlGate();
};

}  // namespace fairlead::dpdk
