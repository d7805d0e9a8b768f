#include "verbs/soft/device/live_devices.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
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

// Its process holds a lock on the file; a child that was forked meanwhile may hold on to it for longer.
bool is_stale(int fd, std::uint32_t process) noexcept {
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
  return ::kill(static_cast<pid_t>(process), 0) != 0 && errno == ESRCH;
}

}  // namespace

std::vector<LiveDevice> live_devices() {
  std::vector<LiveDevice> devices;
  const std::string directory = counter_directory();
  if (directory.empty()) return devices;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (!entry.path().filename().string().starts_with("counters.")) continue;
    const UniqueFd fd(::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!fd) continue;
    Page page{};
    const ssize_t got = ::pread(fd.get(), page.data(), page.size(), 0);
    std::optional<LiveDevice> device = decode(page, got > 0 ? static_cast<std::size_t>(got) : 0);
    if (!device) continue;
    if (is_stale(fd.get(), device->process)) {
      ::unlink(entry.path().c_str());
    } else {
      devices.push_back(std::move(*device));
    }
  }
  std::sort(devices.begin(), devices.end(), [](const LiveDevice& a, const LiveDevice& b) {
    return std::tie(a.process, a.address) < std::tie(b.process, b.address);
  });
  return devices;
}

}  // namespace fairlead::soft
