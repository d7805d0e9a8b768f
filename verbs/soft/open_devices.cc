#include "verbs/soft/open_devices.h"

#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "verbs/soft/device.h"

namespace fairlead::soft::open_devices {
namespace {

struct Open {
  Device* device = nullptr;
  unsigned users = 1;
};

struct List {
  std::mutex mutex;
  std::vector<Open> devices;
  std::vector<Domain*> locked;  // while the process forks

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

// Lock order: this list, the domains in the list's order.
void before_fork() {
  list().mutex.lock();
  for (const Open& open : list().devices) {
    Domain& domain = open.device->domain();  // several devices may share it
    if (std::find(list().locked.begin(), list().locked.end(), &domain) != list().locked.end()) continue;
    domain.lock();
    list().locked.push_back(&domain);
  }
}

void after_fork() {
  for (Domain* domain : list().locked) domain->unlock();
  list().locked.clear();
  list().mutex.unlock();
}

}  // namespace

void add(Device& device) {
  static const int kHandlers = ::pthread_atfork(&before_fork, &after_fork, &after_fork);
  static_cast<void>(kHandlers);
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
