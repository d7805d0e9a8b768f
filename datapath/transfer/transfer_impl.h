// The state behind a Transfer handle, and the checked lists of operations that it carries out.
//
// Ownership: counted; one reference for each handle and one for the driver while the transfer is in flight. Objects go
// back to a pool, a few of them to the thread's own, so that posting allocates nothing in steady state.
// Threads: fields are written by the poster before submit(), by the driver after it; `finished` publishes the result.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/intrusive_list.h"
#include "base/timer_queue.h"
#include "datapath/lane/lane.h"
#include "datapath/region/regions.h"
#include "datapath/region/remote_region.h"
#include "fairlead/transfer.h"
#include "transport/path.h"

namespace fairlead::datapath {

class SessionImpl;
struct TransferImpl;

/// Who carries transfers out: the session.
class TransferSink {
 public:
  /// On the driver.
  virtual void accept_transfer(TransferImpl& transfer) = 0;

 protected:
  ~TransferSink() = default;
};

/// Of an atomic; the numbers are the protocol's.
enum class AtomicOp : std::uint8_t { kNone = 0, kFetchAdd = 1, kCompareSwap = 2 };

/// A part of a transfer's data, in the linear order of its bytes.
struct Extent {
  std::uint64_t at = 0;
  std::uint64_t bytes = 0;
};

/// local bytes <-> remote bytes, checked.
struct Op {
  std::byte* data = nullptr;
  std::uint64_t length = 0;
  const RegisteredRange* range = nullptr;
  const RemoteRegionImpl* remote = nullptr;
  std::uint64_t offset = 0;  // in the remote region
};

/// A place in a list of operations.
struct Cursor {
  std::size_t op = 0;
  std::uint64_t offset = 0;  // in that operation
};

struct OpList {
  OpKind kind = OpKind::kWrite;
  std::vector<Op> ops;
  std::vector<std::shared_ptr<const void>> keep;  // what the pointers in ops need
  std::uint64_t bytes = 0;

  /// Of byte `at` in their linear order. Takes a step for each operation before it.
  [[nodiscard]] Cursor find(std::uint64_t at) const noexcept;
  void clear() noexcept {
    ops.clear();
    keep.clear();
    bytes = 0;
  }
};

struct PreparedImpl {
  std::shared_ptr<SessionImpl> session;
  OpList list;
};

// Small transfers go by the million: what every one of them takes is in the first three cache lines, what only
// notifications, deadlines, failures and lists of its own take is behind.
struct alignas(64) TransferImpl final : Submission {
  // Set by the poster.
  SessionImpl* session = nullptr;
  TransferSink* sink = nullptr;  // the same
  const OpList* list = nullptr;  // own or prepared->list; null for a send, or for an atomic: own.ops names its word
  // Shared.
  std::atomic<int> references{1};
  std::atomic<bool> finished{false};  // release: code and reason are final
  Code code = Code::kOk;
  // Driver only.
  Code failure = Code::kOk;  // why it will fail once nothing is outstanding
  bool active = false;       // accepted by the session, not finished
  // Set by the poster.
  bool has_message = false;  // a send, a transfer that notifies, an atomic, or the outcome of one of the peer's
  bool is_send = false;
  bool is_outcome = false;  // nobody's: a message of this end's own
  AtomicOp atomic = AtomicOp::kNone;
  bool report = false;
  TrafficClass traffic = TrafficClass::kBulk;
  // Driver only.
  bool message_all_posted = false;
  bool message_aborted = false;  // a part came back undelivered and is to be posted again
  bool message_done = false;
  bool was_lost = false;     // a part of its data was: `again` is, or was, in use
  bool is_piece = false;     // of another: `piece` is
  bool has_outcome = false;  // an atomic: `verdict` and `value` are its
  bool waits = false;        // for `after`
  bool by_message = false;   // a part of its data went so
  bool tied = false;         // it follows another (set by the poster, too), or is followed

  // Set by the poster.
  std::shared_ptr<const PreparedImpl> prepared;
  std::uint64_t tag = 0;
  std::uint64_t bytes = 0;
  Clock::time_point deadline = Clock::time_point::max();
  // Driver only: the cursor of what is to be posted next, and how much ended, in the list's linear byte order.
  Cursor cursor;
  std::uint64_t posted_bytes = 0;
  std::uint64_t done_bytes = 0;
  std::uint32_t outstanding = 0;  // data requests on a path
  std::uint32_t on_rails = 0;     // of those, on others than the flow's first path
  std::uint32_t lost = 0;         // those that a path took into its death, and that is not fenced
  std::uint32_t messages_outstanding = 0;
  std::uint32_t held_apart = 0;  // of the outstanding, those that are carried apart (flow/bounce.h)
  std::uint32_t apart = 0;       // of the outstanding, those that what is posted next on the first path may overtake
  TransferImpl* previous = nullptr;  // the session's list, in order of posting
  TransferImpl* next = nullptr;
  Link<TransferImpl> in_data{this};  // those with data to be posted

  // Set by the poster.
  std::shared_ptr<SessionImpl> session_owner;  // unless `prepared` keeps it
  OpList own;
  std::vector<std::byte> message;  // of a send, or of a notification with bytes; an atomic's operands
  std::uint64_t value = 0;         // of a send or a notification; of an outcome, or of an atomic that has it
  // Driver only.
  std::uint64_t ticket = 0;          // of an atomic that was built, or of the one whose outcome it is; 0: none yet
  Code verdict = Code::kOk;          // of an outcome, or of an atomic that has it
  std::uint64_t message_posted = 0;  // bytes of `message` that are posted
  std::vector<Extent> again;         // of the data: what was posted in vain, ascending, no two adjacent
  std::string reason;                // of `code`, or of `failure`
  void* piece = nullptr;             // if `is_piece`, nobody's: a part of another's data, carried apart (flow/bounce.h)
  Link<TransferImpl> in_messages{this};  // those with a notification or fragments to be posted
  Link<TransferImpl> in_stuck{this};     // those that failed before their memory came back, and wait for it
  Clock::time_point stuck_since{};
  TimerEntry<TransferImpl> timer{this};  // of `deadline`
  // Set by the poster, then the driver's: what it is to follow, one reference of it; and who follows it.
  TransferImpl* after = nullptr;
  Link<TransferImpl> follows{this};  // in followers of `after`, or among those that may begin
  List<TransferImpl> followers;

  void run() noexcept override;  // the driver takes it: sink->accept_transfer(*this)
  /// Whether its message is more than a value.
  [[nodiscard]] bool has_bytes() const noexcept { return is_send || !message.empty(); }
  /// The peer may have carried it out, and has not said so.
  [[nodiscard]] bool is_open_atomic() const noexcept {
    return atomic != AtomicOp::kNone && (message_all_posted || message_aborted) && !has_outcome;
  }
  /// Where in its message a posted part begins; a notification without bytes has no parts.
  [[nodiscard]] std::uint64_t message_offset_of(std::uint64_t at) const noexcept { return has_bytes() ? at : 0; }
  [[nodiscard]] std::uint64_t data_bytes() const noexcept { return list != nullptr ? list->bytes : 0; }
  /// Of `again`, which lies apart from what every transfer takes.
  [[nodiscard]] bool has_again() const noexcept { return was_lost && !again.empty(); }
  /// Data that is to be posted.
  [[nodiscard]] bool has_unposted() const noexcept { return posted_bytes != data_bytes() || has_again(); }
  /// Of its message; the same.
  [[nodiscard]] std::uint64_t message_bytes() const noexcept { return has_message ? message.size() : 0; }
  /// Its data is placed, or on the flow's first path: what is posted there next comes after it.
  [[nodiscard]] bool comes_before_next() const noexcept {
    return !has_unposted() && on_rails == 0 && lost == 0 && apart == 0;
  }
  /// A write of it was on a path that died, and the other end may still place it.
  [[nodiscard]] bool may_land() const noexcept { return lost != 0 && list->kind == OpKind::kWrite; }
  /// What is to be posted next: parts that were posted in vain before what never was.
  [[nodiscard]] Cursor next_data() const noexcept { return has_again() ? list->find(again.front().at) : cursor; }
  /// This part is to be posted again.
  void post_again(Extent part);
  /// If the last such part ends where the cursor stands, that goes back instead: so nothing is searched for again.
  void rewind() noexcept;
};

/// A recycled or new object with one reference.
TransferImpl* acquire_transfer();
void add_reference(TransferImpl& transfer) noexcept;
/// `transfer`, which was not submitted yet, begins after `before`; it holds a reference of that.
void follow(TransferImpl& transfer, TransferImpl& before) noexcept;
/// Gives a reference back; the last one recycles the object.
void drop_reference(TransferImpl& transfer) noexcept;

}  // namespace fairlead::datapath
