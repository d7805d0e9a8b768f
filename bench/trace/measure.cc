#include "bench/trace/measure.h"

#include <utility>

namespace fairlead::bench {
namespace {

Result<ReplayTimes> replay_here(const Trace& trace) {
  Result<std::unique_ptr<TraceDevice>> device = make_local_device(trace);  // and with it its thread ends
  if (!device) return device.error();
  return replay(trace, **device);
}

}  // namespace

Result<TraceSample> measure_trace(const Trace& trace, Engine& engine, const std::string& address, const TracePlan& plan,
                                  const std::atomic<int>& stop) {
  using Clock = std::chrono::steady_clock;
  Result<RemoteDevice> remote = make_remote_device(trace, engine, address);
  if (!remote) return remote.error();
  TraceSample sample;
  sample.transport = remote->transport;
  sample.path = remote->path;
  Clock::time_point end = Clock::time_point::max();
  for (bool warm = false; stop == 0; warm = true) {
    const Result<ReplayTimes> here = replay_here(trace);
    if (!here) return here.error();
    const Result<ReplayTimes> there = replay(trace, *remote->device);
    if (!there) return there.error();
    const Clock::time_point now = Clock::now();
    if (!warm) {
      end = now + plan.duration;
      continue;
    }
    sample.local.push_back(*here);
    sample.remote.push_back(*there);
    if (plan.repeat ? sample.local.size() >= *plan.repeat : now >= end) break;
  }
  return sample;
}

}  // namespace fairlead::bench
