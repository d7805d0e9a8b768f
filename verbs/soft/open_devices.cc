#include "verbs/soft/open_devices.h"

#include <algorithm>
#include <mutex>
#include <vector>

namespace fairlead::soft::open_devices {
namespace {

struct Open {
  Device* device = nullptr;
  unsigned users = 1;
};

struct List {
  std::mutex mutex;
  std::vector<Open> devices;

  Open* find(const Device& device) {
    const auto at =
        std::find_if(devices.begin(), devices.end(), [&](const Open& open) { return open.device == &device; });
    return at != devices.end() ? &*at : nullptr;
  }
};

List& list() {
  static List& instance = *new List;  // outlives every static that may still hold a device
  return instance;
}

}  // namespace

void add(Device& device) {
  const std::lock_guard lock(list().mutex);
  list().devices.push_back({&device, 1});
}

Device* share(const std::function<bool(Device&)>& wanted) {
  const std::lock_guard lock(list().mutex);
  for (Open& open : list().devices) {
    if (!wanted(*open.device)) continue;
    ++open.users;
    return open.device;
  }
  return nullptr;
}

bool leave(Device& device) {
  const std::lock_guard lock(list().mutex);
  Open* open = list().find(device);
  if (open == nullptr || open->users == 1) return false;
  --open->users;
  return true;
}

void forget(Device& device) {
  const std::lock_guard lock(list().mutex);
  std::erase_if(list().devices, [&](const Open& open) { return open.device == &device; });
}

}  // namespace fairlead::soft::open_devices
