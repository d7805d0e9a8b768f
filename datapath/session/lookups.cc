#include "datapath/session/lookups.h"

#include <fmt/format.h>

#include <algorithm>

#include "datapath/region/region_codec.h"
#include "datapath/session/control_channel.h"
#include "datapath/session/peer_text.h"

namespace fairlead::datapath {
namespace {

// Answers to so many fit below the mark at which the other end stops reading: two ends that ask each other for much
// never wait for each other.
constexpr std::size_t kPage = FrameReader::kMaxFrame / 4;
static_assert(Lookups::kMost * 2 * kPage <= ControlChannel::kReadMark);

}  // namespace

void Lookups::add(std::shared_ptr<LookupRequest> request) {
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
    control::Frame frame;
    frame.mutable_lookup()->set_request(number);
    frame.mutable_lookup()->set_name(request->name);
    frame.mutable_lookup()->set_prefix(request->prefix);
    send_(frame);
  }
}

void Lookups::on_regions(const control::Regions& regions, const std::string& who) {
  const auto at =
      std::find_if(asked_.begin(), asked_.end(), [&](const auto& entry) { return entry.first == regions.request(); });
  if (at == asked_.end()) return;
  const std::shared_ptr<LookupRequest> request = at->second;
  if (request->abandoned.load(std::memory_order_relaxed)) {
    asked_.erase(at);
    return ask();
  }
  if (regions.code() != 0) {
    request->status = {code_from_wire(regions.code()), fmt::format("{}: {}", who, clipped(regions.reason()))};
  }
  for (const control::Region& region : regions.regions()) {
    std::shared_ptr<RemoteRegionImpl> decoded = decode_region(region, session_);
    if (decoded == nullptr) {
      request->status = {Code::kDataLoss, fmt::format("{} described region '{}' badly", who, clipped(region.name()))};
      break;
    }
    // A list has an end: its names ascend, and its size has a limit.
    request->bytes += region.ByteSizeLong();
    if (request->bytes > kMostListed || (!request->regions.empty() && region.name() <= request->regions.back()->name)) {
      request->status = {Code::kDataLoss, fmt::format("{} listed '{}' out of order, or more than {} bytes of regions; "
                                                      "ask for a longer prefix",
                                                      who, clipped(region.name()), kMostListed)};
      break;
    }
    request->regions.push_back(std::move(decoded));
  }
  if (request->status.ok() && regions.more() && !request->regions.empty()) {
    control::Frame frame;
    control::Lookup& next = *frame.mutable_lookup();
    next.set_request(regions.request());
    next.set_name(request->name);
    next.set_prefix(true);
    next.set_after(request->regions.back()->name);
    return send_(frame);
  }
  asked_.erase(at);
  request->finished.store(true, std::memory_order_release);
  ask();
}

void Lookups::end(const Status& status) {
  session_ = 0;
  const auto end = [&](LookupRequest& request) {
    request.status = status;
    request.finished.store(true, std::memory_order_release);
  };
  for (const auto& [number, request] : std::exchange(asked_, {})) end(*request);
  for (const auto& request : std::exchange(waiting_, {})) end(*request);
}

control::Frame answer(const control::Lookup& lookup, const RegionTable& regions) {
  control::Frame frame;
  control::Regions& reply = *frame.mutable_regions();
  reply.set_request(lookup.request());
  if (std::max(lookup.name().size(), lookup.after().size()) > kMaxRegionName) {
    reply.set_code(static_cast<std::uint32_t>(Code::kInvalidArgument));
    reply.set_reason(fmt::format("a region's name has at most {} bytes", kMaxRegionName));
    return frame;
  }
  if (!lookup.prefix()) {
    const Status found = regions.find(
        lookup.name(), [&](const Publication& publication) { encode_region(publication, *reply.add_regions()); });
    reply.set_code(static_cast<std::uint32_t>(found.code()));
    reply.set_reason(found.message());
    return frame;
  }
  // Pages well below the frame limit; the asker continues after the last name.
  std::size_t bytes = 0;
  regions.list(lookup.name(), lookup.after(), [&](const Publication& publication) {
    if (bytes > kPage) {
      reply.set_more(true);
      return false;
    }
    control::Region& region = *reply.add_regions();
    encode_region(publication, region);
    bytes += region.ByteSizeLong();
    return true;
  });
  return frame;
}

}  // namespace fairlead::datapath
