// The ranks of one job: each an engine with a session to every other.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fairlead/engine.h"
#include "fairlead/status.h"

namespace fairlead::bench {

/// What went wrong with that rank, which the words then name.
[[nodiscard]] Status of_rank(std::size_t rank, const Status& status);

/// Threads: one at a time. The engine must outlive it. A group is whole or it fails: when a rank goes, whatever waits
/// for it ends with that rank's number and why.
class Group {
 public:
  /// `addresses[i]` is where rank i's engine listens, `engine` that of rank `rank`. Waits until all have met, each in
  /// its own time. Errors: kInvalidArgument (no such rank), kDeadlineExceeded (names who has not come), kPeerDied.
  static Result<Group> join(Engine* engine, std::size_t rank, std::span<const std::string> addresses,
                            std::chrono::nanoseconds timeout = std::chrono::seconds(60));

  /// Rank 0 of a group whose others are in follow(): tells each of them who they are, then joins them. `others`: where
  /// ranks 1, 2, ... listen.
  static Result<Group> lead(Engine* engine, std::span<const std::string> others,
                            std::chrono::nanoseconds timeout = std::chrono::seconds(60));
  /// A rank that is told which one it is, and where the others are.
  static Result<Group> follow(Engine* engine, std::chrono::nanoseconds timeout = std::chrono::seconds(60));

  /// Of `size` ranks that know their number and where rank 0 is to be reached, `root`, and no more. Each listens at any
  /// port; rank 0 tells all where the others are, by the addresses that it sees them at. Errors: those of join();
  /// kInvalidArgument (no such rank, two that say that they are the same).
  static Result<Group> meet(Engine* engine, std::size_t rank, std::size_t size, const std::string& root,
                            std::chrono::nanoseconds timeout = std::chrono::seconds(60));

  [[nodiscard]] std::size_t rank() const noexcept { return rank_; }
  [[nodiscard]] std::size_t size() const noexcept { return peers_.size(); }
  /// Where all have met rank 0, HOST:PORT.
  [[nodiscard]] const std::string& root() const noexcept { return root_; }
  [[nodiscard]] Engine& engine() const noexcept { return *engine_; }
  /// Rank `rank`'s session; not of this rank itself.
  [[nodiscard]] Peer& peer(std::size_t rank) noexcept { return peers_[rank]; }

  /// Each rank may be busy with itself for so long between two steps: it is waited for for a minute more.
  void allow_pauses(double seconds);
  [[nodiscard]] std::chrono::seconds patience() const noexcept { return patience_; }

  /// Waits for the next notification or message of `rank`. Errors: kPeerDied, kDeadlineExceeded.
  Result<Event> next(std::size_t rank);
  /// The same, and it must carry `value`: anything else says that the ranks do not do the same. Errors: also
  /// kInvalidArgument.
  Status expect(std::size_t rank, std::uint64_t value);
  /// Returns when every rank has called it.
  Status barrier();
  /// Ends its sessions, once every rank has called it: the group is of no use afterwards. Errors: those of barrier().
  Status leave();
  /// Rank 0's number, below 2^56, at every rank.
  Result<std::uint64_t> from_first(std::uint64_t number);
  /// Every rank gives a number below 2^56; rank 0 gets all of them, by rank, the others only their own.
  Result<std::vector<std::uint64_t>> gather(std::uint64_t number);
  /// The same with texts.
  Result<std::vector<std::string>> gather(std::string_view text);

 private:
  /// What next() gives, which must have this tag beside a number.
  Result<Event> next_tagged(std::size_t rank, std::uint64_t tag);
  Result<std::uint64_t> next_number(std::size_t rank, std::uint64_t tag);
  /// Rank 0 of meet(): waits for the others, and gives where each listens; `met`: their sessions.
  static Result<std::vector<std::string>> receive(Engine* engine, std::size_t size, const std::string& root,
                                                  std::chrono::nanoseconds timeout, std::vector<Peer>* met);
  std::vector<Transfer> tell_all(std::uint64_t value);
  Status expect_of_all(std::uint64_t value);
  [[nodiscard]] Status disagrees(std::size_t rank, std::uint64_t its, std::uint64_t ours) const;

  Group(Engine* engine, std::size_t rank, std::size_t size) : engine_(engine), rank_(rank), peers_(size) {}

  Engine* engine_;
  std::size_t rank_;
  std::string root_;
  std::vector<Peer> peers_;            // by rank; its own is none
  std::chrono::seconds patience_{60};  // for one step of a rank that lives
};

}  // namespace fairlead::bench
