#include "cli/staged_write.h"

#include <algorithm>

#include "base/crc.h"
#include "bench/base/cpu_time.h"
#include "fairlead/pool_writes.h"

namespace fairlead::cli {
namespace {

constexpr std::size_t kRead = std::size_t{256} << 10;  // at once: the sum finds it in the cache

/// What a tensor of a file is put into memory by, and its sum.
class Reader {
 public:
  Reader(const FileRange& from, bool sum) : from_(from), sum_(sum) {}

  Status fill(std::span<std::byte> to, std::uint64_t at) {
    while (!to.empty()) {
      const Result<std::size_t> got = read_part(from_, at, to.first(std::min(to.size(), kRead)));
      if (!got) return got.error();
      if (sum_) {
        const double before = bench::thread_cpu_seconds();
        crc_ = crc32(to.first(*got), crc_);
        seconds_ += bench::thread_cpu_seconds() - before;
      }
      to = to.subspan(*got);
      at += *got;
    }
    return {};
  }

  [[nodiscard]] std::uint32_t crc() const noexcept { return crc_; }
  [[nodiscard]] double seconds() const noexcept { return seconds_; }  // of processor time, of the sum alone

 private:
  const FileRange& from_;
  const bool sum_;
  std::uint32_t crc_ = 0;
  double seconds_ = 0;
};

}  // namespace

Result<StagedFigures> write_staged(Session& session, std::span<const FileMove> moves, bool sums) {
  std::uint64_t total = 0;
  for (const FileMove& move : moves) total += move.from.bytes;
  Progress progress(session.console(), total);
  StagedFigures figures;
  PoolWrites writes(session.engine(), session.peer(), [&](const Transfer& transfer, std::size_t number) {
    Status status = session.finish(transfer, moves[number].name);
    if (!status.ok()) return status;
    figures.moved.bytes += transfer.bytes();
    progress.update(figures.moved.bytes);
    return status;
  });
  double sum_seconds = 0;
  const bench::CpuStopwatch watch;
  for (const FileMove& move : moves) {
    Reader reader(move.from, sums);
    const Status status = writes.write(
        move.remote, [&](std::span<std::byte> to, std::uint64_t at) { return reader.fill(to, at); }, move.notify);
    if (!status.ok()) return status;
    if (sums) figures.crcs.push_back(reader.crc());
    sum_seconds += reader.seconds();
  }
  if (const Status status = writes.finish(); !status.ok()) return status;
  figures.moved.seconds = watch.seconds();
  figures.moved.cpu_seconds = watch.cpu_seconds() - sum_seconds;
  return figures;
}

}  // namespace fairlead::cli
