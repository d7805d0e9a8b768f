// The packet ports of tests that hold over any: UDP sockets alone, or what FAIRLEAD_SOFT_TEST_PORT says: udp, which is
// what a program has that asks for nothing, memory of this host included; udp,refer=1, where as much as can be refers
// to payload; memif; or dpdk:memif, which is DPDK's.
//
// Threads: ports and wires are made by one.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace fairlead::test {

/// Which memif the tests run over; nothing: none.
inline std::optional<std::string_view> memif_under_test() {
  const char* port = std::getenv("FAIRLEAD_SOFT_TEST_PORT");
  if (port == nullptr || !std::string_view(port).ends_with("memif")) return std::nullopt;
  return port;
}
/// Sockets and memory of this host, as the variable says; nothing: sockets alone.
inline std::optional<std::string_view> host_memory_under_test() {
  const char* port = std::getenv("FAIRLEAD_SOFT_TEST_PORT");
  if (port == nullptr || !std::string_view(port).starts_with("udp")) return std::nullopt;
  return port;
}
inline bool over_memif() { return memif_under_test().has_value(); }

/// A wire in shared memory between two devices of one process: what packet_io says of each end. No two wires of a
/// process share a device's name, and no two processes a socket's.
class MemifWire {
 public:
  /// `more`: options, each with a comma before it.
  [[nodiscard]] std::string server(std::string_view more = "") const { return end(0, "server", more); }
  [[nodiscard]] std::string client(std::string_view more = "") const { return end(1, "client", more); }

 private:
  [[nodiscard]] std::string end(int which, std::string_view role, std::string_view more) const {
    const bool own = memif_under_test() == "memif";
    return fmt::format("{},role={},socket=fairlead-test-{}-{}{}",
                       own ? "memif" : fmt::format("dpdk:net_memif{}", 2 * number_ + which), role, ::getpid(), number_,
                       more);
  }
  static int next() {
    static int number = 0;
    return number++;
  }
  int number_ = next();
};

/// packet_io of another device. Over memif the first and the second that a test asks for are the ends of one wire, and
/// so on. `faults`: each with a comma before it.
inline std::string port_under_test(std::string_view faults = "") {
  if (!over_memif()) return fmt::format("{}{}", host_memory_under_test().value_or("udp,local=sockets"), faults);
  static std::optional<MemifWire> wire;
  static const testing::TestInfo* of = nullptr;
  const testing::TestInfo* const now = testing::UnitTest::GetInstance()->current_test_info();
  if (std::exchange(of, now) == now && wire) return std::exchange(wire, std::nullopt)->client(faults);
  wire.emplace();
  return wire->server(faults);
}

}  // namespace fairlead::test
