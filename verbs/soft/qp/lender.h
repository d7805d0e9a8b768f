// What a domain owes to a port that sends payload from where it lies: completions wait until the device has let go of
// what they cover, and memory is not given up before.
//
// An acknowledgement may come while a copy of the packet still stands in a device's ring. So a completion that finds
// loans open waits for all that were made until then, and those behind it wait with it, so that their order stays. With
// no such port it costs a branch. Threads: under the domain's lock.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <deque>

namespace fairlead::soft {

class QpContext;
class Qp;
struct Grant;
struct PortSlot;

class Lender {
 public:
  explicit Lender(QpContext& domain) noexcept : domain_(domain) {}

  /// At most one port lends.
  void set_port(PortSlot& slot) noexcept { slot_ = &slot; }

  /// Keeps the completion, to push it later; false where it need not wait.
  [[nodiscard]] bool keep(Qp& qp, const ibv_wc& completion) noexcept {
    return slot_ != nullptr && must_wait() && put(qp, completion);
  }
  /// Pushes what need not wait any more. True if there was any.
  bool release() noexcept;
  [[nodiscard]] bool waiting() const noexcept { return !kept_.empty(); }
  /// The queue pair ends, and its completions with it.
  void forget(const Qp& qp) noexcept;
  /// When this returns, the device looks at no memory.
  void end_loans() noexcept;

  void map(const Grant& region) noexcept;
  void unmap(const Grant& region) noexcept;

 private:
  struct Kept {
    Qp* qp;
    ibv_wc completion;
    std::uint64_t loan;  // the last that it waits for
  };

  [[nodiscard]] bool must_wait() noexcept;
  bool put(Qp& qp, const ibv_wc& completion) noexcept;

  QpContext& domain_;
  PortSlot* slot_ = nullptr;
  std::deque<Kept> kept_;
};

}  // namespace fairlead::soft
