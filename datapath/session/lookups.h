// Questions for a peer's regions: those of ours that are under way, and the answers to the peer's; and what becomes of
// the regions that either end was told of.
//
// At most kMost are under way at a time; a listing comes in pages and is asked for again until it ends. A peer that
// lists out of order, or without end, makes the question fail, not the session. A listing of the peer's goes through a
// bounded number of names a turn, also of those that it may not see; meanwhile nothing more is to be heard of it. Owns
// no connection: frames leave through `send`. Threads: the driver; a LookupRequest is shared with the thread that waits
// for it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "datapath/protocol/frames.h"
#include "datapath/region/regions.h"
#include "datapath/region/remote_region.h"
#include "fairlead/status.h"

namespace fairlead::datapath {

struct LookupRequest {
  std::string name;
  bool prefix = false;
  std::string capability;  // else: what it is asked by
  Status status;
  std::vector<std::shared_ptr<const RemoteRegionImpl>> regions;
  std::size_t bytes = 0;               // of memory that they take
  std::atomic<bool> finished{false};   // release: status and regions are final
  std::atomic<bool> abandoned{false};  // nobody waits any more
};

class Lookups {
 public:
  using Send = std::function<void(const control::Frame&)>;
  static constexpr std::size_t kMost = 16;
  static constexpr std::size_t kMostListed = std::size_t{256} << 20;  // bytes of memory that one listing may take
  static constexpr std::size_t kTurnVisits = 1024;                    // names that listings of the peer's go through

  explicit Lookups(Send send) : send_(std::move(send)) {}

  /// Asks once the session is open() and earlier questions are answered.
  void add(std::shared_ptr<LookupRequest> request);
  /// The peer has introduced itself; from here on questions may leave.
  void open(std::uint64_t session);
  /// `who`: the peer, for reasons. An answer that nobody waits for is dropped.
  void on_regions(const control::Regions& regions, const std::string& who);
  /// The peer withdrew a region: what we were told of it is gone.
  void on_withdrawn(std::uint64_t id);
  /// All questions end so.
  void end(const Status& status);

  /// Answers the peer: one region, or a page of them, at once or by advance(). Not while is_listing().
  void answer(const control::Lookup& lookup, const RegionTable::View& regions);
  /// A page is not answered yet.
  [[nodiscard]] bool is_listing() const noexcept { return listing_.has_value(); }
  /// Another turn.
  void advance(const RegionTable::View& regions);
  /// Ids of ours that the peer was told of, and that were not withdrawn.
  [[nodiscard]] const std::unordered_set<std::uint64_t>& told() const noexcept { return told_; }
  /// We withdrew a region: tells the peer, if it was told of it.
  void withdraw(std::uint64_t id);

 private:
  void ask();
  void learn(const std::shared_ptr<const RemoteRegionImpl>& region);
  [[nodiscard]] const control::Region& tell(control::Regions& reply, const Publication& publication,
                                            const RegionTable::View& regions);
  void list(const RegionTable::View& regions);

  Send send_;
  std::uint64_t session_ = 0;  // 0: not open
  std::uint64_t next_number_ = 1;
  std::vector<std::pair<std::uint64_t, std::shared_ptr<LookupRequest>>> asked_;
  std::vector<std::shared_ptr<LookupRequest>> waiting_;
  // Of the peer's, by id, which it chooses: not hashed.
  std::multimap<std::uint64_t, std::weak_ptr<const RemoteRegionImpl>> learned_;
  std::size_t sweep_at_ = 64;               // so many of them, and those that nobody has any more are forgotten
  std::unordered_set<std::uint64_t> told_;  // ids of ours that the peer was told of
  struct Listing {
    control::Regions reply;  // as far as it is
    std::string prefix, after;
    std::size_t bytes = 0;  // of the reply
  };
  std::optional<Listing> listing_;
  std::size_t visits_left_ = kTurnVisits;
};

}  // namespace fairlead::datapath
