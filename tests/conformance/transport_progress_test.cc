// When things happen: visibility between threads, posting from inside callbacks, many paths, sleeping waiters.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <utility>

#include "base/unique_fd.h"
#include "tests/conformance/transport_fixture.h"

namespace fairlead::conformance {
namespace {

class TransportProgressTest : public TransportTest {};

std::uint64_t number_in(std::span<const std::byte> bytes) {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes.data(), std::min(bytes.size(), sizeof value));
  return value;
}

// Data may be read after the message that was posted behind it: the target's thread reads memory that the initiator
// wrote, ordered by nothing else.
TEST_P(TransportProgressTest, DataIsVisibleAfterItsMessage) {
  connect();
  constexpr std::uint64_t kSlots = 32;
  constexpr std::size_t kSlotBytes = 4096;
  const auto rounds = static_cast<std::uint64_t>(scaled(20'000));
  Buffer from(a, kSlots * kSlotBytes), to(b, kSlots * kSlotBytes);
  std::atomic<std::uint64_t> checked{0};
  std::atomic<bool> wrong{false}, stop{false};

  b.message_hook = [&](std::span<const std::byte> bytes) {
    const std::uint64_t round = number_in(bytes);
    const auto slot = to.bytes().subspan(round % kSlots * kSlotBytes, kSlotBytes);
    if (round != checked || number_in(slot) != round || number_in(slot.last(8)) != round) wrong = true;
    checked.store(round + 1);
  };
  std::jthread target([&] {
    while (!stop) {
      if (!b.poll()) std::this_thread::yield();
    }
  });

  // However slow the host is: only standing still is an error.
  auto deadline = std::chrono::steady_clock::now() + kPatience;
  std::uint64_t seen = 0;
  const auto moves = [&] {
    const auto now = std::chrono::steady_clock::now();
    const std::uint64_t sum = checked + a.completed();
    if (std::exchange(seen, sum) != sum) deadline = now + kPatience;
    return now < deadline;
  };
  std::uint64_t round = 0;
  while (checked.load() < rounds && !wrong && a.downs == 0 && moves()) {
    // A slot is free once its completion came, and once its reader is done with it.
    const bool room = round < rounds && a.completed() / 2 + kSlots / 2 > round && checked + kSlots > round;
    if (room) {
      const std::size_t offset = round % kSlots * kSlotBytes;
      std::memcpy(from.bytes().data() + offset, &round, sizeof round);
      std::memcpy(from.bytes().data() + offset + kSlotBytes - sizeof round, &round, sizeof round);
      const LocalSegment data = from.segment(offset, kSlotBytes);
      const LocalSegment note{reinterpret_cast<std::byte*>(&round), sizeof round, 0};
      const WorkRequest both[] = {{.id = 2 * round,
                                   .kind = OpKind::kWrite,
                                   .local = {&data, 1},
                                   .remote_address = to.grant().address + offset,
                                   .remote_key = to.grant().key},
                                  {.id = 2 * round + 1, .kind = OpKind::kMessage, .local = {&note, 1}}};
      std::size_t taken = 0;
      while (taken < 2 && a.downs == 0) {
        taken += a.path->post(std::span(both).subspan(taken));
        if (taken < 2) a.poll();
      }
      ++round;
    } else if (!a.poll()) {
      std::this_thread::yield();
    }
  }
  EXPECT_EQ(checked.load(), rounds);
  while (a.downs == 0 && a.completed() < 2 * rounds && moves()) a.poll();
  stop = true;
  target.join();
  EXPECT_FALSE(wrong);
  EXPECT_EQ(a.downs, 0) << a.down_reason;
  EXPECT_EQ(a.completed(), 2 * rounds);
}

// Who polls is told of packets, not only of ends: else it would sleep within each large operation.
TEST_P(TransportProgressTest, PartsOfALargeWriteAreProgressAtBothEnds) {
  if (GetParam().linux_rxe) GTEST_SKIP() << "a device that works by itself tells nothing of packets";
  if (GetParam().simulated) GTEST_SKIP() << "a simulated operation has no parts";
  connect();
  pump_for(std::chrono::milliseconds(20));  // buffers and credits of the beginning
  constexpr std::size_t kSize = std::size_t{32} << 20;
  Buffer from(a, kSize), to(b, kSize);
  a.write(1, from.segment(0, kSize), to, 0);
  int at_a = 0, at_b = 0;
  ASSERT_TRUE(pump([&] {
    if (a.completed() != 0) return true;
    at_a += a.poll() && a.completed() == 0 ? 1 : 0;
    at_b += b.poll() ? 1 : 0;
    return false;
  }));
  EXPECT_GT(at_a, 0);
  EXPECT_GT(at_b, 0);
}

TEST_P(TransportProgressTest, PingPongFromInsideCallbacks) {
  connect();
  const auto rounds = static_cast<std::uint64_t>(scaled(500));
  std::uint64_t at_a = 0, at_b = 0;
  const auto answer = [rounds](End& end, std::uint64_t& count) {
    return [&end, &count, rounds](std::span<const std::byte> bytes) {
      if (++count <= rounds) end.send(count, bytes);
    };
  };
  a.message_hook = answer(a, at_a);
  b.message_hook = answer(b, at_b);
  const std::uint64_t ball = 42;
  a.send(0, std::as_bytes(std::span(&ball, 1)));
  ASSERT_TRUE(pump([&] { return at_a >= rounds; }));
}

TEST_P(TransportProgressTest, ManyPathsShareATransport) {
  connect();
  constexpr std::size_t kPaths = 8;
  constexpr std::size_t kSize = 10'000;
  Buffer from(a, kPaths * kSize), to(b, kPaths * kSize);
  from.fill(4);
  std::vector<std::unique_ptr<Path>> extra_a, extra_b;
  const auto open = [](End& end, PathRole role) {
    auto path = end.endpoint->open_path(
        {.role = role, .peer_host = GetParam().host, .local_host = GetParam().host, .events = &end});
    EXPECT_TRUE(path.has_value()) << path.status().to_string();
    return path ? std::move(*path) : nullptr;
  };
  for (std::size_t i = 0; i < kPaths; ++i) {
    extra_a.push_back(open(a, PathRole::kActive));
    extra_b.push_back(open(b, PathRole::kPassive));
    ASSERT_TRUE(extra_a.back() && extra_b.back());
    ASSERT_TRUE(extra_b[i]->connect(extra_a[i]->local_description()).ok());
    ASSERT_TRUE(extra_a[i]->connect(extra_b[i]->local_description()).ok());
  }
  ASSERT_TRUE(pump([&] { return a.ready == 1 + kPaths && b.ready == 1 + kPaths; }));
  for (std::size_t i = 0; i < kPaths; ++i) {
    const LocalSegment segment = from.segment(i * kSize, kSize);
    const LocalSegment note{reinterpret_cast<std::byte*>(&i), sizeof i, 0};
    const WorkRequest work[] = {{.id = i,
                                 .kind = OpKind::kWrite,
                                 .local = {&segment, 1},
                                 .remote_address = to.grant().address + i * kSize,
                                 .remote_key = to.grant().key},
                                {.id = i, .kind = OpKind::kMessage, .local = {&note, 1}}};
    ASSERT_EQ(extra_a[i]->post(work), 2u);
  }
  ASSERT_TRUE(pump([&] { return a.completed() == 2 * kPaths; }));
  for (const auto& [id, code] : a.completions) EXPECT_EQ(code, Code::kOk) << id;
  EXPECT_EQ(b.messages.size(), kPaths);
  EXPECT_TRUE(is_pattern(to.bytes(), 4));
}

// Each end sleeps on its descriptor as an idle engine does, and must be woken for everything.
TEST_P(TransportProgressTest, WakesThoseWhoSleep) {
  if (GetParam().simulated) GTEST_SKIP() << "virtual time passes only while somebody polls";
  connect();
  const auto rounds = static_cast<std::uint64_t>(scaled(50));
  Buffer from(a, std::size_t{1} << 20), to(b, std::size_t{1} << 20);
  const UniqueFd stop(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  std::atomic<bool> stopped{false}, overslept{false};
  const auto drive = [&](End& end, const auto& done) {
    while (!done() && !overslept) {
      if (end.poll() || !end.endpoint->arm()) continue;
      const int timer = end.endpoint->wait_timeout_us();
      pollfd readable[] = {{end.endpoint->wait_fd(), POLLIN, 0}, {stop.get(), POLLIN, 0}};
      const int patience = static_cast<int>(std::chrono::milliseconds(kPatience).count());
      const int woken = ::poll(readable, 2, timer < 0 ? patience : timer / 1000 + 1);
      if (woken == 0 && timer < 0) overslept = true;
    }
  };
  b.message_hook = [&](std::span<const std::byte> bytes) { b.send(0, bytes); };
  std::uint64_t answers = 0;
  a.message_hook = [&](std::span<const std::byte>) { ++answers; };
  std::jthread target([&] { drive(b, [&] { return stopped.load(); }); });
  for (std::uint64_t round = 0; round < rounds; ++round) {
    a.write(2 * round, from.segment(0, from.bytes().size()), to, 0);
    a.send(2 * round + 1, from.bytes().first(8));
    drive(a, [&] { return answers > round && a.completed() >= 2 * (round + 1); });
  }
  stopped = true;
  ::eventfd_write(stop.get(), 1);
  target.join();
  EXPECT_FALSE(overslept);
  EXPECT_EQ(answers, rounds);
}

INSTANTIATE_TEST_SUITE_P(All, TransportProgressTest, testing::ValuesIn(transport_cases()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace fairlead::conformance
