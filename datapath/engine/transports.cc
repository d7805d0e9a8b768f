#include "datapath/engine/transports.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "base/words.h"
#include "datapath/engine/factory.h"
#include "datapath/region/remote_region.h"
#include "fairlead/log.h"

namespace fairlead::datapath {

using std::chrono::milliseconds;

namespace {

/// From any thread: of what the driver changes, it reads counters alone.
TransportStats stats_of(const OpenTransport& open) {
  const Traffic& traffic = open.endpoint->traffic();
  // What has ended first: meanwhile more may begin. Nothing orders the two but this.
  const std::uint64_t ended = traffic.ended.get(), paths_ended = traffic.paths_ended.get();
  TransportStats stats{.transport = open.offer.name,
                       .bytes_sent = traffic.bytes_sent.get(),
                       .bytes_received = traffic.bytes_received.get(),
                       .requests = traffic.requests.get(),
                       .paths_opened = traffic.paths.get(),
                       .paths_lost = traffic.paths_lost.get()};
  stats.requests_in_flight = stats.requests - std::min(ended, stats.requests);
  stats.paths = stats.paths_opened - std::min(paths_ended, stats.paths_opened);
  if (open.offer.kind == "tcp") stats.retransmissions = traffic.retransmissions.get();
  return stats;
}

}  // namespace

Status Transports::open_all(const EngineConfig& config) {
  const std::vector<std::string> names = transports_to_open(config);
  if (names.empty()) {
    return {Code::kInvalidArgument,
            fmt::format("no transport is left to use: transport is '{}', require is '{}', forbid is '{}'",
                        config.transport, fmt::join(config.require, ","), fmt::join(config.forbid, ","))};
  }
  for (const std::string& name : names) {
    Status opened = open(name, config);
    if (opened.ok()) continue;
    // What was asked for must be there; tcp behind it, or one device of several, need not.
    const bool asked = std::ranges::count(words_of(config.transport), name) != 0 || open_.empty();
    if (asked && !(config.transport == "auto" && name != "tcp")) return opened;
    log(LogLevel::kWarning, fmt::format("{} is not used: {}", name, opened.message()));
  }
  return {};
}

Status Transports::open(const std::string& name, const EngineConfig& config) {
  if (open_.size() == kMaxOffers) {
    return {
        Code::kResourceExhausted,
        fmt::format("{} transports are open, as many as a peer may be told of; {} is one too many", kMaxOffers, name)};
  }
  Result<std::unique_ptr<Device>> device = open_device(name, config);
  if (!device) return device.error();
  const Offer offer = offer_of(**device);
  if (const std::string why = why_not(policy_of(config), offer); !why.empty()) {
    return {Code::kUnavailable, fmt::format("{} is {}", offer.name, why)};
  }
  Result<std::unique_ptr<Endpoint>> endpoint = (*device)->open_endpoint();
  if (!endpoint) return endpoint.error();
  const MemoryDescriptor probe{.bytes = probe_memory_, .access = Access::kRemoteWrite};
  Result<Registration> registration = (*device)->register_memory(probe);
  if (!registration) return registration.error();
  Result<Grant> target = (*device)->grant(part_of(probe, probe.bytes.first(kProbeBytes), Access::kRemoteWrite));
  const Status attached = target ? regions_.attach(**device) : target.error();
  if (!attached.ok()) {
    if (target) (*device)->revoke(*target);
    (*device)->deregister(*registration);
    return attached;
  }
  lane_.watch((*endpoint)->wait_fd());
  probe_registrations_.push_back(*registration);
  const std::lock_guard lock(counting_);
  open_.push_back({.device = std::move(*device), .endpoint = std::move(*endpoint), .offer = offer, .probe = *target});
  return {};
}

// On the driver, which registers all that is there with the device: softroce maps nothing for it.
void Transports::open_for_peer(const std::vector<Offer>& theirs, const EngineConfig& config) {
  const bool has = std::any_of(open_.begin(), open_.end(), [](const auto& open) { return open.offer.kind == "verbs"; });
  const bool wanted = std::any_of(theirs.begin(), theirs.end(), [](const Offer& o) { return o.kind == "verbs"; });
  if (!wanted || has || config.transport != "auto") return;
  if (Status opened = open("verbs:soft0", config); !opened.ok()) {
    log(LogLevel::kWarning, fmt::format("a peer offers verbs, but here {}", opened.message()));
  }
}

void Transports::close() {
  for (std::size_t t = 0; t < open_.size(); ++t) {
    lane_.unwatch(open_[t].endpoint->wait_fd());
    open_[t].device->revoke(open_[t].probe);
    open_[t].device->deregister(probe_registrations_[t]);
  }
  regions_.shutdown();
  std::vector<TransportStats> last = stats();
  const std::lock_guard lock(counting_);
  open_.clear();
  closed_ = std::move(last);
}

std::vector<TransportStats> Transports::stats() const {
  const std::lock_guard lock(counting_);
  std::vector<TransportStats> all = closed_;
  for (const OpenTransport& open : open_) all.push_back(stats_of(open));
  return all;
}

std::vector<Offer> Transports::offers() const {
  std::vector<Offer> offers;
  for (const OpenTransport& open : open_) offers.push_back(open.offer);
  return offers;
}

LocalSegment Transports::probe_source(std::size_t transport) const noexcept {
  return {const_cast<std::byte*>(probe_memory_.data()) + kProbeBytes, kProbeBytes,
          probe_registrations_[transport].local};
}

bool Transports::poll(bool everyone) noexcept {
  bool arrived = false;
  for (OpenTransport& open : open_) {
    if (open.paths != 0 || everyone) arrived |= open.endpoint->poll();
  }
  return arrived;
}

bool Transports::arm() noexcept {
  return std::all_of(open_.begin(), open_.end(), [](const OpenTransport& open) { return open.endpoint->arm(); });
}

milliseconds Transports::sleep_limit(milliseconds limit) const noexcept {
  for (const OpenTransport& open : open_) {
    const int us = open.endpoint->wait_timeout_us();
    if (us >= 0) limit = std::min(limit, milliseconds((us + 999) / 1000));
  }
  return limit;
}

}  // namespace fairlead::datapath
