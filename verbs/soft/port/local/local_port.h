// A port over sockets whose packets to devices of this host cross memory instead.
//
// What is for a queue pair of one peer, all but datagrams (UD, QP1), goes by the link to its device, if that lets
// itself be met (meeting.h); datagrams, and packets for which there is no link, go by the sockets as before. A link is
// made by the first packet that could use it, and gone with either end. Threads: as PacketPort. A child of fork() has
// the sockets alone, as far as those go.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/system/fork_mark.h"
#include "verbs/soft/observe/counters.h"
#include "verbs/soft/port/local/link.h"
#include "verbs/soft/port/port_decorator.h"
#include "verbs/soft/port/references.h"
#include "verbs/soft/port/urgent_way.h"

namespace fairlead::soft::local {

struct LocalOptions {
  bool checks = false;  // what comes needs an ICRC, because somebody behind this port looks at it or harms packets
  /// Payload of messages of at least so many bytes is referred to, where the other end can read it, but where `checks`;
  /// 0: of none.
  std::uint32_t least_referred = kLeastReferred;
};

class LocalPort final : public PortDecorator, private References, private UrgentWay {
 public:
  /// Where nobody can be met, which is logged, it is `inner` alone.
  [[nodiscard]] static std::unique_ptr<PacketPort> around(std::unique_ptr<PacketPort> inner, const Party& self,
                                                          const LocalOptions& options);
  ~LocalPort() override;

  [[nodiscard]] Route make_route(const Gid& destination, std::uint32_t flow, std::uint8_t traffic_class,
                                 std::uint8_t hop_limit) override;
  std::size_t rx_burst(std::span<RxPacket> packets, Nanos now) noexcept override;
  void tx_burst(TxBatch& batch) noexcept override;
  void count_in(Counters& counters) noexcept override;
  [[nodiscard]] std::uint64_t refused() const noexcept override { return inner_->refused() + lost_; }
  [[nodiscard]] int wait_fd() const noexcept override { return events_.get(); }
  bool on_wait(bool begins) noexcept override;
  [[nodiscard]] Nanos next_event() const noexcept override;
  void unmap(const void* start, std::size_t bytes) noexcept override { withdraw(start, bytes); }
  void end_loans() noexcept override;

 private:
  /// To one place at an address of this host.
  struct Way {
    Link* link = nullptr;
    Nanos next_try = 0;
    Nanos patience = 0;
  };
  /// An address of this host that a queue pair sends to. What anybody may ask for makes none, or strangers could take
  /// all the room: not datagrams, and receipts only where there is a link.
  struct Destination {
    Gid gid;
    std::array<Way, 256> ways;  // by the upper byte of the queue pair number
  };
  struct Stranger {
    PrivateFd socket;
    Nanos deadline = 0;
  };

  LocalPort(std::unique_ptr<PacketPort> inner, const Party& self, const LocalOptions& options);
  [[nodiscard]] std::size_t reach(const Route& route, std::uint32_t qpn, std::size_t message) noexcept override;
  [[nodiscard]] bool fetches(const Route& route, std::uint32_t qpn, std::size_t message) noexcept override;
  void withdraw(const Route& route) noexcept override;
  void withdraw(const void* start, std::size_t bytes) noexcept override;
  /// While nothing comes from other hosts: what is made for two rings is not for sockets.
  [[nodiscard]] bool open() const noexcept override { return !links_.empty() && !sockets_busy_; }
  std::size_t rx_urgent(std::span<RxPacket> packets, Nanos now) noexcept override;
  [[nodiscard]] Status listen();
  [[nodiscard]] Status take_name();
  void leave_name(std::string_view why) noexcept;
  void keep_name() noexcept;
  [[nodiscard]] bool watch(int fd) noexcept;
  [[nodiscard]] bool is_mine() const noexcept { return fork_mark_.is_mine(); }
  [[nodiscard]] bool has_destination(const Route& route, bool makes) noexcept;
  [[nodiscard]] bool is_met(const Gid& gid) const noexcept;
  [[nodiscard]] Link* link_for(const Route& route, std::uint8_t place, bool makes = true) noexcept;
  [[nodiscard]] LinkTerms terms() const noexcept;
  template <typename Which>
  void withdraw_if(Which&& which) noexcept;
  void count_referring(std::size_t bytes) noexcept;
  [[nodiscard]] Link* meet(const Gid& gid, std::uint8_t place) noexcept;
  [[nodiscard]] Link* find(const Party& party) noexcept;
  Link* take_in(Result<std::unique_ptr<Link>> made) noexcept;
  void tend() noexcept;
  void accept() noexcept;
  void hear_strangers() noexcept;
  void look_again_for(const Gid& gid) noexcept;
  void drop_ended() noexcept;

  const Party self_;
  const LocalOptions options_;
  const ForkMark fork_mark_;
  std::string place_, name_;
  PrivateFd events_;                 // epoll
  PrivateFd listener_;               // none: nobody else is to be met
  std::vector<Stranger> strangers_;  // who have not said yet who they are; the oldest first
  std::vector<std::unique_ptr<Link>> links_;
  std::vector<std::unique_ptr<Destination>> destinations_;
  bool leads_here_ = false;   // some route, to an address of this host
  std::size_t first_ = 0;     // link that is next to be looked at first
  unsigned until_inner_ = 0;  // bursts until the sockets are looked at, if there is no time to go by
  bool inner_has_more_ = false;
  bool sockets_busy_ = false;  // there was something when they were looked at last
  Nanos next_inner_ = 0, next_tend_ = 0;
  Nanos look_at_name_ = 0;  // whether somebody listens there, and should
  Nanos now_ = 0;
  std::uint64_t lost_ = 0;
  Counters* counters_ = nullptr;
  bool waits_ = false;      // somebody does, on wait_fd()
  bool has_waited_ = true;  // and what he waited for is to be looked at
};

}  // namespace fairlead::soft::local
