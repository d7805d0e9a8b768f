#include "verbs/soft/port/dpdk/entry.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "verbs/soft/port/dpdk/driver.h"
#include "verbs/soft/port/dpdk/eal.h"
#include "verbs/soft/port/dpdk/eth_device.h"

namespace fairlead::dpdk {
namespace {

std::vector<std::unique_ptr<EthDevice>> open(const soft::DpdkRequest& request, std::string& why) {
  static std::mutex& mutex = *new std::mutex;
  const std::lock_guard lock(mutex);
  auto plan = plan_driver(request.device, request.mtu, static_cast<std::uint16_t>(request.queues), why);
  if (!plan) return {};
  plan->zero_copy = request.zero_copy;
  if (!start_eal({plan->driver.empty() ? plan->name : "", request.megabytes}, why)) return {};
  const auto port = EthPort::open(*plan, request.mtu, why);
  if (port == nullptr) return {};
  std::vector<std::unique_ptr<EthDevice>> queues;
  for (std::uint16_t queue = 0; queue < port->queues(); ++queue) {
    queues.push_back(std::make_unique<EthDevice>(port, queue));
  }
  return queues;
}

}  // namespace
}  // namespace fairlead::dpdk

extern "C" __attribute__((visibility("default"))) bool fairlead_dpdk_open_7(const fairlead::soft::DpdkRequest* request,
                                                                            fairlead::soft::FrameDevice** queues,
                                                                            char* why, std::size_t why_bytes) noexcept {
  std::string reason;
  std::vector<std::unique_ptr<fairlead::dpdk::EthDevice>> opened;
  try {
    opened = fairlead::dpdk::open(*request, reason);
  } catch (const std::exception& error) {
    reason = error.what();
  }
  for (auto& queue : opened) *queues++ = queue.release();
  const std::size_t length = std::min(reason.size(), why_bytes - 1);
  std::memcpy(why, reason.data(), length);
  why[length] = '\0';
  return !opened.empty();
}
