// An rdma_cm identifier: what a program connects, accepts and is told by.
//
// bound to a place (device and GID) by an address; then a listener, or one end of a connection or datagram service.
// Created by create_id or by a request, owned by the program, ended by destroy_id.
// Threads: as rdma_cma.h has it, calls about one identifier come one at a time, but for its events, which arrive under
// the lock of its device's domain at any time.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "verbs/cm/address.h"
#include "verbs/cm/channel.h"
#include "verbs/cm/device_cm.h"

namespace fairlead::cm {

inline constexpr std::uint8_t kDefaultAckTimeout = 17;  // 0.54 s, what Linux takes for RoCE

/// So many READs and atomics at a time, or as many as the device can.
[[nodiscard]] constexpr std::uint8_t cut_to_device(std::uint8_t reads) noexcept {
  return static_cast<std::uint8_t>(std::min<int>(reads, soft::kMaxReads));
}

class Id final : public rdma_cm_id, public User, public Listener {
 public:
  /// `events` null: it gets its channel with the event that tells of it.
  Id(Channel* events, void* user_context, rdma_port_space space, ibv_qp_type type);
  ~Id() = default;
  Id(const Id&) = delete;
  Id& operator=(const Id&) = delete;

  // Under the lock of the connection's domain.
  void on_event(Connection& from, const Event& event) noexcept override;
  User* on_request(Connection& request) noexcept override;

  [[nodiscard]] Channel& events() noexcept { return *static_cast<Channel*>(rdma_cm_id::channel); }
  [[nodiscard]] bool is_datagram() const noexcept { return ps == RDMA_PS_UDP || ps == RDMA_PS_IPOIB; }
  /// Takes events_mutex().
  void push(EventRecord& record);
  /// An event without a message behind it.
  void push(rdma_cm_event_type type);

  /// Fills in what the program reads of the place: device, port, source address and GID.
  void place(const Place& where, const IpEndpoint& own);
  void set_destination(const IpEndpoint& peer);
  [[nodiscard]] IpEndpoint source() const noexcept { return from_sockaddr(route.addr.src_addr).value_or(IpEndpoint{}); }
  [[nodiscard]] IpEndpoint destination() const noexcept {
    return from_sockaddr(route.addr.dst_addr).value_or(IpEndpoint{});
  }
  [[nodiscard]] bool ipv6() const noexcept { return route.addr.src_addr.sa_family == AF_INET6; }
  /// What a listener at "any" hears.
  [[nodiscard]] Family family() const noexcept {
    return !ipv6() ? Family::kIpv4 : ipv6_only ? Family::kIpv6 : Family::kAny;
  }

  Place where;  // device null: not bound
  Connection* connection = nullptr;
  std::uint32_t starting_psn = 0;        // where the peer begins to send
  std::uint8_t responder_resources = 0;  // what the queue pair answers at a time, and
  std::uint8_t initiator_depth = 0;      // what it asks
  std::uint8_t type_of_service = 0;
  std::uint8_t ack_timeout = kDefaultAckTimeout;
  bool ipv6_only = false;  // what "::" means
  ibv_sa_path_rec path{};

  // A listener's.
  std::vector<DeviceCm*> listening;  // empty: it does not
  std::vector<std::pair<DeviceCm*, Gid>> heard_at;
  std::uint64_t service = 0;
  unsigned backlog = 0;
  unsigned waiting = 0;  // requests that no one has taken, under events_mutex()

  std::unique_ptr<Channel> own_channel;  // of a synchronous identifier
  /// What rdma_create_ep gives the identifiers of its requests.
  std::unique_ptr<ibv_qp_init_attr> request_qp;
  ibv_pd* request_pd = nullptr;

  // Under events_mutex().
  std::uint32_t delivered = 0;
  std::uint32_t acked = 0;
};

[[nodiscard]] inline Id& impl(rdma_cm_id* id) noexcept { return static_cast<Id&>(*id); }

}  // namespace fairlead::cm
