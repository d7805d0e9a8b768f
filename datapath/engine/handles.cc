// The public handles for memory and transfers.
#include "datapath/engine/handles.h"

#include <algorithm>
#include <atomic>
#include <functional>

namespace fairlead {

using datapath::TransferImpl;

namespace {

TransferImpl& behind(void* object) noexcept { return *static_cast<TransferImpl*>(object); }
bool finished(const TransferImpl& t) noexcept { return t.finished.load(std::memory_order_acquire); }
/// It is the parent's, and does not end in this process.
bool inherited(const TransferImpl& t) noexcept { return !finished(t) && t.session->host().inherited(); }

}  // namespace

// ---- memory
// ----------------------------------------------------------------------------------------------------------

Memory Memory::slice(std::size_t offset, std::size_t length) const noexcept {
  Memory part;
  if (!valid() || offset > size_ || length > size_ - offset) return part;
  part = *this;
  part.data_ += offset;
  part.size_ = length;
  return part;
}

std::optional<SharedFile> Memory::shared_file() const noexcept {
  if (!valid()) return std::nullopt;
  const datapath::RegionImpl& region = *datapath::region_of(*this);
  SharedFile file = region.origin().file;
  if (file.fd < 0) return std::nullopt;
  file.offset += static_cast<std::size_t>(data_ - region.bytes().data());
  return file;
}

const std::string& RemoteMemory::name() const noexcept {
  static const std::string none;
  return valid() ? datapath::region_of(*this)->name : none;
}

bool RemoteMemory::withdrawn() const noexcept { return valid() && datapath::region_of(*this)->is_gone(); }

Access RemoteMemory::access() const noexcept { return valid() ? datapath::region_of(*this)->access : Access::kNone; }

const std::optional<TensorSpec>& RemoteMemory::tensor() const noexcept {
  static const std::optional<TensorSpec> none;
  return valid() ? datapath::region_of(*this)->tensor : none;
}

RemoteMemory RemoteMemory::slice(std::uint64_t offset, std::uint64_t length) const noexcept {
  RemoteMemory part;
  if (!valid() || offset > size_ || length > size_ - offset) return part;
  part = *this;
  part.offset_ += offset;
  part.size_ = length;
  return part;
}

// ---- transfers
// -------------------------------------------------------------------------------------------------------

Transfer::~Transfer() {
  if (object_ != nullptr) datapath::drop_reference(behind(object_));
}

Transfer::Transfer(const Transfer& other) noexcept : object_(other.object_) {
  if (object_ != nullptr) datapath::add_reference(behind(object_));
}

Transfer::Transfer(Transfer&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}

Transfer& Transfer::operator=(const Transfer& other) noexcept {
  Transfer copy(other);
  std::swap(object_, copy.object_);
  return *this;
}

Transfer& Transfer::operator=(Transfer&& other) noexcept {
  Transfer taken(std::move(other));
  std::swap(object_, taken.object_);
  return *this;
}

bool Transfer::done() const noexcept {
  return object_ == nullptr || finished(behind(object_)) || inherited(behind(object_));
}

Code Transfer::code() const noexcept {
  if (object_ == nullptr) return Code::kInvalidArgument;
  const TransferImpl& t = behind(object_);
  if (finished(t)) return t.code;
  return inherited(t) ? Code::kUnavailable : Code::kOk;
}

Status Transfer::status() const {
  if (object_ == nullptr) return {Code::kInvalidArgument, "this handle names no transfer"};
  const TransferImpl& t = behind(object_);
  if (!finished(t)) return t.session->host().usable();
  return t.code == Code::kOk ? Status() : Status(t.code, t.reason);
}

Status Transfer::wait(std::chrono::nanoseconds timeout) {
  if (!done()) {
    datapath::Lane& lane = behind(object_).session->host().lane();
    const bool ended = lane.wait_for([this] { return done(); }, timeout);
    if (!ended) return {Code::kDeadlineExceeded, "the wait timed out; the transfer goes on"};
  }
  return status();
}

void Transfer::cancel() noexcept {
  if (!done()) behind(object_).session->request_cancel(behind(object_));
}

std::uint64_t Transfer::bytes() const noexcept { return object_ != nullptr ? behind(object_).bytes : 0; }
std::uint64_t Transfer::old_value() const noexcept {
  if (object_ == nullptr) return 0;
  const datapath::TransferImpl& t = behind(object_);
  const bool ended = t.finished.load(std::memory_order_acquire);
  return ended && t.code == Code::kOk && t.atomic != datapath::AtomicOp::kNone ? t.value : 0;
}
std::uint64_t Transfer::tag() const noexcept { return object_ != nullptr ? behind(object_).tag : 0; }

namespace {

constexpr std::chrono::milliseconds kTurn{1};

/// Waits until `enough` of the transfers, which it is asked of time and again. False: not in time.
bool wait_for(std::span<const Transfer> transfers, const std::function<bool()>& enough,
              std::chrono::nanoseconds timeout) {
  const auto deadline = datapath::deadline_after(timeout);
  const auto lane_of = [](const Transfer& transfer) {
    return &datapath::transfer_of(transfer)->session->host().lane();
  };
  while (!enough()) {
    datapath::Lane* only = nullptr;
    bool several = false;
    for (const Transfer& transfer : transfers) {
      if (transfer.done()) continue;
      several = several || (only != nullptr && only != lane_of(transfer));
      only = lane_of(transfer);
    }
    if (only == nullptr) return enough();
    if (!several) return only->wait_until(enough, deadline);
    // A lane wakes its own waiters alone, so several are waited in by turns.
    datapath::Lane* last = nullptr;
    for (const Transfer& transfer : transfers) {
      if (transfer.done() || lane_of(transfer) == last) continue;
      last = lane_of(transfer);
      if (last->wait_until(enough, std::min(deadline, datapath::deadline_after(kTurn)))) return true;
    }
    if (datapath::Clock::now() >= deadline) return enough();
  }
  return true;
}

}  // namespace

inline namespace v0 {

std::size_t wait_any(std::span<const Transfer> transfers, std::chrono::nanoseconds timeout) {
  const auto first_done = [transfers] {
    return static_cast<std::size_t>(
        std::find_if(transfers.begin(), transfers.end(), [](const Transfer& t) { return t.done(); }) -
        transfers.begin());
  };
  wait_for(transfers, [&] { return first_done() != transfers.size(); }, timeout);
  return first_done();
}

Status wait_all(std::span<const Transfer> transfers, std::chrono::nanoseconds timeout) {
  std::atomic<std::size_t> ended{0};  // those before it are
  const auto all = [&] {
    std::size_t i = ended.load(std::memory_order_relaxed);
    while (i < transfers.size() && transfers[i].done()) ++i;
    ended.store(i, std::memory_order_relaxed);
    return i == transfers.size();
  };
  if (!wait_for(transfers, all, timeout)) {
    return {Code::kDeadlineExceeded, "the wait timed out; the transfers go on"};
  }
  for (const Transfer& transfer : transfers) {
    if (Status status = transfer.status(); !status.ok()) return status;
  }
  return {};
}

}  // namespace v0

std::uint64_t Prepared::bytes() const noexcept { return valid() ? datapath::list_of(*this)->list.bytes : 0; }
std::size_t Prepared::size() const noexcept { return valid() ? datapath::list_of(*this)->list.ops.size() : 0; }

}  // namespace fairlead
