#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "bench/memory/arrival.h"
#include "bench/memory/published.h"
#include "bench/net/course.h"
#include "bench/net/load.h"
#include "bench/net/pace.h"

namespace fairlead::bench {
namespace {

using std::chrono::steady_clock;

constexpr std::uint64_t kFirstSeed = 3;
constexpr std::uint64_t kSecondSeed = 4;

// One round trip or one read at a time. Each subclass of round() below ends when the data is here again.
class Rounds {
 public:
  Rounds(Link& link, const Plan& plan, const Buffers& buffers, EndMemory echo)
      : link_(link),
        plan_(plan),
        buffers_(buffers),
        echo_(std::move(echo)),
        by_memory_(plan.arrival == Arrival::kMemory) {}

  Status prepare() {
    if (plan_.op == Op::kSend) return {};
    Result<Prepared> one = buffers_.prepared(link_, plan_.op, 0, 1);
    if (!one) return one.error();
    prepared_ = *std::move(one);
    return by_memory_ ? prepare_sources() : Status();
  }

  // Latencies are recorded unless that is nullptr.
  Status run(Course& course, Histogram* latency) {
    const Pace pace(plan_.rate, steady_clock::now());
    const Status status = pace.paced() ? run_paced(pace, course, latency) : run_in_a_row(course, latency);
    return status.ok() && plan_.op == Op::kRead ? link_.check() : status;
  }

  // Sends other data through and compares what came back.
  Status verify() {
    const std::uint64_t seeds[] = {kFirstSeed, kSecondSeed};
    by_memory_ = false;  // the data is to be safe to read
    const auto arrived = static_cast<std::uint8_t>(sequence_);
    for (const std::uint64_t seed : seeds) {
      if (plan_.op == Op::kRead) {
        if (seed == kSecondSeed) {
          if (Status cleared = buffers_.memory().clear(); !cleared.ok()) return cleared;
          if (const Result<Json> filled = link_.ask("fill", {{"seed", seed}}); !filled) return filled.error();
          if (Status status = round([] {}); !status.ok()) return status;
        }
        if (Status status = buffers_.compare(seed); !status.ok()) return status;
        continue;
      }
      if (Status filled = buffers_.memory().fill(seed); !filled.ok()) return filled;
      if (plan_.arrival == Arrival::kMemory) ArrivalByte(buffers_.local(0).bytes()).set(arrived);
      if (Status cleared = echo_.clear(); !cleared.ok()) return cleared;
      if (Status status = round([] {}); !status.ok()) return status;
      if (plan_.op == Op::kSend) std::ranges::copy(message_, echo_.all().data());
      const auto sent = buffers_.memory().checksums(), came = echo_.checksums();
      if (!sent || !came) return sent ? came.error() : sent.error();
      if (*sent != *came) {
        return {Code::kDataLoss, fmt::format("verification failed: {} bytes came back changed", buffers_.size())};
      }
    }
    return {};
  }

 private:
  // A round begins when it is on its way, and ends when the next one is: meanwhile there is time for the clock and the
  // books. The last one, which has no next, is not recorded, unless it is the only one.
  Status run_in_a_row(Course& course, Histogram* latency) {
    // A round trip is halved: latency is one way. A read is a whole.
    const std::int64_t ways = plan_.op == Op::kRead ? 1 : 2;
    const auto first = steady_clock::now();
    auto began = first;
    std::uint64_t finished = 0;
    const auto begin = [&] {
      const auto now = steady_clock::now();
      if (finished != 0) record(latency, now - began, ways);
      began = now;
    };
    do {
      if (Status status = round(begin); !status.ok()) return status;
      ++finished;
    } while (!is_over(course, finished, began));
    if (finished == 1) record(latency, steady_clock::now() - first, ways);
    return {};
  }

  // Counted from when each was due, as a whole.
  Status run_paced(const Pace& pace, Course& course, Histogram* latency) {
    for (std::uint64_t finished = 0;;) {
      const auto due = pace.due(finished);
      bool over = false;  // before the next was due
      const auto is_time = [&](auto now) { return (over = is_over(course, finished, now)) || due <= now; };
      if (Status status = link_.poll_until([&] { return is_time(steady_clock::now()); }); !status.ok()) return status;
      if (over) return {};
      if (Status status = round([] {}); !status.ok()) return status;
      ++finished;
      const auto now = steady_clock::now();
      record(latency, now - due, 1);
      if (is_over(course, finished, now)) return {};
    }
  }

  // Each of the rounds that have ended counts; there is one at least.
  static bool is_over(Course& course, std::uint64_t finished, steady_clock::time_point now) {
    course.ended(finished, now);
    const bool over = finished != 0 && course.is_over(finished, now);
    if (over) course.close();  // a signal may have come between the two
    return over;
  }

  static void record(Histogram* latency, steady_clock::duration took, std::int64_t ways) {
    if (latency != nullptr) latency->record(static_cast<std::uint64_t>(std::chrono::nanoseconds(took).count() / ways));
  }

  // What writes go from in turn, as the end of each is heard while the next is on its way.
  struct Source {
    EndMemory memory;
    ArrivalByte arrival;
    Prepared write;
  };
  Status prepare_sources() {
    for (Source& source : sources_) {
      Result<EndMemory> memory = EndMemory::allocate(link_.engine(), buffers_.size(), 1, plan_.memory);
      if (!memory) return memory.error();
      source.memory = *std::move(memory);
      source.arrival = ArrivalByte(source.memory.all().bytes());
      const Descriptor descriptor{source.memory.slot(0), buffers_.remote(0)};
      Result<Prepared> write = link_.peer().prepare_write({&descriptor, 1});
      if (!write) return write.error();
      source.write = *std::move(write);
    }
    return {};
  }

  // One round; `meanwhile` runs once it is on its way.
  template <typename Meanwhile>
  Status round(Meanwhile meanwhile) {
    if (plan_.op == Op::kRead) {
      posted_ = link_.peer().post(prepared_);
      meanwhile();
      return link_.finish(posted_);
    }
    ++sequence_;
    if (by_memory_) return round_by_memory(meanwhile);
    posted_ = plan_.op == Op::kWrite ? link_.peer().post(prepared_, {.notify = sequence_})
                                     : link_.peer().send(buffers_.local(0).bytes(), kEchoed);
    meanwhile();
    if (posted_.done() && posted_.code() != Code::kOk) return posted_.status();
    Result<Event> event = link_.next_spinning();
    if (!event) return event.error();
    if (plan_.op == Op::kWrite && (event->kind != Event::Kind::kNotification || event->value != sequence_)) {
      return {Code::kDataLoss, fmt::format("notification {} came back as {}", sequence_, event->value)};
    }
    if (plan_.op == Op::kSend) {
      if (event->kind != Event::Kind::kMessage || event->data.size() != buffers_.size()) {
        return {Code::kDataLoss, "a message came back with another size"};
      }
      message_ = std::move(event->data);
    }
    // The echo proves that it arrived, but what a write went from is free only once our own completion is here, too. A
    // message is copied when it is posted: its end is heard while the next is on its way.
    if (plan_.op == Op::kSend) return {};
    return link_.finish(posted_);
  }

  template <typename Meanwhile>
  Status round_by_memory(Meanwhile meanwhile) {
    const auto value = static_cast<std::uint8_t>(sequence_);
    Source& source = sources_[sequence_ % sources_.size()];
    source.arrival.set(value);
    before_ = std::exchange(posted_, link_.peer().post(source.write));  // and lets go of the one before that
    meanwhile();
    const ArrivalByte echoed(echo_.all().bytes());
    const auto failed = [](const Transfer& transfer) { return transfer.done() && transfer.code() != Code::kOk; };
    Status status = link_.poll_until([&] { return echoed.look() == value ? before_.done() : failed(posted_); });
    if (status.ok() && failed(posted_)) return posted_.status();
    return status.ok() && before_.valid() ? before_.status() : status;
  }

  Link& link_;
  const Plan& plan_;
  const Buffers& buffers_;
  EndMemory echo_;
  Prepared prepared_;
  std::array<Source, 2> sources_;
  std::vector<std::byte> message_;
  std::uint64_t sequence_ = 0;
  bool by_memory_;
  Transfer posted_, before_;
};

class LatencyLoad final : public Load {
 public:
  LatencyLoad(Link& link, const Plan& plan, EndMemory echo, Published published, Buffers buffers)
      : link_(link),
        plan_(plan),
        published_(std::move(published)),
        buffers_(std::move(buffers)),
        rounds_(link_, plan_, buffers_, std::move(echo)) {}

  Status prepare() {
    if (Status filled = buffers_.memory().fill(kFirstSeed); !filled.ok()) return filled;
    if (plan_.op == Op::kRead) {
      if (const Result<Json> filled = link_.ask("fill", {{"seed", kFirstSeed}}); !filled) return filled.error();
    }
    return rounds_.prepare();
  }

  Status warm_up(double seconds, std::uint64_t operations) override {
    Course course = Course::warm_up(plan_, seconds, operations);
    return rounds_.run(course, nullptr);
  }

  Result<Sample> timed(double seconds, std::uint64_t operations) override {
    Sample sample;
    sample.size = buffers_.size();
    const Result<std::uint64_t> received = time_it(link_, plan_, seconds, operations, sample, [&](Course& course) {
      return rounds_.run(course, &sample.latency);
    });
    if (!received) return received.error();
    sample.interrupted = plan_.stopped();
    return sample;
  }

  Status verify() override { return rounds_.verify(); }

 private:
  Link& link_;
  const Plan& plan_;
  Published published_;
  Buffers buffers_;
  Rounds rounds_;
};

}  // namespace

Result<std::unique_ptr<Load>> make_latency_load(Link& link, const Plan& plan, std::uint64_t size) {
  static std::uint64_t loads = 0;  // one engine may have several, each with a name of its own
  const std::string name = fmt::format("bench/echo/{}", ++loads);
  Result<EndMemory> echo = EndMemory::allocate(link.engine(), size, 1, plan.memory);
  if (!echo) return echo.error();
  Result<Published> published = Published::create(link.engine(), name, echo->all(), Access::kRemoteWrite);
  if (!published) return published.error();
  Result<Buffers> buffers =
      Buffers::prepare(link, plan, size, 1, true, plan.op == Op::kWrite ? name : std::string_view());
  if (!buffers) return buffers.error();
  auto load = std::make_unique<LatencyLoad>(link, plan, *std::move(echo), *std::move(published), *std::move(buffers));
  if (Status status = load->prepare(); !status.ok()) return status;
  return std::unique_ptr<Load>(std::move(load));
}

}  // namespace fairlead::bench
