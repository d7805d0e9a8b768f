// One RC queue pair and all that belongs to it: the life of a path.
//
//   kOpened --connect--> kConnecting (passive) --first message--> kReady --failure--> kDown
//                   \--> kReady (active, greets)                        \--close----> kClosed
//
// The active end sends a credit message as soon as it is connected; the passive end is ready when that has arrived.
// So the passive end never sends toward a queue pair that cannot receive yet (which would cost a retransmission
// timeout). Down and closed both put the queue pair into ERR and wait for the flushed work requests; from a device that
// flushes nothing (QEMU's pvrdma) the queue pair is taken away after a second instead, which ends them as well.
//
// Owner: the endpoint, by slot; a VerbsPath is the user's handle on it. When the handle goes away during a poll, the
// connection stays until that poll ends and reports nothing more. Threads: as the endpoint.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "transport/path.h"
#include "transport/traffic.h"
#include "verbs/discovery/gid_choice.h"
#include "verbs/transport/async_events.h"
#include "verbs/transport/completion_queues.h"
#include "verbs/transport/credits.h"
#include "verbs/transport/message_arena.h"
#include "verbs/transport/path_description.h"
#include "verbs/transport/receive_queue.h"
#include "verbs/transport/send_queue.h"

namespace fairlead::verbs {

class Connection;

/// What the connections of one endpoint share. Owner: the endpoint.
struct ConnectionShared {
  const VerbsApi& api;
  std::string device;
  VerbsConfig config;
  QueueLimits limits;
  std::uint8_t max_rd_atomic = 0;       // READs we may have outstanding
  std::uint8_t max_dest_rd_atomic = 0;  // READs we can answer at a time
  const Clock& clock;
  datapath::Traffic& traffic;  // the endpoint's, as the next
  AsyncEvents::Reader& events;
  WorkChain chain;
  std::vector<Connection*> attention;     // connections that advance() has something to do for
  std::vector<Connection*> leaving = {};  // connections in ERR, of which not everything has come back
  bool urgent = false;                    // one of them holds up requests or has failed: in this poll, not in the next
};

class Connection {
 public:
  struct Parts {
    MessageArena arena;
    QueuePair qp;
    std::uint32_t max_inline = 0;
    std::uint32_t mtu = 0;  // ours, bytes
    GidFacts gid;
    datapath::PathRole role = datapath::PathRole::kActive;
    bool same_host = false;  // the peer is on this host
    bool priority = false;   // its queue pair goes before others of the device
  };

  /// The queue pair is in INIT. `wr_id`: slot and generation. `path`: the handle that reports name.
  Connection(ConnectionShared& shared, Parts parts, std::uint64_t wr_id, datapath::Path& path);
  ~Connection() { drop_qp(); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Posts the receive buffers. Errors: kInternal.
  Status prepare();

  // What VerbsPath forwards.
  [[nodiscard]] std::string local_description() const { return serialize(ours_); }
  Status connect(std::string_view peer);
  std::size_t post(std::span<const datapath::WorkRequest> requests) noexcept;
  void close() noexcept;
  [[nodiscard]] bool drained() const noexcept;
  [[nodiscard]] std::string describe() const;
  /// What the peer's buffers hold beside a header.
  [[nodiscard]] std::uint32_t max_message() const noexcept { return theirs_.message_bytes - kMessageHeaderBytes; }
  /// The handle is gone: report nothing more, let go of the queue pair.
  void release() noexcept;

  // What the endpoint calls from poll().
  void send_completed(const ibv_wc& completion) noexcept;
  void receive_completed(const ibv_wc& completion) noexcept;
  /// Reports what waits, posts buffers again, sends what was waiting, returns credits.
  void advance() noexcept;
  /// An asynchronous event named this queue pair, or the whole device (`device_failed`).
  void on_async_event(ibv_event_type type, bool device_failed) noexcept;
  /// The queue pair failed without a word so far: an asynchronous event may tell why.
  [[nodiscard]] bool wants_reason() const noexcept { return down_to_report_ && vague_; }

  /// What it posted is under way.
  [[nodiscard]] bool waits() const noexcept { return alive() && !send_.idle(); }
  /// Everything has come back, or nobody cares any more.
  [[nodiscard]] bool has_left() const noexcept { return released_ || !parts_.qp || drained(); }
  /// So has nothing for so long that nothing will.
  [[nodiscard]] bool is_stuck(Nanos now) const noexcept { return now - left_at_ > kFlushLimit; }
  /// Takes the queue pair away, with what it holds.
  void give_up() noexcept;
  [[nodiscard]] bool released() const noexcept { return released_; }
  [[nodiscard]] std::uint64_t wr_id() const noexcept { return wr_id_; }
  [[nodiscard]] const ibv_qp* qp() const noexcept { return parts_.qp.get(); }

 private:
  static constexpr Nanos kFlushLimit = kSecond;
  enum class State : std::uint8_t { kOpened, kConnecting, kReady, kDown, kClosed };

  Status check_peer(const PathDescription& theirs) const;
  void want_attention() noexcept;
  void sent(int error) noexcept;
  void report() noexcept;
  /// False: it is no message of ours, or breaks the credit protocol.
  bool take_message(std::uint32_t index, std::uint32_t bytes) noexcept;
  bool take_notification(std::uint32_t index, std::uint32_t value, std::uint32_t bytes) noexcept;
  void first_arrival() noexcept;
  /// The path is dead: ERR, nothing more is sent. A `vague` reason is replaced by a better one until it was reported.
  void fail(Code code, std::string_view reason, bool vague) noexcept;
  void become_ready() noexcept;
  void leave(State next) noexcept;
  void enter_error() noexcept;
  /// What keeps the port from reaching anybody, for the end of a sentence; empty if nothing does.
  [[nodiscard]] std::string link_trouble() const;
  /// Destroys the queue pair: what never came back is reported as lost.
  void kill(Code code) noexcept;
  void drop_qp() noexcept;
  [[nodiscard]] bool alive() const noexcept { return state_ == State::kConnecting || state_ == State::kReady; }

  ConnectionShared& shared_;
  datapath::Path& path_;
  const std::uint64_t wr_id_;
  Parts parts_;
  PathDescription ours_, theirs_;
  std::uint32_t mtu_ = 0;
  Credits credits_;
  SendQueue send_;
  ReceiveQueue receive_;
  State state_ = State::kOpened;
  bool in_attention_ = false;
  bool released_ = false;
  Nanos left_at_ = 0;  // when it entered ERR
  bool deaf_ = false;  // the stream of messages is broken: deliver no more
  bool ready_to_report_ = false;
  bool down_to_report_ = false;
  bool vague_ = false;
  Code down_code_ = Code::kOk;
  std::string down_reason_;
};

}  // namespace fairlead::verbs
