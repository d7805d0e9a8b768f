#include "bench/net/initiator.h"

#include <algorithm>

namespace fairlead::bench {

Result<Sample> measure(Link& link, const Plan& plan, std::uint64_t size) {
  constexpr double kWarmUp = 0.25;  // seconds, at most
  const Result<std::unique_ptr<Load>> load = Load::prepare(link, plan, size);
  if (!load) return load.error();
  Status status = (*load)->warm_up(kWarmUp, std::max<std::uint64_t>(plan.warmup, 1));
  if (!status.ok()) return status;
  if (plan.stopped()) return Status(Code::kCancelled, "stopped before anything was measured");
  Result<Sample> sample = (*load)->timed(plan.duration, plan.iterations);
  if (!sample || sample->interrupted || !plan.verify) return sample;
  status = (*load)->verify();
  if (!status.ok()) return status;
  sample->verified = true;
  return sample;
}

}  // namespace fairlead::bench
