// What copies of memory cost by themselves: the ground that shm and softroce within a host stand on
// (scripts/measure_same_host).
//
//   fairlead-bench-copy --benchmark_filter=1048576
//
// From one buffer to another, each of the bytes that are copied at a time. Memcpy: the C library's; Stream: past the
// caches; Pull: from the memory of another process, by the kernel (process_vm_readv); Ring: another process, on another
// core if there is one, copies into a ring of 1 MiB that both map, in pieces of 4 KiB, and this one out of it.
// bytes_per_second is of one direction.
#include <benchmark/benchmark.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <memory>

#include "base/stream_copy.h"

namespace fairlead::bench {
namespace {

template <typename Copy>
void copy_with(benchmark::State& state, Copy copy) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const auto from = std::make_unique<std::byte[]>(bytes), to = std::make_unique<std::byte[]>(bytes);
  std::memset(from.get(), 1, bytes);
  std::memset(to.get(), 2, bytes);
  benchmark::DoNotOptimize(from.get());  // else nobody reads what is copied, and a compiler may leave the copies out
  benchmark::DoNotOptimize(to.get());
  for (auto _ : state) {
    copy(to.get(), from.get(), bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void Memcpy(benchmark::State& state) {
  copy_with(state, [](auto... all) { std::memcpy(all...); });
}
void Stream(benchmark::State& state) {
  copy_with(state, [](auto... all) { stream_copy(all...); });
}

// A process that does `work` beside this one, away from its core, and goes with it. Where it could not be started,
// why_not() says so.
class Other {
 public:
  template <typename Work>
  explicit Other(Work work) : core_(::sched_getcpu()), id_(::fork()), error_(errno) {
    if (id_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    cpu_set_t others;
    std::memset(&others, 0xff, sizeof others);
    CPU_CLR(static_cast<unsigned>(core_), &others);
    ::sched_setaffinity(0, sizeof others, &others);  // refused where there is no other
    work();
    ::_exit(0);
  }
  ~Other() {
    if (id_ <= 0) return;
    ::kill(id_, SIGKILL);
    ::waitpid(id_, nullptr, 0);
  }
  Other(const Other&) = delete;
  Other& operator=(const Other&) = delete;
  [[nodiscard]] pid_t id() const noexcept { return id_; }
  [[nodiscard]] const char* why_not() const { return id_ < 0 ? std::strerror(error_) : nullptr; }
  /// It stays to be waited for: its number is nobody else's yet.
  [[nodiscard]] bool lives() const noexcept {
    siginfo_t ended{};
    return ::waitid(P_PID, static_cast<id_t>(id_), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid == 0;
  }

 private:
  int core_;
  pid_t id_;
  int error_;
};

constexpr const char* kEnded = "the other process has ended";

struct Unmap {
  template <typename Type>
  void operator()(Type* memory) const noexcept {
    ::munmap(memory, sizeof *memory);
  }
};

template <typename Type>
std::unique_ptr<Type, Unmap> shared() {
  void* const memory = ::mmap(nullptr, sizeof(Type), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return std::unique_ptr<Type, Unmap>(memory == MAP_FAILED ? nullptr : new (memory) Type);
}

void Pull(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const auto from = std::make_unique<std::byte[]>(bytes), to = std::make_unique<std::byte[]>(bytes);
  std::memset(to.get(), 2, bytes);
  const auto ready = shared<std::atomic<bool>>();
  if (ready == nullptr) return state.SkipWithError("no memory to share");
  const Other other([&] {
    std::memset(from.get(), 1, bytes);
    ready->store(true);
    for (;;) ::pause();
  });
  if (other.why_not() != nullptr) return state.SkipWithError(other.why_not());
  while (!ready->load()) {
    if (!other.lives()) return state.SkipWithError(kEnded);
    ::usleep(100);
  }
  for (auto _ : state) {
    const iovec here{to.get(), bytes}, there{from.get(), bytes};
    if (::process_vm_readv(other.id(), &here, 1, &there, 1, 0) != state.range(0)) {
      state.SkipWithError("the kernel does not let one process read another's memory");
      break;
    }
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

struct PieceRing {
  struct Piece {
    alignas(64) std::atomic<bool> full{false};
    alignas(64) std::array<std::byte, 4096> bytes;
  };
  std::array<Piece, 256> pieces;
};

void Ring(benchmark::State& state) {
  constexpr std::size_t kPiece = sizeof(PieceRing::Piece::bytes);
  constexpr unsigned kPollsBetweenLooks = 1U << 20;
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const auto from = std::make_unique<std::byte[]>(bytes), to = std::make_unique<std::byte[]>(bytes);
  std::memset(to.get(), 2, bytes);
  const auto ring = shared<PieceRing>();
  if (ring == nullptr) return state.SkipWithError("no memory to share");
  // False: the other process is gone.
  auto each_piece = [&, next = std::size_t{0}](bool full, auto lives, auto copy) mutable {
    for (std::size_t at = 0; at < bytes; at += kPiece, ++next) {
      PieceRing::Piece& piece = ring->pieces[next % ring->pieces.size()];
      for (unsigned polls = 1; piece.full.load(std::memory_order_acquire) != full; ++polls) {
        if (polls % kPollsBetweenLooks == 0 && !lives()) return false;
      }
      copy(piece, at);
      piece.full.store(!full, std::memory_order_release);
    }
    return true;
  };
  const Other other([from = from.get(), bytes, each_piece]() mutable {
    std::memset(from, 1, bytes);
    const auto fill = [from](auto& piece, std::size_t at) { std::memcpy(piece.bytes.data(), from + at, kPiece); };
    while (each_piece(false, [] { return true; }, fill)) {
    }
  });
  if (other.why_not() != nullptr) return state.SkipWithError(other.why_not());
  benchmark::DoNotOptimize(to.get());
  const auto lives = [&other] { return other.lives(); };
  const auto take = [&to](auto& piece, std::size_t at) { std::memcpy(to.get() + at, piece.bytes.data(), kPiece); };
  for (auto _ : state) {
    if (each_piece(true, lives, take)) continue;
    state.SkipWithError(kEnded);
    break;
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
BENCHMARK(Memcpy)->Arg(kMiB)->Arg(4 * kMiB)->Arg(16 * kMiB)->Arg(64 * kMiB)->UseRealTime();
BENCHMARK(Stream)->Arg(kMiB)->Arg(4 * kMiB)->Arg(16 * kMiB)->Arg(64 * kMiB)->UseRealTime();
BENCHMARK(Pull)->Arg(kMiB)->Arg(64 * kMiB)->UseRealTime();
BENCHMARK(Ring)->Arg(kMiB)->Arg(64 * kMiB)->UseRealTime();

}  // namespace
}  // namespace fairlead::bench
