// Packets of one direction of a connection that came before their turn, and which are missing before them.
//
// A gap is reported once it is plausible that it is a loss: three packets came behind it, or a little time went by, and
// longer ago than packets are overtaken here. That is learnt: a packet that comes twice, after it was reported missing,
// had only been late. What was reported and does not come is reported again, after twice the time that it takes to
// come. The owner says what comes next in order (`expected`), and moves it only on. Threads: under the domain's lock.
// Source: RFC 8985 (how reordering and losses are told apart), RFC 2883 (duplicates tell of reports in vain).
#pragma once

#include <memory>

#include "base/clock.h"
#include "verbs/soft/progress/packet_store.h"
#include "verbs/soft/wire/packet.h"

namespace fairlead::soft {

class Disorder {
 public:
  struct Missing {
    Psn first;
    std::uint32_t packets = 0;
  };
  enum class Fate { kKept, kThereAlready, kNoRoom };

  static constexpr std::size_t kMostKept = 2048;

  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// The first that was kept; there is one.
  [[nodiscard]] const EarlyPacket& front() const noexcept { return *first_; }
  /// Copies a packet that lies past `expected` and stands for so many PSNs.
  [[nodiscard]] Fate keep(PacketStore& store, Psn expected, const Packet& packet, std::uint32_t packets,
                          Nanos now) noexcept;
  /// The first one, which is the caller's to give back to the store.
  [[nodiscard]] std::unique_ptr<EarlyPacket> take_front() noexcept;
  /// What is expected has come, and is no gap any more.
  void on_expected(Psn psn, Nanos now) noexcept;
  /// A packet came that was here already.
  void on_again(Psn psn) noexcept;
  /// Calls report(Missing) for each gap that is to be reported now, which counts as done.
  template <typename Report>
  void report_missing(Psn expected, Nanos now, Report&& report) {
    if (empty() || (!unreported_ && (deadline_ == 0 || now < deadline_))) return;
    deadline_ = 0;
    unreported_ = false;
    Psn end = expected;
    for (EarlyPacket* each = first_.get(); each != nullptr; end = each->end(), each = each->next.get()) {
      const std::int32_t packets = each->psn.since(end);
      if (packets > 0 && is_due(*each, now)) report(Missing{end, static_cast<std::uint32_t>(packets)});
    }
  }
  /// When there may be one though no packet comes; 0: never.
  [[nodiscard]] Nanos deadline() const noexcept { return empty() ? 0 : deadline_; }
  void clear(PacketStore& store) noexcept;

 private:
  void filled(const EarlyPacket& behind, Psn psn, Nanos now) noexcept;
  /// Whether the gap before it is to be reported now, and what is to come of that later.
  [[nodiscard]] bool is_due(EarlyPacket& behind, Nanos now) noexcept;
  [[nodiscard]] Nanos due(const EarlyPacket& behind) const noexcept;

  std::unique_ptr<EarlyPacket> first_;  // in the order of their PSNs, which do not overlap
  EarlyPacket* last_ = nullptr;
  EarlyPacket* looked_ = nullptr;  // behind which the last one belonged: the next search begins there, if it may
  std::size_t size_ = 0;
  std::uint64_t arrivals_ = 0;
  bool unreported_ = false;  // there may be a gap that is
  Nanos deadline_ = 0;
  Nanos tolerance_ = 0;    // how late packets are that were not lost
  Nanos repair_time_ = 0;  // from a report to what it brings; 0: not known yet
  // The last that came after it had been reported: late, if it comes once more.
  bool doubted_ = false;
  Psn doubted_psn_;
  unsigned doubted_reports_ = 0;
  Nanos lateness_ = 0;
};

}  // namespace fairlead::soft
