#include "datapath/session/control_channel.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

namespace fairlead::datapath {
namespace {

constexpr std::string_view kPreamble = "FAIRLEAD";

std::uint32_t load_u32(const char* bytes) {
  unsigned char b[4];
  std::memcpy(b, bytes, 4);
  return static_cast<std::uint32_t>(b[0]) | static_cast<std::uint32_t>(b[1]) << 8 |
         static_cast<std::uint32_t>(b[2]) << 16 | static_cast<std::uint32_t>(b[3]) << 24;
}

std::string printable(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text.push_back(c >= 0x20 && c < 0x7f ? c : '.');
  return text;
}

}  // namespace

Result<bool> FrameReader::next(control::Frame& frame) {
  if (!preamble_seen_) {
    const std::size_t have = std::min(buffer_.size(), kPreamble.size());
    if (std::string_view(buffer_).substr(0, have) != kPreamble.substr(0, have)) {
      return Status(Code::kVersionMismatch, fmt::format("not a Fairlead peer: it began with \"{}\", not \"{}\"",
                                                        printable(std::string_view(buffer_).substr(0, 16)), kPreamble));
    }
    if (have < kPreamble.size()) return false;
    preamble_seen_ = true;
    consumed_ = kPreamble.size();
  }
  // What was handed over is not kept, however the stream is cut.
  const auto wait_for_more = [this] {
    buffer_.erase(0, std::exchange(consumed_, 0));
    return false;
  };
  if (buffer_.size() - consumed_ < 4) return wait_for_more();
  const std::uint32_t length = load_u32(buffer_.data() + consumed_);
  if (length > kMaxFrame) {
    return Status(Code::kDataLoss, fmt::format("control frame of {} bytes; the limit is {}", length, kMaxFrame));
  }
  if (buffer_.size() - consumed_ - 4 < length) return wait_for_more();
  std::optional<control::Frame> parsed = control::parse({buffer_.data() + consumed_ + 4, length});
  consumed_ += 4 + length;
  if (!parsed) return Status(Code::kDataLoss, fmt::format("malformed control frame of {} bytes", length));
  frame = std::move(*parsed);
  return true;
}

ControlChannel::ControlChannel(std::unique_ptr<ControlStream> stream, bool connecting)
    : stream_(std::move(stream)), connecting_(connecting), out_(kPreamble) {}

Status ControlChannel::fail(Status why) {
  out_.clear();
  sent_ = 0;
  broken_ = std::move(why);
  return broken_;
}

std::string to_wire(const control::Frame& frame) {
  std::string wire(4, '\0');
  control::append_to(wire, frame);
  const std::size_t length = wire.size() - 4;
  for (std::size_t i = 0; i < 4; ++i) wire[i] = static_cast<char>(length >> (8 * i));
  return wire;
}

Status ControlChannel::send(std::string_view wire) {
  if (!broken_.ok()) return broken_;
  out_ += wire;
  return connecting_ ? Status() : flush();
}

Status ControlChannel::flush() {
  if (!broken_.ok()) return broken_;
  if (connecting_) {
    const Result<bool> connected = stream_->connected();
    if (!connected) return connected.error();
    if (!*connected) return {};
    connecting_ = false;
  }
  while (sent_ < out_.size()) {
    iovec rest{out_.data() + sent_, out_.size() - sent_};
    const IoResult io = stream_->send({&rest, 1});
    if (io.would_block()) {
      if (queued() > kMaxQueued) {
        return fail({Code::kResourceExhausted,
                     fmt::format("it does not read its control connection: {} bytes are queued, the limit is {}",
                                 queued(), kMaxQueued)});
      }
      // Moving what is left costs no more than sending what went.
      if (sent_ >= out_.size() / 2) out_.erase(0, std::exchange(sent_, 0));
      return {};
    }
    if (io.error != 0) return fail({Code::kPeerDied, std::strerror(io.error)});
    sent_ += io.bytes;
  }
  out_.clear();
  sent_ = 0;
  return {};
}

Status ControlChannel::read(const std::function<bool(const control::Frame&)>& handle) {
  control::Frame frame;
  char bytes[16384];
  std::size_t frames = 0;
  const std::uint64_t before = received_;
  while (true) {
    while (more_) {
      if (frames == kTurnFrames || !wants_read()) return {};
      Result<bool> got = reader_.next(frame);
      if (!got) return got.error();
      more_ = *got;
      if (!more_) break;
      ++frames;
      if (!handle(frame)) return {};
    }
    if (received_ - before >= kTurnBytes || !wants_read()) return {};
    iovec room{bytes, sizeof bytes};
    const IoResult io = stream_->receive({&room, 1});
    if (io.would_block()) return {};
    if (io.error != 0) return Status(Code::kPeerDied, std::strerror(io.error));
    if (io.bytes == 0) return Status(Code::kPeerDied, "it closed its control connection without a goodbye");
    reader_.append(bytes, io.bytes);
    received_ += io.bytes;
    more_ = true;
  }
}

}  // namespace fairlead::datapath
