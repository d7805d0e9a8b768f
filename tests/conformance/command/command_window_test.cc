// Large copies that are written into the service's memory, and what becomes of them when that is full, not to be had,
// or lost under way. Over every way, on the host and on a GPU that is the double's.
#include <gmock/gmock.h>

#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "datapath/command/codec.h"
#include "tests/conformance/command/command_tenants.h"

namespace fairlead {
namespace {

namespace wire = datapath::command;
using command::Channel;
using command::Handle;

constexpr std::size_t kBytes = (3 << 20) + 12;

class CommandWindows : public CommandPair {
 protected:
  /// Messages between two processes are faster over shm, but for what is read.
  static bool is_written() { return GetParam().isolated || GetParam().way.transport != "shm"; }
  [[nodiscard]] std::uint64_t written() const { return session->peer().stats().bytes_written; }
  [[nodiscard]] std::uint64_t fetched() const { return session->peer().stats().bytes_read; }
  /// The service's answer has come when a command behind the question was answered.
  void ask(Channel& channel, Handle memory) {
    must(channel.copy_in(memory, 0, pattern(256 << 10, 1)));
    expect_fine(channel);
    EXPECT_EQ(written(), 0u);
  }
  /// A channel with so much memory, in a session that has asked.
  std::pair<Channel, Handle> asked(std::size_t bytes = kBytes) {
    Channel channel = open(*session);
    const Handle memory = session->new_handle();
    must(channel.allocate(memory, bytes));
    ask(channel, memory);
    return {std::move(channel), memory};
  }
  /// Also of what is large.
  void expect_messages() {
    auto [channel, memory] = asked();
    const std::vector<std::byte> bytes = pattern(kBytes, 1);
    must(channel.copy_in(memory, 0, bytes));
    expect_there(channel, memory, bytes);
    EXPECT_EQ(written(), 0u);
    EXPECT_EQ(fetched(), 0u);
  }
  /// Copies while `end` is under way on another thread, and after it.
  void expect_to_end(const std::function<void()>& end) {
    auto [channel, memory] = asked();
    std::thread ender(end);
    const std::vector<std::byte> bytes = pattern(kBytes, 1);
    while (channel.copy_in(memory, 0, bytes)) {
    }
    ender.join();
    EXPECT_FALSE(session->status().ok());
  }
  /// The same out of it. When the wait is over nothing is written there any more, also where it failed.
  void expect_reads_to_end(const std::function<void()>& end) {
    auto [channel, memory] = asked();
    std::thread ender(end);
    for (bool goes_on = true; goes_on;) {
      auto to = std::make_unique<std::vector<std::byte>>(kBytes);
      goes_on = channel.copy_out(*to, memory, 0) && channel.synchronize(kPatience).ok();
      set_all(*to, std::byte{0xcc});
      if (!goes_on) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      EXPECT_TRUE(are_all(*to, std::byte{0xcc}));
    }
    ender.join();
    EXPECT_FALSE(session->status().ok());
  }
  static void expect_there(Channel& channel, Handle memory, const std::vector<std::byte>& bytes) {
    std::vector<std::byte> seen(bytes.size());
    must(channel.copy_out(seen, memory, 0));
    expect_fine(channel);
    if (!are_same(seen, bytes)) ADD_FAILURE() << "from byte " << std::ranges::mismatch(seen, bytes).in1 - seen.begin();
  }
};

TEST_P(CommandWindows, LargeCopiesAreWritten) {
  auto [channel, memory] = asked();
  for (std::uint32_t i = 0; i < 5; ++i) {
    std::vector<std::byte> from = pattern(kBytes, i);
    const std::vector<std::byte> same = from;
    must(channel.copy_in(memory, 0, from));
    set_all(from, std::byte{0xcc});  // it is ours again
    expect_there(channel, memory, same);
  }
  EXPECT_EQ(written(), is_written() ? 5 * kBytes - 5 * 12 : 0u) << "the last piece of each is 12 bytes, in its record";
  EXPECT_EQ(fetched(), 5 * kBytes - 5 * 12) << "or in a reply";
}

TEST_P(CommandWindows, TheFirstLargeCopyMayBeOneOut) {
  Channel channel = open(*session);
  const Handle memory = session->new_handle();
  must(channel.allocate(memory, kBytes));
  must(channel.fill(memory, 0, kBytes, 7));
  for (int i = 0; i < 2; ++i) expect_there(channel, memory, std::vector<std::byte>(kBytes, std::byte{7}));
  EXPECT_EQ(fetched(), kBytes - 12);
}

// Each piece is a command of its own, which costs both ends; of a small copy some are under way together nevertheless.
TEST_P(CommandWindows, PiecesOfLargeCopiesAreLarge) {
  auto [channel, memory] = asked(8 << 20);
  const std::size_t piece = session->limits().payload_bytes;
  for (const auto& [bytes, commands] : {std::pair{4 * piece, 4u}, {16 * piece, 8u}, {40 * piece, 10u}}) {
    const std::vector<std::byte> from = pattern(bytes, 1);
    const std::uint64_t before = channel.last();
    must(channel.copy_in(memory, 0, from));
    EXPECT_EQ(channel.last() - before, is_written() ? commands : bytes / piece) << bytes;
    expect_there(channel, memory, from);
  }
}

// What waits for a fence keeps all of the window; that keeps nobody else.
TEST_P(CommandWindows, WhoFindsItFullSendsMessages) {
  Channel waits = open(*session), goes = open(*session), last = open(*session);
  const Handle one = session->new_handle(), two = session->new_handle();
  constexpr std::size_t kAll = 8 << 20;
  must(waits.allocate(one, kAll));
  must(waits.allocate(two, kBytes));
  ask(waits, one);
  must(last.fill(two, 0, 8, 1));
  must(last.record());
  expect_fine(last);  // channels are not ordered among each other
  const command::Mark later{last.number(), last.last() + 2};
  must(waits.fence(later));
  const std::vector<std::byte> first = pattern(kAll, 1), second = pattern(kBytes, 2);
  must(waits.copy_in(one, 0, first));
  must(goes.copy_in(two, 0, second));
  expect_there(goes, two, second);
  EXPECT_EQ(written(), is_written() ? kAll : 0u);
  must(last.fill(two, 0, 8, 1));
  must(last.record());
  expect_fine(last);
  expect_there(waits, one, first);
}

TEST_P(CommandWindows, WhoFindsItFullGetsMessages) {
  Channel waits = open(*session), goes = open(*session), last = open(*session);
  const Handle one = session->new_handle(), two = session->new_handle();
  constexpr std::size_t kAll = 8 << 20;
  must(waits.allocate(one, kAll));
  must(waits.fill(one, 0, kAll, 1));
  must(goes.allocate(two, kBytes));
  must(goes.fill(two, 0, kBytes, 2));
  expect_fine(goes);  // channels are not ordered among each other
  ask(waits, one);
  must(last.fill(two, 0, 1, 2));
  must(last.record());
  must(waits.fence({last.number(), last.last() + 2}));
  std::vector<std::byte> first(kAll);
  must(waits.copy_out(first, one, 0));
  expect_there(goes, two, std::vector<std::byte>(kBytes, std::byte{2}));
  EXPECT_EQ(fetched(), 0u);
  must(last.fill(two, 0, 1, 2));
  must(last.record());
  expect_fine(last);
  expect_fine(waits);
  EXPECT_TRUE(are_all(std::span(first).subspan(256 << 10), std::byte{1}));
  EXPECT_EQ(fetched(), kAll);
}

// More than there is room for at once.
TEST_P(CommandWindows, WhatIsLargerThanItIsReadToo) {
  constexpr std::size_t kMore = 24 << 20;
  auto [channel, memory] = asked(kMore);
  const std::vector<std::byte> bytes = pattern(kMore, 1);
  must(channel.copy_in(memory, 0, bytes));
  expect_fine(channel);
  expect_there(channel, memory, bytes);
  EXPECT_GE(fetched(), 8u << 20) << "what of the rest is, is a matter of time";
}

TEST_P(CommandWindows, ManyThreadsWriteAtOnce) {
  constexpr std::uint32_t kThreads = 4, kRounds = 6;
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([this, i] {
      Channel channel = open(*session);
      const Handle memory = session->new_handle();
      must(channel.allocate(memory, kBytes));
      for (std::uint32_t round = 0; round < kRounds; ++round) {
        const std::vector<std::byte> bytes = pattern(kBytes - 1000 * i, 100 * i + round);
        must(channel.copy_in(memory, 0, bytes));
        expect_there(channel, memory, bytes);
      }
    });
  }
  for (std::thread& each : threads) each.join();
}

TEST_P(CommandWindows, AFailureInTheMiddleLeavesItUsable) {
  auto [channel, memory] = asked();
  for (std::uint32_t i = 0; i < 8; ++i) {
    // Out of bounds from some piece on: the pieces behind that are passed over, their bytes are on their way.
    const std::vector<std::byte> bytes = pattern(kBytes, i);
    (void)channel.copy_in(memory, (i + 1) * 300'000, bytes);
    (void)expect_failed(channel);
    ASSERT_TRUE(channel.recover().ok());
    must(channel.copy_in(memory, 0, bytes));
    expect_there(channel, memory, bytes);
  }
}

TEST_P(CommandWindows, AFailureInTheMiddleOfWhatIsReadLeavesItUsable) {
  auto [channel, memory] = asked();
  const std::vector<std::byte> bytes = pattern(kBytes, 1);
  must(channel.copy_in(memory, 0, bytes));
  for (std::uint32_t i = 0; i < 8; ++i) {
    // Out of bounds from some piece on.
    std::vector<std::byte> seen(kBytes, std::byte{0xcc});
    (void)channel.copy_out(seen, memory, (i + 1) * 300'000);
    (void)expect_failed(channel);
    EXPECT_EQ(seen.back(), std::byte{0xcc});
    ASSERT_TRUE(channel.recover().ok());
    expect_there(channel, memory, bytes);
  }
}

// Of pieces that did not fail some are still on their way when the service says which did.
TEST_P(CommandWindows, WhenAWaitHasFailedNothingIsWrittenAnyMore) {
  constexpr std::size_t kThere = 4 << 20;
  auto [channel, memory] = asked(kThere);
  must(channel.fill(memory, 0, kThere, 7));
  for (int i = 0; i < 2; ++i) {
    std::vector<std::byte> to(kThere + (512 << 10));
    const Result<std::uint64_t> last = channel.copy_out(to, memory, 0);
    EXPECT_EQ(channel.wait(last ? *last : channel.last()).code(), Code::kAborted);
    set_all(to, std::byte{0xcc});
    ASSERT_TRUE(channel.recover().ok());
    expect_fine(channel);  // whatever was on its way has come
    EXPECT_TRUE(are_all(to, std::byte{0xcc})) << i;
  }
}

TEST_P(CommandWindows, ManyThreadsCopyBothWaysAndFail) {
  command::ServiceConfig config;
  config.window_bytes = 2 << 20;  // too small for all of them
  start(std::move(config));
  constexpr std::uint32_t kThreads = 3, kRounds = 4;
  constexpr std::size_t kThere = 1 << 20, kLeast = 256 << 10;
  std::atomic<std::uint32_t> wrong{0}, late{0};
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      std::mt19937 random(i);
      Channel channel = open(*session);
      const Handle memory = session->new_handle();
      must(channel.allocate(memory, kThere));
      const std::vector<std::byte> from = pattern(kThere, i);
      for (std::uint32_t round = 0; round < kRounds; ++round) {
        const std::size_t bytes = kLeast + random() % (kThere - kLeast), at = random() % (kThere - bytes + 1);
        std::vector<std::byte> to(bytes);
        must(channel.copy_in(memory, at, std::span(from).first(bytes)));
        const std::uint64_t last = must(channel.copy_out(to, memory, at));
        wrong += !channel.wait(last).ok() || !are_same(to, std::span(from).first(bytes));
        (void)channel.copy_out(to, memory, kThere - bytes / 2);
        wrong += channel.synchronize().code() != Code::kAborted;
        set_all(to, std::byte{0xcc});
        wrong += !channel.recover().ok() || !channel.synchronize().ok();
        late += !are_all(to, std::byte{0xcc});
      }
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(late, 0u);
  // No part of it was lost: all of it is there for one copy.
  Channel channel = open(*session);
  const Handle memory = session->new_handle();
  must(channel.allocate(memory, 2 << 20));
  expect_fine(channel);
  const std::uint64_t before = fetched();
  std::vector<std::byte> to(2 << 20);
  must(channel.copy_out(to, memory, 0));
  expect_fine(channel);
  EXPECT_EQ(fetched() - before, std::uint64_t{2} << 20);
}

TEST_P(CommandWindows, ThereMayBeNone) {
  command::ServiceConfig config;
  config.window_bytes = 0;
  start(std::move(config));
  expect_messages();
}

TEST_P(CommandWindows, AProcessThatCannotMapItHasNone) {
  if (!GetParam().isolated) return;
  std::vector<std::string> program{"/bin/sh", "-c", "exec \"$0\" \"$@\" 6</dev/null"};  // where it is told of memory
  std::ranges::copy(session_program(64 << 20), std::back_inserter(program));
  start({}, 64 << 20, true, program);
  expect_messages();
}

TEST_P(CommandWindows, ThePoolMayHaveNoMore) {
  change_server = [](EngineConfig& config) { config.pool_max_bytes = std::size_t{4} << 20; };
  start({});
  expect_messages();
}

TEST_P(CommandWindows, ASessionThatIsClosedMeanwhileEndsTheCopy) {
  expect_to_end([this] { session->close(); });
}

TEST_P(CommandWindows, AServiceThatGoesMeanwhileEndsTheCopy) {
  expect_to_end([this] { service->stop(); });
}

TEST_P(CommandWindows, ASessionThatIsClosedMeanwhileEndsReads) {
  expect_reads_to_end([this] { session->close(); });
}

TEST_P(CommandWindows, AServiceThatGoesMeanwhileEndsReads) {
  expect_reads_to_end([this] { service->stop(); });
}

TEST_P(CommandWindows, TheWindowIsGivenBackWithItsSession) {
  for (int i = 0; i < 3; ++i) {
    const std::uint64_t before = service->engine().stats().pool_bytes_used;
    session.emplace(connect());
    auto [channel, memory] = asked();
    EXPECT_GT(service->engine().stats().pool_bytes_used, before);
    session->close();
    EXPECT_TRUE(comes_true([&] { return service->engine().stats().pool_bytes_used == before; }));
  }
}

/// Clients that speak for themselves.
class CommandForeignWindows : public CommandTenants {
 protected:
  Peer greet(const std::string& principal) {
    Peer peer = must(engine_of(principal).connect(service->listen_address()));
    EXPECT_TRUE(peer.wait_ready(kPatience).ok());
    say(peer, wire::hello_message({.payload_bytes = 4096}));
    EXPECT_EQ(hear(peer).type, static_cast<std::uint8_t>(wire::MessageType::kWelcome));
    return peer;
  }
  void say(Peer& peer, const std::vector<std::byte>& message) {
    (void)peer.send(message, wire::kMessageValue, {.traffic = TrafficClass::kCommands});
  }
  wire::MessageHeader hear(Peer& peer) {
    heard_ = next_of(peer, Event::Kind::kMessage).data;
    rest_ = heard_;
    return wire::take<wire::MessageHeader>(rest_).value_or(wire::MessageHeader());
  }
  /// Asked for, as often as it is.
  std::string window_of(Peer& peer) {
    say(peer, wire::make_message({.type = static_cast<std::uint8_t>(wire::MessageType::kOpenWindow)}));
    EXPECT_EQ(hear(peer).type, static_cast<std::uint8_t>(wire::MessageType::kWindow));
    const auto body = wire::take<wire::WindowBody>(rest_);
    const auto text = body ? wire::take_padded(rest_, body->capability_bytes) : std::nullopt;
    EXPECT_TRUE(text);
    if (!text) return {};
    return {reinterpret_cast<const char*>(text->data()), text->size()};
  }

 private:
  std::vector<std::byte> heard_;
  wire::Bytes rest_;
};

TEST_P(CommandForeignWindows, NobodyElseReachesIt) {
  serve({{.name = "trainer"}, {.name = "guest"}});
  Peer victim = greet("trainer"), hostile = greet("guest");
  const std::string capability = window_of(victim);
  if (!GetParam().isolated && GetParam().way.transport == "shm") {
    EXPECT_EQ(capability, "") << "messages are faster there";
    return;
  }
  EXPECT_EQ(hostile.import_(capability, kPatience).error().code(), Code::kPermissionDenied);
  EXPECT_EQ(must(hostile.list("", kPatience)).size(), 0u);
  EXPECT_NE(window_of(hostile), capability);
  const RemoteMemory window = must(victim.import_(capability, kPatience));
  EXPECT_EQ(window.size(), std::size_t{8} << 20);
  EXPECT_EQ(window.access(), Access::kRemoteReadWrite);
  // Asked for again it ends the session: answers that are not taken would be kept.
  say(victim, wire::make_message({.type = static_cast<std::uint8_t>(wire::MessageType::kOpenWindow)}));
  EXPECT_EQ(hear(victim).type, static_cast<std::uint8_t>(wire::MessageType::kRefused));
}

INSTANTIATE_TEST_SUITE_P(Ways, CommandForeignWindows, testing::ValuesIn(shared_ways()),
                         [](const auto& info) { return info.param.name(); });

INSTANTIATE_TEST_SUITE_P(Ways, CommandWindows, testing::ValuesIn(command_ways()),
                         [](const auto& info) { return info.param.name(); });
INSTANTIATE_TEST_SUITE_P(Cuda, CommandWindows, testing::ValuesIn(cuda_command_ways()),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace fairlead
