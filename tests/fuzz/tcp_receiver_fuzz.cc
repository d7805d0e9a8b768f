// One end of a data connection fed with anything: it may answer or refuse, and touches only what was granted.
//
// Input: the first byte chooses how calls are chopped, the rest is the stream. The end has requests of each kind in
// flight, and regions of each grant whose keys are known: `FuzzTable` below gives keys that an input can name.
#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/tcp_fallback/protocol_end.h"

namespace {

using namespace fairlead;
using namespace fairlead::tcp_fallback;

constexpr std::size_t kGuard = 64;
constexpr std::size_t kSize = 512;

struct Guarded {
  std::vector<std::byte> bytes = std::vector<std::byte>(kSize + 2 * kGuard, std::byte{0x5a});
  std::span<std::byte> inner() { return std::span(bytes).subspan(kGuard, kSize); }
  bool intact() const {
    for (std::size_t i = 0; i < kGuard; ++i) {
      if (bytes[i] != std::byte{0x5a} || bytes[bytes.size() - 1 - i] != std::byte{0x5a}) return false;
    }
    return true;
  }
};

// Keys are random, which no input could guess: in frames of writes and reads, a key of 1, 2 or 3 stands for a region.
void name_regions(std::vector<std::byte>& stream, const std::uint64_t (&keys)[3]) {
  std::size_t at = 0;
  while (at + kHeaderBytes <= stream.size()) {
    Frame frame;
    if (!decode(std::span<const std::byte, kHeaderBytes>(&stream[at], kHeaderBytes), frame).empty()) return;
    if (frame.key >= 1 && frame.key <= 3) std::memcpy(&stream[at + 8], &keys[frame.key - 1], sizeof frame.key);
    at += kHeaderBytes + payload_bytes(frame);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  Pipe pipe;
  pipe.chunk = 1 + std::size_t{data[0]} * 64;
  ProtocolEnd end(pipe, 0);
  Guarded writable, readable, both, local;
  const std::uint64_t keys[] = {end.grants.grant(writable.inner(), Access::kRemoteWrite).key,
                                end.grants.grant(readable.inner(), Access::kRemoteRead).key,
                                end.grants.grant(both.inner(), Access::kRemoteReadWrite).key};
  for (datapath::OpKind kind : {datapath::OpKind::kWrite, datapath::OpKind::kRead, datapath::OpKind::kMessage}) {
    end.post(kind, local.inner());
  }
  while (!end.sender.idle()) end.sender.flush(end.stream);

  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> stream(bytes + 1, bytes + size);
  name_regions(stream, keys);
  pipe.bytes[1].assign(stream.begin(), stream.end());
  end.stream.closed = true;
  while (end.receiver.advance(end.stream, end).end == Receiver::End::kNone) {
    end.sender.flush(end.stream);
    pipe.bytes[0].clear();
  }
  const bool readable_changed = std::any_of(readable.inner().begin(), readable.inner().end(),
                                            [](std::byte each) { return each != std::byte{0x5a}; });
  if (readable_changed || end.completions.size() > 3) __builtin_trap();
  for (const Guarded* each : {&writable, &readable, &both, &local}) {
    if (!each->intact()) __builtin_trap();
  }
  return 0;
}
