// The transport over softroce's real wire: two endpoints in one process, by the factory that users go through.
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <chrono>
#include <thread>

#include "harness.h"
#include "tests/port_under_test.h"
#include "verbs/transport/factory.h"
#include "verbs/transport/path_description.h"

namespace fairlead::verbs::testing {
namespace {

constexpr std::chrono::seconds kPatience{30};

struct SoftEnd {
  explicit SoftEnd(VerbsConfig config) {
    if (config.packet_io == "udp") config.packet_io = test::port_under_test();
    auto opened = open_device("soft0", config);
    EXPECT_TRUE(opened) << opened.error().to_string();
    if (!opened) return;
    device = std::move(*opened);
    endpoint = std::move(*device->open_endpoint());
  }
  void open_path(PathRole role) {
    auto opened =
        endpoint->open_path({.role = role, .peer_host = "127.0.0.1", .local_host = "127.0.0.1", .events = &log});
    ASSERT_TRUE(opened) << opened.error().to_string();
    path = std::move(*opened);
  }

  EventLog log;
  std::unique_ptr<datapath::Device> device;
  std::unique_ptr<datapath::Endpoint> endpoint;
  std::unique_ptr<Path> path;
};

// A peer names its end of a path and its device's addresses itself. Were 127.0.0.1 believed of one whose session comes
// from elsewhere, it would have this end send to a queue pair of this very host.
TEST(SoftroceAddresses, NoPeerOfAnotherHostBecomesOneOfThis) {
  const SoftEnd here({});
  const PathDescription description{.gid = *parse_address("127.0.0.1"),
                                    .qpn = 17,
                                    .psn = 1,
                                    .mtu = 1024,
                                    .message_credits = 16,
                                    .control_credits = 16,
                                    .message_bytes = 4096,
                                    .max_rd_atomic = 1,
                                    .max_dest_rd_atomic = 1};
  const std::string theirs = serialize(description);
  for (const PathRole role : {PathRole::kActive, PathRole::kPassive}) {
    datapath::PathConfig config;
    config.role = role;
    config.peer_host = "192.0.2.1";  // of documentations: nobody's
    EventLog log;
    config.events = &log;
    config.peer_addresses = {"127.0.0.1"};
    config.addresses_first = true;
    if (role == PathRole::kPassive) config.peer_description = theirs;
    const auto opened = here.endpoint->open_path(config);
    if (!opened) continue;
    EXPECT_EQ((*opened)->describe().find("127."), std::string::npos) << (*opened)->describe();
  }
}

class Softroce : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    VerbsConfig config;
    config.profile = GetParam();
    start(config);
  }
  void start(const VerbsConfig& config) {
    a = std::make_unique<SoftEnd>(config);
    b = std::make_unique<SoftEnd>(config);
    ASSERT_TRUE(a->endpoint && b->endpoint);
    connect();
  }
  void connect() {
    a->open_path(PathRole::kActive);
    b->open_path(PathRole::kPassive);
    a->log = {};
    b->log = {};
    ASSERT_NO_FATAL_FAILURE(connect_paths(*a->path, *b->path));
    ASSERT_TRUE(pump([&] { return a->log.ready.size() == 1 && b->log.ready.size() == 1; }));
  }
  bool pump(const std::function<bool()>& done) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!done()) {
      if (std::chrono::steady_clock::now() > end) return false;
      a->endpoint->poll();
      b->endpoint->poll();
    }
    return true;
  }
  void close_and_drain() {
    a->path->close();
    b->path->close();
    EXPECT_TRUE(pump([&] { return a->path->drained() && b->path->drained(); }));
  }

  std::unique_ptr<SoftEnd> a, b;
};

INSTANTIATE_TEST_SUITE_P(Profiles, Softroce, ::testing::Values("full", "pvrdma"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(Softroce, WriteReadMessage) {
  constexpr std::size_t kBytes = (std::size_t{1} << 20) + 13;
  Region source(*a->device, kBytes), target(*b->device, kBytes), back(*a->device, kBytes);
  source.fill(1);
  const std::array halves = {source.segment(0, 5000), source.segment(5000, kBytes - 5000)};
  const LocalSegment whole = back.segment(0, kBytes);
  std::string text = "all there";
  const LocalSegment part = text_segment(text);
  const std::array list = {write_request(1, halves, target), message_request(2, {&part, 1}),
                           read_request(3, {&whole, 1}, target)};
  b->log.message_hook = [&](Path&, const std::string&) { EXPECT_EQ(source.memory, target.memory); };
  EXPECT_EQ(a->path->post(list), 3U);
  ASSERT_TRUE(pump([&] { return a->log.completions.size() == 3 && b->log.messages.size() == 1; }));
  EXPECT_EQ(a->log.completions, (std::vector<EventLog::Completion>{{1, Code::kOk}, {2, Code::kOk}, {3, Code::kOk}}));
  EXPECT_EQ(b->log.messages[0], "all there");
  EXPECT_EQ(back.memory, source.memory);
  close_and_drain();
}

TEST_P(Softroce, ThousandsOfMessagesBothWays) {
  constexpr std::uint64_t kMessages = 3000;
  std::uint64_t sent[2] = {0, 0};
  SoftEnd* ends[2] = {a.get(), b.get()};
  ASSERT_TRUE(pump([&] {
    for (int i = 0; i < 2; ++i) {
      while (sent[i] < kMessages) {
        std::string text = std::to_string(sent[i]);
        const LocalSegment part = text_segment(text);
        const WorkRequest request = message_request(sent[i], {&part, 1});
        if (ends[i]->path->post({&request, 1}) == 0) break;
        ++sent[i];
      }
    }
    return a->log.completions.size() == kMessages && b->log.completions.size() == kMessages &&
           a->log.messages.size() == kMessages && b->log.messages.size() == kMessages;
  }));
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    ASSERT_EQ(a->log.messages[i], std::to_string(i));
    ASSERT_EQ(b->log.messages[i], std::to_string(i));
  }
  EXPECT_TRUE(a->log.downs.empty() && b->log.downs.empty());
  close_and_drain();
}

TEST_P(Softroce, AProtectionErrorFailsItsOwnTransferAndANewPathCarriesOn) {
  Region source(*a->device, 4096), target(*b->device, 4096), read_only(*b->device, 4096, Access::kRemoteRead);
  source.fill(7);
  const LocalSegment segment = source.segment(0, 4096);
  const std::array list = {write_request(1, {&segment, 1}, target), write_request(2, {&segment, 1}, read_only),
                           write_request(3, {&segment, 1}, target)};
  EXPECT_EQ(a->path->post(list), 3U);
  ASSERT_TRUE(pump([&] { return a->path->drained() && a->log.downs.size() == 1 && b->log.downs.size() == 1; }));
  EXPECT_EQ(a->log.completions,
            (std::vector<EventLog::Completion>{{1, Code::kOk}, {2, Code::kProtectionError}, {3, Code::kAborted}}));
  EXPECT_EQ(a->log.downs[0].first, Code::kProtectionError);
  ASSERT_TRUE(pump([&] { return b->path->drained(); }));
  EXPECT_EQ(read_only.memory, std::vector<std::byte>(4096));
  EXPECT_EQ(target.memory, source.memory);

  connect();
  const WorkRequest again = write_request(4, {&segment, 1}, target);
  EXPECT_EQ(a->path->post({&again, 1}), 1U);
  ASSERT_TRUE(pump([&] { return a->log.completions.size() == 1; }));
  EXPECT_EQ(a->log.completions[0].code, Code::kOk);
  close_and_drain();
}

TEST_P(Softroce, CloseWithWorkInFlight) {
  constexpr std::size_t kBytes = std::size_t{4} << 20;
  Region source(*a->device, kBytes), target(*b->device, kBytes);
  const LocalSegment segment = source.segment(0, kBytes);
  std::vector<WorkRequest> list;
  for (std::uint64_t i = 0; i < 20; ++i) list.push_back(write_request(i, {&segment, 1}, target));
  std::size_t posted = 0, taken = 0;
  do {  // so much that it is not over, though this thread be held up before it closes
    posted += taken = a->path->post(list);
  } while (taken == list.size());
  a->path->close();
  b->path->close();
  ASSERT_TRUE(pump([&] { return a->path->drained() && b->path->drained(); }));
  ASSERT_EQ(a->log.completions.size(), posted);
  EXPECT_EQ(a->log.completions.back().code, Code::kAborted);
  EXPECT_TRUE(a->log.downs.empty());
}

TEST_P(Softroce, APeerThatVanishesIsUnavailable) {
  b->path.reset();
  Region source(*a->device, 64);
  const LocalSegment segment = source.segment(0, 8);
  const WorkRequest request{1, OpKind::kWrite, {&segment, 1}, 4096, 1};
  EXPECT_EQ(a->path->post({&request, 1}), 1U);
  ASSERT_TRUE(pump([&] { return a->path->drained() && a->log.downs.size() == 1; }));
  EXPECT_EQ(a->log.completions, (std::vector<EventLog::Completion>{{1, Code::kUnavailable}}));
  EXPECT_EQ(a->log.downs[0].first, Code::kUnavailable);
}

// The passive end only sleeps; a message must wake it.
TEST_P(Softroce, SleepersWake) {
  std::string text = "good morning";
  const LocalSegment part = text_segment(text);
  const WorkRequest request = message_request(1, {&part, 1});
  for (int round = 0; round < 20; ++round) {
    ASSERT_EQ(a->path->post({&request, 1}), 1U);
    const auto want = static_cast<std::size_t>(round) + 1;
    while (b->log.messages.size() < want) {
      b->endpoint->poll();
      if (b->log.messages.size() >= want || !b->endpoint->arm()) continue;
      pollfd entry{b->endpoint->wait_fd(), POLLIN, 0};
      ASSERT_EQ(::poll(&entry, 1, static_cast<int>(std::chrono::milliseconds(kPatience).count())), 1);
    }
    ASSERT_TRUE(pump([&] { return a->log.completions.size() == want; }));
  }
  close_and_drain();
}

TEST_P(Softroce, RegistrationsFromAnotherThread) {
  std::atomic<bool> stop{false};
  std::thread registrar([&] {
    std::vector<std::byte> bytes(8192);
    while (!stop.load()) {
      auto registration = b->device->register_memory({.bytes = bytes});
      ASSERT_TRUE(registration);
      auto grant = b->device->grant({.bytes = bytes, .access = Access::kRemoteReadWrite});
      ASSERT_TRUE(grant);
      b->device->revoke(*grant);
      b->device->deregister(*registration);
    }
  });
  Region source(*a->device, 4096), target(*b->device, 4096);
  const LocalSegment segment = source.segment(0, 4096);
  for (std::uint64_t i = 0; i < 200; ++i) {
    const WorkRequest request = write_request(i, {&segment, 1}, target);
    ASSERT_EQ(a->path->post({&request, 1}), 1U);
    ASSERT_TRUE(pump([&] { return a->log.completions.size() == i + 1; }));
  }
  stop.store(true);
  registrar.join();
  close_and_drain();
}

TEST_P(Softroce, WithoutOneSidedOperations) {
  a->path.reset();
  b->path.reset();
  VerbsConfig config;
  config.profile = GetParam();
  config.one_sided = false;
  start(config);
  const WorkRequest request{.id = 1, .kind = OpKind::kWrite, .local = {}};
  EXPECT_EQ(a->path->post({&request, 1}), 1U);
  ASSERT_TRUE(pump([&] { return a->log.completions.size() == 1; }));
  EXPECT_EQ(a->log.completions[0].code, Code::kUnimplemented);
  EXPECT_TRUE(a->log.downs.empty());
}

TEST(Factory, SoftDeviceSaysWhatItIs) {
  VerbsConfig config;
  const auto device = open_device("soft0", config);
  ASSERT_TRUE(device) << device.error().to_string();
  EXPECT_EQ((*device)->name(), "verbs:soft0");
  EXPECT_TRUE((*device)->capabilities().software);
  EXPECT_NE((*device)->describe().find("packet I/O udp and memory of this host, profile full"), std::string::npos);
  config.packet_io = "udp,local=sockets";
  const auto by_sockets = open_device("soft1", config);
  ASSERT_TRUE(by_sockets) << by_sockets.error().to_string();
  EXPECT_NE((*by_sockets)->describe().find("packet I/O udp,local=sockets, profile full"), std::string::npos);
}

TEST(Factory, UnknownDevicesAreRefusedWithWhatThereIs) {
  for (const char* name : {"mlx9_9", "soft", "softie", "soft1x"}) {
    const auto device = open_device(name, VerbsConfig{});
    ASSERT_FALSE(device) << name;
    EXPECT_EQ(device.error().code(), Code::kNotFound);
    EXPECT_NE(device.error().message().find(std::string("no verbs device '") + name + "'; this host has: "),
              std::string::npos);
    EXPECT_NE(device.error().message().find("soft0"), std::string::npos);
  }
}

TEST(Factory, BadSettingsOfTheSoftDevice) {
  VerbsConfig config;
  config.profile = "half";
  EXPECT_FALSE(open_device("soft0", config));
  config = {};
  config.packet_io = "pigeons";
  EXPECT_FALSE(open_device("soft0", config));
  config = {};
  config.gid_index = 99;
  EXPECT_FALSE(open_device("soft0", config));
}

TEST(Factory, NoNameOpensTheBest) {
  const auto device = open_device("", VerbsConfig{});
  ASSERT_TRUE(device) << device.error().to_string();
  EXPECT_TRUE((*device)->name().starts_with("verbs:"));
}

TEST(Factory, ListsSoft0WithAReasonPerGid) {
  const auto devices = list_devices(VerbsConfig{});
  bool chosen = false;
  bool named = false;  // GID 0, which is no address of an interface
  for (const DeviceInfo& device : devices) {
    EXPECT_TRUE(device.transport.starts_with("verbs:"));
    EXPECT_FALSE(device.reason.empty());
    if (device.transport == "verbs:soft0" && device.reason.starts_with("chosen")) {
      chosen = true;
      EXPECT_TRUE(device.usable);
      EXPECT_TRUE(device.address.starts_with("127.")) << device.address;
      EXPECT_NE(device.reason.find("toward peers on this host"), std::string::npos) << device.reason;
    }
    if (device.transport != "verbs:soft0" || device.detail.find(", GID 0,") == std::string::npos) continue;
    named = true;
    EXPECT_FALSE(device.usable);
    EXPECT_NE(device.reason.find("nothing can be sent from it"), std::string::npos) << device.reason;
  }
  EXPECT_TRUE(chosen && named);
}

TEST(Factory, ListsWhatAPathToAPeerWouldUse) {
  int chosen = 0;
  for (const DeviceInfo& device : list_devices(VerbsConfig{}, "127.0.0.1")) {
    if (device.transport != "verbs:soft0" || !device.reason.starts_with("chosen")) continue;
    ++chosen;
    EXPECT_NE(device.reason.find("the peer is on this host"), std::string::npos) << device.reason;
    EXPECT_NE(device.detail.find(", MTU 4096"), std::string::npos) << device.detail;
  }
  EXPECT_EQ(chosen, 1);
  VerbsConfig config;
  config.mtu = 512;
  for (const DeviceInfo& device : list_devices(config, "127.0.0.1")) {
    if (!device.usable) continue;
    EXPECT_NE(device.detail.find(", MTU 512"), std::string::npos) << device.detail;
  }
}

TEST(Factory, APathThatTheDeviceRefusesSaysWhy) {
  if (test::over_memif()) GTEST_SKIP() << "GID 0 is of RoCE v1 there, and good";
  VerbsConfig config;
  config.gid_index = 0;
  SoftEnd end(config);
  ASSERT_TRUE(end.endpoint);
  end.open_path(PathRole::kActive);
  PathDescription peer = *parse_path_description(end.path->local_description());
  const Status refused = end.path->connect(serialize(peer));
  EXPECT_EQ(refused.code(), Code::kUnavailable);
  EXPECT_NE(refused.message().find("cannot go to RTR: Invalid argument (ibv_modify_qp of qp 0x"), std::string::npos)
      << refused.message();
  EXPECT_NE(refused.message().find("sgid_index 0 is fe80::"), std::string::npos) << refused.message();
}

}  // namespace
}  // namespace fairlead::verbs::testing
