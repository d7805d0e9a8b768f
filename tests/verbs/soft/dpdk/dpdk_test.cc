// Ports over DPDK: two ends of a memif in one process, and what is refused.
#include <unistd.h>

#include <cstdlib>

#include "tests/verbs/soft/endpoint.h"

namespace fairlead::soft::test {
namespace {

// A wire between two devices: what packet_io says of each end. No two tests share one.
struct Wire {
  static int next() {
    static int number = 0;
    return number++;
  }
  const int number = next();

  [[nodiscard]] std::string end(std::string_view role, std::string_view more = "") const {
    return fmt::format("dpdk:net_memif{},role={},socket=fairlead-test-{}-{}{}", 2 * number + (role == "server" ? 0 : 1),
                       role, ::getpid(), number, more);
  }
  [[nodiscard]] std::string server(std::string_view more = "") const { return end("server", more); }
  [[nodiscard]] std::string client(std::string_view more = "") const { return end("client", more); }
};

TEST(Dpdk, WriteReadAndSendOverMemif) {
  const Wire wire;
  Endpoint a(open_udp(wire.server()));
  Endpoint b(open_udp(wire.client()));
  connect(a, b, {.mtu = IBV_MTU_4096});
  fill_pattern(a.buffer, 1);
  constexpr std::size_t kBytes = 1'000'003;
  ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, 7, 5, kBytes, &b, 9), 0);
  ASSERT_TRUE(drive(a, b, [&] { return a.done.size() == 1; }));
  EXPECT_EQ(a.done[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(a.buffer.data() + 5, b.buffer.data() + 9, kBytes), 0);
  std::memset(a.buffer.data(), 0, a.buffer.size());
  ASSERT_EQ(a.post(IBV_WR_RDMA_READ, 8, 1, kBytes, &b, 9), 0);
  ASSERT_TRUE(drive(a, b, [&] { return a.done.size() == 2; }));
  EXPECT_EQ(a.done[1].status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(a.buffer.data() + 1, b.buffer.data() + 9, kBytes), 0);
}

}  // namespace
}  // namespace fairlead::soft::test
