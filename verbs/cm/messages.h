// The messages of communication management as values, and their codec: 256-byte MADs of class CommMgt.
//
// Values are in host byte order. Any bytes parse to a message or to nothing. Lengths of private data are those that
// fit the message: the wire carries no length, so what is shorter arrives with zeros behind it.
// Threads: pure functions.
// Source: IBTA volume 1, 13.4.3 (MAD header), 12.6 (message formats), 12.11 (SIDR).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>

#include "verbs/soft/wire/gid.h"

namespace fairlead::cm {

using soft::Gid;

inline constexpr std::size_t kMadBytes = 256;
using MadBytes = std::array<std::byte, kMadBytes>;

/// Why a REJ was sent (IBTA 12.6.7.2, table 112).
enum class RejectReason : std::uint16_t {
  kNoResources = 3,
  kTimeout = 4,
  kInvalidCommId = 6,
  kInvalidServiceId = 8,
  kStaleConnection = 10,
  kInvalidPathMtu = 26,
  kConsumer = 28,
};

/// Which message a REJ or MRA is about.
enum class About : std::uint8_t { kReq = 0, kRep = 1, kOther = 2 };

struct Path {
  Gid local;
  Gid remote;
  std::uint32_t flow_label = 0;  // 20 bits
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 64;
  std::uint8_t local_ack_timeout = 0;  // 4.096 us * 2^n, 5 bits
};

/// ConnectRequest. The alternate path is neither sent nor read.
struct Req {
  static constexpr std::size_t kPrivateBytes = 92;
  std::uint32_t local_comm_id = 0;
  std::uint64_t service_id = 0;
  std::uint64_t local_ca_guid = 0;
  std::uint32_t local_qkey = 0;
  std::uint32_t local_qpn = 0;  // 24 bits
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint8_t remote_cm_response_timeout = 0;  // 4.096 us * 2^n, as the next
  std::uint8_t local_cm_response_timeout = 0;
  std::uint8_t transport_service = 0;  // 0: RC, 1: UC
  bool end_to_end_flow_control = false;
  std::uint32_t starting_psn = 0;  // 24 bits: where the peer begins to send
  std::uint8_t retry_count = 0;
  std::uint16_t pkey = 0xffff;
  std::uint8_t path_mtu = 1;  // as ibv_mtu
  std::uint8_t rnr_retry_count = 0;
  std::uint8_t max_cm_retries = 0;
  bool srq = false;
  Path primary;
  std::array<std::byte, kPrivateBytes> private_data{};
};

/// Message receipt acknowledgement: the answer takes longer than promised.
struct Mra {
  std::uint32_t local_comm_id = 0;
  std::uint32_t remote_comm_id = 0;
  About about = About::kReq;
  std::uint8_t service_timeout = 0;
};

struct Rej {
  static constexpr std::size_t kPrivateBytes = 148;
  static constexpr std::size_t kInfoBytes = 72;
  std::uint32_t local_comm_id = 0;
  std::uint32_t remote_comm_id = 0;
  About about = About::kReq;
  RejectReason reason = RejectReason::kConsumer;
  std::uint8_t info_length = 0;  // 7 bits; may exceed kInfoBytes in what a stranger sends
  std::array<std::byte, kInfoBytes> info{};
  std::array<std::byte, kPrivateBytes> private_data{};
};

/// ConnectReply.
struct Rep {
  static constexpr std::size_t kPrivateBytes = 196;
  std::uint32_t local_comm_id = 0;
  std::uint32_t remote_comm_id = 0;
  std::uint32_t local_qkey = 0;
  std::uint32_t local_qpn = 0;     // 24 bits
  std::uint32_t starting_psn = 0;  // 24 bits
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint8_t target_ack_delay = 0;
  bool end_to_end_flow_control = false;
  std::uint8_t rnr_retry_count = 0;
  bool srq = false;
  std::uint64_t local_ca_guid = 0;
  std::array<std::byte, kPrivateBytes> private_data{};
};

/// ReadyToUse.
struct Rtu {
  std::uint32_t local_comm_id = 0;
  std::uint32_t remote_comm_id = 0;
};

struct Dreq {
  std::uint32_t local_comm_id = 0;
  std::uint32_t remote_comm_id = 0;
  std::uint32_t remote_qpn = 0;  // 24 bits
};

struct Drep {
  std::uint32_t local_comm_id = 0;
  std::uint32_t remote_comm_id = 0;
};

/// Service ID resolution: which queue pair serves datagrams.
struct SidrReq {
  static constexpr std::size_t kPrivateBytes = 216;
  std::uint32_t request_id = 0;
  std::uint16_t pkey = 0xffff;
  std::uint64_t service_id = 0;
  std::array<std::byte, kPrivateBytes> private_data{};
};

struct SidrRep {
  static constexpr std::size_t kPrivateBytes = 136;
  enum class Status : std::uint8_t { kValid = 0, kServiceNotSupported = 1, kRejected = 2, kNoQueuePair = 3 };
  std::uint32_t request_id = 0;
  Status status = Status::kValid;
  std::uint32_t qpn = 0;  // 24 bits
  std::uint64_t service_id = 0;
  std::uint32_t qkey = 0;
  std::array<std::byte, kPrivateBytes> private_data{};
};

using Message = std::variant<Req, Mra, Rej, Rep, Rtu, Dreq, Drep, SidrReq, SidrRep>;

struct Mad {
  std::uint64_t transaction_id = 0;
  Message message;
};

/// Nothing where the bytes are no MAD of this class, version and method, or the message is none of the above.
[[nodiscard]] std::optional<Mad> parse(std::span<const std::byte> bytes) noexcept;
[[nodiscard]] MadBytes encode(const Mad& mad) noexcept;

}  // namespace fairlead::cm
