#include "bench/net/sessions.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "bench/net/initiator.h"
#include "bench/net/retransmissions.h"
#include "bench/net/together.h"

namespace fairlead::bench {
namespace {

// Tells how far all of them are. Each session says so far more often than the plan wants, so that what is added up is
// nearly of the same time; the first session's clock is that of all.
class Progress {
 public:
  explicit Progress(const Plan& plan) : plan_(plan) {}

  void tell(bool first, const Interval& interval) {
    operations_ += interval.operations;
    if (!first || ++parts_ % kParts != 0) return;
    plan_.tell({.from = last_, .to = interval.to, .operations = operations_.exchange(0)});
    last_ = interval.to;
  }
  [[nodiscard]] double interval() const noexcept { return plan_.interval / kParts; }

 private:
  static constexpr int kParts = 10;
  const Plan& plan_;
  std::atomic<std::uint64_t> operations_ = 0;
  int parts_ = 0;    // the first session's thread
  double last_ = 0;  // likewise
};

// What one of several sessions does.
Plan part_of(const Plan& plan, const MeasuredSession& session, std::size_t sessions) {
  Plan part = plan;
  part.op = session.op;
  part.rate = plan.rate / static_cast<double>(sessions);
  part.tell = nullptr;
  return part;
}

Sample sum_of(std::span<const MeasuredSession> sessions, const std::vector<Sample>& samples, const Together& together) {
  Sample sum = samples.front();
  for (const Sample& each : std::span(samples).subspan(1)) sum.merge(each);
  sum.seconds = together.seconds();
  sum.initiator_cpu = together.cpu();
  sum.target_cpu = {};
  std::optional<std::uint64_t> here = 0, there = 0;
  const auto add = [](std::optional<std::uint64_t>& sum, std::optional<std::uint64_t> one) {
    sum = sum && one ? std::optional(*sum + *one) : std::nullopt;
  };
  std::set<std::string> targets;
  std::set<const Engine*> counters;
  for (std::size_t i = 0; i < sessions.size(); ++i) {
    if (targets.insert(sessions[i].target).second) {
      sum.target_cpu += samples[i].target_cpu;
      add(there, samples[i].target_sent_again);
    }
    Link& link = *sessions[i].link;
    if (counters.insert(counted_by_process(link.peer().transport()) ? nullptr : &link.engine()).second)
      add(here, samples[i].initiator_sent_again);
    if (sessions[i].part.empty()) continue;
    sum.add_part({.name = sessions[i].part, .iterations = samples[i].iterations, .seconds = together.seconds()});
  }
  sum.initiator_sent_again = here;
  sum.target_sent_again = there;
  return sum;
}

}  // namespace

Result<Sample> measure(std::span<const MeasuredSession> sessions, const Plan& plan, std::uint64_t size) {
  if (sessions.size() == 1) return measure(*sessions.front().link, plan, size);
  Together together(sessions.size());
  Progress progress(plan);
  std::vector<std::optional<Result<Sample>>> results(sessions.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < sessions.size(); ++i) {
      threads.emplace_back([&, i] {
        Plan part = part_of(plan, sessions[i], sessions.size());
        part.together = &together;
        part.interval = progress.interval();
        if (plan.tell) part.tell = [&progress, i](const Interval& interval) { progress.tell(i == 0, interval); };
        results[i].emplace(measure(*sessions[i].link, part, size));
        if (!*results[i]) together.leave();
      });
    }
  }
  // Who failed by itself comes before those that stopped because of it.
  const auto failed = [&](bool cancelled) {
    return std::ranges::find_if(results, [&](const auto& result) {
      return !*result && (cancelled || result->error().code() != Code::kCancelled);
    });
  };
  for (const bool cancelled : {false, true}) {
    if (const auto found = failed(cancelled); found != results.end()) return (*found)->error();
  }
  std::vector<Sample> samples;
  for (auto& result : results) samples.push_back(*std::move(*result));
  return sum_of(sessions, samples, together);
}

}  // namespace fairlead::bench
