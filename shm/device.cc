#include "shm/device.h"

#include <fmt/format.h>

#include "base/guarded.h"
#include "shm/domain.h"
#include "shm/endpoint.h"
#include "shm/factory.h"
#include "shm/meeting/listener.h"
#include "shm/peer_memory.h"
#include "shm/requester.h"
#include "transport/check_memory.h"

namespace fairlead::shm {

Result<std::unique_ptr<datapath::Device>> open_device(const ShmConfig& config) {
  auto device = ShmDevice::open(config);
  if (!device) return device.error();
  return std::unique_ptr<datapath::Device>(std::move(*device));
}

Result<std::string> meeting_place(const ShmConfig& config) {
  Result<Place> place = find_place(config);
  if (!place) return place.error();
  return std::move(place->directory);
}

Result<std::unique_ptr<ShmDevice>> ShmDevice::open(const ShmConfig& config, const Clock& clock) {
  Result<Place> place = find_place(config);
  if (!place) return place.error();
  sweep(*place);
  return std::unique_ptr<ShmDevice>(new ShmDevice(config, std::move(*place), clock));
}

ShmDevice::ShmDevice(const ShmConfig& config, Place place, const Clock& clock)
    : config_(config), place_(std::move(place)), clock_(clock) {
  capabilities_.grants_are_entries = true;
  capabilities_.write_notifies = true;
  capabilities_.max_message = kMaxPiece;
  capabilities_.max_segments = kMaxSegments;
  capabilities_.max_outstanding = kDepth;
}

std::string ShmDevice::describe() const { return fmt::format("memory of this host, met in {}", place_.directory); }

Result<datapath::Registration> ShmDevice::register_memory(const datapath::MemoryDescriptor& memory) {
  if (Status known = datapath::check_host_memory(memory, name()); !known.ok()) return known;
  install_fault_handlers();  // payload is copied there by the CPU
  registrations_.fetch_add(1, std::memory_order_relaxed);
  const auto* host = std::get_if<datapath::HostMemory>(&memory.kind);
  if (host != nullptr && host->readable_fd >= 0) {
    return datapath::Registration{.local = arenas_.add(memory.bytes, host->readable_fd)};
  }
  return datapath::Registration{.local = is_by_cpu_only(memory.bytes) ? kThroughRingsAlone : 0};
}

void ShmDevice::deregister(const datapath::Registration& registration) noexcept {
  if (registration.local >= OwnArenas::kFirst) arenas_.remove(registration.local);
  registrations_.fetch_sub(1, std::memory_order_relaxed);
}

Result<datapath::Grant> ShmDevice::grant(const datapath::MemoryDescriptor& part) { return grant_in(0, part); }

datapath::Grant ShmDevice::grant_in(datapath::DomainNumber domain, const datapath::MemoryDescriptor& part) {
  return grants_.grant(part.bytes, part.access, domain, !part.bytes.empty() && is_by_cpu_only(part.bytes));
}

void ShmDevice::revoke(const datapath::Grant& grant) noexcept {
  grants_.revoke(grant);
  reads_.withdraw(grant.key);
}

Result<std::unique_ptr<datapath::MemoryDomain>> ShmDevice::open_domain() {
  return std::unique_ptr<datapath::MemoryDomain>(
      std::make_unique<ShmDomain>(*this, last_domain_.fetch_add(1, std::memory_order_relaxed) + 1));
}

datapath::DeviceUsage ShmDevice::usage() const noexcept {
  return {.registrations = registrations_.load(std::memory_order_relaxed), .grants = grants_.size()};
}

Result<std::unique_ptr<datapath::Endpoint>> ShmDevice::open_endpoint() {
  auto endpoint = ShmEndpoint::open(*this);
  if (!endpoint) return endpoint.error();
  return std::unique_ptr<datapath::Endpoint>(std::move(*endpoint));
}

}  // namespace fairlead::shm
