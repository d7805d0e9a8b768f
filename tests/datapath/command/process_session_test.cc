#include "datapath/command/process/process_session.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cerrno>

namespace fairlead::datapath::command {
namespace {

class Words final : public Outlet {
 public:
  void send(TrafficClass, Bytes message) override { said.emplace_back(message.begin(), message.end()); }
  [[nodiscard]] std::uint64_t untaken() override { return 0; }
  std::vector<std::vector<std::byte>> said;
};

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

}  // namespace
}  // namespace fairlead::datapath::command
