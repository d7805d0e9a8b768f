// What other users of the host try: to give a device their socket, to take the names that it needs, to pass as its
// peer.
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <mutex>

#include "fairlead/log.h"
#include "tests/verbs/soft/endpoint.h"
#include "verbs/soft/port/udp/udp_socket.h"
#include "verbs/soft/wire/icrc.h"
#include "verbs/soft/wire/packet.h"

namespace fairlead::soft::test {
namespace {

constexpr uid_t kNobody = 65534;

const std::string& address() {
  static const std::string kAddress = "127.79.0." + std::to_string(1 + ::getpid() % 250);
  return kAddress;
}

std::mutex g_mutex;
std::string g_log;

ibv_context* open_at_address() {
  static int count = 0;
  const auto device = find_or_add_device({"other" + std::to_string(count++), Profile::kFull, "udp", address()});
  EXPECT_TRUE(device);
  g_log.clear();
  set_log_sink([](LogLevel, std::string_view line) {
    const std::lock_guard lock(g_mutex);
    g_log.append(line).append("\n");
  });
  errno = 0;
  ibv_context* context = api().open_device(*device);
  set_log_sink(nullptr);
  return context;
}

// A process of another user that has done its part, and lives until this goes.
class Other {
 public:
  /// `serve` runs on when the part is done.
  explicit Other(const std::function<bool()>& part, const std::function<void()>& serve = {}) {
    static_cast<void>(address());
    int pipe[2];
    EXPECT_EQ(::pipe(pipe), 0);
    process_ = ::fork();
    if (process_ == 0) {
      const bool done = ::setgid(kNobody) == 0 && ::setuid(kNobody) == 0 && part();
      if (::write(pipe[1], &done, 1) != 1) ::_exit(1);
      if (serve) serve();
      ::pause();
      ::_exit(0);
    }
    ::close(pipe[1]);
    EXPECT_EQ(::read(pipe[0], &done_, 1), 1);
    ::close(pipe[0]);
  }
  ~Other() {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  [[nodiscard]] bool done() const { return done_; }

 private:
  pid_t process_ = -1;
  bool done_ = false;
};

class OtherUsers : public testing::Test {
 protected:
  void SetUp() override {
    if (::getuid() != 0) GTEST_SKIP() << "needs root, to act as another user";
  }
};

// Names of the abstract space are whoever's comes first.
int abstract_socket(const std::string& name, int type) {
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  name.copy(at.sun_path + 1, sizeof(at.sun_path) - 1);
  const int fd = ::socket(AF_UNIX, type, 0);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return ::bind(fd, reinterpret_cast<const sockaddr*>(&at), size) == 0 ? fd : -1;
}

TEST_F(OtherUsers, GiveADeviceNoSocketOfTheirs) {
  int listener = -1;
  int socket = -1;
  const auto take_everything = [&] {
    const Gid gid = Gid::from_ipv4(0x7f4f0000 | (1 + static_cast<std::uint32_t>(::getppid()) % 250));
    UniqueFd udp = open_udp_socket(gid, kRoceUdpPort, PortUse::kShared);
    socket = udp.release();
    listener = abstract_socket("fairlead-roce/0/" + address() + "/1", SOCK_SEQPACKET);
    return socket >= 0 && listener >= 0 && ::listen(listener, 64) == 0;
  };
  const auto give_it_away = [&] {
    while (true) {
      const int asker = ::accept(listener, nullptr, nullptr);
      char byte = 0;
      if (::recv(asker, &byte, 1, 0) == 1) {
        iovec iov{&byte, 1};
        const std::array<int, 2> sockets{socket, socket};  // of a place that is free, and of its own
        alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(sockets))> control{};
        msghdr answer{nullptr, 0, &iov, 1, control.data(), control.size(), 0};
        cmsghdr* rights = CMSG_FIRSTHDR(&answer);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(sockets));
        std::memcpy(CMSG_DATA(rights), sockets.data(), sizeof(sockets));
        ::sendmsg(asker, &answer, MSG_NOSIGNAL);
      }
      ::close(asker);
    }
  };
  const Other other(take_everything, give_it_away);
  ASSERT_TRUE(other.done());
  ibv_context* context = open_at_address();
  EXPECT_EQ(context, nullptr) << "the device works on another user's socket";
  EXPECT_EQ(errno, EADDRINUSE);
  EXPECT_NE(g_log.find("of uid 65534"), std::string::npos) << g_log;
  if (context != nullptr) api().close_device(context);
}

TEST_F(OtherUsers, KeepNobodyOutByTakingNames) {
  const Other other([] { return abstract_socket("fairlead-roce/0/" + address() + "/join", SOCK_DGRAM) >= 0; });
  ASSERT_TRUE(other.done());
  ibv_context* context = open_at_address();
  ASSERT_NE(context, nullptr) << g_log;
  EXPECT_EQ(api().close_device(context), 0);
}

// Any user may send from any loopback address, but from no port that another has there.
TEST_F(OtherUsers, DoNotPassAsAPeer) {
  Endpoint a(open_udp());
  Endpoint b(open_udp());
  connect(a, b);
  const Gid from = Gid::from_verbs(a.gid());
  const Gid to = Gid::from_verbs(b.gid());
  const std::uint64_t received = b.counter("rcvd_pkts");
  const Other other([&] {
    std::array<std::byte, Bth::kBytes + kIcrcBytes> packet{};
    Bth bth;
    bth.opcode = 0x04;  // RC SEND only
    bth.dest_qpn = b.qp->qp_num;
    bth.psn = Psn(0xfffff0);
    bth.encode(packet.data());
    UniqueFd socket = open_udp_socket(from, 0, PortUse::kSend);
    SocketAddress bound;
    socklen_t size = sizeof(sockaddr_in6);
    if (!socket || ::getsockname(socket.get(), bound.get(), &size) != 0) return false;
    const UdpFrame frame{from, to, bound.port(), kRoceUdpPort, 0, packet.size()};
    store_icrc(packet.data() + Bth::kBytes, icrc(frame, std::span(packet).first(Bth::kBytes)));
    const SocketAddress where(to, kRoceUdpPort);
    return ::sendto(socket.get(), packet.data(), packet.size(), 0, where.get(), where.size()) > 0;
  });
  ASSERT_TRUE(other.done());
  ASSERT_TRUE(drive(a, b, [&] { return b.counter("rcvd_pkts") > received && b.counter("drop_wrong_source") != 0; }));
  EXPECT_EQ(b.counter("drop_wrong_source"), 1U);
  EXPECT_EQ(b.counter("send_rnr_err"), 0U) << "the other user's SEND was taken";
  ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, 1, 0, 100'000, &b, 0), 0);
  ASSERT_TRUE(drive(a, b, [&] { return a.done.size() == 1; }));
  EXPECT_EQ(a.done[0].status, IBV_WC_SUCCESS);
}

}  // namespace
}  // namespace fairlead::soft::test
