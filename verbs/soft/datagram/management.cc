#include "verbs/soft/datagram/management.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "verbs/soft/qp/qp_context.h"
#include "verbs/soft/wire/bytes.h"
#include "verbs/soft/wire/icrc.h"

namespace fairlead::soft::management {
namespace {

constexpr std::uint8_t kUdSendOnly = 0x64;
constexpr std::uint32_t kWellKnownQkey = 0x80010000;
constexpr std::size_t kDethBytes = 8;  // Q_Key, reserved, source QPN
constexpr std::size_t kHeaderBytes = Bth::kBytes + kDethBytes;
constexpr std::size_t kPacketBytes = kHeaderBytes + kMadBytes + kIcrcBytes;

bool icrc_valid(const PortSlot& slot, const RxPacket& raw) noexcept {
  const UdpFrame frame = headers_of(raw, *slot.port);
  const auto covered = raw.bytes.first(raw.bytes.size() - kIcrcBytes);
  const std::uint32_t difference = icrc(frame, covered) ^ load_icrc(covered.data() + covered.size());
  if (difference == 0 || raw.ipv4_id_known) return difference == 0;
  return frame.source.is_ipv4() && explain_by_ipv4_id(difference, raw.bytes.size()).has_value();
}

}  // namespace

bool addressed(std::span<const std::byte> bytes) noexcept {
  return bytes.size() >= Bth::kBytes && (load32(bytes.data() + 4) & Psn::kMask) == kManagementQpn;
}

void receive(ProgressContext& domain, PortSlot& slot, const RxPacket& shown, ManagementHandler* handler) noexcept {
  Counters& counters = domain.counters;
  if (shown.bytes.size() != kPacketBytes) return counters.drop_malformed.add();
  std::array<std::byte, kPacketBytes> copy;  // the original may lie where others write
  std::copy(shown.bytes.begin(), shown.bytes.end(), copy.begin());
  std::atomic_signal_fence(std::memory_order_seq_cst);
  RxPacket raw = shown;
  raw.bytes = copy;
  const Bth bth = Bth::decode(raw.bytes.data());
  if (bth.version != 0 || bth.opcode != kUdSendOnly || bth.pad != 0) return counters.drop_malformed.add();
  if (handler == nullptr) return counters.drop_no_qp.add();
  if (((bth.pkey ^ kDefaultPKey) & 0x7fff) != 0) return counters.drop_pkey.add();
  const std::byte* deth = raw.bytes.data() + Bth::kBytes;
  if (load32(deth) != kWellKnownQkey || (load32(deth + 4) & Psn::kMask) != kManagementQpn) {
    return counters.drop_malformed.add();
  }
  if (!icrc_valid(slot, raw)) return counters.drop_icrc.add();
  handler->on_mad(destination_of(raw, *slot.port), raw.source, raw.bytes.subspan<kHeaderBytes, kMadBytes>());
}

bool send(ProgressContext& domain, const Gid& local, const Gid& remote,
          std::span<const std::byte, kMadBytes> mad) noexcept {
  PortSlot* slot = domain.find_port(local);
  if (slot == nullptr) return false;
  const Route route = slot->port->make_route(remote, kManagementQpn, 0, 0);
  if (route.error != 0) return false;
  TxBatch& batch = domain.batch(*slot, 1);
  std::byte* header = batch.begin(route, kHeaderBytes, mad.size());
  Bth bth;
  bth.opcode = kUdSendOnly;
  bth.dest_qpn = kManagementQpn;
  bth.psn = slot->next_mad_psn;
  slot->next_mad_psn = slot->next_mad_psn + 1;
  bth.encode(header);
  store32(header + Bth::kBytes, kWellKnownQkey);
  store32(header + Bth::kBytes + 4, kManagementQpn);
  batch.payload(mad.data(), mad.size());
  batch.finish(0);
  domain.flush(*slot);  // the route and the bytes are the caller's
  return true;
}

}  // namespace fairlead::soft::management
