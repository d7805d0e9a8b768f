// What a small write, and a tensor of many rows, take from posting to completion in one thread that drives both
// engines: the path through engine, transport and back, with no thread to be woken and nothing to wait for.
//
//   fairlead-bench-completion --benchmark_enable_random_interleaving=true --benchmark_repetitions=9
//   --benchmark_min_time=0.1
#include <benchmark/benchmark.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "fairlead/engine.h"

namespace fairlead::bench {
namespace {

class TwoEngines {
 public:
  static Result<TwoEngines> make(const std::string& transport, std::size_t bytes) {
    EngineConfig config;
    config.transport = transport;
    config.progress = Progress::kApplication;
    config.listen = "127.0.0.1:0";
    Result<Engine> there = Engine::create(config);
    if (!there) return there.error();
    config.listen.clear();
    Result<Engine> here = Engine::create(config);
    if (!here) return here.error();
    TwoEngines two(*std::move(here), *std::move(there));
    const Status status = two.connect(bytes);
    if (!status.ok()) return status;
    return two;
  }

  void poll() noexcept {
    static_cast<void>(here_.poll());
    static_cast<void>(there_.poll());
  }
  [[nodiscard]] Transfer write() { return peer_.post(write_); }
  /// `from` in our memory, to `to` in the other's.
  [[nodiscard]] Transfer write(const TensorSpec& from, const TensorSpec& to) {
    return peer_.write_tensor(source_, from, remote_, to);
  }

 private:
  TwoEngines(Engine here, Engine there) : here_(std::move(here)), there_(std::move(there)) {}

  Status connect(std::size_t bytes) {
    Result<Memory> target = there_.allocate(bytes);
    if (!target) return target.error();
    target_ = *std::move(target);
    const Result<std::string> capability = there_.export_(target_, Access::kRemoteWrite);
    if (!capability) return capability.error();
    Result<Peer> peer = here_.connect(there_.listen_address());
    if (!peer) return peer.error();
    peer_ = *peer;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (peer_.state() != PeerState::kReady) {
      if (std::chrono::steady_clock::now() > end) return {Code::kUnavailable, "no session came about"};
      poll();
    }
    // To import, the other end is asked, which takes turns of it that only we could give.
    Result<RemoteMemory> remote = Status(Code::kUnavailable, "not asked yet");
    std::thread asking([&] { remote = peer_.import_(*capability); });
    std::atomic<bool> asked{false};
    std::thread driving([&] {
      while (!asked) static_cast<void>(there_.poll());
    });
    asking.join();
    asked = true;
    driving.join();
    if (!remote) return remote.error();
    Result<Memory> source = here_.allocate(bytes);
    if (!source) return source.error();
    source_ = *std::move(source);
    remote_ = *std::move(remote);
    const Descriptor piece{source_, remote_};
    Result<Prepared> prepared = peer_.prepare_write({&piece, 1});
    if (!prepared) return prepared.error();
    write_ = *std::move(prepared);
    return {};
  }

  Engine here_, there_;
  Peer peer_;
  Memory source_, target_;
  RemoteMemory remote_;
  Prepared write_;
};

void PostToCompletion(benchmark::State& state, const std::string& transport) {
  Result<TwoEngines> two = TwoEngines::make(transport, static_cast<std::size_t>(state.range(0)));
  if (!two) return state.SkipWithError(two.error().to_string().c_str());
  for (auto _ : state) {
    const Transfer sent = two->write();
    while (!sent.done()) two->poll();
    if (sent.code() != Code::kOk) return state.SkipWithError(sent.status().to_string().c_str());
  }
}
BENCHMARK_CAPTURE(PostToCompletion, tcp, "tcp")->Arg(8)->Arg(4096);
BENCHMARK_CAPTURE(PostToCompletion, shm, "shm")->Arg(8)->Arg(4096);
BENCHMARK_CAPTURE(PostToCompletion, softroce, "verbs:soft0")->Arg(8)->Arg(4096);

// Rows of 256 bytes that lie apart here, and beside each other there: gathered from a cache whose rows have 1 KiB.
void GatherRows(benchmark::State& state, const std::string& transport) {
  constexpr std::int64_t kRow = 256, kApart = 1024;
  const std::int64_t rows = state.range(0);
  Result<TwoEngines> two = TwoEngines::make(transport, static_cast<std::size_t>(rows * kApart));
  if (!two) return state.SkipWithError(two.error().to_string().c_str());
  TensorSpec from, to;
  from.rank = to.rank = 2;
  from.shape = to.shape = {rows, kRow};
  from.strides = {kApart, 1};
  to.strides = {kRow, 1};
  for (auto _ : state) {
    const Transfer sent = two->write(from, to);
    while (!sent.done()) two->poll();
    if (sent.code() != Code::kOk) return state.SkipWithError(sent.status().to_string().c_str());
  }
  state.SetBytesProcessed(state.iterations() * rows * kRow);
}
BENCHMARK_CAPTURE(GatherRows, tcp, "tcp")->Arg(16)->Arg(1024);
BENCHMARK_CAPTURE(GatherRows, shm, "shm")->Arg(16)->Arg(1024);
BENCHMARK_CAPTURE(GatherRows, softroce, "verbs:soft0")->Arg(16)->Arg(1024);

}  // namespace
}  // namespace fairlead::bench
