#include "bench/trace/emulator.h"

#include <cmath>

#include "bench/trace/emulation.h"

namespace fairlead::bench {
namespace emulation {

EmulatedStep Emulation::run() {
  program();
  while (!events_.empty() && !is_over_) {
    const Event event = events_.top();
    events_.pop();
    now_ = event.at;
    handle(event);
  }
  step_.step_ns = now_;
  return step_;
}

void Emulation::at(double when, Kind kind, std::uint8_t stream, std::uint64_t value, std::uint64_t batch) {
  events_.push({when, order_++, kind, stream, value, batch});
}

void Emulation::handle(const Event& event) {
  Stream& stream = streams_[event.stream];
  switch (event.kind) {
    case Kind::kProgram:
      program();
      break;
    case Kind::kTimer:
      if (!stream.buffer.empty() && stream.buffer_number == event.value) flush(event.stream);
      break;
    case Kind::kCommands:
      for (const Command& command : std::exchange(batches_[event.batch], {})) {
        stream.queue.push_back({command, arrivals_++});
      }
      work();
      break;
    case Kind::kPayload:
      stream.payload_arrived = event.value;
      work();
      break;
    case Kind::kDevice:
      busy_ = false;
      executed(event.stream);
      work();
      break;
    case Kind::kReply:
      stream.known_executed = std::max(stream.known_executed, event.value);
      while (!stream.payloads.empty() && stream.payloads.front().first <= stream.known_executed) {
        stream.payload_under_way -= stream.payloads.front().second;
        stream.payloads.pop_front();
      }
      wake();
      break;
    case Kind::kResult:
      std::erase(stream.results, event.value);
      wake();
      break;
  }
}

// ---- the program and the client

bool Emulation::is_complete(const Stream& stream, std::uint64_t sequence) const {
  return stream.known_executed >= sequence && (stream.results.empty() || stream.results.front() > sequence);
}

void Emulation::wake() {
  if (waiting_) program();
}

void Emulation::program() {
  if (std::exchange(waiting_, false)) {
    if (!can_go_on_()) {
      waiting_ = true;
      return;
    }
    step_.waited_ns += now_ - waits_since_;
  }
  for (; place_ < trace_.records.size(); ++place_) {
    const TraceRecord& record = trace_.records[place_];
    if (part_ == Part::kGap) {
      part_ = Part::kCall;
      if (record.gap_ns != 0) return at(now_ + static_cast<double>(record.gap_ns), Kind::kProgram);
    }
    if (part_ == Part::kCall) {
      if (!call(record)) return wait([this, &record] { return has_room(record); });
      part_ = Part::kWait;
      if (record.blocking) {
        const std::uint64_t last = streams_[record.stream].appended;
        if (!is_complete(streams_[record.stream], last)) {
          ++step_.waits;
          return wait([this, &record, last] { return is_complete(streams_[record.stream], last); });
        }
      }
    }
    part_ = Part::kGap;
  }
  const auto all = [this] {
    return std::ranges::all_of(streams_, [this](const Stream& s) { return is_complete(s, s.appended); });
  };
  if (all()) {
    is_over_ = true;
    return;
  }
  ++step_.waits;
  wait(all);
}

void Emulation::wait(std::function<bool()> condition) {
  for (std::size_t i = 0; i < streams_.size(); ++i) flush(static_cast<std::uint8_t>(i));
  waiting_ = true;
  waits_since_ = now_;
  can_go_on_ = std::move(condition);
}

std::uint64_t Emulation::piece(const TraceRecord& record) const {
  const std::uint64_t bytes = record.op == TraceOp::kCopyOut ? record.bytes_back : record.bytes_out;
  return record.op == TraceOp::kLaunch ? bytes : std::min(bytes - copied_, kMaxPayload);
}

bool Emulation::has_room(const TraceRecord& record) const {
  const Stream& stream = streams_[record.stream];
  if (stream.appended - stream.known_executed >= kCredits) return false;
  const bool payload = record.op == TraceOp::kCopyIn && piece(record) > kMaxInline;
  return !payload || stream.payload_under_way + piece(record) <= kPayloadCredit;
}

bool Emulation::call(const TraceRecord& record) {
  const bool copy = record.op == TraceOp::kCopyIn || record.op == TraceOp::kCopyOut;
  if (record.op == TraceOp::kSynchronize) return true;
  const std::uint64_t bytes = record.bytes_out + record.bytes_back;
  if (copy && bytes == 0) return true;
  do {
    if (!has_room(record)) return false;
    append(record, piece(record));
    copied_ += copy ? piece(record) : 0;
  } while (copy && copied_ < bytes);
  copied_ = 0;
  return true;
}

void Emulation::append(const TraceRecord& record, std::uint64_t bytes) {
  Stream& stream = streams_[record.stream];
  Command command{.op = record.op, .sequence = ++stream.appended};
  std::uint64_t length = kRecordHeader;
  switch (record.op) {
    case TraceOp::kLaunch:
      command.takes_ns = static_cast<double>(record.device_ns);
      length += kLaunchBody + padded(std::max<std::uint64_t>(bytes, 8));
      break;
    case TraceOp::kCopyIn:
      command.takes_ns = static_cast<double>(bytes) * copy_ns_per_byte_;
      length += kCopyBody + (bytes <= kMaxInline ? padded(bytes) : 0);
      if (bytes > kMaxInline) {
        command.payload = bytes;
        stream.payload_under_way += bytes;
        stream.payloads.emplace_back(command.sequence, bytes);
        at(there_.send(now_, kMessageHeader + bytes, true), Kind::kPayload, record.stream, command.sequence);
      }
      break;
    case TraceOp::kCopyOut:
      command.takes_ns = static_cast<double>(bytes) * copy_ns_per_byte_;
      command.result = bytes;
      stream.results.push_back(command.sequence);
      length += kCopyBody;
      break;
    case TraceOp::kMark:
      stream.mark = command.sequence;
      break;
    case TraceOp::kFence:
      command.on = record.on;
      command.mark = streams_[record.on].mark;
      length += kFenceBody;
      break;
    case TraceOp::kSynchronize:
      break;
  }
  if (!stream.buffer.empty() && stream.buffer_bytes + length > kFlushBytes) flush(record.stream);
  if (stream.buffer.empty()) {
    stream.buffer_bytes = kMessageHeader;
    ++stream.buffer_number;
    if (!local_) at(now_ + kFlushAfter, Kind::kTimer, record.stream, stream.buffer_number);
  }
  stream.buffer.push_back(command);
  stream.buffer_bytes += length;
  if (local_ || stream.buffer.size() >= kFlushCommands || stream.buffer_bytes >= kFlushBytes) flush(record.stream);
}

void Emulation::flush(std::uint8_t number) {
  Stream& stream = streams_[number];
  if (stream.buffer.empty()) return;
  ++step_.buffers;
  batches_.push_back(std::exchange(stream.buffer, {}));
  at(there_.send(now_, stream.buffer_bytes, false), Kind::kCommands, number, 0, batches_.size() - 1);
}

}  // namespace emulation

EmulatedStep emulate_remote(const Trace& trace, const TraceLink& link, const EmulatedDevice& device) {
  return emulation::Emulation(trace, link, device, false).run();
}

EmulatedStep emulate_local(const Trace& trace, const EmulatedDevice& device) {
  return emulation::Emulation(trace, {}, device, true).run();
}

std::optional<double> longest_round_trip(const Trace& trace, double bits_per_second, double overhead,
                                         const EmulatedDevice& device) {
  const double most = emulate_local(trace, device).step_ns * (1 + overhead);
  const auto is_within = [&](double rtt_ns) {
    return emulate_remote(trace, {rtt_ns, bits_per_second}, device).step_ns <= most;
  };
  double within = 1, beyond = kLongestRoundTrip;
  if (!is_within(within)) return std::nullopt;
  if (is_within(beyond)) return beyond;
  while (beyond / within > 1.001) {
    const double middle = std::sqrt(within * beyond);
    (is_within(middle) ? within : beyond) = middle;
  }
  return within;
}

}  // namespace fairlead::bench
