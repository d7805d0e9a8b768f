#include "tcp_fallback/sender.h"

#include <algorithm>

namespace fairlead::tcp_fallback {
namespace {

using datapath::OpKind;

constexpr std::uint64_t kFragmentBytes = 256 * 1024;
constexpr std::uint64_t kStageBytes = 512 * 1024;  // staged ahead: enough for one large sendmsg, not more
constexpr std::size_t kStageFrames = 64;
constexpr std::size_t kZeroBytes = 64 * 1024;
static_assert(kFragmentBytes <= kMaxFragment);

// Never written; iovec has no pointer to const.
iovec zeros(std::uint64_t bytes) noexcept {
  static std::byte page[kZeroBytes];
  return {page, std::min<std::uint64_t>(bytes, kZeroBytes)};
}

}  // namespace

void Sender::queue_ack(std::uint32_t seq, Code code) {
  Frame ack;
  ack.seq = seq;
  ack.code = code;
  if (!responses_.empty()) {
    Frame& previous = responses_.back().frame;
    // An ack covers those before it, unless one of them says no.
    if (previous.type == FrameType::kAck && previous.code == Code::kOk) {
      previous = ack;
      return;
    }
  }
  responses_.push_back({ack, 0});
}

void Sender::queue_read(const Frame& read) { responses_.push_back({read, 0}); }

IoResult Sender::flush(ByteStream& stream, std::size_t turn) noexcept {
  IoResult total;
  while (total.bytes < turn) {
    stage();
    if (staged_.empty()) break;
    std::size_t wanted = 0;
    const IoResult sent = send_staged(stream, turn - total.bytes, wanted);
    if (sent.error != 0) {
      total.error = sent.error;
      break;
    }
    consume(sent.bytes);
    total.bytes += sent.bytes;
    if (sent.bytes < wanted) {
      total.error = EAGAIN;
      break;
    }
  }
  return total;
}

void Sender::stage() noexcept {
  while (staged_.size() < kStageFrames && staged_bytes_ < kStageBytes) {
    const bool request = next_request_ != requests_.end();
    const bool response = !responses_.empty();
    if (!request && !response) return;
    requests_turn_ = request && (!response || requests_turn_);
    if (requests_turn_) {
      stage_request();
    } else {
      stage_response();
    }
    requests_turn_ = !requests_turn_;
  }
}

void Sender::stage_request() noexcept {
  const Request& request = requests_.at(next_request_);
  Staged staged;
  staged.request = next_request_;
  staged.frame.seq = static_cast<std::uint32_t>(next_request_);
  staged.frame.length = request.length;
  staged.frame.key = request.remote_key;
  if (request.kind != OpKind::kMessage) staged.frame.address = request.remote_address + next_offset_;
  switch (request.kind) {
    case OpKind::kWrite:
      staged.frame.type = FrameType::kWrite;
      staged.frame.length = std::min(request.length - next_offset_, kFragmentBytes);
      staged.frame.last = next_offset_ + staged.frame.length == request.length;
      staged.offset = next_offset_;
      break;
    case OpKind::kRead:
      staged.frame.type = FrameType::kRead;
      break;
    case OpKind::kMessage:
      staged.frame.type = FrameType::kMessage;
      break;
  }
  staged.ends_request = staged.frame.last;
  next_offset_ = staged.frame.last ? 0 : next_offset_ + staged.frame.length;
  next_request_ += staged.frame.last ? 1 : 0;
  push_staged(staged);
}

void Sender::stage_response() noexcept {
  Response& response = responses_.front();
  Staged staged;
  staged.frame.seq = response.frame.seq;
  const bool more = response.frame.type == FrameType::kRead && response.frame.code == Code::kOk &&
                    response.offset < response.frame.length;
  if (more) {
    staged.frame.type = FrameType::kReadData;
    staged.frame.length = std::min(response.frame.length - response.offset, kFragmentBytes);
    staged.frame.last = response.offset + staged.frame.length == response.frame.length;
    staged.frame.key = response.frame.key;
    staged.frame.address = response.offset;
    staged.offset = response.frame.address + response.offset;  // in the region; find() has checked the sum
    response.offset += staged.frame.length;
  } else {
    staged.frame.type = FrameType::kAck;
    staged.frame.code = response.frame.code;
    responses_.pop_front();
  }
  push_staged(staged);
}

void Sender::push_staged(Staged staged) noexcept {
  encode(staged.frame, staged.header);
  staged_bytes_ += kHeaderBytes + payload_bytes(staged.frame);
  staged_.push_back(staged);
}

IoResult Sender::send_staged(ByteStream& stream, std::size_t most, std::size_t& wanted) noexcept {
  std::array<iovec, kMaxPieces> pieces;
  const datapath::GrantReader::Section section(grants_);
  const auto send = [&](std::size_t frames) {
    const auto gathered = std::span(pieces).first(gather(frames, pieces));
    return stream.send(gathered.first(limit(gathered, most, wanted)));
  };
  IoResult result = send(staged_.size());
  if (result.error != EFAULT) return result;
  // Some page is gone. Alone, the first frame shows whether it is the one.
  result = send(1);
  if (result.error != EFAULT) return result;
  lose_source(staged_.front());
  return send(1);
}

std::size_t Sender::gather(std::size_t frames, std::span<iovec> pieces) noexcept {
  std::size_t count = 0;
  for (std::size_t i = 0; i < frames && count + 1 < pieces.size(); ++i) {
    Staged& staged = staged_[i];
    note_loss(staged);
    if (staged.sent < kHeaderBytes) {
      pieces[count++] = {staged.header.data() + staged.sent, kHeaderBytes - staged.sent};
    }
    const std::uint64_t payload = payload_bytes(staged.frame);
    if (payload == 0) continue;
    const std::size_t before = count;
    count += gather_payload(staged, pieces.subspan(count));
    std::uint64_t gathered = staged.sent > kHeaderBytes ? staged.sent - kHeaderBytes : 0;
    for (std::size_t p = before; p < count; ++p) gathered += pieces[p].iov_len;
    if (gathered < payload) break;  // no room for the rest: the next frame must wait for it
  }
  return count;
}

// A message must not arrive whose user could not know that a write before it has failed on this side.
void Sender::note_loss(Staged& staged) noexcept {
  const FrameType type = staged.frame.type;
  if (type == FrameType::kWrite && requests_.at(staged.request).code != Code::kOk) requests_.mark_lost(staged.request);
  if (type != FrameType::kMessage || staged.sent > 0 || !requests_.behind_lost(staged.request)) return;
  staged.frame.key = kUndeliverable;
  requests_.at(staged.request).undeliverable = true;
  encode(staged.frame, staged.header);
}

std::size_t Sender::gather_payload(Staged& staged, std::span<iovec> pieces) noexcept {
  const std::uint64_t done = staged.sent > kHeaderBytes ? staged.sent - kHeaderBytes : 0;
  const std::uint64_t left = staged.frame.length - done;
  if (staged.frame.type == FrameType::kReadData && !staged.padded) {
    if (const auto bytes = grants_.find(domain_, staged.frame.key, staged.offset + done, left, Access::kRemoteRead)) {
      pieces[0] = {bytes->data(), bytes->size()};
      return 1;
    }
    lose_source(staged);
  }
  if (staged.padded) {
    pieces[0] = zeros(left);
    return 1;
  }
  return slice(requests_.at(staged.request), staged.offset + done, left, pieces);
}

void Sender::lose_source(Staged& staged) noexcept {
  staged.padded = true;
  if (staged.frame.type != FrameType::kReadData) {
    requests_.at(staged.request).code = Code::kDataLoss;
    return;
  }
  // The read's verdict is either staged behind its data already, or still at the head of the responses.
  for (std::size_t i = 0; i < staged_.size(); ++i) {
    Staged& ack = staged_[i];
    if (ack.frame.type == FrameType::kAck && ack.frame.seq == staged.frame.seq) {
      ack.frame.code = Code::kProtectionError;
      encode(ack.frame, ack.header);
      return;
    }
  }
  responses_.front().frame.code = Code::kProtectionError;
}

void Sender::consume(std::size_t bytes) noexcept {
  staged_bytes_ -= bytes;
  while (bytes > 0) {
    Staged& staged = staged_.front();
    const std::uint64_t left = kHeaderBytes + payload_bytes(staged.frame) - staged.sent;
    if (bytes < left) {
      staged.sent += bytes;
      return;
    }
    bytes -= left;
    if (staged.ends_request) requests_.mark_sent();
    staged_.pop_front();
  }
}

}  // namespace fairlead::tcp_fallback
