// One end of a path over shm, in this process or another.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "memreg/arena.h"
#include "shm/factory.h"
#include "transport/device.h"

namespace fairlead::shm {

/// A device with one path, and what is reported of it.
struct End : datapath::PathEvents {
  static constexpr std::chrono::seconds kPatience{50};
  static constexpr std::size_t kBytes = std::size_t{4} << 20;

  bool polled = false;  // by somebody, soon
  int ready = 0, downs = 0;
  Code down = Code::kOk;
  std::vector<Code> codes;
  std::size_t messages = 0;
  memreg::Arena arena = std::move(*memreg::Arena::map(kBytes, {.best = memreg::PageKind::kOrdinary, .readable = true}));
  std::span<std::byte> memory = arena.bytes();
  datapath::Registration registration;
  std::unique_ptr<datapath::Device> device;
  std::unique_ptr<datapath::Endpoint> endpoint;
  std::unique_ptr<datapath::Path> path;
  datapath::Grant granted;

  /// `gives`: peers may be given the memory to map it.
  bool open(const ShmConfig& config, datapath::PathRole role, bool gives = false) {
    auto opened = open_device(config);
    if (!opened) return false;
    device = std::move(*opened);
    auto driven = device->open_endpoint();
    if (!driven) return false;
    endpoint = std::move(*driven);
    auto made = endpoint->open_path(
        {.role = role, .peer_host = "127.0.0.1", .local_host = "127.0.0.1", .events = this, .polled = polled});
    const auto registered = device->register_memory(
        {.bytes = memory, .kind = datapath::HostMemory{gives ? arena.fd() : -1}, .access = Access::kRemoteReadWrite});
    if (!made || !registered) return false;
    registration = *registered;
    path = std::move(*made);
    auto grant = device->grant({.bytes = memory, .access = Access::kRemoteReadWrite});
    if (grant) granted = *grant;
    return grant.has_value();
  }
  bool post(datapath::OpKind kind, std::uint64_t key, std::size_t bytes = kBytes) {
    const datapath::LocalSegment segment{memory.data(), bytes, registration.local};
    const datapath::WorkRequest work{.kind = kind, .local = {&segment, 1}, .remote_key = key};
    return path->post({&work, 1}) == 1;
  }
  bool poll_until(const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!done()) {
      if (endpoint->poll()) continue;
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }

  void on_ready(datapath::Path&) noexcept override { ++ready; }
  void on_completion(datapath::Path&, const datapath::Ended& ended) noexcept override {
    codes.insert(codes.end(), ended.count, ended.code);
  }
  void on_message(datapath::Path&, std::span<const std::byte>) noexcept override { ++messages; }
  void on_notification(datapath::Path&, std::uint32_t) noexcept override {}
  void on_down(datapath::Path&, Code code, std::string_view) noexcept override {
    ++downs;
    down = code;
  }
};

/// The two ends of one path, in this process.
struct Ends {
  /// Whether they have met.
  bool meet(const ShmConfig& config, bool gives = false) {
    if (!one.open(config, datapath::PathRole::kActive, gives)) return false;
    if (!other.open(config, datapath::PathRole::kPassive, gives)) return false;
    if (!other.path->connect(one.path->local_description()).ok()) return false;
    if (!one.path->connect(other.path->local_description()).ok()) return false;
    return both_until([&] { return one.ready == 1 && other.ready == 1; });
  }
  bool both_until(const std::function<bool()>& done) {
    return one.poll_until([&] {
      other.endpoint->poll();
      return done();
    });
  }
  ~Ends() {
    for (End* end : {&one, &other}) {
      if (end->device == nullptr) continue;
      end->device->revoke(end->granted);
      end->path.reset();
    }
  }

  End one, other;
};

}  // namespace fairlead::shm
