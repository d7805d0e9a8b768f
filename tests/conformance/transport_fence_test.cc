// What a transport refuses, and how it ends: protection, deregistration, fences, dead peers, bad descriptions.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <initializer_list>
#include <random>
#include <set>
#include <string_view>
#include <thread>

#include "tests/conformance/transport_fixture.h"

namespace fairlead::conformance {
namespace {

class TransportFenceTest : public TransportTest {
 protected:
  static constexpr std::byte kUntouched{0};
  static constexpr std::size_t kSize = 8192;

  // Posts a good write, the bad request and a good write; checks that the culprit alone is blamed. Afterwards the path
  // either works on, or is down and says so.
  void expect_protection_error(OpKind kind, std::uint64_t address, std::uint64_t key, std::size_t length) {
    Buffer from(a, 1 << 17), good(b, 64);
    from.fill(2);
    const LocalSegment small = from.segment(0, 64), large = from.segment(64, length);
    const WorkRequest write{.id = 1,
                            .kind = OpKind::kWrite,
                            .local = {&small, 1},
                            .remote_address = good.grant().address,
                            .remote_key = good.grant().key};
    const WorkRequest bad{.id = 2, .kind = kind, .local = {&large, 1}, .remote_address = address, .remote_key = key};
    WorkRequest third = write;
    third.id = 3;
    const WorkRequest all[] = {write, bad, third};
    const std::size_t taken = a.path->post(all);
    ASSERT_EQ(taken, 3u);
    ASSERT_TRUE(pump([&] { return a.completed() == 3; }));
    EXPECT_EQ(a.code_of(2), Code::kProtectionError);
    if (is_down(a)) {
      for (std::uint64_t id : {1u, 3u})
        EXPECT_TRUE(a.code_of(id) == Code::kOk || a.code_of(id) == Code::kAborted) << id;
      EXPECT_EQ(a.path->post({&write, 1}), 0u);
      EXPECT_TRUE(pump([&] { return a.path->drained(); })) << "its receives may still come back";
    } else {
      EXPECT_EQ(a.code_of(1), Code::kOk);
      EXPECT_EQ(a.code_of(3), Code::kOk);
      a.send(4, from.bytes().first(8));
      ASSERT_TRUE(pump([&] { return a.completed() == 4; }));
      EXPECT_EQ(a.code_of(4), Code::kOk);
    }
  }

  // Posts writes to all of `target` with a message among them, and returns once the message has arrived: the rest is in
  // flight. (Looking at the memory itself would be a race.) Returns how many requests were posted.
  std::uint64_t begin_stream(Buffer& from, Buffer& target) {
    const std::uint64_t writes = std::min<std::uint64_t>(16, a.device->capabilities().max_outstanding - 1);
    for (std::uint64_t id = 0; id <= writes; ++id) {
      if (id == 1) a.send(id, from.bytes().first(8));
      if (id != 1) a.write(id, from.segment(0, from.bytes().size()), target, 0);
    }
    EXPECT_TRUE(pump([&] { return b.messages.size() == 1; }));
    return writes + 1;
  }

  // A peer's end is noticed by those who have something in flight.
  bool notices_the_end() {
    const std::byte ping{1};
    return pump([&] {
      if (!is_down(a) && a.completed() == a.posted + pings) {
        const LocalSegment segment{const_cast<std::byte*>(&ping), 1, 0};
        const WorkRequest work{.id = kPing, .kind = OpKind::kMessage, .local = {&segment, 1}};
        pings += a.path->post({&work, 1});
      }
      return is_down(a) && a.path->drained();
    });
  }

  using Codes = std::set<std::string_view>;
  static Codes refused() { return {to_string(Code::kProtectionError)}; }

  // Requests of these kinds stream to and from a region until another thread deregisters it; from then on that thread
  // owns the bytes. Returns the codes of the culprits.
  Codes deregister_under(std::initializer_list<OpKind> kinds) {
    constexpr std::size_t kLarge = std::size_t{4} << 20;
    Buffer from(a, kLarge), into(a, kLarge), target(b, kLarge);
    from.fill(1);
    std::atomic<bool> stop{false}, gone{false};
    std::atomic<int> completed{0};
    std::jthread driver([&] {
      while (!stop) {
        if (!b.poll()) std::this_thread::yield();
      }
    });
    std::jthread owner([&] {
      while (completed < 3 && !stop) std::this_thread::yield();
      target.deregister();
      std::fill(target.bytes().begin(), target.bytes().end(), std::byte{0xd7});
      gone = true;
    });
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    Codes culprits;
    a.completion_hook = [&](std::uint64_t, Code code) {
      if (code != Code::kOk && code != Code::kAborted) culprits.insert(to_string(code));
      ++completed;
    };
    std::uint64_t id = 0;
    while (culprits.empty() && !is_down(a) && std::chrono::steady_clock::now() < deadline) {
      for (OpKind kind : kinds) {
        const LocalSegment segment = (kind == OpKind::kWrite ? from : into).segment(0, kLarge);
        const WorkRequest work{.id = id,
                               .kind = kind,
                               .local = {&segment, 1},
                               .remote_address = target.grant().address,
                               .remote_key = target.grant().key};
        if (id < a.completed() + 4 && a.path->post({&work, 1}) == 1) ++id;
      }
      a.poll();
    }
    while (a.completed() < id && std::chrono::steady_clock::now() < deadline) a.poll();
    owner.join();
    stop = true;
    driver.join();
    a.completion_hook = nullptr;
    EXPECT_TRUE(gone);
    EXPECT_EQ(a.completed(), id);
    EXPECT_TRUE(are_all(target.bytes(), std::byte{0xd7}));
    return culprits;
  }

  static constexpr std::uint64_t kPing = 1'000'000;
  std::size_t pings = 0;

  static bool untouched(std::span<const std::byte> bytes) { return are_all(bytes, kUntouched); }
};

TEST_P(TransportFenceTest, WriteOneByteTooFar) {
  connect();
  Buffer target(b, kSize);
  expect_protection_error(OpKind::kWrite, target.grant().address + 1, target.grant().key, kSize);
  EXPECT_TRUE(untouched(target.bytes().last(1)));
}

TEST_P(TransportFenceTest, WriteOneByteTooEarly) {
  connect();
  Buffer target(b, kSize);
  expect_protection_error(OpKind::kWrite, target.grant().address - 1, target.grant().key, 2);
  EXPECT_TRUE(untouched(target.bytes()));
}

TEST_P(TransportFenceTest, ReadOneByteTooFar) {
  connect();
  Buffer target(b, kSize);
  expect_protection_error(OpKind::kRead, target.grant().address + 1, target.grant().key, kSize);
}

TEST_P(TransportFenceTest, AddressThatWrapsAround) {
  connect();
  Buffer target(b, kSize);
  expect_protection_error(OpKind::kWrite, ~std::uint64_t{0} - 15, target.grant().key, 64);
  EXPECT_TRUE(untouched(target.bytes()));
}

TEST_P(TransportFenceTest, UnknownKey) {
  connect();
  Buffer target(b, kSize);
  expect_protection_error(OpKind::kWrite, target.grant().address, target.grant().key ^ 0x5a5a, 64);
  EXPECT_TRUE(untouched(target.bytes()));
}

TEST_P(TransportFenceTest, WriteWithoutTheGrant) {
  connect();
  Buffer target(b, kSize, Access::kRemoteRead);
  expect_protection_error(OpKind::kWrite, target.grant().address, target.grant().key, 64);
  EXPECT_TRUE(untouched(target.bytes()));
}

TEST_P(TransportFenceTest, ReadWithoutTheGrant) {
  connect();
  Buffer target(b, kSize, Access::kRemoteWrite);
  expect_protection_error(OpKind::kRead, target.grant().address, target.grant().key, 64);
}

TEST_P(TransportFenceTest, NoGrantAtAll) {
  connect();
  Buffer target(b, kSize, Access::kNone);
  expect_protection_error(OpKind::kRead, target.grant().address, target.grant().key, 64);
}

TEST_P(TransportFenceTest, NoMessageArrivesBehindARefusedWrite) {
  connect();
  Buffer from(a, kSize), target(b, kSize, Access::kRemoteRead);
  const LocalSegment data = from.segment(0, kSize), note = from.segment(0, 8);
  const WorkRequest work[] = {{.id = 1,
                               .kind = OpKind::kWrite,
                               .local = {&data, 1},
                               .remote_address = target.grant().address,
                               .remote_key = target.grant().key},
                              {.id = 2, .kind = OpKind::kMessage, .local = {&note, 1}}};
  ASSERT_EQ(a.path->post(work), 2u);
  ASSERT_TRUE(pump([&] { return a.completed() == 2; }));
  pump_for(std::chrono::milliseconds(20));
  EXPECT_EQ(a.code_of(1), Code::kProtectionError);
  EXPECT_EQ(a.code_of(2), Code::kAborted);
  EXPECT_TRUE(b.messages.empty());
}

TEST_P(TransportFenceTest, AfterDeregistration) {
  connect();
  Buffer target(b, kSize);
  target.deregister();
  expect_protection_error(OpKind::kWrite, target.grant().address, target.grant().key, kSize);
  EXPECT_TRUE(untouched(target.bytes()));
}

TEST_P(TransportFenceTest, DeregisteredUnderWrites) {
  connect();
  EXPECT_EQ(deregister_under({OpKind::kWrite}), refused());
}

// Linux rxe refuses a READ whose region goes away between two responses by a NAK with the PSN of the request instead of
// the next response. Its own requester has passed that PSN, drops the NAK as an old one and gives up after its retries:
// the READ is unavailable, or, if a repeated READ met the end of the region, what came behind it.
TEST_P(TransportFenceTest, DeregisteredUnderTraffic) {
  connect();
  const Codes codes = deregister_under({OpKind::kWrite, OpKind::kRead});
  if (GetParam().linux_rxe && codes == Codes{to_string(Code::kUnavailable)}) return;
  EXPECT_EQ(codes, refused());
}

// The target closes in the middle of a stream of writes: what it puts into its memory afterwards stays.
TEST_P(TransportFenceTest, CloseIsAFence) {
  connect();
  constexpr std::size_t kLarge = std::size_t{1} << 20;
  Buffer from(a, kLarge), target(b, kLarge);
  from.fill(1);
  const std::uint64_t count = begin_stream(from, target);
  b.path->close();
  std::fill(target.bytes().begin(), target.bytes().end(), std::byte{0xc3});
  ASSERT_TRUE(notices_the_end());
  pump_for(std::chrono::milliseconds(50));
  EXPECT_TRUE(
      std::all_of(target.bytes().begin(), target.bytes().end(), [](std::byte b) { return b == std::byte{0xc3}; }));
  EXPECT_EQ(a.downs, 1);
  EXPECT_EQ(b.downs, 0) << "its user closed it";
  EXPECT_TRUE(a.path->drained());
  EXPECT_TRUE(b.path->drained());
  for (std::uint64_t id = 0; id < count; ++id) {
    const auto code = a.code_of(id);
    EXPECT_TRUE(code == Code::kOk || code == Code::kAborted || code == Code::kUnavailable) << id;
  }
  EXPECT_EQ(a.path->post(std::vector<WorkRequest>(1)), 0u);
}

TEST_P(TransportFenceTest, ClosingReportsEverythingOnce) {
  connect();
  Buffer from(a, 1 << 20), target(b, 1 << 20);
  const std::uint64_t count = std::min<std::uint64_t>(16, a.device->capabilities().max_outstanding);
  for (std::uint64_t id = 0; id < count; ++id) {
    if (id % 2 == 0) a.write(id, from.segment(0, from.bytes().size()), target, 0);
    if (id % 2 == 1) a.read(id, from.segment(0, from.bytes().size()), target, 0);
  }
  a.path->close();
  EXPECT_EQ(a.completed(), 0u) << "reported from inside close()";
  EXPECT_FALSE(a.path->drained());
  ASSERT_TRUE(pump([&] { return a.path->drained(); }));
  EXPECT_EQ(a.downs, 0) << "its user closed it";
  EXPECT_EQ(a.completed(), count);
  std::set<std::uint64_t> ids;
  for (const auto& [id, code] : a.completions) ids.insert(id);
  EXPECT_EQ(ids.size(), count);
  a.path->close();  // again does no harm
}

TEST_P(TransportFenceTest, ClosingFromInsideACallback) {
  connect();
  std::vector<std::byte> bytes(8);
  b.message_hook = [&](std::span<const std::byte>) { b.path->close(); };
  for (std::uint64_t id = 0; id < 10; ++id) a.send(id, bytes);
  ASSERT_TRUE(notices_the_end());
  EXPECT_EQ(a.downs, 1);
  EXPECT_EQ(b.downs, 0) << "its user closed it";
  EXPECT_EQ(a.completed(), 10 + pings);
  EXPECT_TRUE(pump([&] { return b.path->drained(); }));
}

TEST_P(TransportFenceTest, PeerVanishesInTheMiddle) {
  connect();
  Buffer from(a, 1 << 20);
  from.fill(1);
  auto target = std::make_unique<Buffer>(b, std::size_t{1} << 20);
  const std::uint64_t count = begin_stream(from, *target);
  target.reset();
  b.path.reset();
  b.endpoint.reset();
  b.device.reset();
  ASSERT_TRUE(notices_the_end());
  EXPECT_EQ(a.downs, 1);
  EXPECT_EQ(a.completed(), count + pings);
}

TEST_P(TransportFenceTest, BadDescriptionsDoNoHarm) {
  connect();  // a path that must survive all of them
  const std::string good = b.path->local_description();
  std::vector<std::string> bad = {"", "x", std::string(4096, '\0'), std::string(5000, 'y')};
  for (std::size_t length = 1; length < good.size(); length += 3) bad.push_back(good.substr(0, length));
  std::mt19937 random(7);
  for (int i = 0; i < 40; ++i) {
    std::string mutant = good;
    mutant[random() % mutant.size()] = static_cast<char>(random());
    bad.push_back(std::move(mutant));
    std::string noise(random() % 200, ' ');
    for (char& each : noise) each = static_cast<char>(random());
    bad.push_back(std::move(noise));
  }
  for (const std::string& description : bad) {
    for (PathRole role : {PathRole::kActive, PathRole::kPassive}) {
      auto path = a.endpoint->open_path(
          {.role = role, .peer_host = GetParam().host, .local_host = GetParam().host, .events = &a});
      ASSERT_TRUE(path.has_value());
      const Status status = (*path)->connect(description);
      if (!status.ok()) {
        EXPECT_FALSE(status.message().empty());
      }
      pump([turns = 0]() mutable { return ++turns > 3; });
      (*path)->close();
      ASSERT_TRUE(pump([&] { return (*path)->drained(); }));
    }
  }
  std::vector<std::byte> bytes(8);
  const std::size_t before = a.completed();
  a.send(99, bytes);
  ASSERT_TRUE(pump([&] { return a.completed() > before; }));
  EXPECT_EQ(a.code_of(99), Code::kOk);
}

INSTANTIATE_TEST_SUITE_P(All, TransportFenceTest, testing::ValuesIn(transport_cases()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace fairlead::conformance
