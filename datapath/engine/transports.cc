#include "datapath/engine/transports.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include "base/system/no_watch.h"

namespace fairlead::datapath {

using std::chrono::milliseconds;

/// Of what the driver changes, it reads counters alone.
TransportStats Transports::stats_of(const OpenTransport& open) const {
  const Traffic& traffic = open.endpoint->traffic();
  // What has ended first: meanwhile more may begin. Nothing orders the two but this.
  const std::uint64_t ended = traffic.ended.get(), paths_ended = traffic.paths_ended.get();
  TransportStats stats{.transport = open.offer.name,
                       .lane = number_,
                       .bytes_sent = traffic.bytes_sent.get(),
                       .bytes_received = traffic.bytes_received.get(),
                       .requests = traffic.requests.get(),
                       .paths_opened = traffic.paths.get(),
                       .paths_lost = traffic.paths_lost.get()};
  stats.requests_in_flight = stats.requests - std::min(ended, stats.requests);
  stats.paths = stats.paths_opened - std::min(paths_ended, stats.paths_opened);
  if (open.offer.kind == "tcp") stats.retransmissions = traffic.retransmissions.get();
  if (open.offer.name == "shm") {
    const Copies& copies = traffic.copies;
    stats.copied = {.mapped = copies.mapped.get(),
                    .streamed = copies.streamed.get(),
                    .by_kernel = copies.by_kernel.get(),
                    .through_rings = copies.through_rings.get()};
  }
  return stats;
}

Result<OpenTransport> Transports::prepare(const std::shared_ptr<Device>& device, const Offer& offer) {
  Result<std::unique_ptr<Endpoint>> endpoint = device->open_endpoint();
  if (!endpoint) return endpoint.error();
  // Here, where it can be refused. It ends no sleep before the lane has adopted it, and polls it.
  if (!lane_.reserve_watch((*endpoint)->wait_fd())) {
    return no_watch(fmt::format("{} in lane {}", offer.name, number_), errno);
  }
  Result<std::unique_ptr<Probe>> probe = Probe::make(*device);
  if (!probe) return probe.error();
  return OpenTransport{.device = device, .endpoint = std::move(*endpoint), .offer = offer, .probe = std::move(*probe)};
}

void Transports::hand_over(OpenTransport coming) {
  const std::lock_guard lock(counting_);
  coming_.push_back(std::move(coming));
}

void Transports::begin_with(const std::function<double(std::string_view)>& weight_of) {
  const std::lock_guard lock(counting_);
  for (OpenTransport& each : coming_) each.planned_weight = weight_of(each.offer.name);
}

void Transports::adopt() {
  const std::lock_guard lock(counting_);
  for (OpenTransport& each : std::exchange(coming_, {})) {
    lane_.watch_reserved(each.endpoint->wait_fd());
    open_.push_back(std::move(each));
  }
}

void Transports::close() {
  adopt();
  for (OpenTransport& each : open_) {
    lane_.unwatch(each.endpoint->wait_fd());
    each.probe.reset();
  }
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

void Transports::disarm() noexcept {
  for (OpenTransport& open : open_) open.endpoint->disarm();
}

void Transports::settle() noexcept {
  for (OpenTransport& open : open_) {
    if (open.paths != 0) open.endpoint->settle();
  }
}

milliseconds Transports::sleep_limit(milliseconds limit) const noexcept {
  for (const OpenTransport& open : open_) {
    const int us = open.endpoint->wait_timeout_us();
    if (us >= 0) limit = std::min(limit, milliseconds((us + 999) / 1000));
  }
  return limit;
}

}  // namespace fairlead::datapath
