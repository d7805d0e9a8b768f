// Questions for a peer's regions: those of ours that are under way, and the answers to the peer's.
//
// At most kMost are under way at a time; a listing comes in pages and is asked for again until it ends. A peer that
// lists out of order, or without end, makes the question fail, not the session. Owns no connection: frames leave
// through `send`. Threads: the driver; a LookupRequest is shared with the thread that waits for it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
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
  Status status;
  std::vector<std::shared_ptr<const RemoteRegionImpl>> regions;
  std::size_t bytes = 0;               // of their descriptions
  std::atomic<bool> finished{false};   // release: status and regions are final
  std::atomic<bool> abandoned{false};  // nobody waits any more
};

class Lookups {
 public:
  using Send = std::function<void(const control::Frame&)>;
  static constexpr std::size_t kMost = 16;
  static constexpr std::size_t kMostListed = std::size_t{256} << 20;  // bytes that one listing may bring

  explicit Lookups(Send send) : send_(std::move(send)) {}

  /// Asks once the session is open() and earlier questions are answered.
  void add(std::shared_ptr<LookupRequest> request);
  /// The peer has introduced itself; from here on questions may leave.
  void open(std::uint64_t session);
  /// `who`: the peer, for reasons. An answer that nobody waits for is dropped.
  void on_regions(const control::Regions& regions, const std::string& who);
  /// All questions end so.
  void end(const Status& status);

 private:
  void ask();

  Send send_;
  std::uint64_t session_ = 0;  // 0: not open
  std::uint64_t next_number_ = 1;
  std::vector<std::pair<std::uint64_t, std::shared_ptr<LookupRequest>>> asked_;
  std::vector<std::shared_ptr<LookupRequest>> waiting_;
};

/// What the peer is told: one region, or a page of them.
[[nodiscard]] control::Frame answer(const control::Lookup& lookup, const RegionTable& regions);

}  // namespace fairlead::datapath
