// A transport made of memory and a virtual clock, for the engine's tests: it keeps the interface's promises
// (transport/) and nothing more, in the order and at the times that chance gives.
//
// A work request is sent after a while (its bytes are read then), is on the wire, lands, and is acknowledged. A path
// that is closed sends nothing more, but what is on the wire still lands unless the other end is closed too: what a
// fence is there for. A path may be cut, so that its ends learn of it at different times or one of them never, and it
// may stand still. With Habits::writes_arrive off, writes are accepted and go nowhere.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/simulation/world.h"
#include "transport/device.h"

namespace fairlead::simulation {

class FakePath;

/// Where the paths of all engines of a world find each other.
struct Wire {
  explicit Wire(World& its_world) : world(its_world) {}
  World& world;
  std::map<std::string, FakePath*> paths;  // by description
  std::uint64_t next = 0;
  std::uint64_t engines = 0;
  std::uint64_t landed_after_close = 0;  // operations that came to an end that was closed: refused, and counted
  std::uint64_t sent_again = 0;          // packets
  std::uint64_t refused = 0;             // operations that named memory which was not granted
  std::uint64_t foreign = 0;             // of those: memory that is granted to paths of another domain
  std::uint64_t unregistered = 0;        // requests that named memory of ours which their path's domain does not know
};

struct Habits {
  std::string name = "verbs:fake0";
  datapath::Capabilities can;
  bool writes_arrive = true;
  bool refusal_ends_path = true;  // as a queue pair; else as tcp
  /// What a gateway on the way swallows: every connection, or all that goes toward one of the ends.
  enum class Swallows : std::uint8_t { kNothing, kConnections, kTowardPassive, kTowardActive };
  Swallows swallows = Swallows::kNothing;
  microseconds latency{20};
  /// Of a link that is slow: what is sent waits for what was sent before it, and what a read brings for what reads
  /// brought before it; the two take turns, as tcp's do. 0: no limit.
  double bytes_per_us = 0;
  /// Of packets, how many are lost or spoiled on the way. What is spoiled fails its checksum: both are sent again, and
  /// what was sent behind them waits.
  double loss = 0;
  /// Writes and reads overtake each other; no message overtakes a write where the capabilities say so.
  bool reorders = false;
  /// What is larger is never heard of again: a network that takes no packets of that size, and does not say so. 0:
  /// none.
  std::uint64_t swallows_above = 0;
};

class FakeTransport : public datapath::Device {
 public:
  FakeTransport(Wire& wire, Habits habits) : wire_(wire), habits_(checking(std::move(habits))) {}

  std::string_view name() const noexcept override { return habits_.name; }
  const datapath::Capabilities& capabilities() const noexcept override { return habits_.can; }
  std::string describe() const override { return "simulated"; }
  Result<datapath::Registration> register_memory(const datapath::MemoryDescriptor& memory) override;
  void deregister(const datapath::Registration& registration) noexcept override;
  Result<datapath::Grant> grant(const datapath::MemoryDescriptor& part) override;
  void revoke(const datapath::Grant& grant) noexcept override;
  Result<std::unique_ptr<datapath::MemoryDomain>> open_domain() override;
  datapath::DeviceUsage usage() const noexcept override { return {registered_.size(), granted_.size()}; }
  Result<std::unique_ptr<datapath::Endpoint>> open_endpoint() override;

  // What its endpoint does.
  Result<std::unique_ptr<datapath::Path>> open_path(const datapath::PathConfig& config);
  bool poll() noexcept;

  /// The memory that an operation of a peer names; nothing where no key grants it.
  /// `domain`: the path's; keys of others open nothing. Nor is our own memory known there that was registered
  /// elsewhere.
  [[nodiscard]] std::byte* granted(const datapath::MemoryDomain* domain, std::uint64_t key, std::uint64_t address,
                                   std::uint64_t length, bool write) const;
  [[nodiscard]] bool registered(const datapath::MemoryDomain* domain, const datapath::LocalSegment& segment) const;
  /// What a domain holds.
  std::uint64_t keep(const datapath::MemoryDomain* domain, const datapath::MemoryDescriptor& memory, bool grant);
  /// Without what proves paths of its domains, a registration and a grant each.
  [[nodiscard]] std::size_t registrations() const noexcept {
    return registered_.size() + granted_.size() - 2 * domains_;
  }
  void count_domain(bool is_new) noexcept { is_new ? ++domains_ : --domains_; }
  [[nodiscard]] const Habits& habits() const noexcept { return habits_; }
  /// Its cable is pulled out: it makes no more paths. Those that are there are to be cut.
  void unplug() noexcept { unplugged_ = true; }
  [[nodiscard]] Wire& wire() noexcept { return wire_; }
  [[nodiscard]] const std::vector<FakePath*>& paths() const noexcept { return paths_; }

 private:
  friend class FakePath;
  /// Each access is looked up.
  static Habits checking(Habits habits) {
    habits.can.grants_are_entries = true;
    return habits;
  }

  Wire& wire_;
  const Habits habits_;
  struct Held {
    const datapath::MemoryDomain* domain = nullptr;
    datapath::MemoryDescriptor memory;
  };
  std::map<std::uint64_t, Held> registered_, granted_;  // by key
  std::size_t domains_ = 0;
  std::vector<FakePath*> paths_;  // ours, not closed for good
  bool unplugged_ = false;
};

class FakePath : public datapath::Path {
 public:
  FakePath(FakeTransport& transport, const datapath::PathConfig& config);
  ~FakePath() override { leave(); }

  std::string local_description() const override { return name_; }
  Status connect(std::string_view peer) override;
  std::size_t post(std::span<const datapath::WorkRequest> requests) noexcept override;
  void close() noexcept override;
  bool drained() const noexcept override { return outstanding_.empty() && reports_.empty(); }
  std::string describe() const override { return name_; }
  std::uint32_t max_message() const noexcept override { return peer_max_message_; }

  // For who makes trouble.
  /// Nothing passes any more. This end learns of it after `notice`; none: never by itself.
  void cut(std::optional<microseconds> notice);
  /// Nothing passes for so long, and nobody is told.
  void stall(microseconds time);
  /// As if the peer had said it.
  void slip_message(std::span<const std::byte> bytes);
  void slip_notification(std::uint32_t value);
  [[nodiscard]] FakePath* peer() const;
  /// Nothing reaches this end.
  [[nodiscard]] bool deaf() const noexcept;
  [[nodiscard]] FakeTransport& transport() noexcept { return transport_; }
  /// How often it took something.
  [[nodiscard]] std::uint64_t doorbells() const noexcept { return doorbells_; }
  /// More was posted to it than the write and the message that prove a path.
  [[nodiscard]] bool used() const noexcept { return next_number_ > 2; }
  [[nodiscard]] bool alive() const noexcept { return ready_ && !closed_ && !down_ && !cut_; }

 protected:
  /// It is found by nobody any more. Idempotent.
  void leave() noexcept;

 private:
  friend class FakeTransport;
  struct Operation {
    std::uint64_t number = 0;  // ours
    std::uint64_t id = 0;      // the user's
    datapath::OpKind kind = datapath::OpKind::kWrite;
    std::vector<datapath::LocalSegment> local;
    std::uint64_t address = 0, key = 0;
    std::optional<std::uint32_t> notify;
    std::vector<std::byte> bytes;  // of a message
    std::uint64_t refusals = 0;    // that were known when it was posted
    bool ended = false;
    Code code = Code::kOk;
  };
  struct Packet {
    std::uint64_t number = 0;
    datapath::OpKind kind = datapath::OpKind::kWrite;
    std::uint64_t address = 0, key = 0, length = 0;
    std::optional<std::uint32_t> notify;
    std::vector<std::byte> bytes;
    std::uint64_t refusals = 0;
  };
  struct Report {
    enum class Kind : std::uint8_t { kReady, kMessage, kNotification, kDown } kind = Kind::kReady;
    std::vector<std::byte> bytes;
    std::uint32_t value = 0;
    Code code = Code::kOk;
    std::string reason;
  };
  /// Of things that keep their order: the earliest time for the next.
  enum Chain : std::uint8_t { kSend, kSendMessage, kLand, kAck, kReadAck, kChains };

  Clock::time_point next_time(Chain chain);
  Clock::time_point carried(Chain chain, std::uint64_t bytes);
  Clock::time_point landing_time(const Packet& packet);
  void send(Chain chain);
  void land(const Packet& packet);
  void acknowledge(std::uint64_t number, Code code, const std::vector<std::byte>& read);
  void go_down(Code code, const std::string& reason);
  bool poll();
  Operation* find(std::uint64_t number);

  FakeTransport& transport_;
  const datapath::MemoryDomain* const domain_;
  World& world_;
  const std::string name_;
  const datapath::PathRole role_;
  std::string peer_name_;
  std::uint32_t peer_max_message_ = std::numeric_limits<std::uint32_t>::max();
  bool ready_ = false, closed_ = false, down_ = false, told_down_ = false, cut_ = false;
  Clock::time_point stalled_until_{};
  Clock::time_point chains_[kChains]{};
  Clock::time_point carries_until_[kChains]{};  // of kLand and kReadAck: the link, where it is slow
  Clock::time_point writes_landed_{};           // the latest of them, where they overtake each other
  std::deque<std::uint64_t> to_send_[kSendMessage + 1];
  std::deque<Operation> outstanding_;
  bool aborted_[3]{};  // of each kind: one that the path's death left undone was reported
  std::deque<Report> reports_;
  std::uint64_t next_number_ = 0;
  std::uint64_t doorbells_ = 0;
  // Where a refused write leaves the path alive, messages that were posted in ignorance of it come back.
  std::uint64_t refusals_made_ = 0;   // of writes that the peer sent
  std::uint64_t refusals_known_ = 0;  // of ours, by the peer
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace fairlead::simulation
