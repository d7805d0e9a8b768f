// Opening, connecting, registering, sleeping.
#include "verbs/transport/endpoint.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "harness.h"
#include "tests/readable.h"
#include "verbs/transport/path_description.h"

namespace fairlead::verbs::testing {
namespace {

VerbsConfig small_config() {
  VerbsConfig config;
  config.send_depth = 8;
  config.receive_depth = 8;
  config.message_bytes = 128;
  return config;
}

TEST(Device, SaysWhatItIs) {
  FakeEnd end({}, small_config());
  EXPECT_EQ(end.device->name(), "verbs:fake0");
  EXPECT_EQ(end.device->describe(), "verbs:fake0 (double), port 1");
  const datapath::Capabilities& capabilities = end.device->capabilities();
  EXPECT_TRUE(capabilities.one_sided);
  EXPECT_TRUE(capabilities.write_then_message_ordered);
  EXPECT_FALSE(capabilities.needs_flush);
  EXPECT_FALSE(capabilities.software);
  EXPECT_EQ(capabilities.max_message, 120U);
  EXPECT_EQ(capabilities.max_segments, 4U);
  EXPECT_EQ(capabilities.max_outstanding, 8U);
  EXPECT_EQ(capabilities.link_bits_per_second, 100'000'000'000U);
  EXPECT_EQ(end.endpoint->wait_timeout_us(), -1);
}

TEST(Device, DepthsAreCutToTheDevice) {
  RecordingVerbs::Features features;
  features.max_qp_wr = 32;
  VerbsConfig config;
  config.message_bytes = 128;
  FakePair pair(features, config);
  EXPECT_EQ(pair.near.device->capabilities().max_outstanding, 24U);
  EXPECT_EQ(pair.qp().cap.max_send_wr, 32U);
  EXPECT_EQ(pair.qp().cap.max_recv_wr, 32U);
}

TEST(Device, MessagesAreCutToTheDevice) {
  RecordingVerbs::Features features;
  features.max_msg_sz = 1024;
  VerbsConfig config;
  config.message_bytes = 4096;
  FakePair pair(features, config);
  EXPECT_EQ(pair.near.device->capabilities().max_message, 1024U - kMessageHeaderBytes);
  FakeEnd small(features, small_config());
  small.verbs->features().max_msg_sz = 32;
  EXPECT_NE(small.open().error().message().find("fake0 has messages of at most 32 bytes"), std::string::npos);
}

// As QEMU's pvrdma, which cannot be written to or read from.
TEST(Device, WithoutRemoteKeysNothingIsOneSided) {
  RecordingVerbs::Features features;
  features.one_key = true;
  FakePair pair(features, small_config());
  EXPECT_FALSE(pair.near.device->capabilities().one_sided);
  EXPECT_FALSE(pair.near.device->capabilities().write_notifies);
}

TEST(Device, OpenRefusesBadSettings) {
  RecordingVerbs::Features features;
  FakeEnd end(features, small_config());
  const std::pair<void (*)(VerbsConfig&), const char*> cases[] = {
      {[](VerbsConfig& c) { c.port = 2; }, "fake0 has no port 2: legal are 1..1"},
      {[](VerbsConfig& c) { c.gid_index = 9; }, "GID index 9 of fake0 port 1 is empty; used indices: 1"},
      {[](VerbsConfig& c) { c.message_bytes = 8; }, "message_bytes is 8; legal are 64..1073741824"},
      {[](VerbsConfig& c) { c.message_bytes = (1U << 30) + 1; }, "message_bytes is 1073741825"},
      {[](VerbsConfig& c) { c.send_depth = 0; }, "each must be at least 1"}};
  for (const auto& [break_it, reason] : cases) {
    end.config = small_config();
    break_it(end.config);
    const auto opened = end.open();
    ASSERT_FALSE(opened) << reason;
    EXPECT_NE(opened.error().message().find(reason), std::string::npos) << opened.error().message();
  }
  end.config = small_config();
  end.verbs->features().state = IBV_PORT_DOWN;
  EXPECT_NE(end.open().error().message().find("is down, not active"), std::string::npos);
}

TEST(Endpoint, QueuePairGetsTheConfiguration) {
  VerbsConfig config = small_config();
  config.traffic_class = 0xb8;
  config.hop_limit = 3;
  config.ack_timeout = 10;
  config.retry_count = 5;
  config.rnr_retry = 2;
  config.min_rnr_timer = 7;
  config.mtu = 512;
  FakePair pair({}, config);
  const ibv_qp_attr& attr = pair.qp().attr;
  EXPECT_EQ(attr.ah_attr.grh.traffic_class, 0xb8);
  EXPECT_EQ(attr.ah_attr.grh.hop_limit, 3);
  EXPECT_EQ(attr.ah_attr.grh.sgid_index, 1);
  EXPECT_EQ(attr.ah_attr.is_global, 1);
  EXPECT_EQ(attr.timeout, 10);
  EXPECT_EQ(attr.retry_cnt, 5);
  EXPECT_EQ(attr.rnr_retry, 2);
  EXPECT_EQ(attr.min_rnr_timer, 7);
  EXPECT_EQ(attr.path_mtu, IBV_MTU_512);
  EXPECT_EQ(attr.dest_qp_num, pair.far.verbs->qp().qp_num);
  EXPECT_EQ(attr.rq_psn, pair.far.verbs->qp().attr.sq_psn);
  EXPECT_EQ(attr.qp_access_flags, unsigned{IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE});
}

TEST(Endpoint, MtuIsTheSmallerOfBothEnds) {
  RecordingVerbs::Features near_features, far_features;
  near_features.active_mtu = IBV_MTU_4096;
  far_features.active_mtu = IBV_MTU_2048;
  FakeEnd near(near_features, small_config()), far(far_features, small_config());
  Path& active = near.add_path(PathRole::kActive);
  connect_paths(active, far.add_path(PathRole::kPassive));
  EXPECT_EQ(near.verbs->qp().attr.path_mtu, IBV_MTU_2048);
  EXPECT_EQ(far.verbs->qp().attr.path_mtu, IBV_MTU_2048);
  EXPECT_NE(active.describe().find("127.0.0.9 qpn 0x"), std::string::npos) << active.describe();
  EXPECT_NE(active.describe().find("mtu 2048"), std::string::npos) << active.describe();
}

TEST(Endpoint, PsnsAreRandom) {
  FakeEnd end({}, small_config());
  std::vector<std::uint32_t> psns;
  for (int i = 0; i < 6; ++i) {
    psns.push_back(parse_path_description(end.add_path(PathRole::kActive).local_description())->psn);
  }
  std::sort(psns.begin(), psns.end());
  psns.erase(std::unique(psns.begin(), psns.end()), psns.end());
  EXPECT_GT(psns.size(), 1U);
}

TEST(Endpoint, ConnectRefusesWhatCannotWork) {
  FakeEnd end({}, small_config());
  Path& path = end.add_path(PathRole::kActive);
  PathDescription peer = *parse_path_description(path.local_description());
  EXPECT_EQ(path.connect("garbage").code(), Code::kDataLoss);
  peer.gid = *parse_address("fe80::1");
  EXPECT_NE(path.connect(serialize(peer)).message().find("set gid_index on one side"), std::string::npos);
  peer.gid = *parse_address("127.0.0.3");
  peer.message_bytes = 64;  // less than ours
  EXPECT_TRUE(path.connect(serialize(peer)).ok());
  EXPECT_EQ(path.max_message(), 64U - kMessageHeaderBytes);
  EXPECT_EQ(path.connect(serialize(peer)).code(), Code::kInvalidArgument) << "twice";
}

TEST(Endpoint, ThePassiveEndIsReadyWhenTheActiveOneSpoke) {
  FakeEnd near({}, small_config()), far({}, small_config());
  Path& active = near.add_path(PathRole::kActive);
  Path& passive = far.add_path(PathRole::kPassive);
  ASSERT_TRUE(passive.connect(active.local_description()).ok());
  far.poll();
  EXPECT_EQ(far.log.ready[&passive], 0);
  const WorkRequest request{.id = 1, .kind = OpKind::kMessage, .local = {}};
  EXPECT_EQ(passive.post({&request, 1}), 0U) << "the active end could not receive it yet";
  ASSERT_TRUE(active.connect(passive.local_description()).ok());
  EXPECT_EQ(near.log.ready[&active], 0) << "not from within connect()";
  near.poll();
  EXPECT_EQ(near.log.ready[&active], 1);
  EXPECT_TRUE(near.verbs->step(near.verbs->qp()));
  far.poll();
  EXPECT_EQ(far.log.ready[&passive], 1);
  EXPECT_EQ(passive.post({&request, 1}), 1U);
}

TEST(Endpoint, SeveralPathsShareOneQueue) {
  FakeEnd near({}, small_config()), far({}, small_config());
  for (int i = 0; i < 5; ++i) {
    connect_paths(near.add_path(PathRole::kActive), far.add_path(PathRole::kPassive));
  }
  auto settle = [&] {
    for (bool moved = true; moved;) {
      moved = false;
      for (FakeEnd* end : {&near, &far}) {
        for (RecordedQp* qp : end->verbs->qps()) moved |= end->verbs->step(*qp);
        moved |= end->poll();
      }
    }
  };
  settle();
  for (const auto& path : far.paths) EXPECT_EQ(far.log.ready[path.get()], 1);
  EXPECT_EQ(near.verbs->cqs().size(), 1U);
  for (std::size_t i = 0; i < 5; ++i) {
    std::string text = "path " + std::to_string(i);
    const LocalSegment part = text_segment(text);
    const WorkRequest request = message_request(i, {&part, 1});
    EXPECT_EQ(near.paths[i]->post({&request, 1}), 1U);
  }
  settle();
  EXPECT_EQ(far.log.messages.size(), 5U);
  EXPECT_EQ(near.log.completions.size(), 5U);
}

TEST(Device, RegistersForItselfAndGrantsToPeers) {
  FakeEnd end({}, small_config());
  datapath::Device& device = *end.device;
  std::vector<std::byte> bytes(100);
  const auto registration = device.register_memory({.bytes = bytes, .access = Access::kRemoteReadWrite});
  ASSERT_TRUE(registration);
  EXPECT_EQ(end.verbs->access_of(registration->local), IBV_ACCESS_LOCAL_WRITE) << "peers reach grants alone";
  EXPECT_FALSE(device.capabilities().grants_are_entries);
  const std::span<std::byte> part = std::span(bytes).subspan(10, 20);
  const auto grant = device.grant({.bytes = part, .access = Access::kRemoteRead});
  ASSERT_TRUE(grant);
  EXPECT_EQ(grant->address, reinterpret_cast<std::uintptr_t>(part.data()));
  EXPECT_EQ(end.verbs->access_of(grant->key), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  EXPECT_EQ(end.verbs->live_regions(), 2U);
  EXPECT_EQ(device.usage().registrations, 2U) << "with hardware a grant maps its bytes as well";
  EXPECT_EQ(device.usage().grants, 1U);
  device.revoke(*grant);
  EXPECT_EQ(end.verbs->live_regions(), 1U);
  EXPECT_EQ(device.usage().registrations, 1U);
  device.deregister(*registration);
  EXPECT_EQ(end.verbs->live_regions(), 0U);
  EXPECT_EQ(device.usage().registrations, 0U);
}

// As with a NIC: each domain is a protection domain, and a queue pair is of its path's.
TEST(Device, DomainsAreProtectionDomains) {
  FakeEnd end({}, small_config());
  datapath::Device& device = *end.device;
  const auto domain = *device.open_domain(), other = *device.open_domain();
  EXPECT_EQ(domain->name(), "verbs:fake0");
  std::vector<std::byte> bytes(100);
  const auto registration = domain->register_memory({.bytes = bytes, .access = Access::kRemoteReadWrite});
  const auto grant = domain->grant({.bytes = bytes, .access = Access::kRemoteRead});
  ASSERT_TRUE(registration && grant);
  EXPECT_EQ(device.usage().registrations, 2U);
  const auto pd_of = [](std::uint64_t handle) {
    return reinterpret_cast<ibv_mr*>(handle)->pd;  // NOLINT(performance-no-int-to-ptr)
  };
  ibv_pd* const pd = pd_of(registration->handle);
  EXPECT_EQ(pd_of(grant->handle), pd);
  const auto elsewhere = other->register_memory({.bytes = bytes});
  ASSERT_TRUE(elsewhere);
  EXPECT_NE(pd_of(elsewhere->handle), pd);
  {
    datapath::PathConfig config{.role = PathRole::kActive, .peer_host = "127.0.0.1", .local_host = "127.0.0.1"};
    config.events = &end.log;
    const auto plain = end.endpoint->open_path(config);
    config.domain = domain.get();
    const auto own = end.endpoint->open_path(config);
    ASSERT_TRUE(plain && own);
    EXPECT_NE(end.verbs->qp(0).pd, pd);
    EXPECT_EQ(end.verbs->qp(1).pd, pd);
  }
  end.endpoint->poll();
  other->deregister(*elsewhere);
  domain->revoke(*grant);
  domain->deregister(*registration);
  EXPECT_EQ(device.usage().registrations + device.usage().grants, 0U);
}

TEST(Device, SaysWhyItCannotRegister) {
  FakeEnd end({}, small_config());
  datapath::Device& device = *end.device;
  std::vector<std::byte> bytes(100);
  EXPECT_EQ(device.register_memory({}).error().code(), Code::kInvalidArgument);
  end.verbs->features().reg_mr_errno = ENOMEM;
  const auto refused = device.register_memory({.bytes = bytes});
  EXPECT_EQ(refused.error().code(), Code::kResourceExhausted);
  EXPECT_NE(refused.error().message().find("cannot register 100 bytes with fake0"), std::string::npos);
  end.verbs->features().reg_mr_errno = EFAULT;
  EXPECT_EQ(device.grant({.bytes = bytes, .access = Access::kRemoteWrite}).error().code(), Code::kPermissionDenied);
  EXPECT_EQ(device.usage().registrations, 0U);
}

TEST(Device, AccessBecomesFlags) {
  FakeEnd end({}, small_config());
  datapath::Device& device = *end.device;
  std::vector<std::byte> bytes(100);
  auto flags = [&](Access access) {
    const auto grant = device.grant({.bytes = bytes, .access = access});
    EXPECT_TRUE(grant) << grant.error().to_string();
    if (!grant) return -1;
    const int granted = end.verbs->access_of(grant->key);
    device.revoke(*grant);
    return granted;
  };
  EXPECT_EQ(flags(Access::kRemoteReadWrite), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
  EXPECT_EQ(flags(Access::kRemoteRead | Access::kLocalReadOnly), IBV_ACCESS_REMOTE_READ);
  const auto read_only = device.register_memory({.bytes = bytes, .access = Access::kLocalReadOnly});
  EXPECT_EQ(end.verbs->access_of(read_only->local), 0);
  device.deregister(*read_only);
  end.verbs->features().read_only = true;
  EXPECT_EQ(flags(Access::kRemoteRead), IBV_ACCESS_REMOTE_READ);
  EXPECT_EQ(device.grant({.bytes = bytes, .access = Access::kRemoteReadWrite}).error().code(), Code::kPermissionDenied);
}

/// Another of the same device, with one path.
struct SecondEndpoint {
  explicit SecondEndpoint(FakeEnd& end) : endpoint(std::move(*end.device->open_endpoint())) {
    auto opened = endpoint->open_path(
        {.role = PathRole::kActive, .peer_host = "127.0.0.1", .local_host = "127.0.0.1", .events = &log});
    EXPECT_TRUE(opened) << opened.error().to_string();
    path = std::move(*opened);
    qp = end.verbs->qps().back();
  }
  EventLog log;
  std::unique_ptr<datapath::Endpoint> endpoint;
  std::unique_ptr<Path> path;
  RecordedQp* qp = nullptr;
};

TEST(Endpoint, AsynchronousEventsComeToTheOneThatTheyAreAbout) {
  FakePair pair({}, small_config());
  FakeEnd& near = pair.near;
  SecondEndpoint second(near);
  FakeEnd peer({}, small_config());
  connect_paths(*second.path, peer.add_path(PathRole::kPassive));
  second.endpoint->poll();
  // The first takes what is the second's, and leaves it there.
  near.verbs->raise(IBV_EVENT_QP_FATAL, second.qp);
  near.endpoint->poll();
  EXPECT_TRUE(near.endpoint->arm());
  EXPECT_TRUE(readable(second.endpoint->wait_fd()));
  EXPECT_FALSE(second.endpoint->arm());
  second.endpoint->poll();
  EXPECT_FALSE(readable(second.endpoint->wait_fd()));
  EXPECT_EQ(second.log.downs.size(), 1U);
  near.poll();
  EXPECT_TRUE(near.log.downs.empty());
  // What was left for a queue pair that is gone is nobody's.
  near.verbs->raise(IBV_EVENT_QP_FATAL, second.qp);
  (void)near.endpoint->arm();
  second.path.reset();
  EXPECT_TRUE(second.endpoint->arm());
  EXPECT_FALSE(readable(second.endpoint->wait_fd())) << "who is about to sleep would look for it without end";
}

TEST(Endpoint, EveryOneHearsThatTheDeviceFailed) {
  FakePair pair({}, small_config());
  SecondEndpoint second(pair.near);
  FakeEnd peer({}, small_config());
  connect_paths(*second.path, peer.add_path(PathRole::kPassive));
  second.endpoint->poll();
  pair.near.verbs->raise(IBV_EVENT_DEVICE_FATAL);
  EXPECT_FALSE(second.endpoint->arm());
  second.endpoint->poll();
  EXPECT_EQ(second.log.downs.size(), 1U);
  EXPECT_TRUE(readable(pair.near.endpoint->wait_fd()));
  EXPECT_FALSE(pair.near.endpoint->arm());
  pair.near.poll();
  EXPECT_EQ(pair.near.log.downs.size(), 1U);
}

TEST(Endpoint, SleepsAndWakes) {
  FakePair pair({}, small_config());
  FakeEnd& far = pair.far;
  EXPECT_TRUE(far.endpoint->arm());
  EXPECT_FALSE(readable(far.endpoint->wait_fd()));
  std::string text = "wake up";
  const LocalSegment part = text_segment(text);
  const WorkRequest request = message_request(1, {&part, 1});
  EXPECT_EQ(pair.path().post({&request, 1}), 1U);
  while (pair.near.verbs->step(pair.qp())) {
  }
  EXPECT_TRUE(readable(far.endpoint->wait_fd()));
  EXPECT_TRUE(far.poll());
  EXPECT_EQ(far.log.messages.size(), 1U);
  EXPECT_FALSE(far.endpoint->arm()) << "the buffer is not posted again yet";
  EXPECT_TRUE(far.poll());
  EXPECT_TRUE(far.endpoint->arm());
  EXPECT_FALSE(readable(far.endpoint->wait_fd())) << "the event was taken by arm()";
}

TEST(Endpoint, ArmSeesWhatCameBefore) {
  FakePair pair({}, small_config());
  std::string text = "early";
  const LocalSegment part = text_segment(text);
  const WorkRequest request = message_request(1, {&part, 1});
  EXPECT_EQ(pair.path().post({&request, 1}), 1U);
  while (pair.near.verbs->step(pair.qp())) {
  }
  EXPECT_FALSE(pair.far.endpoint->arm());
  EXPECT_FALSE(pair.far.endpoint->arm()) << "still not polled";
  EXPECT_TRUE(pair.far.poll());
  EXPECT_EQ(pair.far.log.messages.size(), 1U);
  EXPECT_TRUE(pair.far.poll());  // posts the buffer again
  EXPECT_TRUE(pair.far.endpoint->arm());
}

// What the device has placed the program sees before the ends of its own requests are dealt with, which takes time.
TEST(Endpoint, EndsOfRequestsThatCameWithAPeersWriteAreToldByTheNextPoll) {
  FakePair pair({}, small_config());
  Region source(*pair.near.device, 64), target(*pair.far.device, 64);
  const LocalSegment segment = source.segment(0, 8);
  std::string text = "a message";
  const LocalSegment part = text_segment(text);
  const WorkRequest write = write_request(1, {&segment, 1}, target), message = message_request(2, {&part, 1});
  const auto both_end = [&] {
    EXPECT_EQ(pair.path().post({&write, 1}), 1U);
    EXPECT_TRUE(pair.near.verbs->step(pair.qp()));
    EXPECT_EQ(pair.far.paths[0]->post({&message, 1}), 1U);
    EXPECT_TRUE(pair.far.verbs->step(pair.far.verbs->qp()));
  };
  both_end();
  pair.near.verbs->place();
  EXPECT_TRUE(pair.near.poll());
  EXPECT_EQ(pair.near.log.messages.size(), 1U) << "what arrived is told at once";
  EXPECT_TRUE(pair.near.log.completions.empty());
  EXPECT_FALSE(pair.near.endpoint->arm());
  EXPECT_TRUE(pair.near.poll());
  EXPECT_EQ(pair.near.log.completions, (std::vector<EventLog::Completion>{{1, Code::kOk}}));

  both_end();  // nothing was placed meanwhile
  EXPECT_TRUE(pair.near.poll());
  EXPECT_EQ(pair.near.log.messages.size(), 2U);
  EXPECT_EQ(pair.near.log.completions.size(), 2U);
  pair.settle();
}

TEST(Endpoint, AsynchronousEventsWake) {
  FakePair pair({}, small_config());
  EXPECT_TRUE(pair.near.endpoint->arm());
  pair.near.verbs->raise(IBV_EVENT_QP_FATAL, &pair.qp());
  EXPECT_TRUE(readable(pair.near.endpoint->wait_fd()));
  EXPECT_FALSE(pair.near.endpoint->arm());
  EXPECT_TRUE(pair.near.poll());
  ASSERT_EQ(pair.near.log.downs.size(), 1U);
  EXPECT_EQ(pair.near.log.downs[0].first, Code::kUnavailable);
}

}  // namespace
}  // namespace fairlead::verbs::testing
