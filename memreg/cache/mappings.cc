#include "memreg/cache/mappings.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/unique_fd.h"

namespace fairlead::memreg::cache {
namespace {

/// Takes the text up to `end` off the front of `line`, and the end, too.
std::string_view take(std::string_view& line, char end) {
  const std::size_t at = std::min(line.find(end), line.size());
  const std::string_view word = line.substr(0, at);
  line.remove_prefix(std::min(at + 1, line.size()));
  return word;
}

bool hexadecimal(std::string_view text, std::uintptr_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return error == std::errc() && end == text.data() + text.size();
}

constexpr std::size_t kReadBytes = std::size_t{64} << 10;

}  // namespace

bool read_mapping(std::string_view line, Mapping& mapping) {
  const std::string_view begin = take(line, '-'), end = take(line, ' ');
  if (!hexadecimal(begin, mapping.range.begin) || !hexadecimal(end, mapping.range.end)) return false;
  mapping.permissions = take(line, ' ');
  if (mapping.permissions.size() != 4) return false;
  static_cast<void>(take(line, ' '));  // the offset
  static_cast<void>(take(line, ' '));  // the device
  const std::string_view inode = take(line, ' ');
  if (inode.empty()) return false;
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  mapping.name = line;
  // Of the names in brackets the kernel's own pages are no memory of the application.
  const bool ordinary = mapping.name.empty() || mapping.name == "[heap]" || mapping.name.starts_with("[stack") ||
                        mapping.name.starts_with("[anon:");
  mapping.anonymous = inode == "0" && mapping.permissions[3] == 'p' && ordinary;
  return true;
}

Result<std::vector<Mapping>> mappings_near(Range range) {
  const UniqueFd fd(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  if (!fd) {
    return {Code::kUnavailable, fmt::format("cannot read /proc/self/maps: {}; mount /proc", std::strerror(errno))};
  }
  std::vector<Mapping> found;
  std::string text(kReadBytes, '\0');
  std::size_t held = 0;
  for (;;) {
    const ::ssize_t got = ::read(fd.get(), text.data() + held, text.size() - held);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return found;
    held += static_cast<std::size_t>(got);
    std::size_t used = 0;
    for (std::size_t feed = 0; (feed = text.find('\n', used)) < held; used = feed + 1) {
      Mapping mapping;
      if (!read_mapping({text.data() + used, feed - used}, mapping)) continue;
      if (mapping.range.begin > range.end) return found;
      if (mapping.range.end >= range.begin) found.push_back(std::move(mapping));
    }
    text.erase(0, used);
    held -= used;
    text.resize(held + kReadBytes);
  }
}

std::vector<Mapping> joined(std::vector<Mapping> mappings) {
  std::vector<Mapping> runs;
  for (Mapping& each : mappings) {
    if (!runs.empty()) {
      Mapping& last = runs.back();
      const bool same = last.anonymous && each.anonymous && last.permissions == each.permissions;
      if (same && last.range.end == each.range.begin) {
        last.range.end = each.range.end;
        continue;
      }
    }
    runs.push_back(std::move(each));
  }
  return runs;
}

Status check_watchable(std::span<const Mapping> mappings, Range range) {
  std::uintptr_t at = range.begin;
  for (const Mapping& each : mappings) {
    if (each.range.end <= at) continue;
    if (each.range.begin > at || at >= range.end) break;
    if (!each.anonymous) {
      return {
          Code::kUnimplemented,
          fmt::format("cannot cache a registration of {} bytes at {:#x}: they lie in a mapping of '{}', whose pages "
                      "may change unseen; declare the memory, or register it, for as long as it is mapped",
                      range.size(), range.begin, each.name.empty() ? "shared memory" : each.name)};
    }
    at = each.range.end;
  }
  if (at >= range.end) return {};
  return {Code::kInvalidArgument,
          fmt::format("cannot register {} bytes at {:#x}: nothing is mapped at {:#x}", range.size(), range.begin, at)};
}

}  // namespace fairlead::memreg::cache
