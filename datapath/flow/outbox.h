// A session's transfers in the order of posting: what of them is to be posted, what is on a path, what is to be said
// again on the next.
//
// Building asks for one batch of requests at a time (build), and hears how many the path took (commit). Completions
// come back as what was pushed to the path's InFlight. A path that died is told by its requests coming back aborted;
// then apply_received() or requeue() puts what is left back into the queues. Notifications and fragments ("sequenced")
// are numbered in the order of posting; an undelivered one is numbered anew. So are atomics and the outcomes of the
// peer's, which take no credits: the peer's engine takes them. Outcomes overtake what waits.
// Where a flow has several paths, data of large transfers goes over all of them: each builds what it takes (Way::rail).
// Messages go over the first alone, a notification once all data of its transfer that went elsewhere is placed.
// No input or output, and no time but what is given. Threads: the driver.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/counter.h"
#include "base/intrusive_list.h"
#include "base/timer_queue.h"
#include "datapath/flow/atomics.h"
#include "datapath/flow/credit_window.h"
#include "datapath/flow/in_flight.h"
#include "datapath/flow/staging.h"
#include "datapath/lane/lane.h"
#include "datapath/protocol/path_messages.h"
#include "datapath/region/domain_book.h"
#include "datapath/region/regions.h"
#include "datapath/transfer/transfer_impl.h"
#include "transport/path.h"

namespace fairlead::datapath {

/// Who is told of transfers that ended, and names the peer.
class OutboxUser {
 public:
  /// Unless `code` is kOk, `transfer.reason` says why.
  virtual void transfer_ended(TransferImpl& transfer, Code code) = 0;
  [[nodiscard]] virtual std::string who() const = 0;

 protected:
  ~OutboxUser() = default;
};

/// Who carries the data of memory that a path does not reach: in pieces, each of them a transfer of host memory that
/// goes through the same outbox (bounce.h).
class ApartCarrier {
 public:
  /// This part of its data, which begins at `cursor` and lies in that operation. What became of it Outbox::completed()
  /// is told, as of kApart.
  virtual void take(TransferImpl& transfer, Extent part, Cursor cursor) = 0;
  /// A piece has ended, which is the carrier's again. It must not call the outbox from here.
  virtual void piece_ended(TransferImpl& piece, Code code) noexcept = 0;

 protected:
  ~ApartCarrier() = default;
};

class Outbox {
 public:
  /// What building takes of a path in use.
  struct Way {
    const Capabilities* can = nullptr;
    const DomainBook* domain = nullptr;  // null: the device's own
    std::size_t transport = 0;           // ours
    std::size_t peer_transport = 0;      // theirs
    bool staged = false;                 // one-sided operations go by message
    std::uint8_t rail = 0;               // which path of the flow it is; the first carries all that is no data
    std::uint64_t stripe = 0;            // bytes at a time of what is spread; 0: there is no other path
    std::uint64_t share = 0;             // so many bytes of that, now

    /// `key`: LocalSegment::key of our memory on the path. False: its domain does not know that, or its device not
    /// reach it. (As an optional GCC 12 copies it through memory, where loading it waits for the flag's store.)
    [[nodiscard]] bool has_local_key(const RegisteredRange& range, std::uint64_t& key) const noexcept {
      if (domain == nullptr) {
        if (!range.reached(transport)) return false;
        key = range.local_key(transport);
        return true;
      }
      const std::optional<std::uint64_t> known = domain->local_key(&range);
      key = known.value_or(0);
      return known.has_value();
    }
  };
  struct Limits {
    CreditWindow::Limits window;    // sequenced messages that the peer has not consumed
    std::uint64_t max_message = 0;  // bytes, the peer's
  };
  static constexpr std::size_t kBatch = 96;  // requests at a time: of 64 bytes, two of softroce's packets full

  /// `apart` outlives it; null: transfers that need it fail.
  Outbox(OutboxUser& user, std::uint64_t chunk_bytes, ApartCarrier* apart = nullptr)
      : user_(user), apart_(apart), chunk_bytes_(chunk_bytes) {}

  void set_limits(const Limits& limits) noexcept {
    max_message_ = limits.max_message;
    window_.set_limits(limits.window);
  }
  /// `waits`: it may not begin yet. It may be cancelled, be late, or end with all others. False: there is no memory for
  /// it, and nothing has changed; so it is of none that build_lone() gave requests of.
  bool add(TransferImpl& transfer, bool waits = false);
  /// One that waited begins, behind those that were added before.
  void let_go(TransferImpl& transfer);
  /// Takes the oldest back, of which nothing was built yet; null: there is none.
  [[nodiscard]] TransferImpl* give_back() noexcept;
  [[nodiscard]] std::size_t size() const noexcept { return active_; }
  /// Without the outcomes of the peer's atomics.
  [[nodiscard]] std::size_t own() const noexcept { return active_ - outcomes_held_; }
  [[nodiscard]] bool has_backlog() const noexcept {
    return !data_queue_.empty() || !message_queue_.empty() || !outcomes_.empty();
  }

  /// All of one that is about to be added, as one request, for it is on its way the sooner: commit() goes before add().
  /// Empty: it is no such request, or others come first.
  [[nodiscard]] std::span<const WorkRequest> build_lone(const Way& way, TransferImpl& transfer, std::uint64_t id);
  /// The next requests, at most `room`; valid until the next call. `first_id` is the first one's.
  [[nodiscard]] std::span<const WorkRequest> build(const Way& way, std::size_t room, std::uint64_t first_id);
  /// The path took the first `accepted` of them; the others go back. Returns the bytes of data that it took.
  std::uint64_t commit(std::size_t accepted, InFlight& path);
  /// A request of ours ended.
  void completed(const PostedRequest& request, Code code);
  /// So many for data of this transfer, on the first path, did well, with so many bytes in all.
  void placed(TransferImpl& transfer, std::uint64_t bytes, std::uint32_t count);

  /// The peer has consumed up to this sequence.
  void consumed(std::uint64_t sequence) noexcept { window_.consumed(sequence); }
  /// False, with words, if the answer to a staged operation breaks the protocol. Sets `moved` if it brings us further.
  [[nodiscard]] bool staged_answer(const PathMessage& message, bool& moved, std::string& why);
  /// Says what became of the peer's atomic. False: more are on their way than an honest peer can have asked for.
  [[nodiscard]] bool say(std::uint64_t ticket, const atomics::Outcome& outcome, std::size_t path_depth);
  /// The outcome of one of ours. False, with words, if it breaks the protocol.
  [[nodiscard]] bool take_outcome(const PathMessage& message, std::string& why);
  /// The path is gone, and its numbering of staged operations with it.
  void abort_staged();

  /// What the target turned away on a path that lives is posted again, once all of it came back. False: there is none,
  /// or more is to come back.
  bool requeue();
  /// After a fence: the peer got messages up to `received`. What it did not is posted again. False, with words, if that
  /// cannot be.
  [[nodiscard]] bool apply_received(std::uint64_t received, std::string& why);
  /// The same of a path that carries data alone: what it lost is posted again.
  void fenced(std::uint8_t rail);
  [[nodiscard]] std::uint64_t acknowledged() const noexcept { return acknowledged_; }

  /// Ends it, once its path has let go of its memory; one that waits never begins.
  void end_early(TransferImpl& transfer, Clock::time_point now, Code code = Code::kCancelled,
                 std::string reason = "cancelled");
  /// The same for all whose deadline has passed.
  void end_late(Clock::time_point now);
  /// Those, as far as there are any.
  struct Stuck {
    Clock::time_point since;                                   // of the oldest
    std::optional<Clock::time_point> on_first = std::nullopt;  // of the oldest that waits for the first path
  };
  [[nodiscard]] std::optional<Stuck> stuck() const noexcept {
    std::optional<Stuck> stuck;
    for (const TransferImpl* t = stuck_.front(); t != nullptr; t = List<TransferImpl>::next(t->in_stuck)) {
      if (t->held_apart != 0 && t->held_apart == t->outstanding && t->messages_outstanding == 0) continue;
      if (!stuck) stuck = Stuck{t->stuck_since};
      if (t->outstanding == t->on_rails + t->held_apart && t->messages_outstanding == 0) continue;
      stuck->on_first = t->stuck_since;
      break;
    }
    return stuck;
  }
  void end_all(Code code, const std::string& reason);

  Counter replayed;                            // transfers
  Counter staged_bytes;                        // written and read by message
  std::atomic<bool> waits_for_credits{false};  // a message does

 private:
  using Use = PostedRequest::Use;
  struct DataPart {
    TransferImpl* transfer = nullptr;
    Extent part;
    std::uint8_t rail = 0;
  };
  struct Built {
    PostedRequest request;
    Cursor cursor;              // where it begins
    bool again = false;         // it was posted before, in vain
    bool leaves_queue = false;  // it was the last of its transfer; of a write that notifies, both queues
  };

  // outbox.cc
  [[nodiscard]] bool make_room(const TransferImpl& transfer) noexcept;
  void enlist(TransferImpl& transfer) noexcept;
  void delist(TransferImpl& transfer) noexcept;
  void queue(TransferImpl& transfer);
  [[nodiscard]] static bool ends_plainly(const TransferImpl& transfer) noexcept;
  void end_plainly(TransferImpl& transfer);
  void settle(TransferImpl& transfer);
  void forget(TransferImpl& transfer) noexcept;
  void finish(TransferImpl& transfer, Code code);
  void fail_transfer(TransferImpl& transfer, Code code, const RemoteRegionImpl* refused);
  void data_completed(const DataPart& data, Code code);
  void message_completed(const PostedRequest& request, Code code);
  [[nodiscard]] List<TransferImpl>& messages_like(const TransferImpl& transfer) noexcept {
    return transfer.is_outcome ? outcomes_ : message_queue_;
  }
  void requeue_messages(std::uint64_t next_sequence);
  void take_lost(std::uint8_t rail, bool by_path = true);
  void rebuild_data_queue();

  // outbox_build.cc, outbox_data.cc
  void begin_batch(const Way& way) noexcept;
  bool build_message(const Way& way);
  [[nodiscard]] bool build_lone_message(const Way& way, TransferImpl& transfer);
  void put_message(const Way& way, TransferImpl& transfer);
  [[nodiscard]] bool in_batch(const TransferImpl& transfer) const noexcept;
  TransferImpl* next_with_message(const Way& way);
  bool build_data(const Way& way, std::size_t most);
  void build_request(const Way& way, TransferImpl& transfer, std::uint64_t limit);
  void build_alike(const Way& way, OpKind kind, const Op& like, std::size_t most, std::uint64_t local);
  bool build_alone(const Way& way, TransferImpl& transfer, std::size_t most);
  void leave_data_queue(const Way& way, TransferImpl& transfer);
  [[nodiscard]] std::optional<std::uint64_t> local_key(const Way& way, const RegisteredRange& range) noexcept;
  [[nodiscard]] bool goes_by_message(const Way& way, const Op& op) noexcept;
  bool build_staged(const Way& way, TransferImpl& transfer);
  TransferImpl* next_with_data(const Way& way);
  TransferImpl* next_to_spread(const Way& way);
  [[nodiscard]] bool bounces(const Way& way, const Op& op) noexcept;
  void set_apart(const Way& way, TransferImpl& transfer);
  [[nodiscard]] std::uint64_t begin_data(TransferImpl& transfer, std::uint64_t limit, Built& built);
  void end_data(TransferImpl& transfer, std::uint64_t bytes, const Cursor& behind, Built& built);
  [[nodiscard]] std::uint64_t take_segments(const Way& way, const TransferImpl& transfer, Cursor& cursor,
                                            std::uint64_t limit, std::size_t most, bool copies, WorkRequest& request);
  [[nodiscard]] bool message_ready(const Way& way, const TransferImpl& transfer) const noexcept;
  void carry_notification(TransferImpl& transfer) noexcept;
  [[nodiscard]] bool may_carry_notification(const Way& way, const TransferImpl& transfer) noexcept;

  OutboxUser& user_;
  ApartCarrier* const apart_;
  const std::uint64_t chunk_bytes_;  // of one request, at most
  std::uint64_t max_message_ = 0;

  // In order of posting.
  TransferImpl* first_ = nullptr;
  TransferImpl* last_ = nullptr;
  std::size_t active_ = 0;
  List<TransferImpl> data_queue_;
  List<TransferImpl> message_queue_;
  List<TransferImpl> outcomes_;    // to be posted
  std::size_t outcomes_held_ = 0;  // that have not ended
  atomics::Awaited awaited_;
  List<TransferImpl> stuck_;  // oldest first
  TimerQueue<TransferImpl> deadlines_;
  std::size_t timers_ = 0;  // that deadlines_ has room for

  std::vector<DataPart> lost_;              // what a path took into its death
  std::vector<PostedRequest> undelivered_;  // sequenced messages that came back aborted, in order
  std::size_t sequenced_in_flight_ = 0;
  bool holding_ = false;  // a write was refused: messages behind it are coming back
  CreditWindow window_;
  std::uint64_t acknowledged_ = 0;
  staging::Initiator staged_;

  // One batch.
  struct KnownKey {
    const RegisteredRange* range = nullptr;
    std::optional<std::uint64_t> key;  // on the way
  };
  static constexpr std::size_t kSegments = 192;
  KnownKey known_;
  std::size_t count_ = 0;
  std::size_t segments_used_ = 0;
  std::size_t message_bytes_ = 0;
  std::uint64_t share_left_ = 0;
  WorkRequest requests_[kBatch];
  Built built_[kBatch];
  PathHeader headers_[kBatch];
  LocalSegment segments_[kSegments];
};

}  // namespace fairlead::datapath
