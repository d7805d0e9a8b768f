// A session at the client: its peer, its channels, and whoever waits for the server's words.
//
// One of the threads that wait reads for all, and so drives the engine (readers.h). Threads: any. Lives as long as a
// handle of it or of a channel.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "datapath/command/bodies.h"
#include "datapath/command/client/client_window.h"
#include "datapath/command/client/flusher.h"
#include "datapath/command/client/readers.h"
#include "datapath/command/client_channel.h"
#include "datapath/command/device/welcome.h"
#include "datapath/command/range/client_range.h"
#include "datapath/command/resume/keeper.h"
#include "datapath/command/resume/seeker.h"
#include "fairlead/command.h"
#include "fairlead/engine.h"

namespace fairlead::datapath::command {

class ClientSession : public fairlead::command::SessionBody {
 public:
  using Clock = std::chrono::steady_clock;

  static Result<std::shared_ptr<ClientSession>> connect(Engine& engine, std::string_view host_port,
                                                        const fairlead::command::SessionOptions& options);
  ClientSession(Peer peer, const fairlead::command::SessionOptions& options);
  ~ClientSession();

  /// How another peer is to be had, if the session is to outlive the one it has: before greet().
  void seek_by(Seeker::Dial dial, Seeker::Now now);
  /// Says hello for one whose engine takes messages of that size. What connect() does after that: wait.
  void greet(std::size_t max_message_bytes, const HelloMore& more = {}, std::uint64_t devices = kAnyDevice) noexcept;
  /// The service has answered: channels may be opened.
  [[nodiscard]] bool is_welcome() const noexcept { return welcome_.load(std::memory_order_acquire); }

  [[nodiscard]] const fairlead::command::SessionOptions& options() const noexcept { return options_; }
  /// Of a device; one that there is not is taken for the first.
  [[nodiscard]] const fairlead::command::Limits& limits(std::size_t device = 0) const noexcept {
    return limits_[device < limits_.size() ? device : 0];
  }
  [[nodiscard]] std::size_t device_count() const noexcept { return limits_.size(); }
  [[nodiscard]] Peer peer() const;
  [[nodiscard]] std::uint64_t resumptions() const noexcept { return resumptions_.load(std::memory_order_relaxed); }
  /// Null: it was not opened.
  [[nodiscard]] ClientChannel* channel(std::size_t number) const noexcept {
    return number < channel_count_.load(std::memory_order_acquire) ? channels_[number].get() : nullptr;
  }
  [[nodiscard]] ClientRange& range() noexcept { return range_; }
  /// On one of the devices. Null: there are as many as there may be.
  [[nodiscard]] ClientChannel* open_channel(const fairlead::command::ChannelOptions& options = {});
  [[nodiscard]] std::uint64_t new_handle() noexcept { return handles_.fetch_add(1) + 1; }
  [[nodiscard]] Status status() const;
  [[nodiscard]] bool has_ended() const noexcept { return ended_.load(std::memory_order_acquire); }
  void close() noexcept;

  void send(Peer& peer, TrafficClass traffic, Bytes message) noexcept;
  [[nodiscard]] ClientWindow& window() noexcept { return window_; }
  /// Until the copy's bytes are the caller's again. Who waits for words of the service's goes before, and does the work
  /// meanwhile. If they did not arrive the session ends, as its commands would wait for them for ever.
  void wait_for(Placing placing);
  /// What its service has not said to have is kept, to be said again.
  [[nodiscard]] bool outlives_peers() const noexcept { return limits().kept_for.count() != 0; }
  /// What a copy-out gave has come, and all before it in its channel. By who reads.
  void came(std::uint64_t bytes) noexcept { unsaid_ += bytes + kResultCost; }
  void flush_all() noexcept;
  /// Something is in a buffer.
  void arm() noexcept { flusher_.arm(); }
  /// Takes what has come, if nobody else reads.
  void drain() noexcept;
  /// Until `done`, which looks at what is atomic, or the session has ended, or the deadline; returns done(). Who waits
  /// for room is in no haste.
  bool wait_until(const std::function<bool()>& done, Clock::time_point deadline, Haste haste = Haste::kYes);

 private:
  [[nodiscard]] Event next_event(Clock::duration most, Haste haste);
  void handle(const Event& event);
  [[nodiscard]] bool take_events();
  void fetch();
  void handle_message(Bytes message, TrafficClass traffic);
  void welcome(Bytes body);
  [[nodiscard]] Status check_devices(std::uint64_t wish) const;
  // The peer is lost, and another sought (client_resume.cc).
  void lose(Status why);
  void seek(const Event& event);
  [[nodiscard]] bool resume(Seeker::Back back);
  void say_heard();
  void end(Status why);
  [[nodiscard]] ClientChannel* channel_of(const MessageHeader& header) const noexcept;

  Peer peer_;  // written under mutex_ and opening_
  const fairlead::command::SessionOptions options_;
  std::vector<fairlead::command::Limits> limits_{1};  // by device
  std::size_t max_message_bytes_ = 0;                 // of its engine
  ClientRange range_;
  ClientWindow window_;
  std::atomic<bool> welcome_{false};
  std::atomic<bool> choked_{false};  // a message could not be posted
  std::atomic<std::uint64_t> handles_{0};

  // Slots are given once and stay, so whoever sees the count sees the channels below it.
  std::vector<std::unique_ptr<ClientChannel>> channels_;
  std::atomic<std::size_t> channel_count_{0};
  std::atomic<ClientChannel*> first_{nullptr};  // of all, by priority
  mutable std::mutex opening_;

  mutable std::mutex mutex_;  // guards what follows
  Readers readers_;
  std::optional<Seeker> seeker_;
  std::uint64_t unsaid_ = 0, heard_bytes_ = 0;  // what came and the service was not told of; when it is due. 0: never
  std::atomic<std::uint64_t> resumptions_{0};
  Status why_ended_;
  std::atomic<bool> ended_{false};

  Flusher flusher_;  // the last: they look at all else
  Keeper keeper_;
};

// For the public handles.
inline ClientChannel* of(const std::shared_ptr<fairlead::command::ChannelBody>& body) noexcept {
  return static_cast<ClientChannel*>(body.get());
}
inline ClientSession* of(const std::shared_ptr<fairlead::command::SessionBody>& body) noexcept {
  return static_cast<ClientSession*>(body.get());
}
inline Status no_channel() { return {Code::kInvalidArgument, "this handle names no channel"}; }

}  // namespace fairlead::datapath::command
