// The half of a path that asks: takes work requests, puts them into the ring as far as there is room, places what reads
// bring, and reports each request once, in the order of posting.
//
// Small payload goes through the ring. Of large payload the ring has only where it lies, where the end that is to
// receive it can read it there: the peer then copies what we write, and we copy what we read. Threads: the driving
// thread.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "shm/arena/given_arenas.h"
#include "shm/fixed_queue.h"
#include "shm/message_store.h"
#include "shm/peer_memory.h"
#include "shm/pulled_reads.h"
#include "shm/ring/segment.h"
#include "transport/path.h"

namespace fairlead::shm {

/// What the two halves of a path tell its user. Called from inside advance(); may stop them, and post.
class Sink {
 public:
  virtual void on_message(std::span<const std::byte> bytes) noexcept = 0;
  virtual void on_notification(std::uint32_t value) noexcept = 0;
  virtual void on_completion(const datapath::Ended& ended) noexcept = 0;

 protected:
  ~Sink() = default;
};

/// Payload up to this many bytes goes through the ring, in two copies. Above it one is cheaper, though it is a system
/// call, which finds the peer and pins its pages.
inline constexpr std::uint64_t kThroughRing = 8 * 1024;
/// The same where it lies in an arena that the receiver maps, which costs no system call.
inline constexpr std::uint64_t kThroughRingOfArena = 2 * 1024;

/// Copied of the peer's memory before it is asked again whether it has closed. Who revokes waits for no more.
inline constexpr std::size_t kCopyAtOnce = 256 * 1024;

/// Registration::local of memory that no peer can copy; others are 0, or an ArenaNumber.
inline constexpr std::uint64_t kThroughRingsAlone = 1;
static_assert(kThroughRingsAlone < OwnArenas::kFirst);

/// Messages up to this many bytes are kept where the ring has no room: a copy more, for an engine that need not build
/// them again. Of larger ones the copy costs more.
inline constexpr std::uint64_t kMostStored = 4 * 1024;

/// What an advance() came to.
struct Advance {
  bool happened = false;
  std::uint64_t bytes = 0;  // of payload that was placed here
  bool gone = false;        // the peer has closed its end, or ended
  bool heard = false;       // a request came, and said in `ended` how many of ours have ended (slot.h)
  std::uint32_t ended = 0;
  bool messages = false;    // some of them were messages
  std::string_view reason;  // not empty: why the peer is not to be trusted; static
};

class Requester {
 public:
  /// Both outlive it.
  Requester(PeerMemory& memory, GivenArenas& given) noexcept : memory_(memory), given_(given) {}

  /// The memory stays until stop(). `pulls`: this end reads the peer's memory; else it is not to be named here.
  void start(Requests* requests, Responses* responses, const Side* theirs, Side* ours, bool pulls) noexcept;
  /// Touches nothing of the shared memory and of the user's any more.
  void stop() noexcept { stopped_ = true; }

  /// How many were taken. What there is of messages in a turn is bounded as copies are.
  std::size_t post(std::span<const datapath::WorkRequest> work) noexcept;
  /// What the next requests are to say of the peer's own, and what one of the peer's has said of ours.
  void tell(std::uint64_t ended) noexcept { tells_ = ended; }
  /// That number, as the last request has it that was sent and that the peer comes to at once: not behind one that
  /// takes it long, nor behind many.
  [[nodiscard]] std::uint64_t said() const noexcept { return said_; }
  void hear(std::uint32_t ended) noexcept;
  /// Takes answers, copies up to `turn` bytes of what is to be read, reports what has ended, sends on.
  Advance advance(Sink& sink, std::size_t turn) noexcept;
  /// Whether advance() would find something to do. For who is about to sleep.
  [[nodiscard]] bool has_work() noexcept;
  /// Whether the peer has something new to look at since this was asked last.
  [[nodiscard]] bool take_news() noexcept;
  /// Payload that has gone into the ring, or been named there, since this was asked last.
  [[nodiscard]] std::uint64_t take_sent() noexcept { return std::exchange(sent_bytes_, 0); }

  /// advance() would find nothing, as far as a few looks tell. Most do, of whoever waits for an answer.
  [[nodiscard]] bool is_still() const noexcept {
    const bool waits = idle() || (next_ == end_ && is_unanswered());
    return waits && reads_.empty() && pulled_.empty() && !out_.lied();
  }

  [[nodiscard]] bool idle() const noexcept { return first_ == end_; }
  [[nodiscard]] std::uint64_t outstanding() const noexcept { return end_ - first_; }
  /// After stop(): the oldest request that was not reported, and what to report of it.
  [[nodiscard]] std::pair<std::uint64_t, Code> take_first() noexcept;

 private:
  /// A cache line. What is long of it lies beside (segments_): messages have none.
  struct alignas(kLine) Work {
    std::uint64_t id = 0;
    std::uint64_t length = 0;
    std::uint64_t remote_address = 0, remote_key = 0;
    std::uint64_t done = 0;  // write: bytes in the ring; read: bytes placed
    // Read that we copy ourselves: from where, in the peer. Message that is in the store: where it ends there.
    std::uint64_t source = 0;
    std::uint32_t known = 0;  // refusals that were reported when it was posted
    std::uint32_t value = 0;  // write that notifies
    datapath::OpKind kind = datapath::OpKind::kWrite;
    Code code = Code::kOk;  // not ok: how it ends
    std::uint8_t segments = 0;
    bool copies = false;  // read: that we copy it ourselves
    bool named = false;   // write: the peer copies it
    bool notifies = false;
    bool refused = false;  // by the peer
  };
  static_assert(sizeof(Work) == kLine);
  using Segments = std::array<iovec, kMaxSegments>;
  static constexpr std::size_t kFirstWork = 16;
  static constexpr std::uint64_t kFew = 16;  // under way

  [[nodiscard]] Work& at(std::uint64_t number) noexcept { return work_[number & (work_.size() - 1)]; }
  [[nodiscard]] std::span<iovec> segments_of(const Work& work) noexcept {
    return std::span(segments_[static_cast<std::size_t>(&work - work_.data())]).first(work.segments);
  }
  [[nodiscard]] bool is_unanswered() const noexcept {
    const auto& answered = theirs_->answered;
    return told_ <= first_ && !in_.ready() && answered.ended.load(std::memory_order_relaxed) == seen_ended_ &&
           answered.progress.load(std::memory_order_relaxed) == seen_progress_;
  }
  [[nodiscard]] Work* find(std::uint32_t number, datapath::OpKind kind) noexcept;
  [[nodiscard]] static Slot message_slot(const Work& work) noexcept;
  bool grow() noexcept;
  bool post_message(const datapath::WorkRequest& work) noexcept;
  bool post_other(const datapath::WorkRequest& work) noexcept;
  void push(const Slot& slot) noexcept {
    out_.push(slot, static_cast<std::uint32_t>(tells_));
    if (long_until_ <= first_ && end_ - first_ <= kFew) said_ = tells_;
  }
  void send_on() noexcept;
  /// Most of the time there is nothing.
  void send_left() noexcept {
    if (next_ != end_ || !pulled_.empty()) send_on();
  }
  [[nodiscard]] bool is_named(const datapath::WorkRequest& work, std::uint64_t length) noexcept;
  [[nodiscard]] std::uint32_t room_for(const Work& work) const noexcept;
  static void add_notification(Slot& slot, const Work& work) noexcept;
  void send_from(Work& work) noexcept;
  void send_piece(Work& work) noexcept;
  void send_stored(const Work& work) noexcept;
  std::string_view take_answers(Advance& outcome) noexcept;
  std::string_view take(const Slot& slot, Advance& outcome) noexcept;
  std::string_view take_source(const Slot& slot) noexcept;
  std::string_view take_data(const Slot& slot, Advance& outcome) noexcept;
  std::string_view take_refusal(const Slot& slot) noexcept;
  void copy_reads(std::size_t turn, Advance& outcome) noexcept;
  PeerMemory::Copied copy_piece(Work& work, std::size_t& turn, Advance& outcome) noexcept;
  std::string_view report(std::uint64_t ended, Sink& sink, Advance& outcome) noexcept;

  PeerMemory& memory_;
  GivenArenas& given_;
  Producer<Requests> out_;
  Consumer<Responses> in_;
  const Side* theirs_ = nullptr;
  bool pulls_ = false;
  bool stopped_ = true;

  std::vector<Work> work_;          // a power of two; as many as were needed at once
  std::vector<Segments> segments_;  // of the work at that place
  // first_ <= next_ <= end_: those before next_ are in the ring.
  std::uint64_t first_ = 0, next_ = 0, end_ = 0;
  std::uint64_t tells_ = 0, said_ = 0;
  std::uint64_t long_until_ = 0;                             // behind the last one that takes the peer long
  std::uint64_t told_ = 0;                                   // by requests of the peer's: those before it have ended
  std::uint32_t reported_refusals_ = 0, seen_refusals_ = 0;  // of writes
  std::uint64_t seen_ended_ = 0, seen_progress_ = 0;         // of the peer's line
  FixedQueue<std::uint32_t, kDepth> reads_;                  // that we copy, in order
  FixedQueue<std::uint32_t, kDepth> pulled_;                 // of these, those that are done and not told of
  MessageStore store_;
  std::uint64_t pushed_ = 0;  // as of take_news()
  bool made_room_ = false;    // since then, for answers
  std::uint64_t sent_bytes_ = 0;
  std::size_t left_ = 0;  // bytes of messages that are taken before the next advance()
};

}  // namespace fairlead::shm
