// Keeps DPDK's control thread and the bursts of memif ports apart.
//
// When a peer goes, memif's driver frees and unmaps the rings on DPDK's interrupt thread, while another thread may be
// in the middle of a burst on them: a crash, or, if the address is in use again by then, stray writes. The driver has
// no lock for it. So the interrupt thread is held inside a callback of ours until one of the descriptors that it waits
// for has an event, and is let go only between two bursts; until it is back in the callback, bursts find the gate shut.
//
// Threads: enter() and leave() by the thread that drives the queue; the rest any.
#pragma once

#include <atomic>
#include <mutex>

namespace fairlead::dpdk {

class ControlGate {
 public:
  /// One thread's way through the gate. Its line of memory is its own, so that threads do not slow each other down.
  class alignas(64) Queue {
   public:
    Queue();
    ~Queue();
    Queue(const Queue&) = delete;
    Queue& operator=(const Queue&) = delete;

    /// Whether a burst may begin; if so, leave() ends it.
    [[nodiscard]] bool enter() noexcept {
      // Pairs with shut(): it sees the burst, or the burst sees the shut gate.
      busy_.store(true, std::memory_order_seq_cst);
      if (shut_.load(std::memory_order_seq_cst) == 0) return true;
      leave();
      return false;
    }
    void leave() noexcept { busy_.store(false, std::memory_order_release); }

   private:
    friend class ControlGate;
    std::atomic<bool> busy_{false};
  };

  /// Does what the interrupt thread does too, while neither that thread nor any burst runs: stops, starts and closes
  /// ports. Not from within a burst.
  template <typename Work>
  static auto alone(const Work& work) noexcept {
    const Alone held(instance());
    return work();
  }

 private:
  struct State;
  class Alone {
   public:
    explicit Alone(ControlGate& gate) noexcept;
    ~Alone();
    Alone(const Alone&) = delete;
    Alone& operator=(const Alone&) = delete;

   private:
    std::unique_lock<std::mutex> lock_;
  };

  ControlGate();
  static ControlGate& instance();
  static void hold(void* gate);
  /// Waits until the last burst is over; the mutex is held.
  void shut() noexcept;

  static inline std::atomic<int> shut_{1};  // by so many; the interrupt thread runs until it was first seen
  State& state_;
};

}  // namespace fairlead::dpdk
