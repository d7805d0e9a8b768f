// Keeps DPDK's control thread and the bursts of memif ports apart.
//
// When a peer goes, memif's driver frees and unmaps the rings on DPDK's interrupt thread, while another thread may be
// in the middle of a burst on them: a crash, or, if the address is in use again by then, stray writes. The driver has
// no lock for it. So the interrupt thread is held inside a callback of ours, which lets it go every 100 ms (2 ms while
// a port waits for its peer), and then only when no port is in a burst; until it is back in the callback, bursts find
// the gate shut. The other callbacks of that thread (an application's alarms, say) wait as long.
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
    /// The peer is awaited, or no longer.
    void set_waiting(bool waiting) noexcept { waiting_.store(waiting, std::memory_order_relaxed); }

   private:
    friend class ControlGate;
    std::atomic<bool> busy_{false};
    std::atomic<bool> waiting_{true};
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
