// Transport choice: which ways two engines could meet, in which order, and why. Pure functions over descriptions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fairlead/config.h"

namespace fairlead::datapath {

/// Of a kind, before the place that both ends must be at: Device::place().
inline constexpr char kPlace = '@';

struct Offer {
  std::string name;  // "verbs:mlx5_0"
  std::string kind;  // "verbs", "tcp", "shm@0123456789abcdef": equal ones can meet
  bool software = false;
  std::vector<std::string> addresses = {};  // numeric, where it may be reached from other hosts; none: not known
};

/// EngineConfig::require and forbid.
struct Policy {
  std::vector<std::string> require, forbid;
};
[[nodiscard]] inline Policy policy_of(const EngineConfig& config) { return {config.require, config.forbid}; }

/// Empty: it may be used. Else why not.
[[nodiscard]] std::string why_not(const Policy& policy, const Offer& ours);

struct Candidate {
  std::size_t local = 0;                    // index into our offers
  std::size_t remote = 0;                   // index into theirs
  std::string reason;                       // why it stands where it stands
  int rank = 0;                             // the lower the better; equal ones are as good as each other
  std::vector<std::string> addresses = {};  // of theirs
  std::string host = {};  // numeric, where the peer may be reached, too; empty: where the session reaches it
};

struct Choice {
  std::vector<Candidate> candidates;  // best first
  std::vector<std::string> rejected;  // "verbs:soft0: the peer offers no verbs"
};

/// Ranks the pairs of equal kind that the policy allows. `wanted` is EngineConfig::transport. Rules: what was asked for
/// comes first, in that order; then memory of one host, RDMA hardware on both ends, tcp, software verbs; without
/// failover, what was not asked for is left out, and of "auto" all but the first, with the next where that is memory of
/// one host: there a path may turn out not to be possible.
[[nodiscard]] Choice choose(const std::string& wanted, bool failover, const std::vector<Offer>& ours,
                            const std::vector<Offer>& theirs, const Policy& policy = {});

/// The same, each also by way of these other hosts, behind itself.
[[nodiscard]] std::vector<Candidate> by_way_of(std::vector<Candidate> candidates,
                                               const std::vector<std::string>& other_hosts);

/// For a flow of so many paths, whose first is over candidate `first`: what each of the others is to be over, the best
/// first. They have that one's rank, and use each end's devices (and the peer's hosts) as evenly as can be; what is
/// left of them goes over pairs that are in use already, as further streams.
[[nodiscard]] std::vector<std::vector<Candidate>> spread(const std::vector<Candidate>& candidates, std::size_t first,
                                                         std::size_t paths);

}  // namespace fairlead::datapath
