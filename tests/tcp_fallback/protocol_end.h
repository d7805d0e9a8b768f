// The protocol without sockets: a pipe that chops as it likes, and one end of a connection over it.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <random>
#include <vector>

#include "tcp_fallback/receiver.h"
#include "tcp_fallback/request_queue.h"
#include "tcp_fallback/sender.h"
#include "transport/grant_table.h"

namespace fairlead::tcp_fallback {

/// Two queues of bytes. Every call moves as many bytes as the dice say, at least 1 and at most `chunk`.
struct Pipe {
  std::deque<std::byte> bytes[2];
  std::size_t capacity = 200'000;
  std::size_t chunk = 1;
  std::mt19937 random{1};

  std::size_t throw_dice() { return 1 + random() % chunk; }
};

class PipeEnd final : public ByteStream {
 public:
  PipeEnd(Pipe& pipe, int side) : pipe_(pipe), out_(pipe.bytes[side]), in_(pipe.bytes[1 - side]) {}

  bool closed = false;  // the other side's end of stream
  /// Memory for which calls fail with EFAULT, as the kernel does when pages are gone.
  std::function<bool(const iovec&)> faulty = [](const iovec&) { return false; };

  IoResult send(std::span<iovec> pieces) noexcept override {
    return move(pieces, pipe_.capacity - std::min(pipe_.capacity, out_.size()),
                [this](std::byte* at, std::size_t n) { out_.insert(out_.end(), at, at + n); });
  }
  IoResult receive(std::span<iovec> pieces) noexcept override {
    if (in_.empty() && closed) return {};
    return move(pieces, in_.size(), [this](std::byte* at, std::size_t n) {
      std::copy_n(in_.begin(), n, at);
      in_.erase(in_.begin(), in_.begin() + static_cast<std::ptrdiff_t>(n));
    });
  }

 private:
  template <typename F>
  IoResult move(std::span<iovec> pieces, std::size_t available, const F& move_some) {
    std::size_t left = std::min(available, pipe_.throw_dice());
    if (left == 0) return {0, EAGAIN};
    IoResult result;
    for (const iovec& piece : pieces) {
      if (left == 0) break;
      if (piece.iov_len > 0 && faulty(piece)) {
        if (result.bytes == 0) result.error = EFAULT;
        break;
      }
      const std::size_t n = std::min(left, piece.iov_len);
      move_some(static_cast<std::byte*>(piece.iov_base), n);
      result.bytes += n;
      left -= n;
    }
    return result;
  }

  Pipe& pipe_;
  std::deque<std::byte>& out_;
  std::deque<std::byte>& in_;
};

struct ProtocolEnd : Receiver::Sink {
  static constexpr std::uint32_t kDepth = 64;

  ProtocolEnd(Pipe& pipe, int side) : stream(pipe, side) { receiver.set_peer_depth(kDepth); }

  PipeEnd stream;
  datapath::GrantTable grants;
  datapath::GrantReader reader{grants};
  RequestQueue requests{kDepth};
  Sender sender{requests, reader};
  Receiver receiver{requests, sender, reader};
  std::vector<std::vector<std::byte>> messages;
  std::vector<std::pair<std::uint64_t, Code>> completions;

  bool post(datapath::OpKind kind, std::span<std::byte> bytes, std::uint64_t key = 0, std::uint64_t address = 0) {
    const datapath::LocalSegment segment{bytes.data(), bytes.size(), 0};
    return requests.push(
        {.id = requests.end(), .kind = kind, .local = {&segment, 1}, .remote_address = address, .remote_key = key});
  }
  Receiver::Outcome step() {
    sender.flush(stream);
    return receiver.advance(stream, *this);
  }
  void on_message(std::span<const std::byte> bytes) noexcept override {
    messages.emplace_back(bytes.begin(), bytes.end());
  }
  std::vector<std::uint64_t> rows;  // how many were told by one call
  void on_completion(const datapath::Ended& ended) noexcept override {
    if (ended.code == Code::kOk) rows.push_back(ended.count);
    for (std::uint64_t i = 0; i < ended.count; ++i) completions.emplace_back(ended.first + i, ended.code);
  }
};

}  // namespace fairlead::tcp_fallback
