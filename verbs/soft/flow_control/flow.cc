#include "verbs/soft/flow_control/flow.h"

#include <algorithm>

namespace fairlead::soft {
namespace {

// A peer of our kind may hold its receipt back for a while (receipts.cc), or its process may not run just now.
constexpr Nanos kPatienceWithReceipts = 30 * kMillisecond;
// A full window in so long is the rate toward peers that send no receipts.
constexpr Nanos kPatience = 2 * kMillisecond;
// After so many windows without one, a peer is taken for such.
constexpr unsigned kWindowsToTell = 3;

}  // namespace

Nanos Flow::patience() const noexcept {
  return answers_ || unanswered_ < kWindowsToTell ? kPatienceWithReceipts : kPatience;
}

bool Flow::on_sent(std::uint32_t qpn, Psn psn, std::size_t charge, Nanos now) {
  if (sent_ == settled_) deadline_ = now + patience();
  sent_ += charge;
  if (sent_ - marked_ < kMarkEvery && window_.admits(charge) && has_share(charge)) return false;
  marked_ = sent_;
  marks_.push_back({qpn, psn, sent_});
  return true;
}

std::size_t Flow::settle(std::uint64_t upto, Nanos now) noexcept {
  const auto freed = static_cast<std::size_t>(upto - settled_);
  settled_ = upto;
  deadline_ = sent_ == settled_ ? 0 : now + patience();
  return freed;
}

std::size_t Flow::on_receipt(std::uint32_t qpn, Psn psn, Nanos now) {
  for (std::size_t i = 0; i < marks_.size(); ++i) {
    if (marks_[i].qpn != qpn || marks_[i].psn != psn) continue;
    answers_ = true;
    const std::uint64_t upto = marks_[i].sent;
    marks_.erase(marks_.begin(), marks_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    const std::size_t freed = settle(upto, now);
    window_.on_acknowledged(freed);
    return freed;
  }
  return 0;  // its charges came back already
}

std::size_t Flow::on_timer(Nanos now) {
  if (deadline_ == 0 || now < deadline_) return 0;
  if (!marks_.empty()) unanswered_ = std::min(unanswered_ + 1, kWindowsToTell);
  marks_.clear();
  marked_ = sent_;
  return settle(sent_, now);
}

}  // namespace fairlead::soft
