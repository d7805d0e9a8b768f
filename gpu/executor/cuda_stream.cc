#include "gpu/executor/cuda_stream.h"

#include <algorithm>
#include <cstring>

namespace fairlead::gpu {

using command::Outcome;

CudaStream::~CudaStream() {
  const DriverApi& api = context_.api();
  for (const Held& each : held_) staging_.give(each.piece);
  if (context_.is_abandoned()) return;
  for (const Mark& each : marks_) spare_.push_back(each.event);
  for (const CuEvent event : spare_) static_cast<void>(api.event_destroy(event));
  if (scratch_ != 0) static_cast<void>(api.memory_free(scratch_));
  if (stream_ != nullptr) static_cast<void>(api.stream_destroy(stream_));
}

void CudaStream::worked() noexcept {
  // Behind nothing: all before it is complete.
  if (is_idle()) complete_ = std::max(complete_, last_ - 1);
  worked_ = last_;
}

void CudaStream::hold(std::span<std::byte> piece, std::span<std::byte> to) {
  held_.push_back({last_, piece, to});
  held_bytes_ += piece.size();
}

void CudaStream::let_go_of_targets() noexcept {
  for (auto each = held_.rbegin(); each != held_.rend() && each->sequence == last_; ++each) each->to = {};
}

CudaStream::Called CudaStream::mark() {
  CuEvent event = nullptr;
  if (!spare_.empty()) {
    event = spare_.back();
    spare_.pop_back();
  } else if (const CuResult made = context_.api().event_create(&event, kEventDisableTiming);
             made != CuResult::kSuccess) {
    return {made, "cuEventCreate"};
  }
  if (const CuResult recorded = context_.api().event_record(event, stream_); recorded != CuResult::kSuccess) {
    spare_.push_back(event);
    return {recorded, "cuEventRecord"};
  }
  marks_.push_back({worked_, event});
  marked_ = worked_;
  return {};
}

Outcome CudaStream::wait_for(CudaStream& other, std::uint64_t sequence) {
  if (&other == this || sequence <= other.complete_) return {};
  if (other.has_unmarked() && (other.marks_.empty() || other.marks_.back().sequence < sequence)) {
    const Called marked = other.mark();
    if (Outcome fine = context_.check(marked.result, marked.call); !fine.ok()) return fine;
  }
  if (other.marks_.empty()) return {};
  // The last one, if that command and those before it put nothing on the stream behind that.
  auto mark = std::ranges::find_if(other.marks_, [&](const Mark& each) { return each.sequence >= sequence; });
  if (mark == other.marks_.end()) mark = std::prev(mark);
  Outcome waits = context_.check(context_.api().stream_wait(stream_, mark->event, 0), "cuStreamWaitEvent");
  if (waits.ok()) worked();
  return waits;
}

void CudaStream::pass(std::uint64_t sequence) noexcept {
  complete_ = std::max(complete_, sequence);
  for (; !held_.empty() && held_.front().sequence <= sequence; held_.pop_front()) {
    const Held& first = held_.front();
    if (!first.to.empty()) std::memcpy(first.to.data(), first.piece.data(), first.to.size());
    held_bytes_ -= first.piece.size();
    staging_.give(first.piece);
  }
}

Outcome CudaStream::poll() {
  if (has_unmarked() && marks_.size() < kEvents) {
    const Called marked = mark();
    if (Outcome known = context_.check_sure(marked.result, marked.call); !known.ok()) return known;
  }
  while (!marks_.empty()) {
    const CuResult result = context_.api().event_query(marks_.front().event);
    if (result == CuResult::kNotReady) return {};
    if (Outcome known = context_.check_sure(result, "cuEventQuery"); !known.ok()) return known;
    pass(marks_.front().sequence);
    spare_.push_back(marks_.front().event);
    marks_.pop_front();
  }
  if (!has_unmarked()) complete_ = last_;
  return {};
}

Outcome CudaStream::scratch(CuAddress& at) {
  if (scratch_ == 0) {
    if (Outcome made = context_.check(context_.api().memory_alloc(&scratch_, kScratch), "cuMemAlloc"); !made.ok()) {
      scratch_ = 0;
      return made;
    }
  }
  at = scratch_;
  return {};
}

}  // namespace fairlead::gpu
