// A port over unprivileged UDP sockets: one receives on 4791, a few send, each with a source port of its own.
//
// Runs of equal packets to one peer leave as one system call's work (UDP_SEGMENT) and arrive coalesced (UDP_GRO).
// What a full socket does not take now waits as a copy, up to a limit, and leaves before what comes later for it.
// Threads: as PacketPort.
#pragma once

#include <sys/socket.h>

#include <array>
#include <deque>
#include <memory>
#include <vector>

#include "verbs/soft/port/interfaces.h"
#include "verbs/soft/port/packet_port.h"
#include "verbs/soft/port/udp/shared_address.h"
#include "verbs/soft/port/udp/udp_receiver.h"
#include "verbs/soft/port/udp/udp_socket.h"

namespace fairlead::soft {

class UdpPort final : public PacketPort {
 public:
  /// Over a receiving socket that is bound to the address, which it takes.
  UdpPort(const InterfaceAddress& address, UniqueFd socket);
  /// Over a place at an address that other processes use too.
  UdpPort(const InterfaceAddress& address, std::unique_ptr<SharedAddress> place);
  ~UdpPort() override;
  /// Asks the system for so much in place of what was asked for, and announces what comes of it. Before it is used.
  void ask_for_receive_buffer(std::size_t bytes) noexcept;
  /// Whether it can send to addresses of this host: without, it is of no use.
  [[nodiscard]] Status status() const;

  [[nodiscard]] const Gid& address() const noexcept override { return address_; }
  [[nodiscard]] std::uint32_t max_mtu() const noexcept override {
    return largest_path_mtu(interface_.mtu, !address_.is_ipv4());
  }
  [[nodiscard]] ReceiveWindow receive_window() const noexcept override { return receive_window_; }
  [[nodiscard]] Route make_route(const Gid& destination, std::uint32_t flow, std::uint8_t traffic_class,
                                 std::uint8_t hop_limit) override;
  std::size_t rx_burst(std::span<RxPacket> packets, Nanos now) noexcept override;
  void tx_burst(TxBatch& batch) noexcept override;
  void report_traffic_class() noexcept override;
  [[nodiscard]] Status take_requests(std::uint32_t service) override {
    return place_ ? place_->take_requests(service) : Status();
  }
  void leave_requests(std::uint32_t service) noexcept override {
    if (place_) place_->leave_requests(service);
  }
  [[nodiscard]] std::uint64_t refused() const noexcept override { return refused_; }
  [[nodiscard]] int wait_fd() const noexcept override { return socket_; }
  [[nodiscard]] Nanos next_event() const noexcept override;

 private:
  static constexpr std::size_t kFull = 64;  // packets that wait

  struct Sender;
  struct TxSocket {
    std::uint16_t port = 0;
    PrivateFd fd;
    Gid peer;  // that it is connected to
    std::uint8_t traffic_class = 0;
    std::uint8_t hop_limit = 0;
  };

  UdpPort(const InterfaceAddress& address, PrivateFd own, std::unique_ptr<SharedAddress> place);
  struct Waiting {
    Route route;
    std::vector<std::byte> bytes;
  };

  TxSocket open_sender(std::uint16_t port, PortUse use, const Gid& peer, std::uint8_t traffic_class,
                       std::uint8_t hop_limit);
  const TxSocket& sender_in_host(const Route& route);
  const TxSocket* sender_outward(const Route& route, std::uint32_t flow);
  void measure_receive_buffer() noexcept;
  void prepare(TxBatch& batch, std::size_t from) noexcept;
  std::size_t send_prepared(TxBatch& batch, std::size_t from) noexcept;
  int send_run(std::size_t from, std::size_t to) noexcept;
  [[nodiscard]] bool segments(const Gid& destination) const noexcept;
  void keep(TxBatch& batch, std::size_t from, std::size_t to);
  void send_waiting() noexcept;

  Gid address_;
  PrivateFd own_;                         // one of the two is there
  std::unique_ptr<SharedAddress> place_;  // likewise
  int socket_;
  InterfaceAddress interface_;  // a link-local address alone does not tell it
  ReceiveWindow receive_window_;
  std::uint64_t refused_ = 0;
  std::vector<Gid> unsegmented_;  // destinations whose routes refuse UDP_SEGMENT
  std::deque<Waiting> waiting_;   // oldest first
  Nanos now_ = 0;
  const std::uint16_t host_port_;
  PrivateFd host_guard_;
  TxSocket host_socket_;                  // to addresses of this host
  int host_error_ = 0;                    // why one of the two is not there
  std::vector<TxSocket> host_connected_;  // likewise, to one loopback address each
  std::vector<TxSocket> tx_sockets_;
  UdpReceiver receiver_;
  std::unique_ptr<Sender> sender_;
};

}  // namespace fairlead::soft
