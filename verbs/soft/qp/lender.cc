#include "verbs/soft/qp/lender.h"

#include "verbs/soft/qp/qp_context.h"

namespace fairlead::soft {
namespace {

// The whole address space of an implicit region, and what stands for no memory, cannot be described to a device.
bool has_pages(const Grant& region) noexcept {
  return region.start != nullptr && region.bytes != 0 && region.bytes != SIZE_MAX;
}

}  // namespace

bool Lender::must_wait() noexcept {
  domain_.flush(*slot_);  // a packet of the request may only be about to leave
  return !kept_.empty() || slot_->port->loans().open();
}

bool Lender::put(Qp& qp, const ibv_wc& completion) noexcept {
  kept_.push_back({&qp, completion, slot_->port->loans().made});
  ++qp.kept_completions;
  return true;
}

bool Lender::release() noexcept {
  if (kept_.empty()) return false;
  const std::uint64_t ended = slot_->port->loans().ended;
  bool any = false;
  for (; !kept_.empty() && kept_.front().loan <= ended; any = true) {
    Kept first = kept_.front();
    kept_.pop_front();
    --first.qp->kept_completions;
    first.qp->complete(first.qp->send_completions, first.completion, false);
    first.qp->check_drained();
  }
  return any;
}

void Lender::forget(const Qp& qp) noexcept {
  if (slot_ == nullptr) return;
  end_loans();
  std::erase_if(kept_, [&qp](const Kept& each) { return each.qp == &qp; });
}

void Lender::end_loans() noexcept {
  if (slot_ == nullptr) return;
  domain_.flush(*slot_);
  if (slot_->port->loans().open()) slot_->port->end_loans();
}

void Lender::map(const Grant& region) noexcept {
  if (slot_ != nullptr && has_pages(region)) slot_->port->map(region.start, region.bytes);
}

void Lender::unmap(const Grant& region) noexcept {
  end_loans();
  if (!region.null && region.bytes != 0) domain_.let_go(region.start, region.bytes);
}

}  // namespace fairlead::soft
