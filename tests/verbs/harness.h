// What the tests of the verbs transport share: a log of events, and two connected endpoints.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "recording_verbs.h"
#include "verbs/transport/endpoint.h"

namespace fairlead::verbs::testing {

using datapath::LocalSegment;
using datapath::OpKind;
using datapath::Path;
using datapath::PathRole;
using datapath::WorkRequest;

/// Writes every event down; hooks let a test act from within one.
class EventLog : public datapath::PathEvents {
 public:
  struct Completion {
    std::uint64_t id;
    Code code;
    bool operator==(const Completion&) const = default;
  };

  void on_ready(Path& path) noexcept override {
    ++ready[&path];
    if (ready_hook) ready_hook(path);
  }
  void on_completion(Path& path, const datapath::Ended& ended) noexcept override {
    for (std::uint64_t id = ended.first; id != ended.first + ended.count; ++id) {
      completions.push_back({id, ended.code});
      if (completion_hook) completion_hook(path, id, ended.code);
    }
  }
  void on_message(Path& path, std::span<const std::byte> bytes) noexcept override {
    messages.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (message_hook) message_hook(path, messages.back());
  }
  void on_notification(Path&, std::uint32_t value) noexcept override { notifications.push_back(value); }
  void on_down(Path& path, Code code, std::string_view reason) noexcept override {
    downs.emplace_back(code, std::string(reason));
    if (down_hook) down_hook(path);
  }

  std::map<Path*, int> ready;
  std::vector<Completion> completions;
  std::vector<std::string> messages;
  std::vector<std::uint32_t> notifications;
  std::vector<std::pair<Code, std::string>> downs;
  std::function<void(Path&)> ready_hook;
  std::function<void(Path&, std::uint64_t, Code)> completion_hook;
  std::function<void(Path&, const std::string&)> message_hook;
  std::function<void(Path&)> down_hook;
};

/// One end over a recording double.
struct FakeEnd {
  explicit FakeEnd(RecordingVerbs::Features features = {}, VerbsConfig wanted = {})
      : verbs(std::make_unique<RecordingVerbs>(std::move(features))), config(std::move(wanted)) {
    auto opened = open();
    EXPECT_TRUE(opened) << opened.error().to_string();
    device = std::move(*opened);
    endpoint = std::move(*device->open_endpoint());
  }
  ~FakeEnd() {
    paths.clear();
    endpoint.reset();
    device.reset();
    EXPECT_EQ(verbs->violations(), std::vector<std::string>());
    EXPECT_EQ(verbs->live_regions(), 0U);
  }

  Result<std::unique_ptr<VerbsDevice>> open() const {
    const VerbsApi& api = RecordingVerbs::api();
    return VerbsDevice::open({.api = &api,
                              .context = DeviceContext(api, api.open_device(verbs->device())),
                              .name = verbs->features().name,
                              .detail = "double",
                              .software = false},
                             config, clock);
  }
  Path& add_path(PathRole role) {
    auto path =
        endpoint->open_path({.role = role, .peer_host = "127.0.0.1", .local_host = "127.0.0.1", .events = &log});
    EXPECT_TRUE(path) << path.error().to_string();
    paths.push_back(std::move(*path));
    return *paths.back();
  }
  bool poll() { return endpoint->poll(); }

  std::unique_ptr<RecordingVerbs> verbs;
  VerbsConfig config;
  ManualClock clock;
  EventLog log;
  std::unique_ptr<VerbsDevice> device;
  std::unique_ptr<datapath::Endpoint> endpoint;
  std::vector<std::unique_ptr<Path>> paths;
};

/// Memory registered with one end, and granted to the other.
struct Region {
  Region(datapath::Device& device, std::size_t bytes, Access access = Access::kRemoteReadWrite)
      : owner(device), memory(bytes) {
    auto registered = owner.register_memory({.bytes = memory});
    EXPECT_TRUE(registered) << registered.error().to_string();
    registration = *registered;
    auto granted = owner.grant({.bytes = memory, .access = access});
    EXPECT_TRUE(granted) << granted.error().to_string();
    grant = *granted;
  }
  ~Region() {
    owner.revoke(grant);
    owner.deregister(registration);
  }
  [[nodiscard]] LocalSegment segment(std::size_t offset, std::size_t length) {
    return {memory.data() + offset, length, registration.local};
  }
  void fill(std::uint8_t seed) {
    for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i * 7 + seed);
  }

  datapath::Device& owner;
  std::vector<std::byte> memory;
  datapath::Registration registration;
  datapath::Grant grant;
};

/// Connects two paths as the engine's control protocol would.
inline void connect_paths(Path& active, Path& passive) {
  Status status = passive.connect(active.local_description());
  ASSERT_TRUE(status.ok()) << status.to_string();
  status = active.connect(passive.local_description());
  ASSERT_TRUE(status.ok()) << status.to_string();
}

/// Two ends with one path, ready. The wire moves only when step() is called.
struct FakePair {
  explicit FakePair(RecordingVerbs::Features features = {}, VerbsConfig config = {})
      : near(features, config), far(std::move(features), std::move(config)) {
    near.add_path(PathRole::kActive);
    far.add_path(PathRole::kPassive);
    connect_paths(*near.paths[0], *far.paths[0]);
    settle();
    EXPECT_EQ(near.log.ready[near.paths[0].get()], 1);
    EXPECT_EQ(far.log.ready[far.paths[0].get()], 1);
    near.verbs->qp().doorbells.clear();  // tests look at what they post
    near.verbs->qp().posted.clear();
  }
  /// Wire and both polls until nothing moves.
  void settle() {
    for (bool moved = true; moved;) {
      moved = false;
      for (FakeEnd* end : {&near, &far}) {
        for (RecordedQp* qp : end->verbs->qps()) {
          while (end->verbs->step(*qp)) moved = true;
        }
        moved |= end->poll();
      }
    }
  }
  Path& path() { return *near.paths[0]; }
  RecordedQp& qp() { return near.verbs->qp(); }

  FakeEnd near, far;
};

inline WorkRequest write_request(std::uint64_t id, std::span<const LocalSegment> local, const Region& target,
                                 std::size_t offset = 0) {
  return {id, OpKind::kWrite, local, target.grant.address + offset, target.grant.key};
}
inline WorkRequest read_request(std::uint64_t id, std::span<const LocalSegment> local, const Region& target,
                                std::size_t offset = 0) {
  return {id, OpKind::kRead, local, target.grant.address + offset, target.grant.key};
}
inline LocalSegment text_segment(std::string& text) {
  return {reinterpret_cast<std::byte*>(text.data()), text.size(), 0};
}
inline WorkRequest message_request(std::uint64_t id, std::span<const LocalSegment> local) {
  return {id, OpKind::kMessage, local, 0, 0};
}

}  // namespace fairlead::verbs::testing
