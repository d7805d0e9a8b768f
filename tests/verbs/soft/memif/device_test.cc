// Devices on a memif: frames, sleep, and peers that end, stop, lie or are none.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <thread>

#include "base/system/unix_packets.h"
#include "tests/verbs/soft/memif/dial.h"
#include "verbs/soft/port/memif/memif_device.h"

namespace fairlead::soft::memif::test {
namespace {

using testing::HasSubstr;
using Device = std::unique_ptr<MemifDevice>;

std::string new_name() {
  static int number = 0;
  return fmt::format("fairlead-memif-test-{}-{}", ::getpid(), number++);
}

Device open(Role role, const std::string& socket, const Settings& wire = {}) {
  auto device = MemifDevice::open({.role = role, .socket = socket, .wire = wire});
  EXPECT_TRUE(device) << device.error().message();
  return std::move(*device);
}

std::vector<std::vector<std::byte>> take(MemifDevice& device) {
  std::array<std::span<const std::byte>, 64> frames;
  const std::size_t count = device.receive(frames);
  std::vector<std::vector<std::byte>> made;
  for (const auto& each : std::span(frames).first(count)) made.emplace_back(each.begin(), each.end());
  return made;
}

/// How many of so many frames it took.
std::size_t send(MemifDevice& device, std::size_t frames, std::uint32_t bytes, unsigned first = 0,
                 bool urgent = false) {
  std::size_t taken = 0;
  for (std::size_t done = 0; done < frames;) {
    std::array<std::byte*, 32> rooms;
    std::array<std::uint32_t, 32> sizes;
    const auto wanted = std::span(rooms).first(std::min(rooms.size(), frames - done));
    const std::size_t got = urgent ? device.reserve_urgent(wanted) : device.reserve(wanted);
    for (std::size_t i = 0; i < got; ++i) {
      std::memset(rooms[i], static_cast<int>(first + done + i), bytes);
      sizes[i] = bytes;
    }
    taken += device.send(std::span(sizes).first(got));
    done += got;
  }
  return taken;
}

/// Until it is so, once: it may take what shows it. Fails after a while.
void await(const std::function<bool()>& so) {
  for (int i = 0; i < 20'000; ++i) {
    if (so()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ADD_FAILURE() << "it did not come to be so in 20 s";
}

struct Pair {
  explicit Pair(const Settings& of_client = {}) : client_settings(of_client) { join(); }
  void join() {
    if (!server) server = open(Role::kMaster, name);
    if (!client) client = open(Role::kSlave, name, client_settings);
    await([this] { return tend(); });
  }
  bool tend() {
    server->tend();
    client->tend();
    return server->link_up() && client->link_up();
  }
  std::string name = new_name();
  Settings client_settings;
  Device server, client;
};

TEST(MemifDevice, FramesCrossBothWays) {
  Pair pair;
  for (const auto& [from, to] : {std::pair{&*pair.server, &*pair.client}, std::pair{&*pair.client, &*pair.server}}) {
    for (unsigned round = 0; round < 100; ++round) {
      EXPECT_EQ(send(*from, 20, 64 + round, round), 20U);
      const auto got = take(*to);
      ASSERT_EQ(got.size(), 20U);
      for (unsigned i = 0; i < 20; ++i) {
        EXPECT_EQ(got[i], std::vector<std::byte>(64 + round, static_cast<std::byte>(round + i)));
      }
    }
  }
}

TEST(MemifDevice, WhatIsSentBeforeThereIsAPeerWaitsForIt) {
  const std::string name = new_name();
  const Device server = open(Role::kMaster, name);
  EXPECT_EQ(send(*server, 600, 100), 512U);
  const Device client = open(Role::kSlave, name);
  std::vector<std::vector<std::byte>> came;
  await([&] {
    server->tend();
    client->tend();
    take(*server);
    for (auto& frame : take(*client)) came.push_back(std::move(frame));
    return came.size() == 512;
  });
  EXPECT_EQ(came.front().front(), std::byte{0});
  EXPECT_EQ(came.back().front(), std::byte{511 & 255});
}

TEST(MemifDevice, WhatIsUrgentPassesTheRest) {
  for (const bool to_server : {true, false}) {
    Pair pair({.log2_slots = 4});
    MemifDevice& from = to_server ? *pair.client : *pair.server;
    MemifDevice& to = to_server ? *pair.server : *pair.client;
    ASSERT_TRUE(from.sets_apart() && to.sets_apart());
    EXPECT_EQ(send(from, 30, 80), 30U) << "more than the ring takes";
    EXPECT_EQ(send(from, 3, 90, 100, true), 3U);
    EXPECT_EQ(take(to).size(), 3U);
    EXPECT_EQ(send(from, 3, 90, 100, true), 3U);
    EXPECT_EQ(take(to).size(), 16U) << "in turn";
    EXPECT_EQ(take(to).size(), 3U);
    EXPECT_EQ(take(to).size(), 0U);
    EXPECT_EQ(send(from, 30, 90, 100, true), 30U) << "these wait, too";
    std::array<std::span<const std::byte>, 64> frames;
    EXPECT_EQ(to.receive_urgent(frames), 16U);
    from.receive_urgent(frames);
    EXPECT_EQ(to.receive_urgent(frames), 0U) << "only a look at everything sends on what waited";
    take(from);
    EXPECT_EQ(to.receive_urgent(frames), 14U);
    EXPECT_EQ(frames[13][0], std::byte{129});
    EXPECT_EQ(to.receive_urgent(frames), 0U);
    EXPECT_EQ(take(to).size(), 14U);
  }
}

TEST(MemifDevice, WhoWaitsIsWokenByWhatIsUrgent) {
  Pair pair;
  for (const auto& [from, to] : {std::pair{&*pair.server, &*pair.client}, std::pair{&*pair.client, &*pair.server}}) {
    await([&] {  // what else there was to say
      take(*to);
      pollfd quiet{to->wait_fd(), POLLIN, 0};
      return to->prepare_to_wait() && ::poll(&quiet, 1, 5) == 0;
    });
    EXPECT_EQ(send(*from, 1, 100, 7, true), 1U);
    pollfd woken{to->wait_fd(), POLLIN, 0};
    EXPECT_EQ(::poll(&woken, 1, 20'000), 1);
    EXPECT_EQ(take(*to).size(), 1U);
    EXPECT_EQ(send(*from, 1, 100, 7, true), 1U);
    EXPECT_FALSE(to->prepare_to_wait()) << "it is there already";
    EXPECT_EQ(take(*to).size(), 1U);
  }
}

// The first ones before there is a peer: nobody knows yet how many ways it has.
TEST(MemifDevice, WhatIsUrgentWaitsForThePeerToo) {
  const std::string name = new_name();
  const Device server = open(Role::kMaster, name);
  EXPECT_FALSE(server->sets_apart());
  EXPECT_EQ(send(*server, 2, 100, 1), 2U);
  EXPECT_EQ(send(*server, 2, 100, 3, true), 2U);
  const Device client = open(Role::kSlave, name);
  std::vector<std::byte> came;
  await([&] {
    server->tend();
    client->tend();
    take(*server);
    for (auto& frame : take(*client)) came.push_back(frame.front());
    return came.size() == 4;
  });
  EXPECT_THAT(came, testing::UnorderedElementsAre(std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}));
}

TEST(MemifDevice, GapsClose) {
  Pair pair;
  std::array<std::byte*, 4> rooms;
  ASSERT_EQ(pair.client->reserve(rooms), 4U);
  for (std::size_t i = 0; i < 4; ++i) std::memset(rooms[i], static_cast<int>(i), 100);
  EXPECT_EQ(pair.client->send(std::array<std::uint32_t, 4>{0, 100, 0, 50}), 2U);
  const auto got = take(*pair.server);
  ASSERT_EQ(got.size(), 2U);
  EXPECT_EQ(got[0], std::vector<std::byte>(100, std::byte{1}));
  EXPECT_EQ(got[1], std::vector<std::byte>(50, std::byte{3}));
}

TEST(MemifDevice, WhatAFullRingDoesNotTakeWaitsUpToALimit) {
  for (const bool to_server : {true, false}) {
    Pair pair({.log2_slots = 4});
    MemifDevice& from = to_server ? *pair.client : *pair.server;
    MemifDevice& to = to_server ? *pair.server : *pair.client;
    EXPECT_EQ(send(from, 600, 80), 16U + 512U);
    unsigned seen = 0;
    for (int i = 0; i < 100 && seen < 528; ++i) {
      for (const auto& frame : take(to)) EXPECT_EQ(frame[0], static_cast<std::byte>(seen++));
      take(from);
    }
    EXPECT_EQ(seen, 528U);
    EXPECT_TRUE(take(to).empty());
    EXPECT_EQ(send(from, 1, 80), 1U);
    EXPECT_EQ(take(to).size(), 1U);
  }
}

// Buffers of 2048 bytes are what others have.
TEST(MemifDevice, FramesLongerThanThePeersBuffersCross) {
  Pair pair({.buffer_bytes = 2048});
  EXPECT_EQ(send(*pair.server, 3, 4200, 7), 3U);
  for (unsigned i = 0; i < 3; ++i) {
    const auto got = take(*pair.client);
    ASSERT_EQ(got.size(), 1U);
    EXPECT_EQ(got[0], std::vector<std::byte>(4200, static_cast<std::byte>(7 + i)));
  }
}

bool readable(const MemifDevice& device, int milliseconds) {
  pollfd fd{device.wait_fd(), POLLIN, 0};
  return ::poll(&fd, 1, milliseconds) == 1;
}

TEST(MemifDevice, WhoWaitsIsWokenAndWhoPollsIsNot) {
  Pair pair;
  for (const auto& [from, to] : {std::pair{&*pair.server, &*pair.client}, std::pair{&*pair.client, &*pair.server}}) {
    const auto settle = [&, to = to] {
      await([&] {
        take(*to);
        return to->prepare_to_wait() && !readable(*to, 5);
      });
    };
    settle();
    EXPECT_EQ(send(*from, 1, 64), 1U);
    EXPECT_TRUE(readable(*to, 10'000));
    EXPECT_EQ(take(*to).size(), 1U);
    EXPECT_EQ(send(*from, 1, 64), 1U);
    EXPECT_FALSE(to->prepare_to_wait()) << "something is there already";
    EXPECT_EQ(take(*to).size(), 1U);
    settle();
  }
}

// The waiter would sleep on, with its wake swallowed and no other asked for.
TEST(MemifDevice, WhoPollsBesideAWaiterWakesIt) {
  Pair pair;
  for (const auto& [from, to] : {std::pair{&*pair.server, &*pair.client}, std::pair{&*pair.client, &*pair.server}}) {
    std::thread([&, to = to] {
      await([&] {
        take(*to);
        return to->prepare_to_wait() && !readable(*to, 5);
      });
    }).join();
    EXPECT_TRUE(take(*to).empty());
    EXPECT_FALSE(readable(*to, 0)) << "nothing has happened";
    EXPECT_EQ(send(*from, 1, 64), 1U);
    EXPECT_EQ(take(*to).size(), 1U);
    to->tend();
    EXPECT_TRUE(readable(*to, 10'000));
  }
}

// What does not fit into its ring waits, and is looked after ever less often: not by 10,000 wakes a second.
TEST(MemifDevice, APeerThatDoesNotReadWakesSeldom) {
  Pair pair({.log2_slots = 4});
  EXPECT_EQ(send(*pair.client, 20, 80), 20U);
  int wakes = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
  for (; std::chrono::steady_clock::now() < end; ++wakes) {
    EXPECT_TRUE(take(*pair.client).empty());
    EXPECT_TRUE(pair.client->prepare_to_wait());
    EXPECT_TRUE(readable(*pair.client, 10'000));
  }
  EXPECT_LT(wakes, 30);
  EXPECT_EQ(take(*pair.server).size(), 16U);
  EXPECT_TRUE(take(*pair.server).empty()) << "which gives the slots back";
  EXPECT_TRUE(take(*pair.client).empty());
  EXPECT_EQ(take(*pair.server).size(), 4U);
}

TEST(MemifDevice, AnEndThatClosesIsNoticedAndMayComeAgain) {
  Pair pair;
  for (int i = 0; i < 3; ++i) {
    (i % 2 == 0 ? pair.client : pair.server).reset();
    MemifDevice& left = i % 2 == 0 ? *pair.server : *pair.client;
    EXPECT_TRUE(readable(left, 10'000)) << "who sleeps, too";
    await([&] {
      left.tend();
      return !left.link_up();
    });
    EXPECT_EQ(send(left, 3, 64), 0U);
    EXPECT_TRUE(take(left).empty());
    pair.join();
    EXPECT_EQ(send(*pair.client, 3, 64), 3U);
    EXPECT_EQ(take(*pair.server).size(), 3U);
  }
}

TEST(MemifDevice, ASecondClientWaitsOutside) {
  Pair pair;
  const Device other = open(Role::kSlave, pair.name);
  for (int i = 0; i < 10; ++i) {
    pair.tend();
    other->tend();
    EXPECT_FALSE(other->link_up());
  }
  EXPECT_EQ(send(*pair.client, 3, 64), 3U);
  EXPECT_EQ(take(*pair.server).size(), 3U);
  pair.client.reset();
  await([&] {
    other->tend();
    pair.server->tend();
    return other->link_up() && pair.server->link_up();
  });
}

TEST(MemifDevice, ItsSocketIsItsOwn) {
  const Device server = open(Role::kMaster, new_name());
  const std::string taken = new_name();
  const Device first = open(Role::kMaster, taken);
  EXPECT_THAT(MemifDevice::open({.role = Role::kMaster, .socket = taken}).error().message(), HasSubstr("name another"));
  const std::string folder = (std::filesystem::temp_directory_path() / new_name()).string();
  std::filesystem::create_directory(folder);
  const std::string file = folder + "/socket";
  {
    const Device at_file = open(Role::kMaster, file);
    EXPECT_TRUE(std::filesystem::is_socket(file));
    const Device client = open(Role::kSlave, file);
    await([&] {
      at_file->tend();
      client->tend();
      return client->link_up() && at_file->link_up();
    });
  }
  EXPECT_FALSE(std::filesystem::exists(file));
  EXPECT_THAT(MemifDevice::open({.role = Role::kMaster, .socket = folder + "/no/socket"}).error().message(),
              HasSubstr("there is no folder"));
  EXPECT_THAT(MemifDevice::open({.role = Role::kMaster, .socket = std::string(200, 'x')}).error().message(),
              HasSubstr("has 200"));
  std::filesystem::remove_all(folder);
}

// Another process as the other end, which does `what` once it is connected.
struct Other {
  Other(Role role, const std::string& name, const std::function<void(MemifDevice&)>& what) {
    pid = ::fork();
    if (pid != 0) return;
    auto device = MemifDevice::open({.role = role, .socket = name, .wire = {}});
    while (device && !(*device)->link_up()) {
      (*device)->tend();
      ::usleep(100);
    }
    if (device) what(**device);
    ::_exit(0);
  }
  ~Other() {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  pid_t pid;
};

TEST(MemifDevice, APeerThatIsKilledLeavesNothing) {
  for (const Role role : {Role::kMaster, Role::kSlave}) {
    const std::string name = new_name();
    const Device survivor = open(role, name);
    for (int i = 0; i < 5; ++i) {
      Other other(role == Role::kMaster ? Role::kSlave : Role::kMaster, name, [](MemifDevice& device) {
        while (true) {
          send(device, 32, 3000);
          take(device);
        }
      });
      await([&] {
        survivor->tend();
        return survivor->link_up() && !take(*survivor).empty();
      });
      ::kill(other.pid, SIGKILL);
      await([&] {
        survivor->tend();
        send(*survivor, 32, 3000);
        take(*survivor);
        return !survivor->link_up();
      });
    }
  }
}

TEST(MemifDevice, APeerThatIsStoppedKeepsNobody) {
  const std::string name = new_name();
  const Device survivor = open(Role::kMaster, name);
  Other other(Role::kSlave, name, [](MemifDevice& device) {
    while (true) take(device);
  });
  await([&] {
    survivor->tend();
    return survivor->link_up();
  });
  ::kill(other.pid, SIGSTOP);
  await([&] { return send(*survivor, 64, 3000) < 64; });  // the ring and the backlog are full, and nothing waits
  EXPECT_EQ(send(*survivor, 64, 3000), 0U);
  EXPECT_TRUE(survivor->link_up());
  ::kill(other.pid, SIGCONT);
  await([&] {
    take(*survivor);
    return send(*survivor, 1, 3000) == 1;
  });
}

// Neither end takes another user's process, though an abstract name is open to all.
TEST(MemifDevice, AnotherUsersProcessIsLetGo) {
  if (::geteuid() != 0) GTEST_SKIP() << "it takes another user, and root to become one";
  for (const Role role : {Role::kMaster, Role::kSlave}) {
    const std::string name = new_name();
    const pid_t stranger = ::fork();
    if (stranger == 0) {
      if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(2);
      auto device =
          MemifDevice::open({.role = role == Role::kMaster ? Role::kSlave : Role::kMaster, .socket = name, .wire = {}});
      for (int i = 0; device && i < 500; ++i) {
        (*device)->tend();
        if ((*device)->link_up()) ::_exit(1);
        ::usleep(1000);
      }
      ::_exit(device ? 0 : 3);
    }
    const Device ours = open(role, name);
    int status = -1;
    while (::waitpid(stranger, &status, WNOHANG) == 0) {
      ours->tend();
      EXPECT_FALSE(ours->link_up());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(status, 0);
  }
}

// Whoever has the name, another user among others, would have the client's descriptors by not coming to them.
TEST(MemifDevice, AServerThatGreetsNobodyIsDialedOnce) {
  const uid_t own = ::geteuid();
  for (const uid_t whose : {own, own == 0 ? uid_t{65534} : own}) {
    const std::string name = new_name();
    ASSERT_EQ(::seteuid(whose), 0);  // whom the system notes as the listener
    const PrivateFd server = listen_at(name);
    ASSERT_EQ(::seteuid(own), 0);
    const Device client = open(Role::kSlave, name);
    // A handshake takes a second at most, and the next may begin 0.1 s later.
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1500);
    while (std::chrono::steady_clock::now() < end) {
      client->tend();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::vector<UniqueFd> calls;
    const auto accept = [&] {
      UniqueFd call(::accept4(server.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!call) return false;
      calls.push_back(std::move(call));
      return true;
    };
    while (accept()) continue;
    ASSERT_EQ(calls.size(), 1U);
    EXPECT_EQ(::send(calls[0].get(), "x", 1, MSG_NOSIGNAL), 1);
    await([&] {
      client->tend();
      return accept();
    });
  }
}

TEST(MemifDevice, AChildOfForkHasNone) {
  Pair pair;
  const pid_t child = ::fork();
  if (child == 0) {
    const bool none = !pair.client->link_up() && take(*pair.client).empty() && send(*pair.client, 3, 64) == 0 &&
                      !pair.server->link_up();
    pair.client.reset();
    pair.server.reset();
    ::_exit(none ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(pair.tend());
  EXPECT_EQ(send(*pair.client, 3, 64), 3U);
  EXPECT_EQ(take(*pair.server).size(), 3U);
}

// Someone who holds the line and says nothing keeps others waiting for a second.
TEST(MemifDevice, WhoSaysNothingIsLetGo) {
  const std::string name = new_name();
  const Device server = open(Role::kMaster, name);
  const PrivateFd silent = dial(name);
  server->tend();
  const Device client = open(Role::kSlave, name);
  await([&] {
    server->tend();
    client->tend();
    return client->link_up() && server->link_up();
  });
}

TEST(MemifDevice, WhoSaysNonsenseIsLetGo) {
  const std::string name = new_name();
  const Device server = open(Role::kMaster, name);
  for (const std::size_t bytes :
       {std::size_t{1}, kMessageBytes - 1, kMessageBytes, kMessageBytes + 1, std::size_t{4096}}) {
    const PrivateFd odd = dial(name);
    ASSERT_TRUE(send_packet(odd.get(), std::vector<std::byte>(bytes, std::byte{0xee})));
    server->tend();
    std::array<std::byte, kMessageBytes> answer;
    UniqueFd none;
    EXPECT_TRUE(std::holds_alternative<Hello>(
        *decode(std::span(answer).first(receive_packet(odd.get(), answer, none).value_or(0)))));
    EXPECT_TRUE(std::holds_alternative<Disconnect>(
        *decode(std::span(answer).first(receive_packet(odd.get(), answer, none).value_or(0)))));
  }
  const Device client = open(Role::kSlave, name);
  await([&] {
    server->tend();
    client->tend();
    return client->link_up() && server->link_up();
  });
}

// More than that may come while one is answered, from anybody.
TEST(MemifDevice, StrangersAreAnsweredSoManyAtATime) {
  Pair pair;
  std::vector<PrivateFd> strangers;
  for (int i = 0; i < 17; ++i) strangers.push_back(dial(pair.name));
  const auto answered = [&] {
    return std::ranges::count_if(strangers, [](const PrivateFd& each) {
      pollfd fd{each.get(), POLLIN, 0};
      return ::poll(&fd, 1, 0) == 1;
    });
  };
  pair.server->tend();
  EXPECT_EQ(answered(), 16);
  take(*pair.server);
  EXPECT_TRUE(readable(*pair.server, 10'000));
  pair.server->tend();
  EXPECT_EQ(answered(), 17);
}

}  // namespace
}  // namespace fairlead::soft::memif::test
