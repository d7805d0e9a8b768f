#include "tcp_fallback/device.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/guarded.h"
#include "tcp_fallback/domain.h"
#include "tcp_fallback/endpoint.h"
#include "tcp_fallback/factory.h"
#include "transport/check_memory.h"

namespace fairlead::tcp_fallback {

Result<std::unique_ptr<datapath::Device>> open_device(const TcpConfig& config) {
  auto device = TcpDevice::open(config);
  if (!device) return device.error();
  return std::unique_ptr<datapath::Device>(std::move(*device));
}

Result<std::unique_ptr<TcpDevice>> TcpDevice::open(const TcpConfig& config, const Clock& clock) {
  if (config.send_depth == 0 || config.send_depth > kMaxDepth) {
    return {Code::kInvalidArgument, fmt::format("tcp.send_depth is {}; legal: 1 to {}", config.send_depth, kMaxDepth)};
  }
  if (Status known = check_congestion_control(config.congestion_control); !known.ok()) return known;
  return std::unique_ptr<TcpDevice>(new TcpDevice(config, clock));
}

TcpDevice::TcpDevice(const TcpConfig& config, const Clock& clock) : config_(config), clock_(clock) {
  capabilities_.grants_are_entries = true;
  capabilities_.max_message = kMaxMessage;
  capabilities_.max_segments = kMaxSegments;
  capabilities_.max_outstanding = config.send_depth;
}

std::string TcpDevice::describe() const { return "tcp, one connection per path, not encrypted"; }

Result<datapath::Registration> TcpDevice::register_memory(const datapath::MemoryDescriptor& memory) {
  if (Status known = datapath::check_host_memory(memory, name()); !known.ok()) return known;
  install_fault_handlers();  // small payload is copied there by the CPU
  registrations_.fetch_add(1, std::memory_order_relaxed);
  return datapath::Registration{};
}

void TcpDevice::deregister(const datapath::Registration&) noexcept {
  registrations_.fetch_sub(1, std::memory_order_relaxed);
}

Result<datapath::Grant> TcpDevice::grant(const datapath::MemoryDescriptor& part) {
  return grants_.grant(part.bytes, part.access, 0);
}

Result<std::unique_ptr<datapath::MemoryDomain>> TcpDevice::open_domain() {
  return std::unique_ptr<datapath::MemoryDomain>(
      std::make_unique<TcpDomain>(*this, last_domain_.fetch_add(1, std::memory_order_relaxed) + 1));
}

datapath::DeviceUsage TcpDevice::usage() const noexcept {
  return {.registrations = registrations_.load(std::memory_order_relaxed), .grants = grants_.size()};
}

std::size_t TcpDevice::endpoint_opened() {
  const auto number = static_cast<std::size_t>(std::ranges::find(endpoints_, false) - endpoints_.begin());
  if (number == endpoints_.size()) endpoints_.emplace_back();
  endpoints_[number] = true;
  return number;
}

Result<std::unique_ptr<datapath::Endpoint>> TcpDevice::open_endpoint() {
  auto endpoint = TcpEndpoint::open(*this);
  if (!endpoint) return endpoint.error();
  return std::unique_ptr<datapath::Endpoint>(std::move(*endpoint));
}

}  // namespace fairlead::tcp_fallback
