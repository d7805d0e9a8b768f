#include "verbs/soft/port/dpdk/dpdk_module.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <vector>

#include "verbs/soft/port/dpdk/entry.h"
#include "verbs/soft/port/frame/lanes.h"

namespace fairlead::soft {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModule = "libfairlead-dpdk.so";
static_assert(kMostDpdkQueues == kMostLanes);
// IPv6, UDP, BTH, AtomicETH and the largest path MTU, with room for a carried acknowledgement.
constexpr std::uint32_t kWantedMtu = 40 + 8 + 12 + 28 + 8 + 4096 + 4;

std::vector<fs::path> folders() {
  std::vector<fs::path> found;
  if (const char* set = std::getenv("FAIRLEAD_MODULES"); set != nullptr && *set != '\0') {
    std::string_view text = set;
    while (true) {
      const std::size_t colon = text.find(':');
      if (const auto folder = text.substr(0, colon); !folder.empty()) found.emplace_back(folder);
      if (colon == std::string_view::npos) return found;
      text.remove_prefix(colon + 1);
    }
  }
  Dl_info self{};
  std::error_code ignored;
  if (::dladdr(reinterpret_cast<void*>(&open_dpdk_device), &self) != 0 && self.dli_fname != nullptr) {
    fs::path file = fs::canonical(self.dli_fname, ignored);
    if (ignored) file = fs::read_symlink("/proc/self/exe", ignored);  // a program started by a relative name
    const fs::path own = file.parent_path();
    for (const fs::path& each : {own, own.parent_path() / "lib"}) {
      found.push_back(each);
      found.push_back(each / "fairlead");
    }
  }
  found.emplace_back(FAIRLEAD_MODULE_FOLDER);
  return found;
}

std::string in_words(const std::vector<fs::path>& places) {
  std::string text;
  for (const fs::path& each : places) text += (text.empty() ? "" : ", ") + each.string();
  return text;
}

Result<OpenDpdkDevice*> load() {
  static std::mutex& mutex = *new std::mutex;
  static OpenDpdkDevice* open = nullptr;
  const std::lock_guard lock(mutex);
  if (open != nullptr) return open;
  const std::vector<fs::path> places = folders();
  for (const fs::path& folder : places) {
    const fs::path file = folder / kModule;
    std::error_code ignored;
    if (!fs::exists(file, ignored)) continue;
    void* handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      return {Code::kUnavailable,
              fmt::format("packet_io dpdk: cannot load {}: {}; DPDK 22.11 is in the packages librte-eal23, "
                          "librte-ethdev23 and those of the drivers",
                          file.string(), ::dlerror())};
    }
    open = reinterpret_cast<OpenDpdkDevice*>(::dlsym(handle, kOpenDpdkDevice));
    if (open != nullptr) return open;
    return {Code::kVersionMismatch,
            fmt::format("packet_io dpdk: {} is of another version of Fairlead; install both of one", file.string())};
  }
  return {Code::kUnavailable,
          fmt::format("packet_io dpdk: there is no {} in {}; it is built where libdpdk-dev is installed (scripts/setup "
                      "--dpdk, then configure again), and FAIRLEAD_MODULES names another folder",
                      kModule, in_words(places))};
}

}  // namespace

Result<std::vector<std::unique_ptr<FrameDevice>>> open_dpdk_device(const std::string& devargs, std::uint32_t megabytes,
                                                                   std::uint32_t queues, bool zero_copy) {
  const auto open = load();
  if (!open) return open.error();
  const DpdkRequest request{devargs.c_str(), kWantedMtu, megabytes, queues, zero_copy};
  std::array<FrameDevice*, kMostDpdkQueues> opened{};
  std::array<char, 2048> why{};
  if (!(*open)(&request, opened.data(), why.data(), why.size())) {
    return {Code::kUnavailable, fmt::format("packet_io dpdk: {}", why.data())};
  }
  std::vector<std::unique_ptr<FrameDevice>> devices;
  for (FrameDevice* device : std::span(opened).first(queues)) devices.emplace_back(device);
  return devices;
}

}  // namespace fairlead::soft
