#include "verbs/soft/port/memif/messages.h"

#include <algorithm>
#include <cstring>

namespace fairlead::soft::memif {
namespace {

enum class Type : std::uint16_t {
  kAck = 1,
  kHello,
  kInit,
  kAddRegion,
  kAddRing,
  kConnect,
  kConnected,
  kDisconnect,
};
constexpr std::uint16_t kRingToMaster = 1;
constexpr std::size_t kNameBytes = kMostNameBytes + 1;
constexpr std::size_t kReasonBytes = kMostReasonBytes + 1;

// Fields one behind the other, without gaps.
class Writer {
 public:
  explicit Writer(Type type) { put(type); }
  template <typename Value>
  Writer& put(Value value) {
    std::memcpy(&bytes_[at_], &value, sizeof value);
    at_ += sizeof value;
    return *this;
  }
  Writer& put(const std::string& text, std::size_t room, std::size_t most) {
    text.copy(reinterpret_cast<char*>(&bytes_[at_]), most);
    at_ += room;
    return *this;
  }
  [[nodiscard]] const std::array<std::byte, kMessageBytes>& bytes() const { return bytes_; }

 private:
  std::array<std::byte, kMessageBytes> bytes_{};
  std::size_t at_ = 0;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <typename Value>
  Value get() {
    Value value{};
    std::memcpy(&value, &bytes_[at_], sizeof value);
    at_ += sizeof value;
    return value;
  }
  std::string text(std::size_t room) {
    const auto* from = reinterpret_cast<const char*>(&bytes_[at_]);
    at_ += room;
    return {from, ::strnlen(from, room)};
  }

 private:
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
};

struct Encoder {
  Writer operator()(const Ack&) const { return Writer(Type::kAck); }
  Writer operator()(const Hello& hello) const {
    return Writer(Type::kHello)
        .put(hello.name, kNameBytes, kMostNameBytes)
        .put(hello.least_version)
        .put(hello.most_version)
        .put(hello.last_region)
        .put(hello.last_to_slave)
        .put(hello.last_to_master)
        .put(hello.most_log2_slots);
  }
  Writer operator()(const Init& init) const {
    return Writer(Type::kInit)
        .put(init.version)
        .put(init.interface)
        .put(init.mode)
        .put(init.secret, kMostSecretBytes, kMostSecretBytes)
        .put(init.name, kNameBytes, kMostNameBytes);
  }
  Writer operator()(const AddRegion& region) const {
    return Writer(Type::kAddRegion).put(region.index).put(region.bytes);
  }
  Writer operator()(const AddRing& ring) const {
    const std::uint16_t flags = ring.direction == Direction::kToMaster ? kRingToMaster : std::uint16_t{0};
    return Writer(Type::kAddRing)
        .put(flags)
        .put(ring.index)
        .put(ring.region)
        .put(ring.offset)
        .put(ring.log2_slots)
        .put(ring.private_bytes);
  }
  Writer operator()(const Connect& connect) const {
    return Writer(Type::kConnect).put(connect.interface_name, kNameBytes, kMostNameBytes);
  }
  Writer operator()(const Connected& connected) const {
    return Writer(Type::kConnected).put(connected.interface_name, kNameBytes, kMostNameBytes);
  }
  Writer operator()(const Disconnect& disconnect) const {
    return Writer(Type::kDisconnect).put(disconnect.code).put(disconnect.reason, kReasonBytes, kMostReasonBytes);
  }
};

}  // namespace

std::array<std::byte, kMessageBytes> encode(const Message& message) noexcept {
  return std::visit(Encoder(), message).bytes();
}

// Members are read in the order in which they stand, as braces have it.
std::optional<Message> decode(std::span<const std::byte> bytes) {
  if (bytes.size() != kMessageBytes) return std::nullopt;
  Reader from(bytes);
  using u8 = std::uint8_t;
  using u16 = std::uint16_t;
  using u32 = std::uint32_t;
  switch (from.get<Type>()) {
    case Type::kAck:
      return Ack{};
    case Type::kHello:
      return Hello{from.text(kNameBytes), from.get<u16>(), from.get<u16>(), from.get<u16>(),
                   from.get<u16>(),       from.get<u16>(), from.get<u8>()};
    case Type::kInit:
      return Init{from.get<u16>(), from.get<u32>(), from.get<u8>(), from.text(kMostSecretBytes), from.text(kNameBytes)};
    case Type::kAddRegion:
      return AddRegion{from.get<u16>(), from.get<std::uint64_t>()};
    case Type::kAddRing:
      return AddRing{(from.get<u16>() & kRingToMaster) != 0 ? Direction::kToMaster : Direction::kToSlave,
                     from.get<u16>(),
                     from.get<u16>(),
                     from.get<u32>(),
                     from.get<u8>(),
                     from.get<u16>()};
    case Type::kConnect:
      return Connect{from.text(kNameBytes)};
    case Type::kConnected:
      return Connected{from.text(kNameBytes)};
    case Type::kDisconnect:
      return Disconnect{from.get<u32>(), from.text(kReasonBytes)};
  }
  return std::nullopt;
}

}  // namespace fairlead::soft::memif
