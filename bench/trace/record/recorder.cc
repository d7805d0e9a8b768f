// What a program asks of command channels, written down as a trace: a library that stands before libfairlead.
//
//   LD_PRELOAD=libfairlead-record.so FAIRLEAD_RECORD=FILE PROGRAM...        scripts/record_trace does it, and what
//   follows
//
// It has the Channel's functions by the same names, notes each call, and passes it on. At the program's end FILE gets a
// trace (docs/benchmarks.md, "Recordings"). With FAIRLEAD_RECORD_ALONE=1 each launch is waited for, and its device_ns
// is how long that took, less a round trip; the gaps are then of no use. Threads: calls are noted under a lock, one
// after the other; a gap is from the end of the last to the begin of the next.
#include <dlfcn.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fairlead/command.h"

namespace fairlead::inline v0::command {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

constexpr std::uint64_t kMostNs = 10'000'000'000, kLargestCopy = std::uint64_t{64} << 20;  // of the format
constexpr std::uint64_t kMostParameters = 4096;
constexpr std::size_t kMostCalls = 1'000'000, kMostStreams = 16;
constexpr int kRoundTrips = 50;

struct Call {
  const char* op;
  std::uint64_t gap_ns = 0, bytes_out = 0, bytes_back = 0, device_ns = 0;
  std::uint32_t stream = 0, on = 0;
  bool blocking = false;
};

/// The library's own function behind the one of that name here. A pointer to a member that is not virtual begins with
/// the function's address (Itanium C++ ABI, 2.3), and a member is called as a function whose first argument is the
/// object.
template <typename Return, typename... Arguments>
auto next(Return (Channel::*own)(Arguments...)) {
  void* address = nullptr;
  std::memcpy(&address, &own, sizeof address);
  Dl_info info{};
  void* const found =
      ::dladdr(address, &info) != 0 && info.dli_sname != nullptr ? ::dlsym(RTLD_NEXT, info.dli_sname) : nullptr;
  if (found == nullptr) {
    std::fprintf(stderr, "fairlead-record: there is no libfairlead behind this library\n");
    std::_Exit(127);
  }
  return reinterpret_cast<Return (*)(Channel*, Arguments...)>(found);
}

class Recorder {
 public:
  Recorder() {
    if (const char* const file = std::getenv("FAIRLEAD_RECORD")) file_ = file;
    if (const char* const name = std::getenv("FAIRLEAD_RECORD_NAME")) name_ = name;
    alone_ = std::getenv("FAIRLEAD_RECORD_ALONE") != nullptr;
  }
  ~Recorder() {
    if (!file_.empty()) write();
  }
  [[nodiscard]] bool alone() const noexcept { return alone_; }

  /// Before a call is passed on, and behind it.
  nanoseconds begin() {
    const std::lock_guard lock(mutex_);
    return calls_.empty() ? nanoseconds{0} : Clock::now() - last_end_;
  }
  void end(Call call, nanoseconds gap, const Channel& channel, bool accepted) {
    const std::lock_guard lock(mutex_);
    last_end_ = Clock::now();
    if (call.op == nullptr || !accepted) {  // what was computed before it is so before the next
      unused_gap_ += gap;
      return;
    }
    call.gap_ns = gap_of(gap);
    call.stream = stream_of(channel.number());
    add(call);
  }
  void end_wait(nanoseconds gap, const Channel& channel, std::uint64_t sequence) {
    const std::lock_guard lock(mutex_);
    last_end_ = Clock::now();
    const std::uint32_t stream = stream_of(channel.number());
    // A call and the wait for it that follows at once are one call that blocks.
    if (!calls_.empty() && calls_.back().stream == stream && sequence == channel.last() &&
        gap + unused_gap_ < kAtOnce) {
      calls_.back().blocking = true;
      return;
    }
    add({.op = "synchronize", .gap_ns = gap_of(gap), .stream = stream, .blocking = true});
  }
  std::uint32_t stream_of(std::uint32_t channel) {  // in the order in which channels are used
    return streams_.emplace(channel, static_cast<std::uint32_t>(streams_.size())).first->second;
  }
  std::mutex& mutex() noexcept { return mutex_; }
  nanoseconds round_trip{-1};  // measured before the first launch, if launches are measured

 private:
  static constexpr nanoseconds kAtOnce{1000};

  std::uint64_t gap_of(nanoseconds gap) {
    const nanoseconds all = gap + std::exchange(unused_gap_, nanoseconds{0});
    return std::min<std::uint64_t>(static_cast<std::uint64_t>(all.count()), kMostNs);
  }

  void add(const Call& call) {
    if (calls_.size() < kMostCalls) {
      calls_.push_back(call);
    } else {
      ++left_out_;
    }
  }

  void write() const {
    if (streams_.size() > kMostStreams || left_out_ != 0) {
      std::fprintf(stderr,
                   "fairlead-record: %zu channels, and %zu calls beyond %zu; a trace has at most %zu and none\n",
                   streams_.size(), left_out_, kMostCalls, kMostStreams);
      return;
    }
    std::FILE* const file = std::fopen(file_.c_str(), "w");
    if (file == nullptr) {
      std::fprintf(stderr, "fairlead-record: %s: %s\n", file_.c_str(), std::strerror(errno));
      return;
    }
    std::string name;
    for (const char letter : name_) {
      if (letter >= ' ' && letter < 127 && letter != '"' && letter != '\\') name += letter;
    }
    std::fprintf(file, "{\"fairlead_trace\":1,\"name\":\"%s\",\"made\":\"recorded by libfairlead-record\"}\n",
                 name.c_str());
    for (const Call& call : calls_) write(file, call);
    if (std::fclose(file) != 0) std::fprintf(stderr, "fairlead-record: %s: %s\n", file_.c_str(), std::strerror(errno));
  }

  static void write(std::FILE* file, const Call& call) {
    const auto number = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
    std::fprintf(file, "{\"gap_ns\":%llu,\"op\":\"%s\"", number(call.gap_ns), call.op);
    if (call.bytes_out != 0) std::fprintf(file, ",\"bytes_out\":%llu", number(call.bytes_out));
    if (call.bytes_back != 0) std::fprintf(file, ",\"bytes_back\":%llu", number(call.bytes_back));
    if (call.device_ns != 0) std::fprintf(file, ",\"device_ns\":%llu", number(call.device_ns));
    if (call.blocking) std::fprintf(file, ",\"blocking\":true");
    if (call.stream != 0) std::fprintf(file, ",\"stream\":%u", call.stream);
    if (std::string_view(call.op) == "fence") std::fprintf(file, ",\"on\":%u", call.on);
    std::fprintf(file, "}\n");
  }

  std::mutex mutex_;
  std::string file_, name_ = "recorded";
  bool alone_ = false;
  std::vector<Call> calls_;
  Clock::time_point last_end_;
  nanoseconds unused_gap_{0};  // before calls that are in no trace
  std::map<std::uint32_t, std::uint32_t> streams_;
  std::size_t left_out_ = 0;
};

Recorder& recorder() {
  static Recorder recorder;
  return recorder;
}

thread_local int depth = 0;  // calls that the library makes of itself are none of the program's
struct Within {
  Within() noexcept { ++depth; }
  Within(const Within&) = delete;
  Within& operator=(const Within&) = delete;
  ~Within() { --depth; }
};

/// Passes a call on, and notes it. `call.op` null: it is in no trace, and its time is no gap.
template <typename Passed>
auto noted(Call call, const Channel& channel, Passed pass) {
  if (depth != 0) return pass();
  const Within within;
  const nanoseconds gap = recorder().begin();
  auto result = pass();
  recorder().end(call, gap, channel, static_cast<bool>(result));
  return result;
}

/// The shortest of some: what others take of this host's cores is no part of it.
nanoseconds round_trip_of(Channel& channel) {
  static const auto record = next(&Channel::record);
  static const auto wait = next(&Channel::wait);
  nanoseconds least = nanoseconds::max();
  for (int i = 0; i < kRoundTrips; ++i) {
    const Clock::time_point begin = Clock::now();
    if (const auto mark = record(&channel)) (void)wait(&channel, mark->sequence, Stage::kComplete, nanoseconds::max());
    least = std::min<nanoseconds>(least, Clock::now() - begin);
  }
  return least;
}

/// The same of what keeps the device busy; measured, if that is wanted.
template <typename Passed>
Result<std::uint64_t> noted_work(std::uint64_t parameters, Channel& channel, Passed pass) {
  Call call{.op = "launch", .bytes_out = std::min(parameters, kMostParameters)};
  if (depth != 0 || !recorder().alone()) return noted(call, channel, pass);
  static const auto wait = next(&Channel::wait);
  const Within within;
  const nanoseconds gap = recorder().begin();
  (void)wait(&channel, channel.last(), Stage::kComplete, nanoseconds::max());
  if (recorder().round_trip < nanoseconds{0}) recorder().round_trip = round_trip_of(channel);
  const Clock::time_point begin = Clock::now();
  auto result = pass();
  if (result) (void)wait(&channel, *result, Stage::kComplete, nanoseconds::max());
  const auto taken = std::max<nanoseconds>(Clock::now() - begin - recorder().round_trip, nanoseconds{0});
  call.device_ns = std::min<std::uint64_t>(static_cast<std::uint64_t>(taken.count()), kMostNs);
  recorder().end(call, gap, channel, static_cast<bool>(result));
  return result;
}

/// A copy of more than a trace's call may have is several.
template <typename Passed>
Result<std::uint64_t> noted_copy(Call call, std::uint64_t Call::* bytes, const Channel& channel, Passed pass) {
  std::uint64_t left = call.*bytes;
  for (; depth == 0 && left > kLargestCopy; left -= kLargestCopy) {
    Call piece = call;
    piece.*bytes = kLargestCopy;
    recorder().end(piece, recorder().begin(), channel, true);
  }
  call.*bytes = left;
  return noted(call, channel, pass);
}

}  // namespace

Result<std::uint64_t> Channel::allocate(Handle handle, std::uint64_t bytes) {
  static const auto pass = next(&Channel::allocate);
  return noted({.op = nullptr}, *this, [&] { return pass(this, handle, bytes); });
}

Result<std::uint64_t> Channel::allocate_at(Handle handle, std::uint64_t address, std::uint64_t bytes) {
  static const auto pass = next(&Channel::allocate_at);
  return noted({.op = nullptr}, *this, [&] { return pass(this, handle, address, bytes); });
}

Result<std::uint64_t> Channel::release(Handle handle) {
  static const auto pass = next(&Channel::release);
  return noted({.op = nullptr}, *this, [&] { return pass(this, handle); });
}

Result<std::uint64_t> Channel::load(Handle function, std::string_view name) {
  static const auto pass =
      next(static_cast<Result<std::uint64_t> (Channel::*)(Handle, std::string_view)>(&Channel::load));
  return noted({.op = nullptr}, *this, [&] { return pass(this, function, name); });
}

Result<std::uint64_t> Channel::load_module(Handle module, std::span<const std::byte> image) {
  static const auto pass = next(&Channel::load_module);
  return noted({.op = nullptr}, *this, [&] { return pass(this, module, image); });
}

Result<std::uint64_t> Channel::load(Handle function, Handle module, std::string_view name,
                                    std::span<const Parameter> parameters) {
  static const auto pass = next(
      static_cast<Result<std::uint64_t> (Channel::*)(Handle, Handle, std::string_view, std::span<const Parameter>)>(
          &Channel::load));
  return noted({.op = nullptr}, *this, [&] { return pass(this, function, module, name, parameters); });
}

Result<std::uint64_t> Channel::fill(Handle to, std::uint64_t offset, std::uint64_t bytes, std::uint8_t value) {
  static const auto pass = next(&Channel::fill);
  return noted_work(0, *this, [&] { return pass(this, to, offset, bytes, value); });
}

Result<std::uint64_t> Channel::copy_in(Handle to, std::uint64_t offset, std::span<const std::byte> from) {
  static const auto pass = next(&Channel::copy_in);
  return noted_copy({.op = "copy_in", .bytes_out = from.size()}, &Call::bytes_out, *this,
                    [&] { return pass(this, to, offset, from); });
}

Result<std::uint64_t> Channel::copy_out(std::span<std::byte> to, Handle from, std::uint64_t offset) {
  static const auto pass = next(&Channel::copy_out);
  return noted_copy({.op = "copy_out", .bytes_back = to.size()}, &Call::bytes_back, *this,
                    [&] { return pass(this, to, from, offset); });
}

Result<std::uint64_t> Channel::copy_within(Handle to, std::uint64_t to_offset, Handle from, std::uint64_t from_offset,
                                           std::uint64_t bytes) {
  static const auto pass = next(&Channel::copy_within);
  return noted_work(0, *this, [&] { return pass(this, to, to_offset, from, from_offset, bytes); });
}

Result<std::uint64_t> Channel::copy_across(Handle to, std::uint64_t to_offset, std::uint32_t from_device, Handle from,
                                           std::uint64_t from_offset, std::uint64_t bytes) {
  static const auto pass = next(&Channel::copy_across);
  return noted_work(0, *this, [&] { return pass(this, to, to_offset, from_device, from, from_offset, bytes); });
}

Result<std::uint64_t> Channel::upload(Handle handle, const Graph& graph) {
  static const auto pass = next(&Channel::upload);
  return noted({.op = nullptr}, *this, [&] { return pass(this, handle, graph); });
}

Result<std::uint64_t> Channel::update_graph(Handle graph, std::uint32_t number, const Launch& launch,
                                            std::span<const std::byte> parameters) {
  static const auto pass = next(&Channel::update_graph);
  return noted({.op = nullptr}, *this, [&] { return pass(this, graph, number, launch, parameters); });
}

Result<std::uint64_t> Channel::launch_graph(Handle graph) {
  static const auto pass = next(&Channel::launch_graph);
  return noted_work(0, *this, [&] { return pass(this, graph); });
}

Result<std::uint64_t> Channel::release_graph(Handle graph) {
  static const auto pass = next(&Channel::release_graph);
  return noted({.op = nullptr}, *this, [&] { return pass(this, graph); });
}

Result<std::uint64_t> Channel::launch(const Launch& launch, std::span<const std::byte> parameters) {
  static const auto pass = next(&Channel::launch);
  return noted_work(parameters.size(), *this, [&] { return pass(this, launch, parameters); });
}

Result<std::uint64_t> Channel::user(std::uint16_t opcode, std::span<const std::byte> bytes) {
  static const auto pass = next(&Channel::user);
  return noted_work(bytes.size(), *this, [&] { return pass(this, opcode, bytes); });
}

Result<Mark> Channel::record() {
  static const auto pass = next(&Channel::record);
  return noted({.op = "mark"}, *this, [&] { return pass(this); });
}

Result<std::uint64_t> Channel::fence(const Mark& mark) {
  static const auto pass = next(&Channel::fence);
  Call call{.op = mark.channel == number() ? nullptr : "fence"};  // of its own stream it waits for nothing
  if (depth == 0) {
    const std::lock_guard lock(recorder().mutex());
    call.on = recorder().stream_of(mark.channel);
  }
  return noted(call, *this, [&] { return pass(this, mark); });
}

Status Channel::wait(std::uint64_t sequence, Stage stage, std::chrono::nanoseconds timeout) {
  static const auto pass = next(&Channel::wait);
  if (depth != 0) return pass(this, sequence, stage, timeout);
  const Within within;
  const nanoseconds gap = recorder().begin();
  const bool waits = reached(stage) < sequence;
  const Status status = pass(this, sequence, stage, timeout);
  if (waits && status.ok()) {
    recorder().end_wait(gap, *this, sequence);
  } else {
    recorder().end({.op = nullptr}, gap, *this, false);
  }
  return status;
}

Status Channel::synchronize(std::chrono::nanoseconds timeout) {
  static const auto pass = next(&Channel::synchronize);
  if (depth != 0) return pass(this, timeout);
  const Within within;
  const nanoseconds gap = recorder().begin();
  const bool waits = reached(Stage::kComplete) < last();
  const Status status = pass(this, timeout);
  if (waits && status.ok()) {
    recorder().end_wait(gap, *this, last());
  } else {
    recorder().end({.op = nullptr}, gap, *this, false);
  }
  return status;
}

}  // namespace fairlead::inline v0::command
