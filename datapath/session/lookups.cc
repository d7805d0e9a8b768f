#include "datapath/session/lookups.h"

#include <fmt/format.h>

#include <algorithm>

#include "datapath/protocol/peer_text.h"
#include "datapath/region/region_codec.h"
#include "datapath/session/control_channel.h"

namespace fairlead::datapath {
namespace {

// Answers to so many fit below the mark at which the other end stops reading: two ends that ask each other for much
// never wait for each other.
constexpr std::size_t kPage = FrameReader::kMaxFrame / 4;
static_assert(Lookups::kMost * 2 * kPage <= ControlChannel::kReadMark);

/// What a region that a peer described takes here, with what keeps and finds it.
std::size_t memory_of(const RemoteRegionImpl& region) noexcept {
  constexpr std::size_t kAround = 160;  // counts, an entry of `regions`, a node of `learned_`, the allocator's share
  return kAround + sizeof region + region.name.capacity() + region.keys.capacity() * sizeof(RemoteRegionImpl::Key);
}

}  // namespace

void Lookups::add(std::shared_ptr<LookupRequest> request) {
  // Where none is answered nothing else would forget those whose askers have gone.
  std::erase_if(waiting_, [](const auto& each) { return each->abandoned.load(std::memory_order_relaxed); });
  waiting_.push_back(std::move(request));
  ask();
}

void Lookups::open(std::uint64_t session) {
  session_ = session;
  ask();
}

void Lookups::ask() {
  while (session_ != 0 && !waiting_.empty() && asked_.size() < kMost) {
    const std::shared_ptr<LookupRequest> request = waiting_.front();
    waiting_.erase(waiting_.begin());
    if (request->abandoned.load(std::memory_order_relaxed)) continue;
    const std::uint64_t number = next_number_++;
    asked_.emplace_back(number, request);
    send_(control::Lookup{.request = number,
                          .name = request->name,
                          .prefix = request->prefix,
                          .after = {},
                          .capability = request->capability});
  }
}

void Lookups::on_regions(const control::Regions& regions, const std::string& who) {
  const auto at =
      std::find_if(asked_.begin(), asked_.end(), [&](const auto& entry) { return entry.first == regions.request; });
  if (at == asked_.end()) return;
  const std::shared_ptr<LookupRequest> request = at->second;
  if (request->abandoned.load(std::memory_order_relaxed)) {
    asked_.erase(at);
    return ask();
  }
  if (regions.code != 0) {
    request->status = {code_from_wire(regions.code), fmt::format("{}: {}", who, clipped(regions.reason))};
  }
  for (const control::Region& region : regions.regions) {
    std::shared_ptr<RemoteRegionImpl> decoded = decode_region(region, session_);
    if (decoded == nullptr) {
      request->status = {Code::kDataLoss, fmt::format("{} described region '{}' badly", who, clipped(region.name))};
      break;
    }
    // A list has an end: its names ascend, and its size has a limit.
    request->bytes += memory_of(*decoded);
    if (request->bytes > kMostListed || (!request->regions.empty() && region.name <= request->regions.back()->name)) {
      request->status = {Code::kDataLoss, fmt::format("{} listed '{}' out of order, or more than {} bytes of regions; "
                                                      "ask for a longer prefix",
                                                      who, clipped(region.name), kMostListed)};
      break;
    }
    learn(decoded);
    request->regions.push_back(std::move(decoded));
  }
  if (request->status.ok() && regions.more && regions.regions.empty()) {
    request->status = {Code::kDataLoss, fmt::format("{} promised more regions and listed none", who)};
  }
  if (request->status.ok() && regions.more) {
    return send_(control::Lookup{.request = regions.request,
                                 .name = request->name,
                                 .prefix = true,
                                 .after = request->regions.back()->name,
                                 .capability = {}});
  }
  asked_.erase(at);
  request->finished.store(true, std::memory_order_release);
  ask();
}

void Lookups::learn(const std::shared_ptr<const RemoteRegionImpl>& region) {
  if (learned_.size() >= sweep_at_) {
    std::erase_if(learned_, [](const auto& entry) { return entry.second.expired(); });
    sweep_at_ = std::max<std::size_t>(64, 2 * learned_.size());
  }
  learned_.emplace(region->id, region);
}

void Lookups::on_withdrawn(std::uint64_t id) {
  const auto [first, last] = learned_.equal_range(id);
  for (auto at = first; at != last; ++at) {
    if (const auto region = at->second.lock()) region->gone.store(RemoteRegionImpl::Gone::kWithdrawn);
  }
  learned_.erase(first, last);
}

void Lookups::end(const Status& status) {
  session_ = 0;
  listing_.reset();
  const auto end = [&](LookupRequest& request) {
    request.status = status;
    request.finished.store(true, std::memory_order_release);
  };
  for (const auto& [number, request] : std::exchange(asked_, {})) end(*request);
  for (const auto& request : std::exchange(waiting_, {})) end(*request);
}

void Lookups::withdraw(std::uint64_t id) {
  if (told_.erase(id) == 0) return;
  // What is about to be told is not told any more.
  if (listing_) std::erase_if(listing_->reply.regions, [id](const control::Region& each) { return each.id == id; });
  send_(control::Withdrawn{.id = id});
}

const control::Region& Lookups::tell(control::Regions& reply, const Publication& publication,
                                     const RegionTable::View& regions) {
  told_.insert(publication.id);
  return reply.regions.emplace_back(encode_region(publication, regions.keys(publication)));
}

void Lookups::answer(const control::Lookup& lookup, const RegionTable::View& regions) {
  control::Regions reply;
  reply.request = lookup.request;
  if (std::max(lookup.name.size(), lookup.after.size()) > kMaxRegionName) {
    reply.code = static_cast<std::uint32_t>(Code::kInvalidArgument);
    reply.reason = fmt::format("a region's name has at most {} bytes", kMaxRegionName);
  } else if (lookup.prefix) {
    listing_ = {.reply = std::move(reply), .prefix = lookup.name, .after = lookup.after};
    return list(regions);
  } else {
    const auto told = [&](const Publication& publication) { static_cast<void>(tell(reply, publication, regions)); };
    const Status found =
        lookup.capability.empty() ? regions.find(lookup.name, told) : regions.import(lookup.capability, told);
    reply.code = static_cast<std::uint32_t>(found.code());
    reply.reason = found.message();
  }
  send_(reply);
}

void Lookups::advance(const RegionTable::View& regions) {
  visits_left_ = kTurnVisits;
  if (listing_) list(regions);
}

/// Pages well below the frame limit; the asker continues after the last name.
void Lookups::list(const RegionTable::View& regions) {
  Listing& listing = *listing_;
  control::Regions& reply = listing.reply;
  const bool ended = regions.list(listing.prefix, listing.after, visits_left_, [&](const Publication& publication) {
    reply.more = listing.bytes > kPage;
    if (!reply.more) listing.bytes += size_limit(tell(reply, publication, regions));
    return !reply.more;
  });
  if (!ended) return;
  const control::Regions whole = std::move(reply);
  listing_.reset();
  send_(whole);
}

}  // namespace fairlead::datapath
