#include "bench/net/sessions.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <set>
#include <system_error>
#include <thread>
#include <vector>

#include "base/system/no_thread.h"
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
  /// What is left when all have ended, after so many seconds: some of them a moment after the first, which is no
  /// interval.
  void rest(double seconds) {
    if (const std::uint64_t operations = operations_.exchange(0); operations != 0 && seconds - last_ > interval())
      plan_.tell({.from = last_, .to = seconds, .operations = operations});
  }
  [[nodiscard]] double interval() const noexcept { return plan_.interval / kParts; }

 private:
  static constexpr int kParts = 10;
  const Plan& plan_;
  std::atomic<std::uint64_t> operations_ = 0;
  int parts_ = 0;    // the first session's thread
  double last_ = 0;  // likewise
};

// What one of several sessions does: at a rate they take turns.
Plan part_of(const Plan& plan, std::span<const MeasuredSession> sessions, std::size_t number) {
  Plan part = plan;
  part.op = sessions[number].op;
  part.rate = plan.rate / static_cast<double>(sessions.size());
  part.phase = static_cast<double>(number) / static_cast<double>(sessions.size());
  part.tell = nullptr;
  return part;
}

Sample sum_of(std::span<const MeasuredSession> sessions, const std::vector<Sample>& samples, const Together& together) {
  Sample sum = samples.front();
  for (const Sample& each : std::span(samples).subspan(1)) sum.merge(each);
  sum.seconds = together.seconds();
  sum.initiator_cpu = together.cpu() * sum.counted_share();
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
    const auto work = [&](std::size_t i) {
      Plan part = part_of(plan, sessions, i);
      part.together = &together;
      part.interval = progress.interval();
      if (plan.tell) part.tell = [&progress, i](const Interval& interval) { progress.tell(i == 0, interval); };
      results[i].emplace(measure(*sessions[i].link, part, size));
      if (!*results[i]) together.leave();
    };
    std::vector<std::jthread> threads;
    threads.reserve(sessions.size());
    for (std::size_t i = 0; i < sessions.size(); ++i) {
      try {
        threads.emplace_back(work, i);
      } catch (const std::system_error& error) {  // nobody is to wait for those that do not come
        results[i].emplace(no_thread(fmt::format("session {} of {}", i + 1, sessions.size()), error));
        together.leave();
      }
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
  if (plan.tell) progress.rest(together.seconds());
  return sum_of(sessions, samples, together);
}

}  // namespace fairlead::bench
