#include "memreg/cache/mappings.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>

#include "base/unique_fd.h"

namespace fairlead::memreg::cache {
namespace {

/// Private, and none of the kernel's own pages, which have names in brackets.
bool is_ordinary(const Mapping& mapping) {
  return mapping.permissions.back() == 'p' &&
         (mapping.name.empty() || mapping.name == "[heap]" || mapping.name.starts_with("[stack") ||
          mapping.name.starts_with("[anon:"));
}

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

// What the kernel's lines say of one mapping, asked for by an address: since Linux 6.11, and much quicker where there
// are many. <linux/fs.h> of older systems does not have it.
struct MapQuery {
  std::uint64_t size, flags, address;
  std::uint64_t begin, end, permissions, page_size, offset, inode;
  std::uint32_t device_major, device_minor, name_size, build_id_size;
  std::uint64_t name, build_id;
};
static_assert(sizeof(MapQuery) == 104);
constexpr std::uint64_t kCoveringOrNext = 0x10;
constexpr std::string_view kPermissionLetters = "rwx";
constexpr unsigned long kMapQuery = _IOWR('f', 17, MapQuery);
constexpr std::size_t kNameBytes = 256;

/// The first mapping that ends behind the address. ENOENT: there is none; ENOTTY: this kernel cannot say.
int query_mapping(int fd, std::uintptr_t address, Mapping& mapping) {
  std::array<char, kNameBytes> name{};
  MapQuery query{};
  query.size = sizeof query;
  query.flags = kCoveringOrNext;
  query.address = address;
  query.name = reinterpret_cast<std::uintptr_t>(name.data());
  query.name_size = kNameBytes;
  if (::ioctl(fd, kMapQuery, &query) != 0) return errno;
  mapping.range = {query.begin, query.end};
  mapping.permissions.clear();
  for (std::size_t i = 0; i < kPermissionLetters.size(); ++i) {
    mapping.permissions += (query.permissions >> i & 1) != 0 ? kPermissionLetters[i] : '-';
  }
  mapping.permissions += (query.permissions & 0x8) != 0 ? 's' : 'p';
  mapping.name = name.data();
  mapping.anonymous = query.inode == 0 && is_ordinary(mapping);
  return 0;
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
  mapping.anonymous = inode == "0" && is_ordinary(mapping);
  return true;
}

Result<std::vector<Mapping>> mappings_near(Range range) {
  const UniqueFd fd(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  if (!fd) {
    return {Code::kUnavailable, fmt::format("cannot read /proc/self/maps: {}; mount /proc", std::strerror(errno))};
  }
  std::vector<Mapping> found;
  int ended = 0;
  for (std::uintptr_t at = range.begin - 1; ended == 0;) {
    Mapping mapping;
    ended = query_mapping(fd.get(), at, mapping);
    if (ended == ENOENT || (ended == 0 && mapping.range.begin > range.end)) return found;
    at = mapping.range.end;
    if (ended == 0) found.push_back(std::move(mapping));
  }
  found.clear();
  return read_mappings(fd.get(), range);
}

std::vector<Mapping> read_mappings(int fd, Range range) {
  std::vector<Mapping> found;
  std::string text(kReadBytes, '\0');
  std::size_t held = 0;
  for (;;) {
    const ::ssize_t got = ::read(fd, text.data() + held, text.size() - held);
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

std::vector<Range> tracked_mappings() {
  constexpr std::string_view kFlags = "VmFlags:", kTracked = " uw";
  std::ifstream smaps("/proc/self/smaps");
  std::vector<Range> found;
  Range last;
  for (std::string line; std::getline(smaps, line);) {
    if (Mapping mapping; read_mapping(line, mapping)) {
      last = mapping.range;
    } else if (line.starts_with(kFlags) && line.find(kTracked) != std::string::npos) {
      found.push_back(last);
    }
  }
  return found;
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
