// What a packet of RoCE v2 costs beside copying it: its headers written, taken apart again, its ICRC.
//
//   fairlead-bench-wire --benchmark_enable_random_interleaving=true --benchmark_repetitions=9 --benchmark_min_time=0.1
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "verbs/soft/wire/headers.h"
#include "verbs/soft/wire/icrc.h"
#include "verbs/soft/wire/opcode.h"
#include "verbs/soft/wire/packet.h"

namespace fairlead::bench {
namespace {

using namespace soft;  // NOLINT(google-build-using-namespace): the names of the specification

UdpFrame frame_of(std::size_t bytes) {
  UdpFrame frame;
  frame.source = Gid::from_ipv4(0x0a000001);
  frame.destination = Gid::from_ipv4(0x0a000002);
  frame.source_port = 50000;
  frame.destination_port = kRoceUdpPort;
  frame.payload_bytes = bytes;
  return frame;
}

void put_write_headers(std::byte* to, std::uint32_t psn, std::uint32_t length) {
  Bth bth;
  bth.opcode = static_cast<std::uint8_t>(Opcode::kWriteOnly);
  bth.dest_qpn = 0x11;
  bth.ack_request = true;
  bth.psn = Psn(psn);
  bth.encode(to);
  const Reth reth{.address = 0x7f0000000000, .rkey = 0x1234, .length = length};
  reth.encode(to + Bth::kBytes);
}

// A WRITE in one packet, without its ICRC's value.
std::vector<std::byte> packet_of(std::size_t payload) {
  std::vector<std::byte> packet(Bth::kBytes + Reth::kBytes + payload + kIcrcBytes);
  put_write_headers(packet.data(), 1, static_cast<std::uint32_t>(payload));
  return packet;
}

void EncodeHeadersOfAWrite(benchmark::State& state) {
  std::byte headers[Bth::kBytes + Reth::kBytes];
  std::uint32_t psn = 0;
  for (auto _ : state) {
    put_write_headers(headers, psn++ & 0xffffff, 4096);
    benchmark::DoNotOptimize(headers);
  }
}
BENCHMARK(EncodeHeadersOfAWrite);

void TakeAPacketApart(benchmark::State& state) {
  const std::vector<std::byte> bytes = packet_of(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) {
    Packet packet;
    if (parse(bytes, packet) != ParseError::kNone) state.SkipWithError("the packet does not parse");
    benchmark::DoNotOptimize(packet);
  }
}
BENCHMARK(TakeAPacketApart)->Arg(64)->Arg(4096);

void IcrcOfAPacket(benchmark::State& state) {
  std::vector<std::byte> bytes = packet_of(static_cast<std::size_t>(state.range(0)));
  const UdpFrame frame = frame_of(bytes.size());
  bytes.resize(bytes.size() - kIcrcBytes);
  for (auto _ : state) benchmark::DoNotOptimize(icrc(frame, bytes));
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * state.range(0));
}
BENCHMARK(IcrcOfAPacket)->Arg(64)->Arg(1024)->Arg(4096);

}  // namespace
}  // namespace fairlead::bench
