#include "tcp_fallback/receiver.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>

#include "base/guarded.h"

namespace fairlead::tcp_fallback {
namespace {

using datapath::OpKind;

constexpr std::uint64_t kLargePayload = 16 * 1024;
constexpr std::size_t kDiscardBytes = 64 * 1024;

}  // namespace

Receiver::Receiver(RequestQueue& requests, Sender& sender, datapath::GrantReader& grants, datapath::DomainNumber domain)
    : requests_(requests),
      sender_(sender),
      grants_(grants),
      domain_(domain),
      buffer_(std::make_unique_for_overwrite<std::byte[]>(kBufferBytes)) {}

Receiver::Outcome Receiver::advance(ByteStream& stream, Sink& sink, std::size_t turn) noexcept {
  Outcome outcome;
  while (!stopped_ && outcome.bytes < turn) {
    std::size_t wanted = 0;
    const IoResult got = payload_left_ > 0 && buffered() == 0 ? receive_payload(stream, turn - outcome.bytes, wanted)
                                                              : receive_into_buffer(stream, wanted);
    if (got.error != 0) {
      if (!got.would_block()) {
        outcome.end = End::kError;
        outcome.error = got.error;
      }
      break;
    }
    if (got.bytes == 0) {
      outcome.end = End::kClosed;
      break;
    }
    outcome.bytes += got.bytes;
    outcome.reason = parse(sink);
    if (!outcome.reason.empty()) {
      outcome.end = End::kMalformed;
      break;
    }
    if (got.bytes < wanted) break;  // the stream was emptied: save the call that would say so
  }
  flush_ack();
  return outcome;
}

IoResult Receiver::receive_into_buffer(ByteStream& stream, std::size_t& wanted) noexcept {
  if (buffer_begin_ > 0) {
    std::memmove(buffer_.get(), buffer_.get() + buffer_begin_, buffered());
    buffer_end_ = buffered();
    buffer_begin_ = 0;
  }
  const std::size_t missing = buffer_needed_ > buffered() ? buffer_needed_ - buffered() : 0;
  wanted = std::min(std::max(missing, read_ahead_), kBufferBytes - buffer_end_);
  iovec piece{buffer_.get() + buffer_end_, wanted};
  const IoResult result = stream.receive({&piece, 1});
  buffer_end_ += result.bytes;
  return result;
}

IoResult Receiver::receive_payload(ByteStream& stream, std::size_t most, std::size_t& wanted) noexcept {
  std::array<iovec, kMaxPieces> pieces;
  const datapath::GrantReader::Section section(grants_);
  const auto receive = [&] {
    std::size_t count = destination(std::span(pieces).first(kMaxSegments));
    count = limit(std::span(pieces).first(count), most, wanted);
    if (wanted == payload_left_) {
      pieces[count++] = {buffer_.get(), read_ahead_};
      wanted += read_ahead_;
    }
    return stream.receive(std::span(pieces).first(count));
  };
  IoResult result = receive();
  if (result.error == EFAULT) {  // the pages behind the destination are gone
    lose_destination();
    result = receive();
  }
  const std::uint64_t payload = std::min<std::uint64_t>(result.bytes, payload_left_);
  buffer_begin_ = 0;
  buffer_end_ = result.bytes - payload;
  placed(payload);
  return result;
}

// Where the next bytes of the payload go; to a bin if the request is refused.
std::size_t Receiver::destination(std::span<iovec> pieces) noexcept {
  const std::uint64_t done = frame_.length - payload_left_;
  if (frame_.type == FrameType::kReadData) {
    const Request& request = requests_.at(*requests_.find_sent(frame_.seq));
    if (request.code == Code::kOk) return slice(request, frame_.address + done, payload_left_, pieces);
  } else if (verdict_ == Code::kOk) {
    if (const auto bytes =
            grants_.find(domain_, frame_.key, frame_.address + done, payload_left_, Access::kRemoteWrite)) {
      pieces[0] = {bytes->data(), bytes->size()};
      return 1;
    }
    verdict_ = Code::kProtectionError;
  }
  // On the heap: thread-local storage is taken from the stack of every thread, also of those that have little.
  thread_local const auto bin = std::make_unique<std::byte[]>(kDiscardBytes);
  pieces[0] = {bin.get(), std::min<std::uint64_t>(payload_left_, kDiscardBytes)};
  return 1;
}

void Receiver::lose_destination() noexcept {
  if (frame_.type == FrameType::kReadData) {
    requests_.at(*requests_.find_sent(frame_.seq)).code = Code::kDataLoss;
  } else {
    verdict_ = Code::kProtectionError;
  }
}

void Receiver::take_payload_from_buffer() noexcept {
  std::array<iovec, kMaxPieces> pieces;
  const datapath::GrantReader::Section section(grants_);
  while (payload_left_ > 0 && buffered() > 0) {
    const std::size_t count = destination(std::span(pieces).first(kMaxSegments));
    for (std::size_t i = 0; i < count && buffered() > 0; ++i) {
      const std::size_t bytes = std::min(pieces[i].iov_len, buffered());
      auto* to = static_cast<std::byte*>(pieces[i].iov_base);
      if (!guarded_copy(to, buffer_.get() + buffer_begin_, bytes, to)) {
        lose_destination();
        break;  // destination() names the bin now
      }
      buffer_begin_ += bytes;
      placed(bytes);
    }
  }
}

void Receiver::placed(std::uint64_t bytes) noexcept {
  payload_left_ -= bytes;
  if (frame_.type == FrameType::kReadData) requests_.at(*requests_.find_sent(frame_.seq)).received += bytes;
  if (payload_left_ > 0 || frame_.type != FrameType::kWrite) return;
  write_open_ = !frame_.last;
  if (!frame_.last) return;
  refused_ += verdict_ != Code::kOk ? 1 : 0;
  finish_request(verdict_);
}

std::string_view Receiver::parse(Sink& sink) noexcept {
  while (!stopped_) {
    if (payload_left_ > 0) {
      take_payload_from_buffer();
      if (payload_left_ > 0) break;
    }
    buffer_needed_ = kHeaderBytes;
    if (buffered() < buffer_needed_) break;
    Frame frame;
    const std::byte* header = buffer_.get() + buffer_begin_;
    if (auto reason = decode(std::span<const std::byte, kHeaderBytes>(header, kHeaderBytes), frame); !reason.empty()) {
      return reason;
    }
    if (frame.type == FrameType::kMessage) {
      buffer_needed_ += frame.length;  // delivered in one piece
      if (buffered() < buffer_needed_) break;
    }
    buffer_begin_ += buffer_needed_;
    if (auto reason = begin(frame, sink); !reason.empty()) return reason;
  }
  if (buffered() == 0) buffer_begin_ = buffer_end_ = 0;
  return {};
}

std::string_view Receiver::begin(const Frame& frame, Sink& sink) noexcept {
  // Each unacknowledged request makes at most one response of its own and one acknowledgement of those before it.
  if (sender_.responses() > 2 * std::size_t{peer_depth_} + 2) return "more requests than the announced depth";
  const bool large =
      frame.length >= kLargePayload && frame.type != FrameType::kRead && frame.type != FrameType::kMessage;
  read_ahead_ = large ? kHeaderBytes : kReadAhead;
  switch (frame.type) {
    case FrameType::kWrite:
      return begin_write(frame);
    case FrameType::kReadData:
      return begin_read_data(frame);
    case FrameType::kAck:
      return on_ack(frame, sink);
    case FrameType::kRead:
      return begin_read(frame);
    case FrameType::kMessage:
      if (write_open_ || frame.seq != next_seq_) return "a message out of sequence";
      if (frame.key > refused_ && frame.key != kUndeliverable)
        return "a message that knows of refusals that never were";
      if (frame.key != refused_) {  // posted behind a write that was not placed
        finish_request(Code::kAborted);
        return {};
      }
      finish_request(Code::kOk);
      sink.on_message({buffer_.get() + buffer_begin_ - frame.length, frame.length});
      return {};
  }
  return "unknown frame type";
}

std::string_view Receiver::begin_write(const Frame& frame) noexcept {
  if (frame.seq != next_seq_) return "a write out of sequence";
  if (!write_open_) verdict_ = Code::kOk;
  write_open_ = true;
  frame_ = frame;
  payload_left_ = frame.length;
  if (frame.length > 0) return {};
  placed(0);  // nothing to place: its key is not looked at, as RDMA has it (IBTA C9-88)
  return {};
}

std::string_view Receiver::begin_read(const Frame& frame) noexcept {
  if (write_open_ || frame.seq != next_seq_) return "a read out of sequence";
  flush_ack();  // writes before it need not wait for its data
  ++next_seq_;
  const datapath::GrantReader::Section section(grants_);
  if (frame.length == 0 || grants_.find(domain_, frame.key, frame.address, frame.length, Access::kRemoteRead)) {
    sender_.queue_read(frame);
  } else {
    sender_.queue_ack(frame.seq, Code::kProtectionError);
  }
  return {};
}

std::string_view Receiver::begin_read_data(const Frame& frame) noexcept {
  const auto seq = requests_.find_sent(frame.seq);
  if (!seq) return "data of a read that was not asked for";
  const Request& request = requests_.at(*seq);
  if (request.kind != OpKind::kRead) return "data of a request that is no read";
  if (frame.address != request.received || frame.length > request.length - request.received) {
    return "read data out of sequence";
  }
  frame_ = frame;
  payload_left_ = frame.length;
  return {};
}

std::string_view Receiver::on_ack(const Frame& frame, Sink& sink) noexcept {
  const auto through = requests_.find_sent(frame.seq);
  if (!through) return "an acknowledgement of nothing that was sent";
  const auto theirs_of = [&](std::uint64_t seq) { return seq == *through ? frame.code : Code::kOk; };
  const auto lacks_data = [](const Request& request) {
    return request.kind == OpKind::kRead && request.received != request.length;
  };
  while (!stopped_ && requests_.first() <= *through) {
    const Request& request = requests_.at(requests_.first());
    const Code theirs = theirs_of(requests_.first());
    if (theirs == Code::kOk && lacks_data(request)) return "an acknowledged read without its data";
    if (theirs != Code::kOk && !requests_.may_end_with(request, theirs)) {
      return "an acknowledgement with a code that its request cannot end with";
    }
    if (request.kind == OpKind::kWrite && theirs != Code::kOk) requests_.count_refusal();
    const Code code = request.code != Code::kOk ? request.code : theirs;
    datapath::Ended row{request.id, code};
    requests_.pop();  // first, so that the sink finds room to post
    for (; row.code == Code::kOk && requests_.first() <= *through; requests_.pop(), ++row.count) {
      const Request& next = requests_.at(requests_.first());
      const Code its = next.code != Code::kOk ? next.code : theirs_of(requests_.first());
      if (its != Code::kOk || next.id != row.first + row.count || lacks_data(next)) break;
    }
    sink.on_completion(row);
  }
  return {};
}

void Receiver::finish_request(Code code) noexcept {
  const std::uint32_t seq = next_seq_++;
  ack_due_ = code == Code::kOk;
  if (code != Code::kOk) sender_.queue_ack(seq, code);  // says that those before it ended well, too
}

void Receiver::flush_ack() noexcept {
  if (ack_due_) sender_.queue_ack(next_seq_ - 1);
  ack_due_ = false;
}

}  // namespace fairlead::tcp_fallback
