// Our own memif whose peer says anything over the socket, and writes anything into descriptors and rings: each end may
// take offence, and touches only memory that both share.
//
// Input: the first byte's lowest bit chooses. 0: messages of 128 bytes to a master, before each a byte that says which
// descriptor comes along; where they lead to a connection it is used. 1: two ends that have agreed, and steps of four
// bytes: where in the rings, what is written there, and which end then moves how much.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "base/system/shared_memory.h"
#include "tests/verbs/soft/memif/two_ends.h"

namespace {

using namespace fairlead;
using namespace fairlead::soft::memif;

constexpr unsigned kLog2Slots = 3;
constexpr std::size_t kRings = 4 * RingView::bytes(kLog2Slots);
constexpr std::size_t kMemory = 1 << 16;

// Reads what arrived, and sends a frame.
unsigned use(Way& way, std::size_t frame_bytes) {
  unsigned sum = 0;
  std::array<std::span<const std::byte>, 16> frames;
  if (way.receiver.fault() == nullptr) {
    const std::size_t count = way.receiver.take(frames);
    if (count > frames.size()) std::abort();
    for (const auto& frame : std::span(frames).first(count)) {
      for (const std::byte each : frame) sum += static_cast<unsigned>(each);
    }
  }
  if (way.sender.fault() != nullptr) return sum;
  const std::vector<std::byte> frame(frame_bytes, std::byte{0x5a});
  if (const std::size_t slots = way.sender.copy(0, frame); slots > 0) static_cast<void>(way.sender.publish(slots));
  return sum;
}

void talk(const std::uint8_t* data, std::size_t size) {
  static const UniqueFd memory = std::move(*make_shared_memory("fuzz", kMemory));
  static const SharedMapping mapped = std::move(*SharedMapping::map(memory.get(), kMemory));
  static const UniqueFd wakes(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  std::memset(mapped.get(), 0, kMemory);
  for (std::size_t i = 0; i < 4; ++i) {  // where the seeds have their rings
    RingView(mapped.get() + i * RingView::bytes(kLog2Slots)).cookie().store(kCookie);
  }
  const auto master = Handshake::of(Role::kMaster, {});
  static_cast<void>(master->begin());
  for (; size > kMessageBytes; data += kMessageBytes + 1, size -= kMessageBytes + 1) {
    const auto message = decode({reinterpret_cast<const std::byte*>(data + 1), kMessageBytes});
    if (!message) continue;
    const int with = data[0] % 3 == 0 ? -1 : data[0] % 3 == 1 ? memory.get() : wakes.get();
    if (!master->take(*message, UniqueFd(with < 0 ? -1 : ::fcntl(with, F_DUPFD_CLOEXEC, 0)))) break;
  }
  if (master->wire() == nullptr) return;
  for (int i = 0; i < 4; ++i) {
    use(*master->wire(), 1000);
    if (master->wire()->urgent) use(*master->wire()->urgent, 1000);
  }
}

void share(const std::uint8_t* data, std::size_t size) {
  soft::memif::test::TwoEnds ends({}, {.log2_slots = kLog2Slots, .buffer_bytes = 256});
  if (!ends.talk().empty()) std::abort();
  std::byte* const rings = ends.master->wire()->regions.find(0, 0, kRings);
  for (; size >= 4; data += 4, size -= 4) {
    const std::size_t at = (std::size_t{data[1]} << 8 | data[0]) % kRings;
    rings[at] = static_cast<std::byte>(data[2]);
    if (data[3] % 4 == 0) continue;
    Wire& wire = *(data[3] % 2 == 0 ? ends.master : ends.slave)->wire();
    use(data[3] % 8 < 4 ? static_cast<Way&>(wire) : *wire.urgent, std::size_t{data[3]} * 8 + 1);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  data[0] % 2 == 0 ? talk(data + 1, size - 1) : share(data + 1, size - 1);
  return 0;
}
