#include "bench/net/load.h"

#include <fmt/format.h>

#include "bench/base/cpu_time.h"
#include "bench/base/sizes.h"
#include "bench/memory/pattern.h"
#include "bench/net/retransmissions.h"

namespace fairlead::bench {

Status no_target() {
  return {Code::kInvalidArgument,
          "the peer is not a `fairlead bench --server` (a `fairlead serve`?); start `fairlead bench --server "
          "HOST:PORT` on that host and measure against it"};
}

Result<Buffers> Buffers::prepare(Link& link, const Plan& plan, std::uint64_t size, std::uint64_t slots, bool spin,
                                 std::string_view echo) {
  Json::Object request{{"size", size}, {"slots", slots}, {"spin", spin}};
  if (!echo.empty()) {
    request.emplace_back("echo", echo);
    request.emplace_back("arrival", to_string(plan.arrival));
  }
  const Result<Json> answer = link.ask("prepare", std::move(request));
  if (!answer) return answer.error();
  const Json* name = answer->find("region");
  if (name == nullptr || name->string() == nullptr) {
    return no_target();
  }
  Result<RemoteMemory> region = link.peer().lookup(*name->string());
  if (!region) return region.error();
  if (region->size() != size * slots) return Status(Code::kDataLoss, "the target's region has another size");
  Result<EndMemory> memory = EndMemory::allocate(link.engine(), size, slots, plan.memory);
  if (!memory) return memory.error();
  Buffers buffers;
  buffers.memory_ = *std::move(memory);
  for (std::uint64_t slot = 0; slot < slots; ++slot) {
    buffers.local_.push_back(buffers.memory_.slot(slot));
    buffers.remote_.push_back(region->slice(slot * size, size));
  }
  return buffers;
}

Result<Prepared> Buffers::prepared(Link& link, Op op, std::uint64_t first, std::uint64_t count) const {
  std::vector<Descriptor> list;
  for (std::uint64_t slot = first + count; slot-- > first;) list.push_back({local(slot), remote(slot)});
  return op == Op::kRead ? link.peer().prepare_read(list) : link.peer().prepare_write(list);
}

Status Buffers::compare(std::uint64_t seed) const {
  const Result<std::vector<std::uint32_t>> sums = memory_.checksums();
  if (!sums) return sums.error();
  for (std::uint64_t slot = 0; slot < slots(); ++slot) {
    if ((*sums)[slot] != pattern_crc(size(), seed, slot)) {
      return {Code::kDataLoss, fmt::format("verification failed: slot {} of {} holds {}", slot, format_size(size()),
                                           what_else((*sums)[slot], size(), seed, slot))};
    }
  }
  return {};
}

Status Buffers::compare_target(Link& link, std::uint64_t seed, std::string_view what) const {
  const Result<Json> answer = link.ask("checksums");
  if (!answer) return answer.error();
  const Json* field = answer->find(what);
  const Json::Array* crcs = field != nullptr ? field->array() : nullptr;
  if (crcs == nullptr || crcs->size() != slots()) {
    return {Code::kDataLoss, fmt::format("verification failed: the target has {} {}, expected {}",
                                         crcs == nullptr ? 0 : crcs->size(), what, slots())};
  }
  for (std::uint64_t slot = 0; slot < slots(); ++slot) {
    const std::optional<std::uint64_t> crc = (*crcs)[slot].uint();
    if (crc == pattern_crc(size(), seed, slot)) continue;
    const Result<std::vector<std::uint32_t>> here = memory_.checksums();
    const bool changed = here && (*here)[slot] != pattern_crc(size(), seed, slot);
    return {
        Code::kDataLoss,
        fmt::format("verification failed over {}: at the target, {}[{}] of {} holds {}{}", link.peer().transport(),
                    what, slot, format_size(size()),
                    crc ? what_else(static_cast<std::uint32_t>(*crc), size(), seed, slot) : "nothing",
                    changed ? "; so does the memory here that they came from, which nobody should have written" : "")};
  }
  return {};
}

Result<std::uint64_t> time_it(Link& link, const Plan& plan, double seconds, std::uint64_t operations, Sample& sample,
                              const std::function<Status(Course&)>& run) {
  const std::string transport = link.peer().transport();
  const std::optional<std::uint64_t> before = retransmissions(link.engine(), transport);
  if (plan.together != nullptr) plan.together->warm();  // whose warming up is nobody's load
  if (const Result<Json> started = link.ask("start"); !started) return started.error();
  if (plan.together != nullptr) plan.together->begin();
  const CpuStopwatch watch;
  Course course = Course::timed(plan, seconds, operations);
  if (Status status = run(course); !status.ok()) return status;
  const CpuUse cpu = watch.cpu();
  sample.iterations = course.counted();
  sample.late = course.late();
  sample.seconds = std::chrono::duration<double>(course.last() - course.begin()).count();
  sample.initiator_cpu = cpu * sample.counted_share();
  if (plan.together != nullptr) plan.together->end(course.last());
  const Result<Json> stopped = link.ask("stop");
  if (!stopped) return stopped.error();
  if (const auto after = retransmissions(link.engine(), transport); after && before)
    sample.initiator_sent_again = *after - *before;
  if (const Json* field = stopped->find("retransmissions"); field != nullptr) sample.target_sent_again = field->uint();
  const Json* all = stopped->find("cpu_seconds");
  const Json* received = stopped->find("received");
  if (all == nullptr || !all->number() || received == nullptr || !received->uint()) {
    return Status(Code::kDataLoss, "the target's answer to 'stop' lacks its figures");
  }
  // A target of an older version tells the sum alone.
  const auto part = [&](std::string_view name) {
    const Json* field = stopped->find(name);
    return field != nullptr ? field->number() : std::nullopt;
  };
  const CpuUse there = {.user = part("cpu_user").value_or(*all->number()),
                        .system = part("cpu_system").value_or(0),
                        .softirq = part("cpu_softirq").value_or(0)};
  sample.target_cpu = there * sample.counted_share();
  return *received->uint();
}

Result<std::unique_ptr<Load>> Load::prepare(Link& link, const Plan& plan, std::uint64_t size) {
  return plan.kind == Kind::kBandwidth ? make_bandwidth_load(link, plan, size) : make_latency_load(link, plan, size);
}

}  // namespace fairlead::bench
