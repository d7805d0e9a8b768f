#include "datapath/command/process/process_session.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cerrno>

#include "datapath/command/process/inherited.h"

namespace fairlead::datapath::command {
namespace {

class Words final : public Outlet {
 public:
  void send(TrafficClass, Bytes message) override { said.emplace_back(message.begin(), message.end()); }
  [[nodiscard]] std::uint64_t untaken() override { return 0; }
  std::vector<std::vector<std::byte>> said;
};

/// A program that does this, says that it ran so, and then nothing any more.
std::vector<std::string> program_that_ran(const Ran& ran, const std::string& first = ":") {
  std::vector<std::byte> frame;
  put(frame, FrameHeader{FrameType::kRan, 0, sizeof ran});
  put(frame, ran);
  std::string text;
  for (const std::byte byte : frame) text += fmt::format("\\{:03o}", static_cast<unsigned>(byte));
  return {"/bin/sh", "-c", fmt::format("{}; printf '{}' >&{}; exec sleep 1000", first, text, kInheritedSocket)};
}

std::shared_ptr<TenantAccount> account_with_page() {
  auto account = std::make_shared<TenantAccount>();
  SharedPage<TenantMeter> page = *SharedPage<TenantMeter>::create();
  account->meter = page.value;
  account->page = std::move(page.fd);
  return account;
}

/// A descriptor more each time, until one is enough.
TEST(ProcessSession, TooFewDescriptorsRefuseItAndLeaveNothing) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizers need descriptors of their own";
#endif
  const std::shared_ptr<TenantAccount> account = account_with_page();
  const int lowest = ::dup(0);
  ASSERT_GE(lowest, 0);
  ::close(lowest);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  int refused = 0;
  for (int more = 0, began = 0; began == 0; ++more) {
    ASSERT_LT(more, 100);
    Words words;
    bool is_over = false;
    {
      ProcessSession session(words, {}, {"/bin/sleep", "1000"}, account);
      const rlimit few{static_cast<rlim_t>(lowest + more), before.rlim_max};
      ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
      session.take(hello_message({}), TrafficClass::kCommands);
      ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
      is_over = session.is_over();
    }
    EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a process is left, with " << more << " descriptors";
    EXPECT_EQ(errno, ECHILD);
    (is_over ? refused : began) += 1;
    EXPECT_EQ(words.said.size(), is_over ? 1u : 0u) << "who is refused is told";
  }
  EXPECT_GE(refused, 3);
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
    const Status why = refusal_in(Bytes(words.said[0]).subspan(sizeof(MessageHeader)));
    EXPECT_EQ(why.code(), Code::kAborted) << why.to_string();
  }
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
