// The half of a path that answers: carries out what the peer asks, in order, and delivers its messages.
//
// Every byte that a request names is looked up among this end's grants for every piece of it that is copied, so that
// memory that is withdrawn in the middle is not touched any more, and the request refused. What the peer's memory holds
// counts only if the peer still stands behind it afterwards: it says so before it lets go of it (Side::state), and is
// alive. A READ that the peer copies by itself is checked once more when it says that it is done: what it copied too
// late is refused. Revoking does not wait for it, and tells it to stop (pulled_reads.h). Threads: the driving thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "shm/answer_habit.h"
#include "shm/arena/given_arenas.h"
#include "shm/peer_memory.h"
#include "shm/pulled_reads.h"
#include "shm/requester.h"
#include "shm/ring/segment.h"
#include "transport/grant_table.h"

namespace fairlead::shm {

class Responder {
 public:
  /// `domain`: whose grants the peer may use. All outlive it.
  Responder(PeerMemory& memory, GivenArenas& given, datapath::GrantReader& grants, PulledReads& reads,
            datapath::DomainNumber domain);

  /// The memory stays until stop(). `pulls`: this end reads the peer's memory; else it is not to be named here.
  void start(Requests* requests, Responses* responses, const Side* theirs, Side* ours, bool pulls) noexcept;
  /// Nothing more is placed, delivered or read.
  void stop() noexcept;

  /// Carries out requests, copying about `turn` bytes.
  Advance advance(Sink& sink, std::size_t turn) noexcept;
  /// Whether advance() would find something to do. For who is about to sleep.
  [[nodiscard]] bool has_work() noexcept;
  /// advance() would do nothing: no request is here or under way, and the peer knows of all that ended.
  [[nodiscard]] bool is_still() const noexcept {
    return doing_ == Doing::kNothing && told_ == ended_ && !is_fresh_ && !news_ && !in_.ready();
  }
  /// The peer hears of all that has ended. For who is about to stop.
  void publish() noexcept;
  /// How many of the peer's ended requests one of ours has told it of.
  void note_said(std::uint64_t said) noexcept { said_ = said; }
  /// The peer's requests that have ended, from its first on.
  [[nodiscard]] std::uint64_t ended() const noexcept { return ended_; }
  /// Whether the peer has something new to look at since this was asked last.
  [[nodiscard]] bool take_news() noexcept { return std::exchange(news_, false); }

 private:
  enum class Doing : std::uint8_t { kNothing, kCopying, kAnswering };
  struct Reading {  // a read that the peer copies by itself
    bool open = false;
    std::uint64_t key = 0, address = 0, length = 0;
  };

  [[nodiscard]] std::uint32_t number() const noexcept { return static_cast<std::uint32_t>(begun_); }
  std::string_view begin(const Slot& slot, Sink& sink, Advance& outcome) noexcept;
  std::string_view begin_message(const Slot& slot, Sink& sink) noexcept;
  std::string_view begin_copy(const Slot& slot) noexcept;
  std::string_view take_piece(const Slot& slot, Sink& sink, Advance& outcome) noexcept;
  std::string_view begin_read(const Slot& slot) noexcept;
  std::string_view end_read(const Slot& slot) noexcept;
  [[nodiscard]] std::string_view contradiction(const Slot& slot) const noexcept;
  void copy_on(std::size_t& turn, Sink& sink, Advance& outcome) noexcept;
  Code copy_piece(std::size_t most, std::size_t& copied, Advance& outcome) noexcept;
  void answer_on(std::size_t& turn) noexcept;
  [[nodiscard]] bool peer_let_go() noexcept;
  [[nodiscard]] bool is_pulled(std::uint64_t key, std::span<const std::byte> bytes) noexcept;
  void end(Code code) noexcept;
  void end_write(const Slot& last, Code code, Sink& sink) noexcept;
  void refuse(std::uint32_t which, Code code) noexcept;
  void mark_ended(std::uint64_t which) noexcept;
  void tell() noexcept;

  PeerMemory& memory_;
  GivenArenas& given_;
  datapath::GrantReader& grants_;
  PulledReads& reads_;
  const datapath::DomainNumber domain_;
  Consumer<Requests> in_;
  Producer<Responses> out_;
  const Side* theirs_ = nullptr;
  Side* ours_ = nullptr;
  bool pulls_ = false;
  bool stopped_ = true;
  bool news_ = false;

  Doing doing_ = Doing::kNothing;
  Slot request_;            // what is being done
  std::uint64_t done_ = 0;  // bytes of it
  std::array<SourceSegment, kMaxSegments> sources_{};
  bool write_open_ = false;    // a write whose last piece has not come
  Code verdict_ = Code::kOk;   // on it
  std::uint32_t refused_ = 0;  // writes of the peer's, without those that were turned away behind one

  std::uint64_t begun_ = 0, ended_ = 0;  // requests: those before ended_ are done with, as are some of [ended_, begun_)
  std::uint64_t told_ = 0;               // ended_, as the peer knows it
  std::uint64_t said_ = 0;               // ended_, as the last of our own requests said it
  bool is_fresh_ = false;                // some of that ended in the last advance()
  AnswerHabit habit_;
  std::array<bool, kDepth> done_early_{};
  std::array<Reading, kDepth> reading_{};
  std::unique_ptr<std::byte[]> message_;  // a copy, which the peer cannot change
};

}  // namespace fairlead::shm
