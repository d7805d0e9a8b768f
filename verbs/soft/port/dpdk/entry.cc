#include "verbs/soft/port/dpdk/entry.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>
#include <string>

#include "verbs/soft/port/dpdk/driver.h"
#include "verbs/soft/port/dpdk/eal.h"
#include "verbs/soft/port/dpdk/eth_device.h"

namespace fairlead::dpdk {
namespace {

std::unique_ptr<EthDevice> open(const soft::DpdkRequest& request, std::string& why) {
  static std::mutex& mutex = *new std::mutex;
  const std::lock_guard lock(mutex);
  const auto plan = plan_driver(request.device, request.mtu, why);
  if (!plan) return nullptr;
  if (!start_eal({plan->driver.empty() ? plan->name : "", request.megabytes}, why)) return nullptr;
  return EthDevice::open(*plan, request.mtu, why);
}

}  // namespace
}  // namespace fairlead::dpdk

extern "C" __attribute__((visibility("default"))) fairlead::soft::FrameDevice* fairlead_dpdk_open_2(
    const fairlead::soft::DpdkRequest* request, char* why, std::size_t why_bytes) noexcept {
  std::string reason;
  fairlead::soft::FrameDevice* device = nullptr;
  try {
    device = fairlead::dpdk::open(*request, reason).release();
  } catch (const std::exception& error) {
    reason = error.what();
  }
  const std::size_t length = std::min(reason.size(), why_bytes - 1);
  std::memcpy(why, reason.data(), length);
  why[length] = '\0';
  return device;
}
