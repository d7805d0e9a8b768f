// A pipeline on a device elsewhere in which nothing may be done twice.
//
//   fairlead-long-pipeline HOST:PORT SECONDS [TRANSPORT [SOFT_ADDRESS]]
//
// Three channels: batches go in, are added to a sum that stays on the device, and the sum comes out, step after step;
// fences between them. Every sum is checked: one batch that was left out, taken twice or out of order, and all that
// follow are wrong. After half of the time it says "halfway" with the number of steps; at the end comes a line of JSON:
// the steps, and the commands of all channels, which the server is to have counted as well. Exit code 1 with words if
// anything is wrong.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "bench/base/floor_program.h"
#include "fairlead/command.h"

namespace {

using namespace fairlead;  // NOLINT(google-build-using-namespace): a program of one file
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kNumbers = 4096;
constexpr std::size_t kBytes = kNumbers * sizeof(float);
constexpr std::size_t kPlaces = 4;               // for batches, and for sums that come back
constexpr std::uint64_t kMostSteps = 1'000'000;  // to which floats count exactly: a number of a batch is at most 15

[[noreturn]] void fail(const std::string& what) {
  fmt::print(stderr, "fairlead-long-pipeline: {}\n", what);
  std::exit(1);
}
template <typename T>
T must(Result<T> result) {
  if (!result) fail(result.error().to_string());
  return std::move(*result);
}
void must(const Status& status) {
  if (!status.ok()) fail(status.to_string());
}

float number(std::uint64_t step, std::uint32_t i) { return static_cast<float>((step * 7 + i) % 16); }

class Pipeline {
 public:
  explicit Pipeline(command::Session session)
      : session_(std::move(session)),
        in_(must(session_.open_channel())),
        work_(must(session_.open_channel())),
        out_(must(session_.open_channel())),
        sum_(session_.new_handle()),
        saxpy_(session_.new_handle()),
        expected_(kNumbers) {
    must(work_.allocate(sum_, kBytes));
    must(work_.load(saxpy_, "saxpy"));
    for (Place& place : places_) {
      place.came.resize(kNumbers);
      must(in_.allocate(place.batch = session_.new_handle(), kBytes));
      must(work_.allocate(place.sum = session_.new_handle(), kBytes));
    }
  }

  void step() {
    Place& place = places_[steps_ % kPlaces];
    if (steps_ >= kPlaces) {
      check(steps_ - kPlaces);
      must(in_.fence(place.worked));  // the batch that had the place is in the sum
    }
    std::vector<float> batch(kNumbers);
    for (std::uint32_t i = 0; i < kNumbers; ++i) batch[i] = number(steps_, i);
    must(in_.copy_in(place.batch, 0, std::as_bytes(std::span(batch))));
    must(work_.fence(must(in_.record())));
    using command::Pointer;
    must(work_.launch({saxpy_}, command::pack(1.0F, Pointer{place.batch}, Pointer{sum_}, kNumbers)));
    must(work_.copy_within(place.sum, 0, sum_, 0, kBytes));
    place.worked = must(work_.record());
    must(out_.fence(place.worked));
    place.left = must(out_.copy_out(std::as_writable_bytes(std::span(place.came)), place.sum, 0));
    ++steps_;
  }

  void end() {
    for (std::uint64_t step = steps_ - std::min<std::uint64_t>(steps_, kPlaces); step < steps_; ++step) check(step);
    for (command::Channel* channel : {&in_, &work_, &out_}) must(channel->synchronize());
  }

  [[nodiscard]] std::uint64_t steps() const { return steps_; }
  [[nodiscard]] std::uint64_t commands() const { return in_.last() + work_.last() + out_.last(); }
  [[nodiscard]] std::string transport() const { return session_.peer().transport(); }

 private:
  struct Place {
    command::Handle batch, sum;
    std::vector<float> came;
    command::Mark worked;
    std::uint64_t left = 0;
  };

  void check(std::uint64_t step) {
    const Place& place = places_[step % kPlaces];
    must(out_.wait(place.left));
    for (std::uint32_t i = 0; i < kNumbers; ++i) {
      expected_[i] += number(step, i);
      if (place.came[i] != expected_[i]) {
        fail(fmt::format("the sum after step {} has {} at {}, and {} is right", step, place.came[i], i, expected_[i]));
      }
    }
  }

  command::Session session_;
  command::Channel in_, work_, out_;
  const command::Handle sum_, saxpy_;
  std::array<Place, kPlaces> places_;
  std::vector<float> expected_;
  std::uint64_t steps_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || argc > 5) {
    fmt::print(stderr, "usage: fairlead-long-pipeline HOST:PORT SECONDS [TRANSPORT [SOFT_ADDRESS]]\n");
    return 2;
  }
  const std::chrono::seconds length(bench::number_argument(argv[2], 3600));
  EngineConfig config;
  if (argc > 3) config.transport = argv[3];
  if (argc > 4) config.verbs.soft_address = argv[4];
  Engine engine = must(Engine::create(config));
  Pipeline pipeline(must(command::Session::connect(engine, argv[1])));
  for (const auto half = Clock::now() + length; Clock::now() < half && pipeline.steps() < kMostSteps / 2;)
    pipeline.step();
  const std::uint64_t halfway = pipeline.steps();
  fmt::print("halfway after {} steps\n", halfway);
  std::fflush(stdout);
  while (pipeline.steps() < 2 * halfway) pipeline.step();
  pipeline.end();
  fmt::print("{{\"steps\": {}, \"commands\": {}, \"transport\": \"{}\"}}\n", pipeline.steps(), pipeline.commands(),
             pipeline.transport());
  return 0;
}
