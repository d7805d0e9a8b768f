// The terms of a comparison: what has to be equal on both sides for a ratio to be about the transports. Each is looked
// up, compared and told; what cannot be looked up is not equal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/gain/comparison.h"
#include "bench/net/end_facts.h"
#include "fairlead/config.h"
#include "fairlead/engine.h"

namespace fairlead::bench {

/// The addresses of a path, the largest payload of its packets and its congestion control, as Peer::explain() tells
/// them. Empty and 0: not told.
struct PathFacts {
  std::string local, remote;
  std::uint32_t mtu = 0;           // of a verbs path
  std::string congestion_control;  // of tcp: "cubic"
};
[[nodiscard]] PathFacts parse_path(std::string_view explained);

/// One side of the comparison.
struct SideFacts {
  std::string transport, device, path;  // Peer::transport(), the engine's words, Peer::explain()
  std::string link;                     // "veth0", "lo", "memory of this host", "dpdk:net_memif0,..."; empty: not known
  std::string local, remote;            // addresses
  std::uint32_t link_mtu = 0;           // bytes of an IP packet; 0: the link has none
  std::uint32_t payload = 0;            // the most that a packet carries
  std::optional<std::uint64_t> megabits;               // the link's rate, if it says
  std::optional<std::uint64_t> buffer, target_buffer;  // of a receiving socket, at either end; 0: not known
  std::uint64_t streams = 1;
  unsigned dscp = 0;
  std::string congestion_control;  // of tcp, as the system calls it; empty: not known
  bool emulated = false;           // a device that a hypervisor's emulator plays
  bool software = false;           // a device that this host's processors play: softroce, the kernel's rxe and siw
  EndFacts initiator, target;
};
/// Both ends are known to be on one host.
[[nodiscard]] bool on_one_host(const SideFacts& side) noexcept;
[[nodiscard]] SideFacts side_facts(const Peer& peer, const std::string& device, const EngineConfig& config,
                                   const EndFacts& initiator, const EndFacts& target);

struct Term {
  std::string name, baseline, candidate;
  bool equal = false;
  std::string remark;  // why not, and what would make it so; or what to know of it
};
/// Those of hosts, link, processors and transport; what is done over them is the plan's.
[[nodiscard]] std::vector<Term> terms_of(const SideFacts& baseline, const SideFacts& candidate);
[[nodiscard]] std::vector<Term> terms_of(const SideFacts& baseline, const SideFacts& candidate, const GainPlan& plan);
/// One that is the same by construction.
[[nodiscard]] Term same_term(std::string name, const std::string& value);
[[nodiscard]] bool all_equal(const std::vector<Term>& terms) noexcept;

}  // namespace fairlead::bench
