#include "shm/meeting/listener.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>

#include "base/system/unix_packets.h"
#include "fairlead/log.h"
#include "shm/meeting/socket.h"
#include "tests/out_of_descriptors.h"
#include "tests/shm/own_directory.h"

namespace fairlead::shm {
namespace {

/// The exit code of a child that runs `body`.
int in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(50);
    ::_exit(body());
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class ShmListener : public testing::Test {
 protected:
  ShmListener() {
    auto opened = Listener::open(place_, clock_);
    EXPECT_TRUE(opened) << opened.status().to_string();
    listener_.emplace(std::move(*opened));
    name_ = socket_path(directory_.path(), listener_->number());
  }
  void advance() {
    listener_->advance([this](Guest& guest) {
      if (!equal(guest.greeting.token, token_)) return false;
      guests_.push_back(std::move(guest));
      return true;
    });
  }
  void greet(const PrivateFd& socket, const Token& token, bool with_memory = true) {
    GreetingBytes bytes;
    encode(Greeting{.token = token}, bytes);
    const UniqueFd memory(::memfd_create("test", MFD_CLOEXEC));
    ASSERT_TRUE(send_packet(socket.get(), bytes, with_memory ? memory.get() : -1));
  }
  PrivateFd come() {
    auto socket = dial(name_);
    EXPECT_TRUE(socket) << socket.status().to_string();
    return socket ? std::move(*socket) : PrivateFd();
  }

  OwnDirectory directory_;
  ManualClock clock_;
  Place place_{.directory = directory_.path(), .number = 1};
  std::optional<Listener> listener_;
  std::string name_;
  const Token token_ = random_token();
  std::vector<Guest> guests_;
};

TEST_F(ShmListener, HandsOverWhoHasTheTokenAndSaysWhoThatIs) {
  const PrivateFd socket = come();
  advance();
  EXPECT_TRUE(guests_.empty());
  greet(socket, token_);
  advance();
  ASSERT_EQ(guests_.size(), 1u);
  EXPECT_EQ(guests_[0].process.id, ::getpid());
  EXPECT_TRUE(guests_[0].segment);
  EXPECT_EQ(listener_->refused(), 0u);
}

TEST_F(ShmListener, DropsWhatIsNoGreetingOrForNobody) {
  const PrivateFd stranger = come(), empty = come(), noise = come(), gone = come();
  greet(stranger, random_token());
  greet(empty, token_, false);
  const std::array<std::byte, 100> bytes{};
  ASSERT_TRUE(send_packet(noise.get(), bytes));
  ::shutdown(gone.get(), SHUT_RDWR);
  advance();
  EXPECT_TRUE(guests_.empty());
  EXPECT_EQ(listener_->refused(), 4u);
}

TEST_F(ShmListener, NamesTheLimitWhereItHasNoDescriptorForTheMemory) {
  static int warnings = 0;
  set_log_sink([](LogLevel, std::string_view line) {  // it cannot accept either, and says so
    warnings += line.find("memory") != line.npos && line.find("ulimit -n") != line.npos ? 1 : 0;
  });
  const PrivateFd socket = come();
  advance();
  greet(socket, token_);
  {
    const fairlead::test::OutOfDescriptors limit;
    advance();
  }
  set_log_sink(nullptr);
  EXPECT_TRUE(guests_.empty());
  EXPECT_EQ(listener_->refused(), 1u);
  EXPECT_EQ(warnings, 1);
}

TEST_F(ShmListener, WaitsForNobodyForEver) {
  std::vector<PrivateFd> silent;
  for (std::size_t i = 0; i < Listener::kMaxUnknown + 3; ++i) {
    silent.push_back(come());
    advance();
  }
  EXPECT_EQ(listener_->refused(), 3u) << "the oldest made room";
  ASSERT_TRUE(listener_->deadline());
  clock_.advance(Listener::kGreetingTime);
  advance();
  EXPECT_EQ(listener_->refused(), silent.size());
  EXPECT_FALSE(listener_->deadline());
}

TEST_F(ShmListener, ItsNameGoesWithItAndNotWithAForkedChild) {
  EXPECT_EQ(directory_.entries(), 1u);
  EXPECT_EQ(in_child([this] {
              listener_.reset();
              return 0;
            }),
            0);
  EXPECT_EQ(directory_.entries(), 1u);
  EXPECT_TRUE(dial(name_));
  listener_.reset();
  EXPECT_EQ(directory_.entries(), 0u);
}

// As a system does that sweeps what a user has who is logged in no more.
TEST_F(ShmListener, ItsNameComesBackWhereItWasRemoved) {
  listener_->keep_name(place_);
  EXPECT_TRUE(come());
  std::filesystem::remove_all(directory_.path());
  EXPECT_FALSE(dial(name_));
  listener_->keep_name(place_);
  const PrivateFd socket = come();
  greet(socket, token_);
  advance();
  advance();
  EXPECT_EQ(guests_.size(), 1u);
}

TEST_F(ShmListener, TheNameOfOneWhoWasKilledIsSweptAndThoseOfTheLivingStay) {
  EXPECT_EQ(in_child([this] {
              auto lost = Listener::open(place_, clock_);
              return lost ? (new Listener(std::move(*lost)), 0) : 1;
            }),
            0);
  EXPECT_EQ(directory_.entries(), 2u);
  // And one that was killed between.
  const std::string between = directory_.path() + "/shm-0123456789abcdef.new";
  ASSERT_TRUE(listen_at(between));
  const timespec old[2] = {{1'000'000, 0}, {1'000'000, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, between.c_str(), old, 0), 0);
  EXPECT_EQ(directory_.entries(), 3u);
  sweep(place_);
  EXPECT_EQ(directory_.entries(), 1u);
  EXPECT_TRUE(dial(name_));
}

TEST(ShmListenerPlace, ANameThatIsTooLongSaysSo) {
  const auto refused = listen_at("/tmp/" + std::string(200, 'x'));
  EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
  EXPECT_NE(refused.status().message().find("shm.directory"), std::string::npos);
}

// Another user does not get past the directory; one who did (here all is opened to it) is told from the owner by the
// kernel.
TEST_F(ShmListener, AnotherUserCanNeitherJoinNorKeepOthersOut) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root becomes another user";
  EXPECT_EQ(in_child([this] {
              if (::setgid(65534) != 0 || ::setuid(65534) != 0) return 1;
              return dial(name_).status().code() == Code::kPermissionDenied ? 0 : 2;
            }),
            0);
  ASSERT_EQ(::chmod(name_.c_str(), 0777) | ::chmod(directory_.path().c_str(), 0711), 0);
  std::array<int, 2> ready{}, end{};
  ASSERT_EQ(::pipe2(ready.data(), O_CLOEXEC) | ::pipe2(end.data(), O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(50);
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(1);
    std::vector<PrivateFd> all;
    for (int i = 0; i < 200; ++i) {  // more than may wait to be accepted
      auto socket = dial(name_);
      if (!socket) continue;
      GreetingBytes bytes;
      encode(Greeting{.token = token_}, bytes);
      (void)send_packet(socket->get(), bytes);
      all.push_back(std::move(*socket));
    }
    char byte = all.empty() ? 'n' : 'y';
    (void)!::write(ready[1], &byte, 1);
    (void)!::read(end[0], &byte, 1);
    ::_exit(0);
  }
  char got = 0;
  ASSERT_EQ(::read(ready[0], &got, 1), 1);
  EXPECT_EQ(got, 'y') << "it could not try";
  for (int turn = 0; turn < 20; ++turn) advance();
  EXPECT_GE(listener_->refused(), 100u);
  EXPECT_TRUE(guests_.empty());
  const PrivateFd socket = come();
  greet(socket, token_);
  advance();
  EXPECT_EQ(guests_.size(), 1u);
  EXPECT_EQ(::write(end[1], "e", 1), 1);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
}

}  // namespace
}  // namespace fairlead::shm
