// The two halves of a path over shared memory whose other end writes anything into it: they may answer or refuse, and
// touch only what was granted and what was to be read. Also what crosses the meeting's socket.
//
// Input: the first byte chooses what the peer can do, and whether a thread changes its slots under way; the rest are
// slots of 64 bytes (shm/ring/slot.h). A stamp that is odd puts the slot among the answers, else it is a request; one
// above 2^31 sets the peer's counts to what its key, address and length say instead. A key of 1, 2 or 3 stands for a
// region, since keys are random.
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/guarded.h"
#include "shm/meeting/greeting.h"
#include "shm/requester.h"
#include "shm/responder.h"
#include "tests/fuzz/scribbler.h"

namespace {

using namespace fairlead;
using namespace fairlead::shm;

constexpr std::size_t kGuard = 64, kSize = 20'000, kTurn = 64 * 1024;

struct Guarded {
  std::vector<std::byte> bytes = std::vector<std::byte>(kSize + 2 * kGuard, std::byte{0x5a});
  std::span<std::byte> inner() { return std::span(bytes).subspan(kGuard, kSize); }
  [[nodiscard]] bool intact() const {
    for (std::size_t i = 0; i < kGuard; ++i) {
      if (bytes[i] != std::byte{0x5a} || bytes[bytes.size() - 1 - i] != std::byte{0x5a}) return false;
    }
    return true;
  }
};

struct Ignored : Sink {
  void on_message(std::span<const std::byte> bytes) noexcept override {
    for (const std::byte each : bytes) sum += static_cast<unsigned>(each);
  }
  void on_notification(std::uint32_t value) noexcept override { sum += value; }
  void on_completion(const datapath::Ended& ended) noexcept override { completions += ended.count; }
  unsigned sum = 0;
  std::uint64_t completions = 0;
};

void parse_meeting(const std::uint8_t* data, std::size_t size) {
  (void)decode_description({reinterpret_cast<const char*>(data), size});
  Greeting greeting;
  (void)parse_arena_packet({reinterpret_cast<const std::byte*>(data), size});
  (void)decode({reinterpret_cast<const std::byte*>(data), size}, greeting);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  parse_meeting(data + 1, size - 1);
  install_fault_handlers();
  UniqueFd descriptor;
  auto made = Segment::make(descriptor);
  auto adopted = Segment::adopt(descriptor);
  if (!made || !adopted) return 0;  // this system is short of descriptors
  Shared &peers = **made, &own = **adopted;
  peers.sides[0].state.pulls = data[0] % 2;
  peers.sides[0].state.closed = data[0] / 2 % 2;
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) return 0;
  const UniqueFd here(ends[0]), there(ends[1]);
  datapath::Copies copies;
  PeerMemory memory(copies);
  OwnArenas arenas;
  GivenArenas given(arenas);
  memory.meet({.id = ::getpid(), .life = {}}, here.get());
  memory.start(&own.sides[0], &own.sides[1], true, true);
  given.start(&own.sides[0], &own.sides[1], here.get(), true);

  Guarded writable, readable, both, local;
  datapath::GrantTable grants;
  datapath::GrantReader reader(grants);
  const std::uint64_t keys[] = {grants.grant(writable.inner(), Access::kRemoteWrite).key,
                                grants.grant(readable.inner(), Access::kRemoteRead).key,
                                grants.grant(both.inner(), Access::kRemoteReadWrite).key};
  Requester requester(memory, given);
  PulledReads reads;
  Responder responder(memory, given, reader, reads, 0);
  requester.start(&own.requests[1], &own.responses[0], &own.sides[0], &own.sides[1], true);
  responder.start(&own.requests[0], &own.responses[1], &own.sides[0], &own.sides[1], true);
  std::uint64_t posted = 0;
  for (const auto kind : {datapath::OpKind::kWrite, datapath::OpKind::kRead, datapath::OpKind::kMessage}) {
    const datapath::LocalSegment segment{local.inner().data(), kind == datapath::OpKind::kMessage ? 100 : kSize, 0};
    const datapath::WorkRequest work{.id = posted, .kind = kind, .local = {&segment, 1}};
    posted += requester.post({&work, 1});
  }

  Producer<Requests> asks(&peers.requests[0], &peers.sides[1].answered.requests);
  Producer<Responses> answers(&peers.responses[0], &peers.sides[1].heard.responses);
  std::optional<fuzz::Scribbler> scribbler;
  if (data[0] >= 128) {
    std::vector<std::span<std::byte>> places;
    for (std::size_t i = 0; i < 8; ++i) {
      places.push_back(std::as_writable_bytes(std::span(&peers.requests[0].slots[i], 1)));
      places.push_back(std::as_writable_bytes(std::span(&peers.responses[0].slots[i], 1)));
    }
    scribbler.emplace(std::move(places), data[0]);
  }
  Ignored sink;
  std::string_view reason;
  const auto advance = [&] {
    const Advance in = responder.advance(sink, kTurn);
    const Advance back = requester.advance(sink, kTurn);
    reason = in.reason.empty() ? back.reason : in.reason;
    return reason.empty() && !in.gone && !back.gone;
  };
  for (std::size_t at = 1; at + kSlotBytes <= size; at += kSlotBytes) {
    Slot slot;
    std::memcpy(&slot, data + at, sizeof slot);
    if (slot.key >= 1 && slot.key <= 3) slot.key = keys[slot.key - 1];
    if (slot.stamp >> 31 != 0) {
      peers.sides[0].answered.ended = slot.key;
      peers.sides[0].answered.requests.slots = slot.address;
      peers.sides[0].answered.requests.data = slot.length;
    } else if (slot.stamp % 2 != 0) {
      answers.push(slot);
    } else {
      asks.push(slot);
    }
    if (at / kSlotBytes % 4 == 0 && !advance()) break;
  }
  for (int turn = 0; turn < 4 && advance(); ++turn) {
  }
  scribbler.reset();
  requester.stop();
  responder.stop();
  for (; !requester.idle(); ++sink.completions) (void)requester.take_first();
  for (const Guarded* each : {&writable, &readable, &both, &local}) {
    if (!each->intact()) std::abort();
  }
  if (sink.completions != posted) std::abort();  // each request ends once
  return 0;
}
