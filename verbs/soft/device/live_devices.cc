#include "verbs/soft/device/live_devices.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <tuple>

#include "verbs/soft/observe/counter_page.h"

namespace fairlead::soft {
namespace {

using Page = std::array<char, kCounterPageBytes>;

std::string text(const char* from, std::size_t most) { return {from, ::strnlen(from, most)}; }

// The file may be of another version, so nothing in it is believed before it was checked.
std::optional<LiveDevice> decode(const Page& page, std::size_t size) {
  CounterPageHeader header;
  if (size < sizeof(header)) return std::nullopt;
  std::memcpy(&header, page.data(), sizeof(header));
  const auto fits = [&](std::uint32_t at, std::size_t bytes_each) {
    return at <= size && header.count <= (size - at) / bytes_each;
  };
  if (header.magic != kCounterPageMagic || header.version != kCounterPageVersion ||
      !fits(header.values_at, sizeof(std::uint64_t)) || !fits(header.names_at, kCounterNameBytes)) {
    return std::nullopt;
  }
  LiveDevice device{text(header.device, sizeof(header.device)),
                    text(header.address, sizeof(header.address)),
                    text(header.program, sizeof(header.program)),
                    header.process,
                    {}};
  for (std::size_t i = 0; i < header.count; ++i) {
    std::uint64_t value = 0;
    std::memcpy(&value, &page[header.values_at + i * sizeof(value)], sizeof(value));
    device.counters.emplace_back(text(&page[header.names_at + i * kCounterNameBytes], kCounterNameBytes), value);
  }
  return device;
}

// Its process holds a lock on the file. Whether there is a process of its number says nothing: it may be another's, or
// be one in another PID namespace alone.
bool is_stale(int fd) noexcept { return ::flock(fd, LOCK_EX | LOCK_NB) == 0; }

// Of "counters.PROCESS-NAMESPACE.N"; what has no namespace in its name comes from a program of before.
bool is_of_namespace(std::string_view name, std::string_view own) noexcept {
  const std::size_t begin = name.find('-');
  if (begin == std::string_view::npos) return true;
  name.remove_prefix(begin + 1);
  return name.substr(0, name.find('.')) == own;
}

}  // namespace

std::vector<LiveDevice> live_devices() {
  std::vector<LiveDevice> devices;
  const std::string directory = counter_directory();
  if (directory.empty()) return devices;
  const std::string own_namespace = std::to_string(pid_namespace());
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("counters.")) continue;
    const UniqueFd fd(::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!fd) continue;
    Page page{};
    const ssize_t got = ::pread(fd.get(), page.data(), page.size(), 0);
    std::optional<LiveDevice> device = decode(page, got > 0 ? static_cast<std::size_t>(got) : 0);
    if (!device) continue;
    if (is_stale(fd.get())) {
      ::unlink(entry.path().c_str());
      continue;
    }
    if (!is_of_namespace(name, own_namespace)) device->process = 0;
    devices.push_back(std::move(*device));
  }
  std::sort(devices.begin(), devices.end(), [](const LiveDevice& a, const LiveDevice& b) {
    return std::tie(a.process, a.address) < std::tie(b.process, b.address);
  });
  return devices;
}

}  // namespace fairlead::soft
