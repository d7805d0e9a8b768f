#include "datapath/command/process/process_session.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cerrno>

#include "tests/datapath/command/process_program.h"

namespace fairlead::datapath::command {
namespace {

class Words final : public Outlet {
 public:
  void send(TrafficClass, Bytes message) override { said.emplace_back(message.begin(), message.end()); }
  [[nodiscard]] std::uint64_t untaken() override { return left; }
  [[nodiscard]] std::optional<std::int64_t> copy_level() override { return level; }
  void charge_copies(std::uint64_t bytes) override { charged += bytes; }
  /// The last, which is to be a refusal.
  [[nodiscard]] Status refusal() const {
    return refusal_in(said.empty() ? Bytes() : Bytes(said.back()).subspan(sizeof(MessageHeader)));
  }

  std::vector<std::vector<std::byte>> said;
  std::uint64_t left = 0;
  std::optional<std::int64_t> level;
  std::uint64_t charged = 0;
};

std::shared_ptr<TenantAccount> account_with_page() {
  auto account = std::make_shared<TenantAccount>();
  SharedPage<TenantMeter> page = *SharedPage<TenantMeter>::create();
  account->meter = page.value;
  account->page = std::move(page.fd);
  return account;
}

/// Where there are few descriptors: one more each time.
class ProcessSessionBegun : public testing::Test {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "the sanitizers need descriptors of their own";
#endif
    lowest_ = ::dup(0);
    ASSERT_GE(lowest_, 0);
    ::close(lowest_);
  }
  /// The session begins while there are no more than that.
  void begin_with(ProcessSession& session, int descriptors) const {
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
    const rlimit few{static_cast<rlim_t>(lowest_ + descriptors), before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    session.take(hello_message({}), TrafficClass::kCommands);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  }

  const std::shared_ptr<TenantAccount> account_ = account_with_page();
  int refused_ = 0;

 private:
  int lowest_ = 0;  // of the numbers that the next descriptors have
};

/// Until one is enough.
TEST_F(ProcessSessionBegun, TooFewDescriptorsRefuseItAndLeaveNothing) {
  for (int more = 0, began = 0; began == 0; ++more) {
    ASSERT_LT(more, 100);
    Words words;
    bool is_over = false;
    {
      ProcessSession session(words, {}, {"/bin/sleep", "1000"}, account_);
      begin_with(session, more);
      is_over = session.is_over();
    }
    EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a process is left, with " << more << " descriptors";
    EXPECT_EQ(errno, ECHILD);
    (is_over ? refused_ : began) += 1;
    EXPECT_EQ(words.said.size(), is_over ? 1u : 0u) << "who is refused is told";
  }
  EXPECT_GE(refused_, 3);
}

// A page, two pairs of sockets, and a copy of each of the four that are given away; then it is looked for.
TEST_F(ProcessSessionBegun, IsNotStartedWithoutWhatItIsGiven) {
  for (Code code = Code::kResourceExhausted; code == Code::kResourceExhausted; ++refused_) {
    ASSERT_LT(refused_, 100);
    Words words;
    ProcessSession session(words, {}, {"/there/is/no/such/program"}, account_);
    begin_with(session, refused_);
    ASSERT_EQ(words.said.size(), 1u);
    code = words.refusal().code();
    EXPECT_THAT(code, testing::AnyOf(Code::kResourceExhausted, Code::kUnavailable)) << words.refusal().to_string();
  }
  EXPECT_GT(refused_, 9);
}

/// As when the client goes while its process is being started: a process that answers nothing is not waited for.
TEST(ProcessSession, WhatWasAbandonedIsNotRun) {
  const std::shared_ptr<TenantAccount> account = account_with_page();
  Words words;
  {
    ProcessSession session(words, {}, {"/bin/sleep", "1000"}, account);
    session.abandon();
    session.take(hello_message({}), TrafficClass::kCommands);
    EXPECT_FALSE(session.is_over());
    EXPECT_FALSE(session.run(SessionRunner::Clock::time_point::max(), 0));
  }
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a process is left";
  EXPECT_EQ(errno, ECHILD);
  EXPECT_TRUE(words.said.empty());
}

// By what it says of devices the server counts and waits, where others do, too.
TEST(ProcessSession, WhoSaysToHaveDevicesThatCannotBeHasNoSession) {
  constexpr std::uint32_t kFirst = 1, kSecond = 2, kNone = 4, kFarthest = std::uint32_t{1} << 31;
  struct Case {
    SessionRunner::Devices said;
    bool can_be = false;
  };
  for (const Case& each :
       {Case{{.all = kSecond, .due = kSecond}, true}, Case{{.all = 0}}, Case{{.all = kNone}}, Case{{.all = kFarthest}},
        Case{{.all = kFirst | kFarthest}}, Case{{.all = kFirst, .due = kSecond}}, Case{{.all = kFirst, .held = kNone}},
        Case{{.all = kFirst, .pending = kFarthest}}}) {
    SCOPED_TRACE(fmt::format("{:x} {:x} {:x} {:x}", each.said.all, each.said.due, each.said.held, each.said.pending));
    Ran ran;
    ran.devices = each.said;
    ran.more = 1;
    Words words;
    ProcessSession session(words, {.devices = kFirst | kSecond}, program_that_ran(ran), account_with_page());
    session.take(hello_message({}), TrafficClass::kCommands);
    EXPECT_EQ(session.run(SessionRunner::Clock::time_point::max(), 0), each.can_be);
    EXPECT_EQ(session.is_over(), !each.can_be);
    EXPECT_EQ(session.devices().all, each.can_be ? each.said.all : kFirst);
    ASSERT_EQ(words.said.size(), each.can_be ? 0u : 1u);
    if (each.can_be) continue;
    EXPECT_EQ(words.refusal().code(), Code::kAborted) << words.refusal().to_string();
  }
}

// Messages of no bytes are kept, too, until the client takes them.
TEST(ProcessSession, WhoNeverStopsSayingThingsIsStopped) {
  constexpr std::uint64_t kHeld = 1 << 20, kMost = 2 * kHeld + (8 << 20);
  constexpr std::size_t kMessage = 1024;
  struct Case {
    std::size_t bytes = 0;   // of each message
    std::uint64_t left = 0;  // of what was said before
  };
  for (const Case& each : {Case{.bytes = 0}, Case{.bytes = kMessage}, Case{.left = kMost / 2}, Case{.left = kMost}}) {
    SCOPED_TRACE(fmt::format("{} bytes, {} before", each.bytes, each.left));
    const std::vector<std::byte> message(each.bytes);
    const std::string says = saying(FrameType::kSend, message);
    Words words;
    words.left = each.left;
    ProcessSession session(words, {.held_results = kHeld},
                           {"/bin/sh", "-c", fmt::format("while {} 2>/dev/null; do :; done", says)},
                           account_with_page());
    session.take(hello_message({}), TrafficClass::kCommands);
    EXPECT_FALSE(session.run(SessionRunner::Clock::time_point::max(), 0));
    EXPECT_TRUE(session.is_over());
    EXPECT_EQ(words.said.size(), (kMost - each.left) / (each.bytes + Outlet::kMessageCost) + 1) << "and why it ended";
    EXPECT_EQ(words.refusal().code(), Code::kAborted) << words.refusal().to_string();
  }
}

// What it says to have copied is its tenant's, which may have other sessions.
TEST(ProcessSession, WhoSaysToHaveCopiedMoreThanItMightHasNoSession) {
  constexpr std::uint64_t kMost = 100 + kMaxPayload;
  struct Case {
    std::optional<std::int64_t> level;
    std::uint64_t copied = 0;
    bool can_be = false;
  };
  for (const Case& each :
       {Case{100, kMost, true}, Case{100, kMost + 1}, Case{100, ~std::uint64_t{0}}, Case{0, 0, true}, Case{0, 1},
        Case{-1, 1}, Case{std::nullopt, 0, true}, Case{std::nullopt, ~std::uint64_t{0}}}) {
    SCOPED_TRACE(fmt::format("{} of {}", each.copied, each.level.value_or(-2)));
    Ran ran;
    ran.devices.all = 1;
    ran.copied = each.copied;
    Words words;
    words.level = each.level;
    ProcessSession session(words, {.module_bytes = 0}, program_that_ran(ran), account_with_page());
    session.take(hello_message({}), TrafficClass::kCommands);
    EXPECT_FALSE(session.run(SessionRunner::Clock::time_point::max(), 0));
    EXPECT_EQ(session.is_over(), !each.can_be);
    EXPECT_EQ(words.charged, each.can_be ? each.copied : 0u);
  }
}

// They go into what all sessions count together.
TEST(ProcessSession, WhoseCountsFallOrLeapHasNoSession) {
  constexpr std::uint64_t kMost = 4 * 64 + 1000, kAllOnes = ~std::uint64_t{0};
  struct Case {
    SessionRunner::Counts first, second;
    std::uint64_t waiting = 0;
    bool can_be = false;
  };
  for (const Case& each :
       {Case{{.commands = 5}, {.commands = 5}, 256, true}, Case{{.commands = 5}, {.commands = 5 + kMost}, 0, true},
        Case{{.commands = 5}, {.commands = 4}}, Case{{}, {.commands = kMost + 1}}, Case{{}, {.failures = kAllOnes}},
        Case{{.skipped_unknown = 1}, {}}, Case{{.replies = 1}, {}},
        Case{{.failures_by_scope = {0, 1, 0}}, {.failures_by_scope = {1, 0, 0}}}, Case{{}, {}, 257},
        Case{{}, {}, kAllOnes}}) {
    SCOPED_TRACE(fmt::format("{} to {} commands, {} wait", each.first.commands, each.second.commands, each.waiting));
    Ran first, second;
    first.devices.all = second.devices.all = 1;
    first.counts = each.first;
    second.counts = each.second;
    second.waiting = each.waiting;
    Words words;
    ProcessSession session(words, {.channels = 4, .credits = 64, .held_results = 1000},
                           program_that_ran(second, saying(FrameType::kRan, std::as_bytes(std::span(&first, 1)))),
                           account_with_page());
    session.take(hello_message({}), TrafficClass::kCommands);
    EXPECT_FALSE(session.run(SessionRunner::Clock::time_point::max(), 0));
    ASSERT_FALSE(session.is_over());
    session.take(hello_message({}), TrafficClass::kCommands);
    EXPECT_FALSE(session.run(SessionRunner::Clock::time_point::max(), 0));
    EXPECT_EQ(session.is_over(), !each.can_be);
    EXPECT_EQ(session.counts().commands, each.can_be ? each.second.commands : each.first.commands);
  }
}

// They are sent to the server's group, or its control group, and it drains.
TEST(ProcessSession, SignalsThatEndTheServerDoNotEndIt) {
  Ran ran;
  ran.devices.all = 1;
  Words words;
  ProcessSession session(words, {}, program_that_ran(ran, "kill -INT $$; kill -TERM $$; kill -HUP $$"),
                         account_with_page());
  session.take(hello_message({}), TrafficClass::kCommands);
  EXPECT_FALSE(session.run(SessionRunner::Clock::time_point::max(), 0));
  EXPECT_FALSE(session.is_over()) << words.refusal().to_string();
}

TEST(ProcessSession, WhatItPrintsNobodySees) {
  Ran ran;
  ran.devices.all = 1;
  Words words;
  ProcessSession session(
      words, {},
      program_that_ran(ran, "test /proc/self/fd/0 -ef /dev/null && test /proc/self/fd/1 -ef /dev/null || exit 1"),
      account_with_page());
  session.take(hello_message({}), TrafficClass::kCommands);
  EXPECT_FALSE(session.run(SessionRunner::Clock::time_point::max(), 0));
  EXPECT_FALSE(session.is_over()) << words.refusal().to_string();
}

TEST(ProcessSession, WhatItWroteOverOfItsTenantIsAsBeforeWhenItHasEnded) {
  constexpr std::uint64_t kMost = 1000, kAllOnes = ~std::uint64_t{0};
  const std::shared_ptr<TenantAccount> account = account_with_page();
  account->limit_memory(kMost);
  const TenantMeter& meter = *account->meter;
  {
    Ran ran;
    ran.devices.all = 1;
    Words words;
    ProcessSession session(
        words, {},
        program_that_ran(ran, fmt::format("head -c {} /dev/zero | tr '\\0' '\\377' | dd of=/proc/self/fd/{} "
                                          "conv=notrunc status=none",
                                          sizeof(TenantMeter), kInheritedTenant)),
        account);
    session.take(hello_message({}), TrafficClass::kCommands);
    EXPECT_FALSE(session.run(SessionRunner::Clock::time_point::max(), 0));
    EXPECT_FALSE(session.is_over());
    EXPECT_EQ(meter.most_memory.load(), kAllOnes);
    EXPECT_EQ(meter.devices.back().slots.back().load(), kAllOnes);
  }
  EXPECT_EQ(meter.most_memory.load(), kMost);
  for (const DeviceMeter& device : meter.devices) EXPECT_EQ(device.memory(), 0u);
  // Also what it wrote there, or another that it began, behind its end.
  account->meter->most_memory.store(0);
  account->meter->devices[0].slots[DeviceMeter::kThreads].store(kAllOnes);
  EXPECT_TRUE(account->take_slot());
  EXPECT_EQ(meter.most_memory.load(), kMost);
  EXPECT_EQ(meter.devices[0].memory(), 0u);
}

// Where a page is shorter than its mapping, the server ends by SIGBUS when it looks there.
TEST(ProcessSession, WhatIsSharedWithItKeepsItsSize) {
  const std::shared_ptr<TenantAccount> account = account_with_page();
  Ran ran;
  ran.devices.all = 1;
  Words words;
  ProcessSession session(words, {},
                         program_that_ran(ran, fmt::format("truncate -s 0 /proc/self/fd/{} /proc/self/fd/{}",
                                                           kInheritedTenant, kInheritedSession)),
                         account);
  session.take(hello_message({}), TrafficClass::kCommands);
  EXPECT_FALSE(session.run(SessionRunner::Clock::time_point::max(), 0));
  ASSERT_FALSE(session.is_over());
  struct stat page{};
  ASSERT_EQ(::fstat(account->page.get(), &page), 0);
  ASSERT_EQ(page.st_size, static_cast<off_t>(sizeof(TenantMeter)));
  EXPECT_EQ(account->meter->devices.back().memory(), 0u);
  session.set_news(true);
}

}  // namespace
}  // namespace fairlead::datapath::command
