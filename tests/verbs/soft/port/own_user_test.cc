// Who counts as the same user, and what is taken from whom.
#include "base/system/own_user.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/fsuid.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <thread>

#include "verbs/soft/port/udp/shared_address.h"
#include "verbs/soft/port/udp/udp_socket.h"
#include "verbs/soft/wire/headers.h"

namespace fairlead::soft {
namespace {

constexpr uid_t kNobody = 65534;

// What a forked child says: 0 is what it should, 77 that it could not try.
int in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class OwnUser : public testing::Test {
 protected:
  OwnUser() : path_(std::filesystem::temp_directory_path() / ("fairlead_own_" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(path_);
  }
  ~OwnUser() override { std::filesystem::remove_all(path_); }
  // The sentence, "" if there is nothing wrong with it.
  [[nodiscard]] std::string refusal() const { return make_own_directory(path_).message(); }

  const std::string path_;
};

TEST_F(OwnUser, ADirectoryIsMadeForNobodyElse) {
  const mode_t before = ::umask(0);
  EXPECT_EQ(refusal(), "");
  ::umask(before);
  struct stat info{};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0700U);
  EXPECT_EQ(refusal(), "");
}

TEST_F(OwnUser, ADirectoryThatOthersMayUseIsRefused) {
  ASSERT_EQ(::mkdir(path_.c_str(), 0700), 0);
  ASSERT_EQ(::chmod(path_.c_str(), 0710), 0);
  EXPECT_NE(refusal().find("chmod 700 " + path_), std::string::npos) << refusal();
}

TEST_F(OwnUser, ALinkIsRefused) {
  std::filesystem::create_directory_symlink("/", path_);
  EXPECT_NE(refusal().find(path_ + " is no directory"), std::string::npos) << refusal();
}

TEST_F(OwnUser, ADirectoryOfAnotherUserIsRefusedNamingIt) {
  if (::getuid() != 0) GTEST_SKIP() << "needs root, to act as another user";
  ASSERT_EQ(::mkdir(path_.c_str(), 0700), 0);
  ASSERT_EQ(::chown(path_.c_str(), kNobody, kNobody), 0);
  EXPECT_NE(refusal().find("uid 65534 has the directory " + path_), std::string::npos) << refusal();
}

// In a user namespace that maps nobody, everybody is uid 65534.
TEST(SameUser, IsNotWhoIsUnknown) {
  EXPECT_TRUE(is_own_user(::geteuid()));
  EXPECT_FALSE(is_own_user(::geteuid() + 1));
  const int answer = in_child([] {
    if (::unshare(CLONE_NEWUSER) != 0 || ::geteuid() != kNobody) return 77;
    return is_own_user(kNobody) ? 1 : 0;
  });
  if (answer == 77) GTEST_SKIP() << "no user namespaces";
  EXPECT_EQ(answer, 0);
}

TEST(SameUser, WhoListensAtAPlaceMustBeIt) {
  if (::getuid() != 0) GTEST_SKIP() << "needs root, to act as another user";
  const auto names = GroupNames::open(Gid::from_ipv4(0x7f500000 | static_cast<std::uint32_t>(::getpid() & 0xffff)));
  ASSERT_TRUE(names) << names.error().message();
  UniqueFd listener;
  ASSERT_EQ(::seteuid(kNobody), 0);  // whom the system notes as the listener
  ::setfsuid(0);                     // who takes the name
  auto taken = names->listen_as(3);
  ASSERT_EQ(::seteuid(0), 0);
  ASSERT_TRUE(taken) << taken.error().message();
  const auto refused = names->connect_to(3);
  names->leave(3);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kPermissionDenied);
  EXPECT_NE(refused.error().message().find("of uid 65534 holds"), std::string::npos) << refused.error().message();
}

// Whoever gets as far as to a member's socket, past the directory, has nothing of it.
TEST(SameUser, WhoAsksAMemberMustBeIt) {
  if (::getuid() != 0) GTEST_SKIP() << "needs root, to act as another user";
  const UniqueFd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  constexpr socklen_t kSize = sizeof(sa_family_t);  // of no name: the system gives one
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&at), kSize), 0);
  ASSERT_EQ(::listen(listener.get(), 2), 0);
  socklen_t size = sizeof(at);
  ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&at), &size), 0);
  for (const uid_t who : {uid_t{0}, kNobody}) {
    UniqueFd asker(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::seteuid(who), 0);
    const int connected = ::connect(asker.get(), reinterpret_cast<const sockaddr*>(&at), size);
    ASSERT_EQ(::seteuid(0), 0);
    ASSERT_EQ(connected, 0) << std::strerror(errno);
    std::thread member([&] {
      const UniqueFd connection(::accept(listener.get(), nullptr, nullptr));
      const std::array<int, 1> shared{listener.get()};
      answer_with_sockets(connection.get(), shared);
    });
    const auto sockets = ask_for_sockets(asker.get(), 1);
    member.join();
    EXPECT_EQ(static_cast<bool>(sockets), who == 0) << who;
  }
}

class GroupSocket : public testing::Test {
 protected:
  void SetUp() override {
    socket_ = open_udp_socket(kAddress, kRoceUdpPort, PortUse::kShared);
    if (!socket_) GTEST_SKIP() << "the address is in use: " << std::strerror(errno);
  }
  [[nodiscard]] bool belongs() const { return belongs_to_group(socket_.get(), kAddress); }

  const Gid kAddress = Gid::from_ipv4(0x7f510000 | static_cast<std::uint32_t>(::getpid() & 0xffff));
  UniqueFd socket_;
};

TEST_F(GroupSocket, Belongs) { EXPECT_TRUE(belongs()); }

TEST_F(GroupSocket, OfAnotherAddressOrPortDoesNot) {
  EXPECT_FALSE(belongs_to_group(socket_.get(), Gid::from_ipv4(kAddress.ipv4() ^ 0x20000)));
  socket_ = open_udp_socket(kAddress, 0, PortUse::kShared);
  EXPECT_FALSE(belongs());
}

TEST_F(GroupSocket, ThatIsNotSharedDoesNot) {
  socket_.reset();
  socket_ = open_udp_socket(kAddress, kRoceUdpPort, PortUse::kReceive);
  EXPECT_FALSE(belongs());
}

TEST_F(GroupSocket, ThatIsConnectedDoesNot) {
  const SocketAddress peer(Gid::from_ipv4(0x7f000001), 9);
  ASSERT_EQ(::connect(socket_.get(), peer.get(), peer.size()), 0);
  EXPECT_FALSE(belongs());
}

TEST_F(GroupSocket, OfAnotherProtocolDoesNot) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), 0);
  EXPECT_FALSE(belongs_to_group(pair[0], kAddress));
  ::close(pair[0]);
  ::close(pair[1]);
  const int tcp = ::socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_FALSE(belongs_to_group(tcp, kAddress));
  ::close(tcp);
  EXPECT_FALSE(belongs_to_group(-1, kAddress));
}

// A member that shares another socket than the address's: of an older version, or one that was taken over.
TEST_F(GroupSocket, ThatDoesNotBelongIsNotTakenFromAMember) {
  const auto names = GroupNames::open(kAddress);
  ASSERT_TRUE(names) << names.error().message();
  const UniqueFd other = open_udp_socket(kAddress, 0, PortUse::kShared);
  ASSERT_TRUE(other);
  const auto name = names->listen_as(0);
  ASSERT_TRUE(name) << name.error().message();
  std::atomic<bool> ended{false};
  std::thread member([&] {
    while (!ended) {
      const UniqueFd connection(::accept(name->get(), nullptr, nullptr));
      const std::array<int, 1> shared{other.get()};
      if (connection) answer_with_sockets(connection.get(), shared);
    }
  });
  const auto joined = SharedAddress::join(kAddress, 1);
  ended = true;
  ::shutdown(name->get(), SHUT_RDWR);
  member.join();
  names->leave(0);
  ASSERT_FALSE(joined) << "it steers and receives by a socket of another port";
  EXPECT_EQ(joined.error().code(), Code::kPermissionDenied);
  EXPECT_NE(joined.error().message().find("is no socket for"), std::string::npos) << joined.error().message();
}

// The system lets a user send from an address of another's, but the port must be the user's at some address.
TEST(SenderPort, IsNobodyElsesAtAnyAddress) {
  if (::getuid() != 0) GTEST_SKIP() << "needs root, to act as another user";
  Gid own;
  const auto bound = bind_free_loopback(own);
  ASSERT_TRUE(bound) << bound.error().message();
  const std::uint16_t port = host_sender_port(own);
  const UniqueFd guard = guard_sender_port(port);
  ASSERT_TRUE(guard) << std::strerror(errno);
  EXPECT_TRUE(guard_sender_port(port)) << "the same user's next device";
  const auto try_all = [&] {
    if (::setuid(kNobody) != 0) return 77;
    Gid loopback6;
    loopback6.bytes[15] = 1;
    int taken = 0;
    for (const Gid& at : {own, Gid::from_ipv4(0x7f630001), Gid::from_ipv4(0), loopback6, Gid()}) {
      for (const PortUse use : {PortUse::kSend, PortUse::kSendShared}) {
        errno = 0;
        if (open_udp_socket(at, port, use) || errno == EACCES) ++taken;
      }
    }
    return taken + (guard_sender_port(port) ? 1 : 0);
  };
  EXPECT_EQ(in_child(try_all), 0);
}

}  // namespace
}  // namespace fairlead::soft
