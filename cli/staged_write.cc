#include "cli/staged_write.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <utility>

#include "base/crc.h"
#include "bench/base/cpu_time.h"

namespace fairlead::cli {
namespace {

constexpr std::size_t kChunk = std::size_t{1} << 20;   // of memory; what is larger goes in pieces
constexpr std::size_t kMostChunks = 64;                // as much as a long path can have under way
constexpr std::size_t kRead = std::size_t{256} << 10;  // at once: the sum finds it in the cache

/// Memory by the chunk. What was free last is used first: a near peer keeps few of them busy, which stay in the cache.
class Chunks {
 public:
  explicit Chunks(Engine& engine) : engine_(engine) {}

  struct Chunk {
    Memory memory;
    std::size_t used = 0;
  };
  using Held = std::shared_ptr<Chunk>;  // whoever has a part of it

  /// Null: all are held, wait. Error: there is not even one.
  Result<Held> take() {
    if (free_.empty()) {
      if (made_ == kMostChunks) return Held();
      Result<Memory> memory = engine_.allocate(kChunk);
      if (!memory && made_ == 0) return memory.error();
      if (!memory) return Held();
      free_.push_back(std::make_unique<Chunk>(*std::move(memory)));
      ++made_;
    }
    Chunk* const chunk = free_.back().release();
    free_.pop_back();
    chunk->used = 0;
    return Held(chunk, [this](Chunk* back) { free_.emplace_back(back); });
  }

 private:
  Engine& engine_;
  std::size_t made_ = 0;
  std::vector<std::unique_ptr<Chunk>> free_;
};

class StagedWrite {
 public:
  StagedWrite(Session& session, std::span<const FileMove> moves, bool sums)
      : session_(session), moves_(moves), sums_(sums), chunks_(session.engine()) {}

  Result<StagedFigures> run() {
    std::uint64_t total = 0;
    for (const FileMove& move : moves_) total += move.from.bytes;
    Progress progress(session_.console(), total);
    progress_ = &progress;
    const bench::Stopwatch watch;
    for (const FileMove& move : moves_) {
      if (const Status status = write(move); !status.ok()) return status;
    }
    while (!under_way_.empty()) {
      if (const Status status = finish_oldest(); !status.ok()) return status;
    }
    figures_.moved.seconds = watch.seconds();
    figures_.moved.cpu_seconds = watch.cpu_seconds() - sum_seconds_;
    return std::move(figures_);
  }

 private:
  struct Piece {
    const FileMove* of;
    Chunks::Held chunk;
    Memory local;
    RemoteMemory remote;
    bool last;          // of its tensor: its notification says that all of it is there
    Transfer transfer;  // not valid yet while others of its tensor are to be placed before it
  };

  Status write(const FileMove& move) {
    std::uint32_t crc = 0;
    for (std::uint64_t at = 0; at < move.from.bytes;) {
      const std::size_t bytes = std::min<std::uint64_t>(kChunk, move.from.bytes - at);
      if (const Status status = make_room(bytes); !status.ok()) return status;
      const bool last = at + bytes == move.from.bytes;
      Piece piece{&move, chunk_, chunk_->memory.slice(chunk_->used, bytes), move.remote.slice(at, bytes), last, {}};
      chunk_->used += bytes;
      if (const Status status = read(piece.local.bytes(), move, at, crc); !status.ok()) return status;
      if (!last || bytes == move.from.bytes) post(piece);
      under_way_.push_back(std::move(piece));
      at += bytes;
    }
    if (sums_) figures_.crcs.push_back(crc);
    return {};
  }

  /// Until chunk_ has so many bytes left and a transfer may be posted.
  Status make_room(std::size_t bytes) {
    while (!under_way_.empty() && under_way_.front().transfer.valid() && under_way_.front().transfer.done()) {
      if (const Status status = finish_oldest(); !status.ok()) return status;
    }
    while (under_way_.size() >= kMaxInFlight) {
      if (const Status status = finish_oldest(); !status.ok()) return status;
    }
    if (chunk_ != nullptr && kChunk - chunk_->used >= bytes) return {};
    chunk_.reset();
    while (chunk_ == nullptr) {
      Result<Chunks::Held> chunk = chunks_.take();
      if (!chunk) return chunk.error();
      chunk_ = *std::move(chunk);
      if (chunk_ != nullptr) break;
      if (const Status status = finish_oldest(); !status.ok()) return status;
    }
    return {};
  }

  Status read(std::span<std::byte> to, const FileMove& move, std::uint64_t at, std::uint32_t& crc) {
    while (!to.empty()) {
      const Result<std::size_t> got = read_part(move.from, at, to.first(std::min(to.size(), kRead)));
      if (!got) return got.error();
      if (sums_) {
        const double before = bench::thread_cpu_seconds();
        crc = crc32(to.first(*got), crc);
        sum_seconds_ += bench::thread_cpu_seconds() - before;
      }
      to = to.subspan(*got);
      at += *got;
    }
    return {};
  }

  void post(Piece& piece) {
    TransferOptions options;
    if (piece.last) options.notify = piece.of->notify;
    piece.transfer = session_.peer().write(piece.local, piece.remote, options);
  }

  Status finish_oldest() {
    Piece& oldest = under_way_.front();
    if (!oldest.transfer.valid()) post(oldest);  // all before it are placed
    if (const Status status = session_.finish(oldest.transfer, oldest.of->name); !status.ok()) return status;
    figures_.moved.bytes += oldest.local.size();
    progress_->update(figures_.moved.bytes);
    under_way_.pop_front();
    return {};
  }

  Session& session_;
  const std::span<const FileMove> moves_;
  const bool sums_;
  StagedFigures figures_;
  double sum_seconds_ = 0;
  Progress* progress_ = nullptr;
  Chunks chunks_;
  Chunks::Held chunk_;           // that is being filled
  std::deque<Piece> under_way_;  // the oldest first
};

}  // namespace

Result<StagedFigures> write_staged(Session& session, std::span<const FileMove> moves, bool sums) {
  return StagedWrite(session, moves, sums).run();
}

}  // namespace fairlead::cli
