// What the service manager is told.
#include "cli/server/service_manager.h"

#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

namespace fairlead::cli {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

// A manager's socket, abstract, and the environment that it gives a service.
class Manager {
 public:
  explicit Manager(const char* watchdog = nullptr, const char* whom = nullptr)
      : name_("@fairlead-test-" + std::to_string(::getpid())), fd_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un own{};
    own.sun_family = AF_UNIX;
    std::memcpy(own.sun_path + 1, name_.data() + 1, name_.size() - 1);
    EXPECT_EQ(::bind(fd_.get(), reinterpret_cast<sockaddr*>(&own),
                     static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name_.size())),
              0);
    ::setenv("NOTIFY_SOCKET", name_.c_str(), 1);
    if (watchdog != nullptr) ::setenv("WATCHDOG_USEC", watchdog, 1);
    if (whom != nullptr) ::setenv("WATCHDOG_PID", whom, 1);
  }
  std::string hears() {
    char buffer[1024];
    const ssize_t got = ::recv(fd_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    return got < 0 ? "" : std::string(buffer, static_cast<std::size_t>(got));
  }

 private:
  std::string name_;
  UniqueFd fd_;
};

TEST(ServiceManager, HearsWhatHappens) {
  Manager manager;
  ServiceManager service = ServiceManager::from_environment();
  EXPECT_TRUE(service.is_there());
  EXPECT_EQ(std::getenv("NOTIFY_SOCKET"), nullptr) << "processes of the server's must not speak for it";
  service.starting("loading", std::chrono::seconds(2));
  EXPECT_EQ(manager.hears(), "STATUS=loading\nEXTEND_TIMEOUT_USEC=2000000");
  service.ready("listening\nREADY=0");
  EXPECT_EQ(manager.hears(), "READY=1\nSTATUS=listening\\nREADY=0") << "one line each, whatever it says";
  service.reloading();
  EXPECT_THAT(manager.hears(), StartsWith("RELOADING=1\nMONOTONIC_USEC="));
  service.stopping("draining", std::chrono::seconds(30));
  EXPECT_THAT(manager.hears(), AllOf(StartsWith("STOPPING=1\n"), EndsWith("\nEXTEND_TIMEOUT_USEC=30000000")));
  service.alive();
  EXPECT_EQ(manager.hears(), "") << "it has no watchdog";
  EXPECT_EQ(service.poll_ms(), -1);
}

TEST(ServiceManager, TheWatchdogHearsTwiceInItsTime) {
  Manager manager("60000000", std::to_string(::getpid()).c_str());
  ServiceManager service = ServiceManager::from_environment();
  EXPECT_EQ(service.poll_ms(), 0);
  service.alive();
  EXPECT_EQ(manager.hears(), "WATCHDOG=1");
  service.alive();
  EXPECT_EQ(manager.hears(), "") << "not due";
  EXPECT_GT(service.poll_ms(), 0);
  EXPECT_LE(service.poll_ms(), 30'000);
}

TEST(ServiceManager, AWatchdogOfAnotherProcessIsNotOurs) {
  Manager manager("1000", "1");
  EXPECT_EQ(ServiceManager::from_environment().poll_ms(), -1);
}

TEST(ServiceManager, NobodyIsThere) {
  for (const char* address : {"", "relative", "/", "@"}) {
    ::setenv("NOTIFY_SOCKET", address, 1);
    EXPECT_FALSE(ServiceManager::from_environment().is_there()) << address;
  }
  ::setenv("NOTIFY_SOCKET", std::string(200, '/').c_str(), 1);
  EXPECT_FALSE(ServiceManager::from_environment().is_there());
  ::setenv("NOTIFY_SOCKET", "/nowhere/notify", 1);
  ServiceManager service = ServiceManager::from_environment();
  service.ready("x");  // to a socket that is gone: nothing comes of it
  EXPECT_TRUE(service.is_there());
}

}  // namespace
}  // namespace fairlead::cli
