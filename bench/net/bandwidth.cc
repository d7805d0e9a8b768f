#include <fmt/format.h>

#include <algorithm>

#include "bench/net/course.h"
#include "bench/net/load.h"
#include "bench/net/pace.h"
#include "fairlead/burst.h"

namespace fairlead::bench {
namespace {

using std::chrono::steady_clock;

constexpr std::uint64_t kFirstSeed = 1;
constexpr std::uint64_t kSecondSeed = 2;
constexpr unsigned kSharingClock = 8;           // ends and beginnings
constexpr std::chrono::milliseconds kLook{10};  // how long to wait at most before looking whether it is over

class Stream {
 public:
  Stream(Link& link, const Plan& plan, const Buffers& buffers)
      : link_(link), plan_(plan), buffers_(buffers), in_flight_(std::max<std::uint64_t>(plan.depth / plan.batch, 1)) {}

  Status prepare() {
    for (std::uint64_t slot = 0; plan_.op != Op::kSend && slot < buffers_.slots(); slot += plan_.batch) {
      Result<Prepared> batch = buffers_.prepared(link_, plan_.op, slot, plan_.batch);
      if (!batch) return batch.error();
      prepared_.push_back(*std::move(batch));
    }
    return {};
  }

  // Keeps `depth` operations in flight, a batch at a time round the slots, until the course is over; then waits for
  // all. Latencies of those that count are recorded.
  Status run(Course& course, Histogram* latency) {
    if (plan_.rate > 0) return run_paced(course, latency);
    if (plan_.burst) return run_burst(course, latency);
    std::uint64_t posted = 0, finished = 0;
    std::size_t newest = 0, oldest = 0;  // where in in_flight_ the next begins, and the next ends
    std::uint64_t next = 0;              // batch of slots
    const std::uint64_t batches = buffers_.slots() / plan_.batch;
    unsigned sharing_clock = 0;
    bool more = true;
    auto now = steady_clock::now();
    while (more || finished < posted) {
      // A reading of the clock serves the ends that one wait brought, and the beginnings of what takes their place; a
      // few of them, since it is older for each.
      if (more && posted - finished < course.in_flight(finished, in_flight_.size() * plan_.batch)) {
        auto& [transfer, since] = in_flight_[newest];
        if (++newest == in_flight_.size()) newest = 0;
        if (sharing_clock++ % kSharingClock == 0) now = steady_clock::now();
        since = now;
        transfer = post(next, kCounted);
        if (++next == batches) next = 0;
        posted += plan_.batch;
        more = !course.is_over(posted, since);
        continue;
      }
      const auto& [transfer, since] = in_flight_[oldest];
      if (++oldest == in_flight_.size()) oldest = 0;
      if (!transfer.done()) sharing_clock = 0;
      if (Status status = wait(transfer); !status.ok()) return status;
      if (sharing_clock++ % kSharingClock == 0) now = steady_clock::now();
      if (course.counts()) latency->record(nanoseconds(now - since));
      finished += plan_.batch;
      course.ended(finished, now);
      more = more && !course.closed();
    }
    course.close();
    return link_.check();
  }

  // The same as a burst, through the slots from the last to the first: in the order of memory some would go as one.
  Status run_burst(Course& course, Histogram* latency) {
    Burst burst = plan_.op == Op::kRead ? Burst::reads(link_.peer()) : Burst::writes(link_.peer());
    std::vector<Descriptor> slots;
    for (std::uint64_t slot = buffers_.slots(); slot-- > 0;)
      slots.push_back({buffers_.local(slot), buffers_.remote(slot)});
    std::uint64_t posted = 0, finished = 0;
    std::size_t next = 0;  // of slots
    unsigned sharing_clock = 0;
    auto now = steady_clock::now();
    for (bool more = true; more || finished < posted;) {
      if (more && posted - finished < course.in_flight(finished, in_flight_.size())) {
        if (sharing_clock++ % kSharingClock == 0) now = steady_clock::now();
        in_flight_[posted % in_flight_.size()].since = now;
        if (Status status = burst.add(slots[next].local, slots[next].remote); !status.ok()) return status;
        if (++next == slots.size()) next = 0;
        more = !course.is_over(++posted, now);
        continue;
      }
      if (Status status = link_.wait(burst, finished + 1); !status.ok()) return status;
      now = steady_clock::now();
      sharing_clock = 0;
      if (course.counts())  // of a group, or of those that ended at once: since the first operation
        latency->record(nanoseconds(now - in_flight_[finished % in_flight_.size()].since));
      finished = burst.ended();
      course.ended(finished, now);
      more = more && !course.closed();
    }
    course.close();
    return link_.check();
  }

  // The same at the plan's rate: an operation is posted when it is due, or as soon as one of `depth` is over. All that
  // were due before the end count, also those that it found on their way: they are the ones that took long.
  Status run_paced(Course& course, Histogram* latency) {
    const Pace pace(plan_.rate, steady_clock::now(), course.counts() ? plan_.phase : 0);
    std::uint64_t posted = 0, finished = 0;
    for (bool more = true; more || finished < posted;) {
      const auto now = steady_clock::now();
      course.so_far(finished, now);
      more = more && !course.is_over(posted, now);
      const bool room = posted - finished < course.in_flight(finished, in_flight_.size());
      if (more && room && pace.due(posted) <= now) {
        auto& [transfer, since] = in_flight_[posted % in_flight_.size()];
        since = pace.due(posted);
        transfer = post(posted % buffers_.slots(), kCounted);
        ++posted;
        continue;
      }
      const auto next = std::min({pace.due(posted), course.end(), now + kLook});
      const auto& [oldest, since] = in_flight_[finished % in_flight_.size()];
      if (finished == posted) {
        if (Status status = link_.idle_until(next); !status.ok()) return status;
        continue;
      }
      if (!oldest.done() && more && room) {
        static_cast<void>(Transfer(oldest).wait(std::max<std::chrono::nanoseconds>(next - now, {})));
        if (!oldest.done()) continue;
      }
      if (Status status = wait(oldest); !status.ok()) return status;
      if (course.counts()) latency->record(nanoseconds(steady_clock::now() - since));
      ++finished;
    }
    course.so_far(finished, steady_clock::now());
    course.close();
    return link_.check();
  }

  // Every slot once, one at a time.
  Status once_each(MessageValue value) {
    for (std::uint64_t batch = 0; batch < buffers_.slots() / plan_.batch; ++batch) {
      if (Status status = wait(post(batch, value)); !status.ok()) return status;
    }
    return link_.check();
  }

 private:
  // That many batches of slots come before it; a message is a batch by itself.
  Transfer post(std::uint64_t batch, MessageValue value) {
    if (plan_.op == Op::kSend) return link_.peer().send(buffers_.local(batch).bytes(), value);
    return link_.peer().post(prepared_[batch]);
  }

  Status wait(const Transfer& transfer) { return link_.wait(transfer); }

  static std::uint64_t nanoseconds(steady_clock::duration took) {
    return static_cast<std::uint64_t>(std::chrono::nanoseconds(took).count());
  }

  struct InFlight {
    Transfer transfer;
    steady_clock::time_point since;
  };
  Link& link_;
  const Plan& plan_;
  const Buffers& buffers_;
  std::vector<Prepared> prepared_;  // of each batch of slots
  std::vector<InFlight> in_flight_;
};

Status fill_source(Link& link, const Plan& plan, const Buffers& buffers, std::uint64_t seed) {
  if (plan.op != Op::kRead) {
    return buffers.memory().fill(seed);
  }
  if (Status cleared = buffers.memory().clear(); !cleared.ok()) return cleared;
  return link.ask("fill", {{"seed", seed}}).status();
}

Status compare_destination(Link& link, const Plan& plan, const Buffers& buffers, std::uint64_t seed) {
  if (plan.op == Op::kRead) return buffers.compare(seed);
  return buffers.compare_target(link, seed, plan.op == Op::kWrite ? "slots" : "messages");
}

// What the timed part left behind, then other data once through every slot.
Status verify(Link& link, const Plan& plan, const Buffers& buffers, Stream& stream, bool all_slots_used) {
  if (plan.op != Op::kSend && all_slots_used) {
    if (Status status = compare_destination(link, plan, buffers, kFirstSeed); !status.ok()) return status;
  }
  if (Status status = fill_source(link, plan, buffers, kSecondSeed); !status.ok()) return status;
  if (const Result<Json> started = link.ask("start"); !started) return started.error();  // forgets old checksums
  if (Status status = stream.once_each(kChecked); !status.ok()) return status;
  return compare_destination(link, plan, buffers, kSecondSeed);
}

class BandwidthLoad final : public Load {
 public:
  BandwidthLoad(Link& link, const Plan& plan, Buffers buffers)
      : link_(link), plan_(plan), buffers_(std::move(buffers)), stream_(link_, plan_, buffers_) {}

  Status prepare() {
    if (Status status = fill_source(link_, plan_, buffers_, kFirstSeed); !status.ok()) return status;
    return stream_.prepare();
  }

  Status warm_up(double seconds, std::uint64_t operations) override {
    Course course = Course::warm_up(plan_, seconds, operations);
    return stream_.run(course, nullptr);
  }

  Result<Sample> timed(double seconds, std::uint64_t operations) override {
    Sample sample;
    sample.size = buffers_.size();
    const Result<std::uint64_t> received = time_it(link_, plan_, seconds, operations, sample, [&](Course& course) {
      return stream_.run(course, &sample.latency);
    });
    if (!received) return received.error();
    const std::uint64_t sent = sample.iterations + sample.late;
    if (plan_.op == Op::kSend && *received != sent) {
      return Status(Code::kDataLoss, fmt::format("{} messages were sent, {} arrived", sent, *received));
    }
    timed_ = std::max(timed_, sent);
    sample.interrupted = plan_.stopped();
    return sample;
  }

  Status verify() override {
    return fairlead::bench::verify(link_, plan_, buffers_, stream_, timed_ >= buffers_.slots());
  }

 private:
  Link& link_;
  const Plan& plan_;
  Buffers buffers_;
  Stream stream_;
  std::uint64_t timed_ = 0;  // the most operations of one run, which went round the slots
};

}  // namespace

Result<std::unique_ptr<Load>> make_bandwidth_load(Link& link, const Plan& plan, std::uint64_t size) {
  const std::uint64_t batches = std::min(plan.footprint / size, plan.depth) / plan.batch;
  const std::uint64_t slots = std::max<std::uint64_t>(batches, 1) * plan.batch;
  Result<Buffers> buffers = Buffers::prepare(link, plan, size, slots, false, {});
  if (!buffers) return buffers.error();
  auto load = std::make_unique<BandwidthLoad>(link, plan, *std::move(buffers));
  if (Status status = load->prepare(); !status.ok()) return status;
  return std::unique_ptr<Load>(std::move(load));
}

}  // namespace fairlead::bench
