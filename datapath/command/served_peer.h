// A session of the service with its engine's peer: messages in, words out, and the thread that runs it, if it has one.
//
// Where the device is shared, that thread waits for its tenant's turn before it runs what has come.
//
// A session that is kept outlives its peer: what has come runs on, and another peer may be given to it.
//
// Threads: deliver(), attach(), turn(), stop() on the service's thread; what they say of the session on the one that
// runs it.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/system/long_look.h"
#include "datapath/command/server_session.h"
#include "datapath/command/tenants.h"
#include "datapath/command/turnstile.h"
#include "datapath/command/windows.h"
#include "fairlead/command_service.h"
#include "fairlead/peer.h"
#include "fairlead/transfer.h"

namespace fairlead::datapath::command {

/// What sessions count together. Threads: any.
struct ServiceCounters {
  std::atomic<std::uint64_t> begun{0}, refused{0}, ended_wrong{0}, commands{0}, failures{0}, skipped_unknown{0},
      replies{0};
};

/// A service's devices, also where it was not said that there might be several.
[[nodiscard]] std::vector<fairlead::command::ServedDevice> devices_of(const fairlead::command::ServiceConfig& config);

class ServedPeer final : private Outlet {
 public:
  /// `turnstiles`: of the devices; none where they are not shared by turns. `time`: of one without a thread; threads
  /// wait by the steady clock. `windows`: null, there are none.
  ServedPeer(Peer peer, Admission admission, const ServerSession::Terms& terms,
             const fairlead::command::ServiceConfig& config, ServiceCounters& counters, Turnstiles& turnstiles,
             std::shared_ptr<ModuleCache> modules, Windows* windows, TimeSource time);
  ~ServedPeer();

  /// From now on a thread of its own runs it. kResourceExhausted: there is none to be had.
  [[nodiscard]] Status start_thread();
  void deliver(Event event);
  /// Behind all that was delivered: its client has this peer now, and `said` what it has (SessionRunner::resume).
  void attach(Peer peer, std::vector<std::byte> said);
  /// What is left to do: nothing until something comes, to look again whether the client took its results, to run on.
  enum class Left : std::uint8_t { kNothing, kHeld, kMore };
  /// Without a thread: runs what can run.
  Left turn();
  /// What it had to leave can go on without a word of its client's: a device is at work, or bandwidth is used up.
  [[nodiscard]] bool waits_for_time();
  /// The peer has gone. A thread ends when the command that it runs does.
  void stop() noexcept;
  [[nodiscard]] bool has_ended() const noexcept { return ended_.load(std::memory_order_acquire); }

  [[nodiscard]] const std::string& principal() const noexcept { return principal_; }
  [[nodiscard]] TenantAccount& account() const noexcept { return admission_.account(); }
  [[nodiscard]] const SessionKey& key() const noexcept { return key_; }
  [[nodiscard]] std::uint32_t channels() const noexcept { return channels_; }
  /// Whether it is to be kept while its client is away.
  [[nodiscard]] bool is_kept() const noexcept { return kept_.load(std::memory_order_acquire); }

 private:
  using Clock = std::chrono::steady_clock;

  void send(TrafficClass traffic, Bytes message) override;
  [[nodiscard]] std::uint64_t untaken() override;
  [[nodiscard]] bool may_copy(std::uint64_t bytes) override;
  [[nodiscard]] std::optional<std::int64_t> copy_level() override;
  void charge_copies(std::uint64_t bytes) override { admission_.account().bandwidth.charge(bytes); }
  /// Without a thread nobody knows: then it is time to look.
  [[nodiscard]] bool has_news() const override {
    return thread_.joinable() ? any_queued_.load(std::memory_order_acquire) : time_() >= look_again_;
  }
  [[nodiscard]] Clock::time_point now() override { return time_(); }
  /// `time`: when it begins; then, when it ended.
  bool run(std::uint32_t device, Clock::time_point until, Clock::time_point& time);
  /// The next, behind that one, on which there is something to run or to look at; else one that it has.
  [[nodiscard]] std::uint32_t next_device(std::uint32_t last) const noexcept;
  /// Waits until it has a turn there. False: it is to end.
  [[nodiscard]] bool enter(std::uint32_t device);
  void leave();
  /// What came: an event, or another peer and what its client said.
  struct News {
    Event event;
    std::optional<Peer> peer;
  };
  void queue(News news);
  [[nodiscard]] bool hold(const News& news);
  void forget_attached();
  void take(News& news);
  /// What the client asked for, if the session has begun.
  void open_window(bool may_be_for_reads);
  void count(std::uint32_t device);
  void thread_main() noexcept;
  void take_queued();
  void end();
  [[nodiscard]] bool await_news();

  Peer peer_;  // of who runs it
  const Admission admission_;
  const std::string principal_;
  const SessionKey key_;
  const std::uint32_t channels_;  // that it may have
  const std::uint64_t most_queued_;
  const bool may_be_kept_;
  ServiceCounters& counters_;
  Turnstiles& turnstiles_;
  Windows* const windows_;
  const bool in_process_;
  const TimeSource time_;
  std::optional<Window> window_;            // while there is a session
  bool asked_ = false;                      // for one
  bool wishes_to_be_kept_ = false;          // its client, if it may
  bool bandwidth_is_used_up_ = false;       // a copy heard so, in the last turn
  std::unique_ptr<SessionRunner> session_;  // who runs it may use it, others under mutex_
  SessionRunner::Counts counted_;
  std::uint64_t counted_waiting_ = 0;
  bool welcome_ = false, told_ = false;
  std::array<std::deque<std::pair<Transfer, std::uint64_t>>, kTrafficClasses> sent_;  // the client may have yet to take
  std::uint64_t untaken_ = 0;                                                         // bytes of them
  Status unsent_;                                                                     // why one of them never goes

  Turnstile::Turn turn_;       // that it has, if it takes turns,
  std::uint32_t turn_at_ = 0;  // at that device

  std::uint64_t moves_ = 0;         // of the devices, that were seen
  Clock::time_point moved_at_{};    // when the last of them was, or something came
  LongLook long_look_;              // for the next
  Clock::time_point look_again_{};  // for messages, where they come between turns

  std::uint64_t running_bytes_ = 0;  // that were queued, and may be on their way to who runs them

  std::thread thread_;
  std::atomic<bool> stopping_{false}, ended_{false};
  std::atomic<bool> any_queued_{false}, kept_{false};
  std::mutex mutex_;  // guards what follows
  std::condition_variable news_;
  std::vector<News> queued_;
  std::uint64_t queued_bytes_ = 0;
  bool overrun_ = false;
  std::uint64_t crowded_ = 0;  // bytes that waited for its tenant's sessions, when they were too many; 0: never
};

}  // namespace fairlead::datapath::command
