// One pair of rings to one peer: how the ends meet, its life and its end.
//
//   kIdle -> kDialing -> kGreeting -> kReady -> kDown | kClosed      (active)
//   kIdle -> kWaiting              -> kReady -> kDown | kClosed      (passive)
//
// The active end comes to the passive end's socket, shows that end's token and hands over the memory; the passive end
// answers with the active end's token. Both learned these by the engine's control connection, and the kernel told each
// who the other is, so each knows that this is who it negotiated with, on this host, now, of this user.
// Threads: the driving thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "fairlead/config.h"
#include "shm/meeting/greeting.h"
#include "shm/meeting/listener.h"
#include "shm/peer_memory.h"
#include "shm/requester.h"
#include "shm/responder.h"
#include "shm/ring/segment.h"
#include "transport/path.h"
#include "transport/traffic.h"

namespace fairlead::shm {

class ShmPath;

/// What an endpoint shares with its paths, which it outlives.
struct Context {
  const ShmConfig& config;  // the device's, as the next two
  const Place& place;
  const Clock& clock;
  datapath::GrantReader& grants;
  PulledReads& reads;
  OwnArenas& arenas;
  datapath::Traffic& traffic;
  const std::uint64_t socket;     // the listener's number
  PrivateFd epoll{};              // data.ptr: the path, null for the listener
  std::vector<ShmPath*> paths{};  // null: a path that was destroyed from inside poll()
  bool polling = false;
  std::size_t urgent = 0;     // paths that must not wait for the turns of others
  bool urgent_moved = false;  // something went over one of them since that time:
  Nanos urgent_at = 0;
};

class ShmPath final : public datapath::Path, private Sink {
 public:
  ShmPath(Context& context, const datapath::PathConfig& config);
  ~ShmPath() override;

  [[nodiscard]] std::string local_description() const override;
  Status connect(std::string_view peer) override;
  std::size_t post(std::span<const datapath::WorkRequest> requests) noexcept override;
  void close() noexcept override;
  [[nodiscard]] bool drained() const noexcept override;
  [[nodiscard]] std::string describe() const override;

  // For the endpoint.
  /// The peer has come with this path's token. False: this path does not wait for it.
  bool adopt(Guest& guest) noexcept;
  bool advance() noexcept;
  /// advance() would find nothing. Most looks at most paths end here.
  [[nodiscard]] bool is_still() const noexcept {
    const bool owes = announce_ready_ || readable_ || owes_wake_ || memory_.hung_up() || !given_.is_settled();
    return state_ == State::kReady && !owes && responder_.is_still() && requester_.is_still();
  }
  /// Has the peer wake us when there is something. False: there is already.
  bool arm() noexcept;
  void disarm() noexcept;
  /// Wakes the peer that is seen asleep; one that lies down just now is looked at again at the next poll.
  void settle() noexcept;
  void mark_readable() noexcept { readable_ = true; }
  [[nodiscard]] bool ready() const noexcept { return state_ == State::kReady; }
  [[nodiscard]] std::optional<Nanos> deadline() const noexcept;

 private:
  static constexpr std::uint32_t kLooksAfterHangUp = 64;
  enum class State : std::uint8_t { kIdle, kWaiting, kDialing, kGreeting, kReady, kDown, kClosed };

  bool advance_handshake() noexcept;
  void try_to_dial() noexcept;
  void greet_first() noexcept;
  void take_greeting() noexcept;
  bool send_greeting(int descriptor) noexcept;
  void fail_to_greet(int error) noexcept;
  void become_ready(const Greeting& greeting) noexcept;
  bool advance_ready() noexcept;
  [[nodiscard]] std::size_t turn() const noexcept;
  void wake() noexcept;
  bool report_end() noexcept;
  void fail(Code code, std::string reason) noexcept;
  void leave(State next) noexcept;
  void disconnect() noexcept;
  bool watch() noexcept;
  [[nodiscard]] std::string peer_name() const;
  [[nodiscard]] Side& ours() const noexcept { return segment_->sides[active_ ? 0 : 1]; }
  [[nodiscard]] Side& theirs() const noexcept { return segment_->sides[active_ ? 1 : 0]; }

  void on_message(std::span<const std::byte> bytes) noexcept override;
  void on_notification(std::uint32_t value) noexcept override;
  void on_completion(const datapath::Ended& ended) noexcept override;

  Context& context_;
  const bool active_, urgent_, polled_;
  const Token token_ = random_token();  // ours: the peer shows it
  const Token own_ = random_token();    // which the peer reads here
  Token peer_token_{};
  std::string peer_socket_;

  State state_ = State::kIdle;
  PrivateFd socket_;
  Nanos deadline_ = 0;  // of the meeting
  PeerMemory memory_;
  GivenArenas given_;
  Segment segment_;
  Requester requester_;
  Responder responder_;
  bool readable_ = false;
  bool put_off_ = false;    // what our own requests came to, in the last poll
  bool owes_wake_ = false;  // whoever sleeps, at the next poll: it could not be woken, or others would have waited
  std::uint32_t looks_left_ = kLooksAfterHangUp;  // what the peer had sent before is taken, and not for ever
  bool announce_ready_ = false;
  std::optional<Status> announce_down_;
};

}  // namespace fairlead::shm
