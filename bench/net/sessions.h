// A measurement of several sessions at once, each driven by a thread of its own: to one target or to several, from one
// engine or from several, in one direction or in both.
#pragma once

#include <span>
#include <string>

#include "bench/net/link.h"
#include "bench/net/options.h"

namespace fairlead::bench {

struct MeasuredSession {
  Link* link;
  Op op;
  std::string part = {};    // that its figures are told apart by ("to gpu7:7472"); empty: only the sum is
  std::string target = {};  // sessions with the same are with one process, whose processor time counts once
};

/// Measures one size over all of them: bandwidth, unless it is one session. Figures are summed, latencies are in one
/// histogram; seconds and processor time are from when all began until the last had ended. Plan::iterations is of each
/// session, Plan::rate of all. Errors: the first that one of them had (load.h); kCancelled if it was stopped before the
/// clock started.
Result<Sample> measure(std::span<const MeasuredSession> sessions, const Plan& plan, std::uint64_t size);

}  // namespace fairlead::bench
