// What the rings of softroce cost by themselves: a work request put into a queue and taken out again, with nobody else
// there, and with the other end on another thread.
//
//   fairlead-bench-queues --benchmark_enable_random_interleaving=true --benchmark_repetitions=9
//   --benchmark_min_time=0.1
#include <benchmark/benchmark.h>

#include <atomic>
#include <cstdint>
#include <thread>

#include "verbs/soft/queues/work_queue.h"

namespace fairlead::bench {
namespace {

using Queue = soft::WorkQueue<soft::SendWqe>;

constexpr std::uint32_t kEntries = 256, kSegments = 4;

// As ibv_post_send does under its mutex.
bool post(Queue& queue, std::uint64_t id) {
  const std::uint32_t tail = queue.poster_tail();
  if (queue.full(tail)) return false;
  soft::SendWqe& wqe = queue.at(tail);
  wqe = soft::SendWqe();
  wqe.id = id;
  wqe.opcode = IBV_WR_RDMA_WRITE;
  wqe.segments = 1;
  queue.segments(tail)[0] = {.addr = id, .length = 8, .lkey = 1};
  queue.publish(tail + 1);
  return true;
}

bool take(Queue& queue) {
  if (queue.empty()) return false;
  benchmark::DoNotOptimize(queue.at(queue.head()).id);
  queue.pop();
  return true;
}

void PostAndTake(benchmark::State& state) {
  Queue queue(kEntries, kSegments, 0);
  const auto batch = static_cast<std::uint64_t>(state.range(0));
  for (auto _ : state) {
    for (std::uint64_t i = 0; i < batch; ++i) post(queue, i);
    for (std::uint64_t i = 0; i < batch; ++i) take(queue);
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations() * batch));
}
BENCHMARK(PostAndTake)->Arg(1)->Arg(16)->Arg(256);

void PostToAnotherThread(benchmark::State& state) {
  Queue queue(kEntries, kSegments, 0);
  std::atomic<bool> done{false};
  std::thread taker([&] {
    while (!done || !queue.empty()) {
      if (!take(queue)) std::this_thread::yield();
    }
  });
  std::uint64_t id = 0;
  for (auto _ : state) {
    while (!post(queue, id)) std::this_thread::yield();
    ++id;
  }
  done = true;
  taker.join();
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations()));
}
BENCHMARK(PostToAnotherThread)->UseRealTime();

}  // namespace
}  // namespace fairlead::bench
