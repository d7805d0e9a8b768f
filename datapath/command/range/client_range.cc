#include "datapath/command/range/client_range.h"

#include <fmt/format.h>

#include <utility>

namespace fairlead::datapath::command {

Result<HelloMore> ClientRange::ask(const SessionOptions& options) {
  HelloMore more{options.range_bytes, 0};
  if (options.range_bytes == 0 || !options.reserve_range_here) return more;
  Result<LocalRange> free = LocalRange::reserve(options.range_bytes);
  if (!free) return free.error();
  local_ = *std::move(free);
  more.range_wish = local_.base();
  return more;
}

Status ClientRange::mirror(const SessionOptions& options, const Limits& limits) {
  if (options.range_bytes == 0) return {};
  if (limits.version < kGraphVersion) {
    return {Code::kVersionMismatch,
            fmt::format("the service speaks version {} of the commands' protocol, which knows no ranges of addresses; "
                        "version {} does: set range_bytes to 0, or update the service",
                        limits.version, kGraphVersion)};
  }
  const std::uint64_t base = limits.range.base, bytes = limits.range.bytes;
  const bool is_what_was_asked = bytes >= options.range_bytes && bytes - options.range_bytes <= LocalRange::kAlignment;
  if (!is_what_was_asked || base == 0 || base + bytes < base || limits.range.alignment == 0 ||
      (limits.range.alignment & (limits.range.alignment - 1)) != 0) {
    return {Code::kDataLoss, fmt::format("the service's range of {} bytes at {:#x} makes no sense; it was asked for {}",
                                         bytes, base, options.range_bytes)};
  }
  if (!options.reserve_range_here || (base == local_.base() && bytes <= local_.bytes())) return {};
  local_ = LocalRange();
  Result<LocalRange> same = LocalRange::reserve_at(base, bytes);
  if (!same) {
    return {same.error().code(),
            fmt::format("the service's range is not to be had: {}; connect again, or, if the service is in this "
                        "process, set reserve_range_here to false",
                        same.error().message())};
  }
  local_ = *std::move(same);
  return {};
}

void ClientRange::add(std::uint64_t handle, const Placed& placed) {
  const std::lock_guard lock(mutex_);
  placed_.insert_or_assign(handle, placed);
}

void ClientRange::remove(std::uint64_t handle) {
  const std::lock_guard lock(mutex_);
  placed_.erase(handle);
}

std::optional<ClientRange::Placed> ClientRange::find(std::uint64_t handle) const {
  const std::lock_guard lock(mutex_);
  const auto found = placed_.find(handle);
  return found != placed_.end() ? std::optional(found->second) : std::nullopt;
}

}  // namespace fairlead::datapath::command
