#include "verbs/soft/port/ungreeted.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <vector>

namespace fairlead::soft {
namespace {

TEST(Ungreeted, SoManyAreKept) {
  std::vector<UniqueFd> servers;
  for (int i = 0; i < 17; ++i) {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    servers.emplace_back(ends[0]);
    keep_ungreeted(PrivateFd(UniqueFd(ends[1])));
  }
  EXPECT_FALSE(is_silent(servers[0].get())) << "the oldest has hung up";
  for (std::size_t i = 1; i < servers.size(); ++i) EXPECT_TRUE(is_silent(servers[i].get())) << i;
}

}  // namespace
}  // namespace fairlead::soft
