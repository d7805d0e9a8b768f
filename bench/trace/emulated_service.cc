// The service's end of an emulated channel, and its device.
#include "bench/trace/emulation.h"

namespace fairlead::bench::emulation {

bool Emulation::can_run(const Stream& stream) const {
  if (stream.queue.empty()) return false;
  const Command& command = stream.queue.front().command;
  if (command.payload != 0 && stream.payload_arrived < command.sequence) return false;
  return command.op != TraceOp::kFence || streams_[command.on].executed >= command.mark;
}

void Emulation::work() {
  while (!busy_) {
    std::size_t next = streams_.size();
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      if (!can_run(streams_[i])) continue;
      if (next == streams_.size() || streams_[i].queue.front().order < streams_[next].queue.front().order) next = i;
    }
    if (next == streams_.size()) return;
    const auto number = static_cast<std::uint8_t>(next);
    const Command& command = streams_[next].queue.front().command;
    const bool copy = command.op == TraceOp::kCopyIn || command.op == TraceOp::kCopyOut;
    if (copy && command.payload + command.result > kShortCopy && streams_[next].unsaid != 0) reply(number);
    if (command.takes_ns > 0) {
      busy_ = true;
      return at(now_ + command.takes_ns, Kind::kDevice, number);
    }
    executed(number);
  }
}

void Emulation::executed(std::uint8_t number) {
  Stream& stream = streams_[number];
  const Command command = stream.queue.front().command;
  stream.queue.pop_front();
  ++stream.executed;
  if (stream.unsaid++ == 0) stream.oldest_unsaid = now_;
  if (command.result > kMaxInline) {
    at(back_.send(now_, kMessageHeader + command.result, true), Kind::kResult, number, command.sequence);
  } else if (command.result != 0) {
    stream.unsaid_bytes += kDataItem + padded(command.result);
    stream.unsaid_results.push_back(command.sequence);
  }
  const bool full = stream.unsaid >= kCommandsPerReply || stream.unsaid_bytes >= kReplyBytes;
  if (full || !can_run(stream) || now_ - stream.oldest_unsaid >= kOldestUnsaid) reply(number);
}

void Emulation::reply(std::uint8_t number) {
  Stream& stream = streams_[number];
  ++step_.replies;
  const double when = back_.send(now_, kMessageHeader + kReplyBody + stream.unsaid_bytes, false);
  for (const std::uint64_t sequence : std::exchange(stream.unsaid_results, {})) {
    at(when, Kind::kResult, number, sequence);
  }
  at(when, Kind::kReply, number, stream.executed);
  stream.unsaid = stream.unsaid_bytes = 0;
}

}  // namespace fairlead::bench::emulation
