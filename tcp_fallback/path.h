// One data connection to one peer: its handshake, its life and its end.
//
//   kIdle -> kDialing -> kGreeting -> kReady -> kDown | kClosed      (active)
//   kIdle -> kWaiting              -> kReady -> kDown | kClosed      (passive)
//
// The active end connects and presents the passive end's token; the passive end answers with the active end's. Both
// learned them by the engine's control connection, so each knows that the other is who it negotiated with.
// Threads: the driving thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "tcp_fallback/ack_hold.h"
#include "tcp_fallback/frame.h"
#include "tcp_fallback/receiver.h"
#include "tcp_fallback/request_queue.h"
#include "tcp_fallback/sender.h"
#include "tcp_fallback/socket.h"
#include "transport/grant_table.h"
#include "transport/path.h"
#include "transport/traffic.h"

namespace fairlead::tcp_fallback {

class TcpPath;

/// What an endpoint shares with its paths, which it outlives.
struct Shared {
  const TcpConfig& config;  // the device's, as the next two
  const Clock& clock;
  datapath::GrantReader& grants;
  datapath::Traffic& traffic;
  const std::uint16_t port;
  PrivateFd epoll{};              // data.ptr: the path, null for the listener
  std::vector<TcpPath*> paths{};  // null: a path that was destroyed from inside poll()
  bool polling = false;           // inside poll(): posts are sent when it ends
  std::size_t urgent = 0;         // paths that must not wait for the turns of others
  Nanos urgent_at = 0;            // when something went over one of them last
  std::size_t turn = kLongTurn;   // how much a path receives, and how much it sends, before others get their turn
  /// While urgent paths are busy turns are short, which costs bulk half of its speed; while they are there,
  /// moderate.
  void choose_turn(Nanos now) noexcept {
    turn = urgent == 0 ? kLongTurn : now - urgent_at < kUrgentTime ? kShortTurn : kModerateTurn;
  }
  static constexpr Nanos kUrgentTime = 2 * kMillisecond;
  static constexpr std::size_t kModerateTurn = 512 * 1024, kShortTurn = 32 * 1024;
};

class TcpPath final : public datapath::Path, private Receiver::Sink {
 public:
  TcpPath(Shared& shared, const datapath::PathConfig& config);
  ~TcpPath() override;

  [[nodiscard]] std::string local_description() const override;
  Status connect(std::string_view peer) override;
  [[nodiscard]] std::uint32_t max_outstanding() const noexcept override { return requests_.depth(); }
  std::size_t post(std::span<const datapath::WorkRequest> requests) noexcept override;
  void close() noexcept override;
  [[nodiscard]] bool drained() const noexcept override;
  [[nodiscard]] std::string describe() const override;

  // For the endpoint.
  /// The peer has come with this path's token. False: this path does not wait for it.
  bool adopt(const Greeting& greeting, PrivateFd& connection) noexcept;
  /// Receives and reports; `look` says whether to look at the socket of a ready path, which else wait_fd() tells of.
  bool advance(bool look) noexcept;
  /// Sends what waits, at the end of a turn; but where the user answers messages at once an acknowledgement waits for
  /// the answer, which takes it along, until the next turn at the latest (ack_hold.h).
  bool end_turn() noexcept;
  /// Asks for what wait_fd() shall wake up for. False: there is something to report already.
  bool arm() noexcept;
  /// wait_fd() need not wake up for what arrives at a ready path, until arm(), or until nobody looks at its socket.
  void disarm() noexcept;
  void mark_readable() noexcept { readable_ = true; }
  /// Asks the system how much it has sent again.
  void count_retransmissions() noexcept;
  [[nodiscard]] bool ready() const noexcept { return state_ == State::kReady; }
  /// Must not wait for the turns of others.
  [[nodiscard]] bool urgent() const noexcept { return urgent_; }
  [[nodiscard]] std::optional<Nanos> deadline() const noexcept;

 private:
  enum class State : std::uint8_t { kIdle, kWaiting, kDialing, kGreeting, kReady, kDown, kClosed };

  bool advance_handshake() noexcept;
  void advance_dialing() noexcept;
  void advance_greeting() noexcept;
  bool advance_ready() noexcept;
  bool report_end() noexcept;
  bool flush() noexcept;
  void flush_held() noexcept;
  void note_post() noexcept;
  void note_urgent() noexcept;
  bool send_greeting() noexcept;
  void become_ready(const Greeting& greeting) noexcept;
  void fail(Code code, std::string reason) noexcept;
  /// False, and errno says why: there is no room to.
  bool ask_for(std::uint32_t events) noexcept;
  /// The same. False: the path has failed, as it would hear of nothing.
  bool watch(std::uint32_t events) noexcept;
  [[nodiscard]] Status cannot_watch() const;
  void unwatch() noexcept;
  void leave(State next) noexcept;
  void disconnect() noexcept;

  void on_message(std::span<const std::byte> bytes) noexcept override;
  void on_completion(const datapath::Ended& ended) noexcept override;

  Shared& shared_;
  const datapath::PathRole role_;
  const std::string peer_host_;
  const std::chrono::milliseconds peer_timeout_;
  const bool urgent_, polled_;
  const Token token_;  // ours: the peer presents it
  Token peer_token_{};

  State state_ = State::kIdle;
  SocketStream stream_;
  std::uint32_t watched_ = 0;  // epoll events asked for
  std::string peer_name_;      // "host:port", for sentences
  std::string local_name_, congestion_control_;
  Nanos deadline_ = 0;        // of the active handshake
  GreetingBytes greeting_{};  // the peer's, as it arrives
  std::size_t greeting_received_ = 0;

  RequestQueue requests_;
  Sender sender_;
  Receiver receiver_;
  bool readable_ = false;
  bool heard_ = false;             // a message, in this turn
  std::optional<Nanos> heard_at_;  // when the last one was, until something is posted
  AckHold hold_;                   // where what comes is answered at once,
  bool held_ = false;              // the acknowledgement waits
  bool announce_ready_ = false;
  std::uint32_t retransmitted_ = 0;  // segments, as far as they were counted
  int send_error_ = 0;               // errno: nothing more can be sent, but what arrived is still read
  std::optional<Status> announce_down_;
};

}  // namespace fairlead::tcp_fallback
