// The device of a replay that no network is in.
#include <fmt/format.h>

#include <atomic>
#include <string>
#include <thread>
#include <utility>

#include "bench/trace/busy_executor.h"
#include "bench/trace/replay.h"

namespace fairlead::bench {
namespace {

using command::Handle;
using command::Outcome;

constexpr Handle kFunction{1};
constexpr std::size_t kQueue = 2048;  // as many as a channel has credits

Handle memory_of(std::uint8_t stream) { return {std::uint64_t{stream} + 1}; }

class LocalDevice final : public TraceDevice {
 public:
  LocalDevice(const Trace& trace, std::unique_ptr<command::Executor> executor)
      : memory_(trace), executor_(std::move(executor)), queue_(kQueue) {}
  ~LocalDevice() override {
    stopping_.store(true);
    if (thread_.joinable()) thread_.join();
  }

  Status start() {
    Outcome outcome = executor_->load(kFunction, kBusy);
    for (std::uint8_t stream = 0; stream < kMaxTraceStreams && outcome.ok(); ++stream) {
      const std::uint64_t bytes = memory_.device_bytes(stream);
      if (bytes == 0) continue;
      outcome = executor_->allocate(memory_of(stream), bytes);
      if (outcome.ok()) outcome = executor_->copy_in(memory_of(stream), 0, memory_.pattern(bytes));
    }
    if (!outcome.ok()) return failed(outcome);
    thread_ = std::thread([this] { work(); });
    return {};
  }

  // The one device takes everything in the order of the calls, so a mark and a fence have nothing to do there.
  Status call(const TraceRecord& record) override {
    if (record.op == TraceOp::kSynchronize) return {};
    const std::uint64_t place = put_.load(std::memory_order_relaxed);
    while (place - done_.load(std::memory_order_acquire) == kQueue) std::this_thread::yield();
    queue_[place % kQueue] = &record;
    put_.store(place + 1, std::memory_order_release);
    last_[record.stream] = place + 1;
    return {};
  }

  Status wait(std::uint8_t stream) override {
    while (done_.load(std::memory_order_acquire) < last_[stream]) std::this_thread::yield();
    return has_failed_.load(std::memory_order_acquire) ? failure_ : Status();
  }

  [[nodiscard]] Status check() const override { return memory_.check(); }
  void clear() override { memory_.clear(); }

 private:
  static Status failed(const Outcome& outcome) {
    return {Code::kAborted, fmt::format("the local device: CUresult {}: {}", outcome.result, outcome.text)};
  }

  void work() {
    for (std::uint64_t place = 0;;) {
      if (put_.load(std::memory_order_acquire) == place) {
        if (stopping_.load(std::memory_order_relaxed)) return;
        std::this_thread::yield();
        continue;
      }
      const Outcome outcome = execute(*queue_[place % kQueue]);
      if (!outcome.ok() && !has_failed_.load(std::memory_order_relaxed)) {
        failure_ = failed(outcome);
        has_failed_.store(true, std::memory_order_release);
      }
      done_.store(++place, std::memory_order_release);
    }
  }

  Outcome execute(const TraceRecord& record) {
    switch (record.op) {
      case TraceOp::kLaunch:
        return executor_->launch({.function = kFunction},
                                 busy_parameters(parameters_, record.device_ns, record.bytes_out));
      case TraceOp::kCopyIn:
        if (record.bytes_out == 0) return {};
        return executor_->copy_in(memory_of(record.stream), 0, memory_.pattern(record.bytes_out));
      case TraceOp::kCopyOut:
        if (record.bytes_back == 0) return {};
        return executor_->copy_out(memory_.result(record.stream, record.bytes_back), memory_of(record.stream), 0);
      case TraceOp::kMark:
      case TraceOp::kFence:
      case TraceOp::kSynchronize:
        break;
    }
    return {};
  }

  TraceMemory memory_;
  std::unique_ptr<command::Executor> executor_;  // start()'s, then the thread's
  std::vector<std::byte> parameters_;            // the thread's
  std::vector<const TraceRecord*> queue_;        // [done_, put_) is the thread's to read
  std::atomic<std::uint64_t> put_ = 0, done_ = 0;
  std::array<std::uint64_t, kMaxTraceStreams> last_{};  // the caller's: put_ after the stream's last call
  Status failure_;                                      // before has_failed_ the thread's, then constant
  std::atomic<bool> has_failed_ = false, stopping_ = false;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<TraceDevice>> make_local_device(const Trace& trace) {
  Result<std::unique_ptr<command::Executor>> executor = busy_executors()(Peer{});
  if (!executor) return executor.error();
  auto device = std::make_unique<LocalDevice>(trace, *std::move(executor));
  if (Status status = device->start(); !status.ok()) return status;
  return std::unique_ptr<TraceDevice>(std::move(device));
}

}  // namespace fairlead::bench
