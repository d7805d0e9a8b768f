#include "base/system/host_addresses.h"

#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/out_of_descriptors.h"

namespace fairlead {
namespace {

std::string text(const std::uint8_t* bytes, std::size_t count, std::uint32_t interface) {
  std::string all = std::to_string(interface) + ":";
  for (std::size_t i = 0; i < count; ++i) all += " " + std::to_string(bytes[i]);
  return all;
}

/// What the C library makes of the system's lists of interfaces and addresses.
std::vector<std::string> as_the_library_has_them() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> all(first, &::freeifaddrs);
  std::vector<std::string> found;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
      if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != family) continue;
      const std::uint32_t index =
          ::if_nametoindex(std::string(each->ifa_name, std::strcspn(each->ifa_name, ":")).c_str());
      sockaddr_in v4{};
      sockaddr_in6 v6{};
      std::memcpy(&v4, each->ifa_addr, sizeof v4);
      if (family == AF_INET6) std::memcpy(&v6, each->ifa_addr, sizeof v6);
      found.push_back(family == AF_INET
                          ? text(reinterpret_cast<const std::uint8_t*>(&v4.sin_addr), sizeof v4.sin_addr, index)
                          : text(v6.sin6_addr.s6_addr, sizeof v6.sin6_addr, index));
    }
  }
  return found;
}

std::vector<std::string> as_listed() {
  std::vector<std::string> found;
  const auto all = list_host_addresses();
  EXPECT_TRUE(all);
  for (const HostAddress& each : all.value()) {
    const std::size_t bytes = each.ipv4 ? 4 : each.bytes.size();
    const std::uint8_t* const first = each.bytes.data() + each.bytes.size() - bytes;
    EXPECT_TRUE(!each.ipv4 || (first[-1] == 0xff && first[-2] == 0xff && first[-3] == 0));
    found.push_back(text(first, bytes, each.interface));
  }
  return found;
}

TEST(HostAddresses, AreThoseOfTheLibraryInItsOrder) {
  EXPECT_FALSE(as_listed().empty()) << "not even loopback's";
  EXPECT_EQ(as_listed(), as_the_library_has_them());
}

TEST(HostAddresses, AreNotSaidToBeNoneWithoutDescriptors) {
  const test::OutOfDescriptors limit;
  EXPECT_FALSE(list_host_addresses());
  EXPECT_EQ(errno, EMFILE);
}

bool ip_batch(const std::string& commands) {
  FILE* const ip = ::popen("ip -batch - 2>&1", "w");
  if (ip == nullptr) return false;
  std::fputs(commands.c_str(), ip);
  return ::pclose(ip) == 0;
}

/// In a namespace of its own. Returns the exit status of its process.
int list_many() {
  constexpr int kMany = 1500;  // several messages of each family
  if (::unshare(CLONE_NEWNET) != 0 || std::signal(SIGPIPE, SIG_IGN) == SIG_ERR) return 77;
  std::string commands =
      "link set lo up\nlink add name d0 type veth peer name d1\nlink set d0 up\naddr add 10.9.0.1 peer 10.9.0.2 dev "
      "d0\n";
  for (int i = 0; i < kMany; ++i) {
    const std::string high = std::to_string(i / 250), low = std::to_string(i % 250 + 1);
    commands += "addr add 10.8." + high + "." + low + "/16 dev d0\naddr add fd00::" + high + ":" + low + "/64 dev d0\n";
  }
  if (!ip_batch(commands)) return 77;
  const std::vector<std::string> listed = as_listed();
  if (listed != as_the_library_has_them()) return 1;
  return listed.size() > 2 * kMany ? 0 : 2;
}

TEST(HostAddresses, ManyAreListedWhole) {
  const pid_t child = ::fork();
  ASSERT_NE(child, -1);
  if (child == 0) ::_exit(list_many());
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "no network namespace, or no program 'ip'";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace fairlead
