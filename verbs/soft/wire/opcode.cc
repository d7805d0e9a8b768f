#include "verbs/soft/wire/opcode.h"

#include <array>

#include "verbs/soft/wire/headers.h"

namespace fairlead::soft {
namespace {

enum Headers : unsigned {
  kPlain = 0,
  kReth = 1,
  kAeth = 2,
  kImm = 4,
  kInv = 8,
  kAtomicEth = 16,
  kAtomicAckEth = 32,
  kDeth = 64,
  kCarriedAck = 128
};

constexpr OpcodeInfo make(PacketKind kind, bool first, bool last, unsigned headers, Service service = Service::kRc) {
  std::size_t bytes = Bth::kBytes;
  if (headers & kReth) bytes += Reth::kBytes;
  if (headers & kAeth) bytes += Aeth::kBytes;
  if (headers & kImm) bytes += kImmediateBytes;
  if (headers & kInv) bytes += kInvalidateBytes;
  if (headers & kAtomicEth) bytes += AtomicEth::kBytes;
  if (headers & kAtomicAckEth) bytes += kAtomicAckBytes;
  if (headers & kDeth) bytes += Deth::kBytes;
  if (headers & kCarriedAck) bytes += CarriedAck::kBytes;
  return {kind,
          service,
          first,
          last,
          (headers & kReth) != 0,
          (headers & kAeth) != 0,
          (headers & kImm) != 0,
          (headers & kInv) != 0,
          (headers & kDeth) != 0,
          (headers & kCarriedAck) != 0,
          static_cast<std::uint8_t>(bytes)};
}

constexpr std::array<OpcodeInfo, 256> kTable = [] {
  using K = PacketKind;
  std::array<OpcodeInfo, 256> table{};
  const auto set = [&table](Opcode opcode, OpcodeInfo info) { table[static_cast<std::size_t>(opcode)] = info; };
  set(Opcode::kSendFirst, make(K::kSend, true, false, kPlain));
  set(Opcode::kSendMiddle, make(K::kSend, false, false, kPlain));
  set(Opcode::kSendLast, make(K::kSend, false, true, kPlain));
  set(Opcode::kSendLastImmediate, make(K::kSend, false, true, kImm));
  set(Opcode::kSendOnly, make(K::kSend, true, true, kPlain));
  set(Opcode::kSendOnlyImmediate, make(K::kSend, true, true, kImm));
  set(Opcode::kSendLastInvalidate, make(K::kSend, false, true, kInv));
  set(Opcode::kSendOnlyInvalidate, make(K::kSend, true, true, kInv));
  set(Opcode::kWriteFirst, make(K::kWrite, true, false, kReth));
  set(Opcode::kWriteMiddle, make(K::kWrite, false, false, kPlain));
  set(Opcode::kWriteLast, make(K::kWrite, false, true, kPlain));
  set(Opcode::kWriteLastImmediate, make(K::kWrite, false, true, kImm));
  set(Opcode::kWriteOnly, make(K::kWrite, true, true, kReth));
  set(Opcode::kWriteOnlyImmediate, make(K::kWrite, true, true, kReth | kImm));
  set(Opcode::kReadRequest, make(K::kRead, true, true, kReth));
  set(Opcode::kReadResponseFirst, make(K::kReadResponse, true, false, kAeth));
  set(Opcode::kReadResponseMiddle, make(K::kReadResponse, false, false, kPlain));
  set(Opcode::kReadResponseLast, make(K::kReadResponse, false, true, kAeth));
  set(Opcode::kReadResponseOnly, make(K::kReadResponse, true, true, kAeth));
  set(Opcode::kAcknowledge, make(K::kAck, true, true, kAeth));
  set(Opcode::kAtomicAcknowledge, make(K::kAtomicAck, true, true, kAeth | kAtomicAckEth));
  set(Opcode::kCompareSwap, make(K::kAtomic, true, true, kAtomicEth));
  set(Opcode::kFetchAdd, make(K::kAtomic, true, true, kAtomicEth));
  for (auto rc = static_cast<unsigned>(Opcode::kSendFirst); rc <= static_cast<unsigned>(Opcode::kWriteOnlyImmediate);
       ++rc) {
    OpcodeInfo uc = table[rc];
    uc.service = Service::kUc;
    set(for_uc(static_cast<Opcode>(rc)), uc);
  }
  set(Opcode::kUdSendOnly, make(K::kSend, true, true, kDeth, Service::kUd));
  set(Opcode::kUdSendOnlyImmediate, make(K::kSend, true, true, kDeth | kImm, Service::kUd));
  OpcodeInfo notification = make(K::kCongestionNotification, true, true, kPlain);
  notification.header_bytes += kCnpReservedBytes;
  set(Opcode::kCongestionNotification, notification);
  set(carrying(Opcode::kSendOnly), make(K::kSend, true, true, kCarriedAck));
  set(carrying(Opcode::kSendOnlyImmediate), make(K::kSend, true, true, kImm | kCarriedAck));
  set(carrying(Opcode::kSendOnlyInvalidate), make(K::kSend, true, true, kInv | kCarriedAck));
  set(carrying(Opcode::kWriteOnly), make(K::kWrite, true, true, kReth | kCarriedAck));
  set(carrying(Opcode::kWriteOnlyImmediate), make(K::kWrite, true, true, kReth | kImm | kCarriedAck));
  OpcodeInfo missing = make(K::kMissing, true, true, kAeth);
  missing.header_bytes += kMissingBytes;
  set(Opcode::kMissing, missing);
  set(Opcode::kBundle, make(K::kBundle, true, true, kPlain));
  set(Opcode::kReceipt, make(K::kReceipt, true, true, kPlain, Service::kManufacturer));
  return table;
}();

}  // namespace

const OpcodeInfo& opcode_info(std::uint8_t opcode) noexcept { return kTable[opcode]; }

}  // namespace fairlead::soft
