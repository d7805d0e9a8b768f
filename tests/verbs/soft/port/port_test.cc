// Decorators of ports, and the text that asks for them.
#include <array>

#include "tests/verbs/soft/endpoint.h"
#include "verbs/soft/port/port_spec.h"
#include "verbs/soft/port/wrap/fault_port.h"

namespace fairlead::soft::test {
namespace {

// Sends `count` packets from one end to the other, one at a time; true for each that arrived.
std::vector<bool> arrivals(PacketPort& from, PacketPort& to, std::size_t count) {
  const Route route = from.make_route(to.address(), 1, 0, 0);
  std::vector<bool> arrived;
  TxBatch batch;
  for (std::size_t i = 0; i < count; ++i) {
    std::memset(batch.begin(route, Bth::kBytes, 0), 0, Bth::kBytes);
    batch.finish(0);
    from.tx_burst(batch);
    std::array<RxPacket, 4> packets;
    arrived.push_back(to.rx_burst(packets, 0) > 0);
  }
  return arrived;
}

TEST(FaultPort, LossComesInBurstsOfTheGivenLengthAndShare) {
  auto [left, right] = LoopbackPort::make_pair();
  FaultPort lossy(std::move(right), {.drop = 0.1, .burst = 8, .seed = 3});
  const std::vector<bool> arrived = arrivals(*left, lossy, 100'000);
  std::size_t lost = 0;
  std::size_t run = 0;
  std::size_t shortest = arrived.size();
  for (const bool came : arrived) {
    lost += came ? 0 : 1;
    if (came && run > 0) shortest = std::min(shortest, run);
    run = came ? 0 : run + 1;
  }
  EXPECT_EQ(shortest, 8U);
  EXPECT_NEAR(static_cast<double>(lost) / static_cast<double>(arrived.size()), 0.1, 0.01);
}

TEST(PortSpec, NamesTheWordThatIsWrongAndWhatItTakes) {
  const struct {
    const char* text;
    const char* word;
    const char* legal;
  } cases[] = {
      {"", "''", "legal: udp, memif or dpdk:DEVICE"},
      {"tcp,drop=0.1", "'tcp'", "legal: udp, memif or dpdk:DEVICE"},
      {"dpdk:", "'dpdk:'", "legal: udp, memif or dpdk:DEVICE"},
      {"udp,drop", "'drop'", "drop takes a probability"},
      {"udp,seed=1,drop=2", "'drop=2'", "drop takes a probability from 0 to 1"},
      {"udp,burst=0", "'burst=0'", "burst takes a number of packets from 1"},
      {"udp,pcap=", "'pcap='", "pcap takes the name of a file"},
      {"udp,colour=red", "'colour=red'", "legal: udp, then any of drop, reorder"},
      {"udp,ip=10.0.0.1", "'ip=10.0.0.1'", "legal: udp, then any of drop, reorder"},
      {"dpdk:net_memif0,role", "'role'", "it has no value"},
      {"dpdk:net_memif0,ip=10.0.0.300", "'ip=10.0.0.300'", "10.0.0.1/24"},
      {"dpdk:net_memif0,role=server,memory=0", "'memory=0'", "megabytes from 1"},
      {"memif", "memif", "memif,role=server,socket=NAME"},
      {"memif,role=server", "memif", "memif,role=server,socket=NAME"},
      {"memif,socket=s", "memif", "memif,role=server,socket=NAME"},
      {"memif,role=conductor", "'role=conductor'", "role takes server or client"},
      {"memif,slots=100", "'slots=100'", "a power of two from 16 to 16384"},
      {"memif,slots=32768", "'slots=32768'", "a power of two from 16 to 16384"},
      {"memif,secret=123456789012345678901234", "'secret=", "at most 23 characters"},
      {"memif,queues=2", "'queues=2'", "legal: memif, then any of drop"},
      {"memif,role=server,socket=s,ip=10.0.0.1,gateway=fd00::1", "gateway", "of its own family"},
  };
  for (const auto& [text, word, legal] : cases) {
    const auto spec = parse_port_spec(text);
    ASSERT_FALSE(spec) << text;
    EXPECT_NE(spec.error().message().find(word), std::string::npos) << spec.error().message();
    EXPECT_NE(spec.error().message().find(legal), std::string::npos) << spec.error().message();
  }
}

TEST(PortSpec, TakesFaultsAndACaptureFile) {
  const auto spec = parse_port_spec("udp,drop=0.25,burst=4,delay_us=50,seed=7,pcap=/tmp/x.pcap");
  ASSERT_TRUE(spec) << spec.status().to_string();
  EXPECT_EQ(spec->faults.drop, 0.25);
  EXPECT_EQ(spec->faults.burst, 4U);
  EXPECT_EQ(spec->faults.delay, 50 * kMicrosecond);
  EXPECT_EQ(spec->faults.seed, 7U);
  EXPECT_EQ(spec->pcap, "/tmp/x.pcap");
}

TEST(PortSpec, TellsItsOwnWordsFromTheDrivers) {
  const auto spec = parse_port_spec(
      "dpdk:net_memif0,role=server,ip=10.0.0.1/16,drop=0.5,socket=/tmp/"
      "s,gateway=10.0.0.9,memory=64,mac=02:00:00:00:00:01");
  ASSERT_TRUE(spec) << spec.status().to_string();
  ASSERT_TRUE(spec->dpdk);
  EXPECT_EQ(spec->dpdk->devargs, "net_memif0,role=server,socket=/tmp/s,mac=02:00:00:00:00:01");
  EXPECT_EQ(to_string(spec->dpdk->addresses.address), "10.0.0.1");
  EXPECT_EQ(spec->dpdk->addresses.prefix, 16U);
  EXPECT_EQ(to_string(spec->dpdk->addresses.gateway), "10.0.0.9");
  EXPECT_EQ(spec->dpdk->megabytes, 64U);
  EXPECT_EQ(spec->faults.drop, 0.5);
}

TEST(PortSpec, TakesAnEndOfAMemif) {
  const auto spec = parse_port_spec("memif,role=server,socket=/tmp/s,id=3,secret=x,slots=1024,ip=10.0.0.1/16,drop=0.5");
  ASSERT_TRUE(spec) << spec.status().to_string();
  ASSERT_TRUE(spec->memif);
  EXPECT_EQ(spec->memif->link.role, memif::Role::kMaster);
  EXPECT_EQ(spec->memif->link.socket, "/tmp/s");
  EXPECT_EQ(spec->memif->link.wire.interface, 3U);
  EXPECT_EQ(spec->memif->link.wire.secret, "x");
  EXPECT_EQ(spec->memif->link.wire.log2_slots, 10U);
  EXPECT_EQ(spec->memif->addresses.prefix, 16U);
  EXPECT_EQ(spec->faults.drop, 0.5);
  EXPECT_EQ(parse_port_spec("memif,role=client,socket=s")->memif->link.role, memif::Role::kSlave);
}

TEST(PortSpec, AnAddressHasANetworkIfNoneIsGiven) {
  EXPECT_EQ(parse_port_spec("dpdk:net_tap0,ip=10.0.0.1")->dpdk->addresses.prefix, 24U);
  EXPECT_EQ(parse_port_spec("dpdk:net_tap0,ip=fd00::1")->dpdk->addresses.prefix, 64U);
  EXPECT_TRUE(parse_port_spec("dpdk:0000:03:00.0")->dpdk->addresses.address.is_null());
}

TEST(PortSpec, RefusesAddressesThatNoPortCanHave) {
  for (const char* words : {"ip=10.0.0.1/33", "ip=fd00::1/129", "ip=0.0.0.0", "ip=224.0.0.1", "ip=ff02::1",
                            "ip=::", "ip=127.0.0.1", "ip=::1", "ip=", "ip=host", "gateway=", "gateway=10.0.0.9",
                            "ip=fd00::1,gateway=10.0.0.9", "memory=0", "role"}) {
    EXPECT_FALSE(parse_port_spec(std::string("dpdk:net_memif0,") + words)) << words;
  }
}

}  // namespace
}  // namespace fairlead::soft::test
