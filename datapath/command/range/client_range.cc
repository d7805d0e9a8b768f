#include "datapath/command/range/client_range.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace fairlead::datapath::command {

namespace {

static_assert(range_step(1) % LocalRange::kAlignment == 0);

using fairlead::command::AddressRange;
using fairlead::command::Limits;

/// How many devices the session may come to have.
std::uint64_t most_devices(const fairlead::command::SessionOptions& options) noexcept {
  if (options.devices == std::vector{fairlead::command::kAllDevices}) return kMaxDevices;
  return std::max<std::size_t>(options.devices.size(), 1);
}

constexpr std::size_t kSettledAtOnce = 8;  // releases

/// What devices round a range up to.
constexpr std::uint64_t kRounding = std::uint64_t{2} << 20;

bool is_sound(const AddressRange& range, std::uint64_t asked) noexcept {
  const bool is_what_was_asked = range.bytes >= asked && range.bytes - asked <= kRounding;
  return is_what_was_asked && range.base != 0 && range.base + range.bytes >= range.base &&
         std::has_single_bit(range.alignment);
}

bool overlap(const AddressRange& one, const AddressRange& other) noexcept {
  return one.base < other.base + other.bytes && other.base < one.base + one.bytes;
}

}  // namespace

Result<HelloMore> ClientRange::ask(const SessionOptions& options) {
  HelloMore more{options.range_bytes, 0};
  if (options.range_bytes == 0 || !options.reserve_range_here) return more;
  const std::uint64_t others = most_devices(options) - 1;
  if (others != 0 && options.range_bytes > (std::uint64_t{1} << 46) / kMaxDevices) {
    return Status(Code::kResourceExhausted,
                  fmt::format("there are no {} bytes of addresses for each of several devices", options.range_bytes));
  }
  Result<LocalRange> free = LocalRange::reserve(others * range_step(options.range_bytes) + options.range_bytes);
  if (!free) return free.error();
  more.range_wish = free->base();
  local_.push_back(*std::move(free));
  return more;
}

Status ClientRange::mirror(const SessionOptions& options, std::span<const Limits> devices) {
  if (options.range_bytes == 0) return {};
  const Limits& first = devices.front();
  if (first.version < kGraphVersion) {
    return {Code::kVersionMismatch,
            fmt::format("the service speaks version {} of the commands' protocol, which knows no ranges of addresses; "
                        "version {} does: set range_bytes to 0, or update the service",
                        first.version, kGraphVersion)};
  }
  bool as_wished = !local_.empty();
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const AddressRange& range = devices[i].range;
    if (!is_sound(range, options.range_bytes)) {
      return {Code::kDataLoss,
              fmt::format("the service's range of {} bytes at {:#x} makes no sense; it was asked for {}", range.bytes,
                          range.base, options.range_bytes)};
    }
    for (const Limits& before : devices.first(i)) {
      if (!overlap(range, before.range)) continue;
      return {Code::kDataLoss, fmt::format("the service's ranges of devices {} and {} overlap, at {:#x}",
                                           &before - devices.data(), i, range.base)};
    }
    as_wished = as_wished && range.base >= local_[0].base() &&
                range.base - local_[0].base() <= local_[0].bytes() - std::min(local_[0].bytes(), range.bytes) &&
                range.bytes <= local_[0].bytes();
  }
  if (!options.reserve_range_here || as_wished) return {};
  local_.clear();
  for (const Limits& each : devices) {
    Result<LocalRange> same = LocalRange::reserve_at(each.range.base, each.range.bytes);
    if (!same) {
      return {same.error().code(),
              fmt::format("the service's range is not to be had: {}; connect again, or, if the service is in this "
                          "process, set reserve_range_here to false",
                          same.error().message())};
    }
    local_.push_back(*std::move(same));
  }
  return {};
}

void ClientRange::add(const Name& name, const Placed& placed) {
  const std::lock_guard lock(mutex_);
  placed_.insert_or_assign(name, placed);
}

void ClientRange::release(const Name& name, const fairlead::command::Mark& by) {
  const std::lock_guard lock(mutex_);
  const auto found = placed_.find(name);
  if (found == placed_.end() || found->second.released) return;
  found->second.released = by;
  releases_.emplace_back(name, by);
}

void ClientRange::settle(const std::function<Fate(const fairlead::command::Mark&)>& fate_of) {
  const std::lock_guard lock(mutex_);
  // More than come at a time; one whose channel stands still keeps no other.
  for (std::size_t i = std::min(releases_.size(), kSettledAtOnce); i != 0; --i) {
    auto [name, by] = releases_.front();
    releases_.pop_front();
    const Fate fate = fate_of(by);
    if (fate == Fate::kOpen) {
      releases_.emplace_back(name, by);
      continue;
    }
    const auto found = placed_.find(name);
    const bool is_its = found != placed_.end() && found->second.released &&
                        found->second.released->channel == by.channel &&
                        found->second.released->sequence == by.sequence;
    if (!is_its) continue;  // the handle names other memory by now
    if (fate == Fate::kRan) placed_.erase(found);
    if (fate == Fate::kPassedOver) found->second.released.reset();
  }
}

std::optional<ClientRange::Placed> ClientRange::find(const Name& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = placed_.find(name);
  return found != placed_.end() ? std::optional(found->second) : std::nullopt;
}

}  // namespace fairlead::datapath::command
