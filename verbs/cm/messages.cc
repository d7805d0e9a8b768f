#include "verbs/cm/messages.h"

#include <cstring>

#include "verbs/soft/wire/bytes.h"

namespace fairlead::cm {
namespace {

using soft::load16;
using soft::load32;
using soft::load64;
using soft::store16;
using soft::store32;
using soft::store64;

constexpr std::uint8_t kBaseVersion = 1;
constexpr std::uint8_t kClassCommMgt = 0x07;
constexpr std::uint8_t kClassVersion = 2;
constexpr std::uint8_t kMethodSend = 0x03;
constexpr std::size_t kHeaderBytes = 24;
constexpr std::uint16_t kPermissiveLid = 0xffff;  // RoCE has no LIDs

// The attribute of each message, in the order of the variant's alternatives.
constexpr std::array<std::uint16_t, std::variant_size_v<Message>> kAttributes = {0x10, 0x11, 0x12, 0x13, 0x14,
                                                                                 0x15, 0x16, 0x17, 0x18};

constexpr std::uint8_t u8(std::uint32_t value) noexcept { return static_cast<std::uint8_t>(value); }
std::uint8_t load8(const std::byte* from) noexcept { return static_cast<std::uint8_t>(*from); }
void store8(std::byte* to, std::uint32_t value) noexcept { *to = static_cast<std::byte>(value); }
// 24 bits and 8 more.
void store24(std::byte* to, std::uint32_t high, std::uint32_t low = 0) noexcept {
  store32(to, high << 8 | (low & 0xff));
}

template <std::size_t N>
void load(std::array<std::byte, N>& to, const std::byte* from) noexcept {
  std::memcpy(to.data(), from, N);
}
template <std::size_t N>
void store(std::byte* to, const std::array<std::byte, N>& from) noexcept {
  std::memcpy(to, from.data(), N);
}
Gid load_gid(const std::byte* from) noexcept {
  Gid gid;
  std::memcpy(gid.bytes.data(), from, gid.bytes.size());
  return gid;
}

void load_ids(auto& message, const std::byte* from) noexcept {
  message.local_comm_id = load32(from);
  message.remote_comm_id = load32(from + 4);
}
void store_ids(std::byte* to, const auto& message) noexcept {
  store32(to, message.local_comm_id);
  store32(to + 4, message.remote_comm_id);
}

// get: bytes to value; put: value to bytes, which are zeros before. Offsets are from the end of the MAD header.

void get(Req& req, const std::byte* from) noexcept {
  req.local_comm_id = load32(from);
  req.service_id = load64(from + 8);
  req.local_ca_guid = load64(from + 16);
  req.local_qkey = load32(from + 28);
  const std::uint32_t qpn = load32(from + 32);
  req.local_qpn = qpn >> 8;
  req.responder_resources = u8(qpn);
  req.initiator_depth = load8(from + 39);
  const std::uint8_t service = load8(from + 43);
  req.remote_cm_response_timeout = service >> 3;
  req.transport_service = service >> 1 & 3;
  req.end_to_end_flow_control = (service & 1) != 0;
  const std::uint32_t psn = load32(from + 44);
  req.starting_psn = psn >> 8;
  req.local_cm_response_timeout = psn >> 3 & 31;
  req.retry_count = psn & 7;
  req.pkey = load16(from + 48);
  const std::uint8_t mtu = load8(from + 50);
  req.path_mtu = mtu >> 4;
  req.rnr_retry_count = mtu & 7;
  const std::uint8_t retries = load8(from + 51);
  req.max_cm_retries = retries >> 4;
  req.srq = (retries & 8) != 0;
  req.primary.local = load_gid(from + 56);
  req.primary.remote = load_gid(from + 72);
  req.primary.flow_label = load32(from + 88) >> 12;
  req.primary.traffic_class = load8(from + 92);
  req.primary.hop_limit = load8(from + 93);
  req.primary.local_ack_timeout = load8(from + 95) >> 3;
  load(req.private_data, from + 140);
}

void put(const Req& req, std::byte* to) noexcept {
  store32(to, req.local_comm_id);
  store64(to + 8, req.service_id);
  store64(to + 16, req.local_ca_guid);
  store32(to + 28, req.local_qkey);
  store24(to + 32, req.local_qpn, req.responder_resources);
  store8(to + 39, req.initiator_depth);
  store8(to + 43, static_cast<std::uint32_t>(req.remote_cm_response_timeout << 3 | (req.transport_service & 3) << 1) |
                      (req.end_to_end_flow_control ? 1U : 0U));
  store24(to + 44, req.starting_psn,
          static_cast<std::uint32_t>(req.local_cm_response_timeout << 3 | (req.retry_count & 7)));
  store16(to + 48, req.pkey);
  store8(to + 50, static_cast<std::uint32_t>(req.path_mtu << 4 | (req.rnr_retry_count & 7)));
  store8(to + 51, static_cast<std::uint32_t>(req.max_cm_retries << 4) | (req.srq ? 8U : 0U));
  store16(to + 52, kPermissiveLid);
  store16(to + 54, kPermissiveLid);
  std::memcpy(to + 56, req.primary.local.bytes.data(), 16);
  std::memcpy(to + 72, req.primary.remote.bytes.data(), 16);
  store32(to + 88, req.primary.flow_label << 12);
  store8(to + 92, req.primary.traffic_class);
  store8(to + 93, req.primary.hop_limit);
  store8(to + 95, static_cast<std::uint32_t>(req.primary.local_ack_timeout << 3));
  store(to + 140, req.private_data);
}

void get(Mra& mra, const std::byte* from) noexcept {
  load_ids(mra, from);
  mra.about = static_cast<About>(load8(from + 8) >> 6);
  mra.service_timeout = load8(from + 9) >> 3;
}

void put(const Mra& mra, std::byte* to) noexcept {
  store_ids(to, mra);
  store8(to + 8, static_cast<std::uint32_t>(mra.about) << 6);
  store8(to + 9, static_cast<std::uint32_t>(mra.service_timeout << 3));
}

void get(Rej& rej, const std::byte* from) noexcept {
  load_ids(rej, from);
  rej.about = static_cast<About>(load8(from + 8) >> 6);
  rej.info_length = load8(from + 9) >> 1;
  rej.reason = static_cast<RejectReason>(load16(from + 10));
  load(rej.info, from + 12);
  load(rej.private_data, from + 84);
}

void put(const Rej& rej, std::byte* to) noexcept {
  store_ids(to, rej);
  store8(to + 8, static_cast<std::uint32_t>(rej.about) << 6);
  store8(to + 9, static_cast<std::uint32_t>(rej.info_length << 1));
  store16(to + 10, static_cast<std::uint16_t>(rej.reason));
  store(to + 12, rej.info);
  store(to + 84, rej.private_data);
}

void get(Rep& rep, const std::byte* from) noexcept {
  load_ids(rep, from);
  rep.local_qkey = load32(from + 8);
  rep.local_qpn = load32(from + 12) >> 8;
  rep.starting_psn = load32(from + 20) >> 8;
  rep.responder_resources = load8(from + 24);
  rep.initiator_depth = load8(from + 25);
  const std::uint8_t delay = load8(from + 26);
  rep.target_ack_delay = delay >> 3;
  rep.end_to_end_flow_control = (delay & 1) != 0;
  const std::uint8_t retry = load8(from + 27);
  rep.rnr_retry_count = retry >> 5;
  rep.srq = (retry & 16) != 0;
  rep.local_ca_guid = load64(from + 28);
  load(rep.private_data, from + 36);
}

void put(const Rep& rep, std::byte* to) noexcept {
  store_ids(to, rep);
  store32(to + 8, rep.local_qkey);
  store24(to + 12, rep.local_qpn);
  store24(to + 20, rep.starting_psn);
  store8(to + 24, rep.responder_resources);
  store8(to + 25, rep.initiator_depth);
  store8(to + 26, static_cast<std::uint32_t>(rep.target_ack_delay << 3) | (rep.end_to_end_flow_control ? 1U : 0U));
  store8(to + 27, static_cast<std::uint32_t>(rep.rnr_retry_count << 5) | (rep.srq ? 16U : 0U));
  store64(to + 28, rep.local_ca_guid);
  store(to + 36, rep.private_data);
}

void get(Rtu& rtu, const std::byte* from) noexcept { load_ids(rtu, from); }
void put(const Rtu& rtu, std::byte* to) noexcept { store_ids(to, rtu); }

void get(Dreq& dreq, const std::byte* from) noexcept {
  load_ids(dreq, from);
  dreq.remote_qpn = load32(from + 8) >> 8;
}
void put(const Dreq& dreq, std::byte* to) noexcept {
  store_ids(to, dreq);
  store24(to + 8, dreq.remote_qpn);
}

void get(Drep& drep, const std::byte* from) noexcept { load_ids(drep, from); }
void put(const Drep& drep, std::byte* to) noexcept { store_ids(to, drep); }

void get(SidrReq& req, const std::byte* from) noexcept {
  req.request_id = load32(from);
  req.pkey = load16(from + 4);
  req.service_id = load64(from + 8);
  load(req.private_data, from + 16);
}

void put(const SidrReq& req, std::byte* to) noexcept {
  store32(to, req.request_id);
  store16(to + 4, req.pkey);
  store64(to + 8, req.service_id);
  store(to + 16, req.private_data);
}

void get(SidrRep& rep, const std::byte* from) noexcept {
  rep.request_id = load32(from);
  rep.status = static_cast<SidrRep::Status>(load8(from + 4));
  rep.qpn = load32(from + 8) >> 8;
  rep.service_id = load64(from + 12);
  rep.qkey = load32(from + 20);
  load(rep.private_data, from + 96);
}

void put(const SidrRep& rep, std::byte* to) noexcept {
  store32(to, rep.request_id);
  store8(to + 4, static_cast<std::uint32_t>(rep.status));
  store24(to + 8, rep.qpn);
  store64(to + 12, rep.service_id);
  store32(to + 20, rep.qkey);
  store(to + 96, rep.private_data);
}

template <std::size_t Index = 0>
bool get_as(std::size_t wanted, Message& message, const std::byte* from) noexcept {
  if constexpr (Index < std::variant_size_v<Message>) {
    if (Index != wanted) return get_as<Index + 1>(wanted, message, from);
    get(message.emplace<Index>(), from);
    return true;
  } else {
    return false;
  }
}

}  // namespace

std::optional<Mad> parse(std::span<const std::byte> bytes) noexcept {
  if (bytes.size() != kMadBytes) return std::nullopt;
  if (load8(&bytes[0]) != kBaseVersion || load8(&bytes[1]) != kClassCommMgt || load8(&bytes[2]) != kClassVersion ||
      load8(&bytes[3]) != kMethodSend) {
    return std::nullopt;
  }
  const std::uint16_t attribute = load16(&bytes[16]);
  Mad mad;
  mad.transaction_id = load64(&bytes[8]);
  for (std::size_t i = 0; i < kAttributes.size(); ++i) {
    if (kAttributes[i] == attribute && get_as(i, mad.message, bytes.data() + kHeaderBytes)) return mad;
  }
  return std::nullopt;
}

MadBytes encode(const Mad& mad) noexcept {
  MadBytes bytes{};
  store8(&bytes[0], kBaseVersion);
  store8(&bytes[1], kClassCommMgt);
  store8(&bytes[2], kClassVersion);
  store8(&bytes[3], kMethodSend);
  store64(&bytes[8], mad.transaction_id);
  store16(&bytes[16], kAttributes[mad.message.index()]);
  std::visit([&bytes](const auto& message) { put(message, &bytes[kHeaderBytes]); }, mad.message);
  return bytes;
}

}  // namespace fairlead::cm
