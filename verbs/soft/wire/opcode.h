// The opcodes of RC, UC and UD as data: what each one is and which headers follow the BTH.
//
// Source: IBTA volume 1, 9.2.1 (opcode table) and 9.4 (transport functions).
#pragma once

#include <cstdint>

namespace fairlead::soft {

enum class Opcode : std::uint8_t {
  kSendFirst = 0x00,
  kSendMiddle = 0x01,
  kSendLast = 0x02,
  kSendLastImmediate = 0x03,
  kSendOnly = 0x04,
  kSendOnlyImmediate = 0x05,
  kWriteFirst = 0x06,
  kWriteMiddle = 0x07,
  kWriteLast = 0x08,
  kWriteLastImmediate = 0x09,
  kWriteOnly = 0x0a,
  kWriteOnlyImmediate = 0x0b,
  kReadRequest = 0x0c,
  kReadResponseFirst = 0x0d,
  kReadResponseMiddle = 0x0e,
  kReadResponseLast = 0x0f,
  kReadResponseOnly = 0x10,
  kAcknowledge = 0x11,
  kAtomicAcknowledge = 0x12,
  kCompareSwap = 0x13,
  kFetchAdd = 0x14,
  kSendLastInvalidate = 0x16,
  kSendOnlyInvalidate = 0x17,
  kUdSendOnly = 0x64,
  kUdSendOnlyImmediate = 0x65,
  kCongestionNotification = 0x81,
  // Our own, of the range left to manufacturers:
  kReceipt = 0xc0,
  kMissing = 0xd1,  // an acknowledgement that says which packets are not there
  kBundle = 0xd2,   // several small messages (bundle.h)
};

/// The opcode, of our own, of a message's only packet that also carries an acknowledgement (CarriedAck).
[[nodiscard]] constexpr Opcode carrying(Opcode only) noexcept {
  return static_cast<Opcode>(static_cast<std::uint8_t>(only) | 0xc0);
}

/// The transport service that an opcode belongs to: its upper three bits.
enum class Service : std::uint8_t { kRc = 0, kUc = 1, kUd = 3, kManufacturer = 6 };

/// UC's SENDs and WRITEs are RC's with another service.
[[nodiscard]] constexpr Opcode for_uc(Opcode rc) noexcept {
  return static_cast<Opcode>(static_cast<std::uint8_t>(rc) | 0x20);
}

enum class PacketKind : std::uint8_t {
  kNone,
  kCongestionNotification,
  kSend,
  kWrite,
  kRead,
  kAtomic,
  kBundle,
  kReadResponse,
  kAck,
  kAtomicAck,
  kMissing,
  kReceipt
};

/// What follows the BTH of a congestion notification (IBTA annex A17.9.3).
inline constexpr std::uint8_t kCnpReservedBytes = 16;

struct OpcodeInfo {
  PacketKind kind = PacketKind::kNone;
  Service service = Service::kRc;
  bool first = false;  // begins a message
  bool last = false;   // ends one; both: the only packet
  bool reth = false;
  bool aeth = false;
  bool immediate = false;
  bool invalidate = false;  // IETH follows; AtomicETH and AtomicAckETH go by the kind
  bool deth = false;
  bool carried_ack = false;       // the last header
  std::uint8_t header_bytes = 0;  // BTH and what follows it
  bool request() const noexcept { return kind >= PacketKind::kSend && kind <= PacketKind::kBundle; }
  bool response() const noexcept { return kind >= PacketKind::kReadResponse; }
};

/// Never fails: kind is kNone for an opcode that no service here has.
[[nodiscard]] const OpcodeInfo& opcode_info(std::uint8_t opcode) noexcept;

}  // namespace fairlead::soft
