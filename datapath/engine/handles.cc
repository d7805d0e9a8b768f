// The public handles for memory and transfers.
#include <fmt/format.h>

#include "datapath/engine/engine_impl.h"
#include "datapath/session/session.h"
#include "datapath/transfer/transfer_impl.h"
#include "fairlead/memory.h"
#include "fairlead/transfer.h"

namespace fairlead {

using datapath::TransferImpl;

// ---- memory
// ----------------------------------------------------------------------------------------------------------

Memory Memory::slice(std::size_t offset, std::size_t length) const noexcept {
  Memory part;
  if (!valid() || offset > size_ || length > size_ - offset) return part;
  part.region_ = region_;
  part.data_ = data_ + offset;
  part.size_ = length;
  return part;
}

const std::string& RemoteMemory::name() const noexcept {
  static const std::string none;
  return valid() ? region_->name : none;
}

Access RemoteMemory::access() const noexcept { return valid() ? region_->access : Access::kNone; }

const std::optional<TensorSpec>& RemoteMemory::tensor() const noexcept {
  static const std::optional<TensorSpec> none;
  return valid() ? region_->tensor : none;
}

RemoteMemory RemoteMemory::slice(std::uint64_t offset, std::uint64_t length) const noexcept {
  RemoteMemory part;
  if (!valid() || offset > size_ || length > size_ - offset) return part;
  part.region_ = region_;
  part.offset_ = offset_ + offset;
  part.size_ = length;
  return part;
}

// ---- transfers
// -------------------------------------------------------------------------------------------------------

Transfer::Transfer() noexcept = default;

Transfer::~Transfer() {
  if (impl_ != nullptr) datapath::drop_reference(*impl_);
}

Transfer::Transfer(const Transfer& other) noexcept : impl_(other.impl_) {
  if (impl_ != nullptr) datapath::add_reference(*impl_);
}

Transfer::Transfer(Transfer&& other) noexcept : impl_(std::exchange(other.impl_, nullptr)) {}

Transfer& Transfer::operator=(const Transfer& other) noexcept {
  Transfer copy(other);
  std::swap(impl_, copy.impl_);
  return *this;
}

Transfer& Transfer::operator=(Transfer&& other) noexcept {
  Transfer taken(std::move(other));
  std::swap(impl_, taken.impl_);
  return *this;
}

namespace {

bool finished(const TransferImpl& t) noexcept { return t.finished.load(std::memory_order_acquire); }
/// It is the parent's, and does not end in this process.
bool inherited(const TransferImpl& t) noexcept { return !finished(t) && t.session->host().inherited(); }

}  // namespace

bool Transfer::done() const noexcept { return impl_ == nullptr || finished(*impl_) || inherited(*impl_); }

Code Transfer::code() const noexcept {
  if (impl_ == nullptr) return Code::kInvalidArgument;
  if (finished(*impl_)) return impl_->code;
  return inherited(*impl_) ? Code::kUnavailable : Code::kOk;
}

Status Transfer::status() const {
  if (impl_ == nullptr) return {Code::kInvalidArgument, "this handle names no transfer"};
  if (!finished(*impl_)) return impl_->session->host().usable();
  return impl_->code == Code::kOk ? Status() : Status(impl_->code, impl_->reason);
}

Status Transfer::wait(std::chrono::nanoseconds timeout) {
  if (!done()) {
    datapath::Lane& lane = impl_->session->host().lane();
    const bool ended = lane.wait_until([this] { return done(); }, datapath::deadline_after(timeout));
    if (!ended) return {Code::kDeadlineExceeded, "the wait timed out; the transfer goes on"};
  }
  return status();
}

void Transfer::cancel() noexcept {
  if (!done()) impl_->session->request_cancel(*impl_);
}

std::uint64_t Transfer::bytes() const noexcept { return impl_ != nullptr ? impl_->bytes : 0; }
std::uint64_t Transfer::tag() const noexcept { return impl_ != nullptr ? impl_->tag : 0; }

std::uint64_t Prepared::bytes() const noexcept { return valid() ? impl_->list.bytes : 0; }

}  // namespace fairlead
