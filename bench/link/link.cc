// A link with delay, rate, loss and reordering: two TAP devices, and between them this program.
//
//   fairlead-link NAME NAME [delay=NS] [rate=BITS_PER_S] [queue=BYTES] [loss=P] [reorder=P] [reorder_by=NS] [seed=N]
//                           [segments=0|1] [spin=NS]
//
// Makes the two interfaces in its network namespace, says "ready", and forwards until SIGTERM or SIGINT: then what had
// come by then crosses, and one line of JSON says what became of the frames of each direction. scripts/link puts the
// interfaces into two namespaces, and runs programs there. spin: so long before a frame is to leave, the thread no
// longer sleeps.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "bench/base/floor_program.h"
#include "bench/base/json.h"
#include "bench/link/tap.h"
#include "bench/link/wire.h"

namespace {

using namespace fairlead::bench;
using std::chrono::nanoseconds;

constexpr int kBatch = 64;              // frames that are read before what is due is looked at again
constexpr unsigned kDrained = 1 << 16;  // frames at most that are read after the end: more than a TAP device queues

struct Options {
  WireOptions wire;
  nanoseconds spin{0};
  bool segments = false;
};

nanoseconds now() { return std::chrono::steady_clock::now().time_since_epoch(); }

// A direction has a thread of its own, and shares nothing with the other.
class Direction {
 public:
  Direction(int from, int to, int stop, const Options& options)
      : from_(from), to_(to), stop_(stop), spin_(options.spin), wire_(options.wire), buffer_(kLargestTapFrame) {}

  void run() {
    while (!stopped_) {
      pass_what_is_due();
      if (read_some() == 0) wait();
    }
    for (unsigned read = 0, some = kBatch; some == kBatch && read < kDrained; read += some) {
      pass_what_is_due();
      some = read_some();
    }
    while (wire_.next()) {
      wait();
      pass_what_is_due();
    }
  }

  [[nodiscard]] Json report() const {
    const WireCounts& counts = wire_.counts();
    return Json::Object{{"frames", counts.offered},      {"packets", packets_},
                        {"bytes", counts.offered_bytes}, {"delivered", delivered_},
                        {"lost", counts.lost},           {"held_back", counts.held_back},
                        {"overtaken", counts.overtaken}, {"queue_full", counts.queue_full},
                        {"no_room", counts.no_room},     {"not_taken", not_taken_}};
  }

 private:
  void pass(std::span<const std::byte> frame) {
    ssize_t written;
    do {
      written = ::write(to_, frame.data(), frame.size());
    } while (written < 0 && errno == EINTR);
    ++(written < 0 ? not_taken_ : delivered_);  // an interface that is down takes none, as a port without a cable
  }

  void pass_what_is_due() {
    while (auto frame = wire_.take(now())) pass(*frame);
  }

  unsigned read_some() {
    for (int i = 0; i < kBatch; ++i) {
      const ssize_t size = ::read(from_, buffer_.data(), buffer_.size());
      if (size <= 0) {
        if (size < 0 && errno != EAGAIN && errno != EINTR) stopped_ = true;  // the interface is gone
        return static_cast<unsigned>(i);
      }
      const std::span frame(buffer_.data(), static_cast<std::size_t>(size));
      std::uint64_t packets = 0;
      const std::uint64_t line_bytes = bytes_on_the_line(frame, &packets);
      packets_ += packets;
      const nanoseconds time = now();
      if (wire_.next().value_or(nanoseconds::max()) <= time) pass_what_is_due();
      if (wire_.offer(time, frame, line_bytes)) pass(frame);
    }
    return kBatch;
  }

  void wait() {
    const auto next = wire_.next();
    const nanoseconds left = next ? *next - now() : nanoseconds::max();
    if (left <= spin_) return;
    const nanoseconds sleep = left - spin_;
    const timespec limit{.tv_sec = sleep.count() / 1'000'000'000, .tv_nsec = sleep.count() % 1'000'000'000};
    // Once it is to stop nothing more is read, and both descriptors may be readable for ever.
    std::array<pollfd, 2> files{
        {{.fd = from_, .events = POLLIN, .revents = 0}, {.fd = stop_, .events = POLLIN, .revents = 0}}};
    ::ppoll(files.data(), stopped_ ? 0 : files.size(), next ? &limit : nullptr, nullptr);
    stopped_ = stopped_ || (files[1].revents & POLLIN) != 0;
  }

  const int from_, to_, stop_;
  const nanoseconds spin_;
  Wire wire_;
  std::vector<std::byte> buffer_;
  std::uint64_t packets_ = 0, delivered_ = 0, not_taken_ = 0;
  bool stopped_ = false;
};

[[noreturn]] void refuse(std::string_view why) {
  fmt::print(stderr, "fairlead-link: {}\n", why);
  std::exit(2);
}

template <typename Number>
Number number(std::string_view setting, std::string_view text, Number most) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !(value >= Number{0} && value <= most)) {
    refuse(fmt::format("{}={}: a number from 0 to {} is wanted", setting, text, most));
  }
  return value;
}

Options parse(std::span<char*> settings) {
  constexpr std::int64_t kLongest = 3'600'000'000'000;  // an hour
  Options options;
  for (const std::string_view setting : settings) {
    const std::size_t at = setting.find('=');
    const std::string_view name = setting.substr(0, at);
    const std::string_view text = at == setting.npos ? std::string_view() : setting.substr(at + 1);
    const auto time = [&] { return nanoseconds(number<std::int64_t>(name, text, kLongest)); };
    const auto count = [&] { return number<std::uint64_t>(name, text, std::uint64_t{1} << 50); };
    const auto chance = [&] { return number<double>(name, text, 1); };
    if (name == "delay") {
      options.wire.delay = time();
    } else if (name == "rate") {
      options.wire.rate = count();
    } else if (name == "queue") {
      options.wire.queue_bytes = count();
    } else if (name == "loss") {
      options.wire.loss = chance();
    } else if (name == "reorder") {
      options.wire.reorder = chance();
    } else if (name == "reorder_by") {
      options.wire.reorder_by = time();
    } else if (name == "seed") {
      options.wire.seed = count();
    } else if (name == "segments") {
      options.segments = number<int>(name, text, 1) != 0;
    } else if (name == "spin") {
      options.spin = time();
    } else {
      refuse(fmt::format("there is no setting '{}'", name));
    }
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) refuse("usage: fairlead-link NAME NAME [SETTING=VALUE...]; the head of bench/link/link.cc says which");
  const Options options = parse(std::span(argv, static_cast<std::size_t>(argc)).subspan(3));
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::prctl(PR_SET_TIMERSLACK, 1UL);  // of the threads, too
  sigset_t ends;
  ::sigemptyset(&ends);
  ::sigaddset(&ends, SIGTERM);
  ::sigaddset(&ends, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &ends, nullptr);

  std::array<fairlead::UniqueFd, 2> taps;
  for (std::size_t i = 0; i < taps.size(); ++i) {
    auto tap = make_tap(argv[i + 1], options.segments);
    if (!tap) return fmt::print(stderr, "fairlead-link: {}\n", tap.error().to_string()), 1;
    taps[i] = std::move(*tap);
  }
  const fairlead::UniqueFd stop(::eventfd(0, EFD_CLOEXEC));
  if (!stop) die("eventfd");
  Options back = options;
  back.wire.seed = ~options.wire.seed;  // another row of chances than the first direction has
  Direction forth(taps[0].get(), taps[1].get(), stop.get(), options);
  Direction home(taps[1].get(), taps[0].get(), stop.get(), back);
  std::thread first([&] { forth.run(); }), second([&] { home.run(); });
  fmt::print("ready\n");
  std::fflush(stdout);
  int signal = 0;
  ::sigwait(&ends, &signal);
  const std::uint64_t one = 1;
  if (::write(stop.get(), &one, sizeof(one)) != sizeof(one)) die("eventfd");
  first.join();
  second.join();
  fmt::print("{}\n", Json(Json::Object{{"forth", forth.report()}, {"back", home.report()}}).dump());
}
