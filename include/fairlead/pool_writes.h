// Writes of bytes that are made as they go: read from a disk, unpacked, copied, summed. Made of the public API alone.
//
// They pass through a little memory of the engine's pool, which is used again and again while the cache still has it.
// That costs a copy, and is worth it where the bytes must be touched anyway (a checksum, of which it is certain then
// that what was summed is what was sent) and within a host: there the peer copies by its own instructions out of a pool
// that it has mapped, and needs the kernel for memory of any other kind.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "fairlead/engine.h"
#include "fairlead/memory.h"
#include "fairlead/peer.h"
#include "fairlead/status.h"
#include "fairlead/transfer.h"

namespace fairlead::inline v0 {

/// A series of writes to one peer, in their order. The engine and the peer must outlive it. If it goes before finish(),
/// what was posted goes on. Threads: one at a time.
class PoolWrites {
 public:
  /// Puts what the write has from its byte `at` on into all of `to`, 1 MiB at most. Called in order. What is not ok
  /// ends the write.
  using Fill = std::function<Status(std::span<std::byte> to, std::uint64_t at)>;
  /// Waits until `transfer`, a part of the write that came as number `write` (from 0), is done, and says how it ended,
  /// or gives up with what is not ok. The oldest is waited for first, and each once.
  using Wait = std::function<Status(const Transfer& transfer, std::size_t write)>;

  PoolWrites(Engine& engine, Peer& peer, Wait wait) : engine_(engine), peer_(peer), wait_(std::move(wait)) {}
  PoolWrites(const PoolWrites&) = delete;
  PoolWrites& operator=(const PoolWrites&) = delete;

  /// Fills all of `to`; may return before it is placed. `notify`: for the peer, once all of it is. After an error of
  /// this or of finish() nothing more should be written. Errors: the pool's, of which one chunk is needed; those of
  /// `fill`, of the transfers and of `wait`.
  Status write(const RemoteMemory& to, const Fill& fill, std::optional<std::uint64_t> notify = std::nullopt) {
    const std::size_t number = writes_++;
    for (std::uint64_t at = 0; at < to.size();) {
      const std::size_t bytes = std::min<std::uint64_t>(kChunk, to.size() - at);
      if (Status status = make_room(bytes); !status.ok()) return status;
      Piece piece{number, chunk_, chunk_->memory.slice(chunk_->used, bytes), to.slice(at, bytes), {}, {}};
      chunk_->used += bytes;
      if (Status status = fill(piece.local.bytes(), at); !status.ok()) return status;
      at += bytes;
      if (at == to.size()) piece.notify = notify;
      // The notification says that all is there: if there are pieces before it, once they are.
      if (!piece.notify || bytes == to.size()) post(piece);
      under_way_.push_back(std::move(piece));
    }
    return {};
  }

  /// Until all is placed.
  Status finish() {
    while (!under_way_.empty()) {
      if (Status status = finish_oldest(); !status.ok()) return status;
    }
    return {};
  }

 private:
  static constexpr std::size_t kChunk = std::size_t{1} << 20;
  static constexpr std::size_t kMostChunks = 64;  // as much as a long path can have under way
  static constexpr std::size_t kMostPieces = 256;

  struct Chunk {
    Memory memory;
    std::size_t used = 0;
  };
  struct Piece {
    std::size_t write;
    std::shared_ptr<Chunk> chunk;
    Memory local;
    RemoteMemory remote;
    std::optional<std::uint64_t> notify;
    Transfer transfer;  // not valid yet while others of its write are to be placed before it
  };

  // Until chunk_ has so many bytes left, and a piece may be added.
  Status make_room(std::size_t bytes) {
    while (!under_way_.empty() && under_way_.front().transfer.valid() && under_way_.front().transfer.done()) {
      if (Status status = finish_oldest(); !status.ok()) return status;
    }
    while (under_way_.size() >= kMostPieces) {
      if (Status status = finish_oldest(); !status.ok()) return status;
    }
    if (chunk_ != nullptr && kChunk - chunk_->used >= bytes) return {};
    chunk_.reset();
    for (;;) {
      Result<std::shared_ptr<Chunk>> chunk = take_chunk();
      if (!chunk) return chunk.error();
      chunk_ = *std::move(chunk);
      if (chunk_ != nullptr) return {};
      if (Status status = finish_oldest(); !status.ok()) return status;
    }
  }

  // What was free last, so that a near peer keeps few busy, which stay in the cache. Null: all are held.
  Result<std::shared_ptr<Chunk>> take_chunk() {
    if (free_->empty()) {
      if (made_ == kMostChunks) return std::shared_ptr<Chunk>();
      Result<Memory> memory = engine_.allocate(kChunk);
      if (!memory && made_ == 0) return memory.error();
      if (!memory) return std::shared_ptr<Chunk>();
      free_->push_back(std::make_unique<Chunk>(Chunk{*std::move(memory)}));
      ++made_;
    }
    Chunk* const chunk = free_->back().release();
    free_->pop_back();
    chunk->used = 0;
    return std::shared_ptr<Chunk>(chunk, [free = free_](Chunk* back) { free->emplace_back(back); });
  }

  void post(Piece& piece) {
    TransferOptions options;
    options.notify = piece.notify;
    piece.transfer = peer_.write(piece.local, piece.remote, options);
  }

  Status finish_oldest() {
    Piece& oldest = under_way_.front();
    if (!oldest.transfer.valid()) post(oldest);  // all before it are placed
    if (Status status = wait_(oldest.transfer, oldest.write); !status.ok()) return status;
    under_way_.pop_front();
    return {};
  }

  Engine& engine_;
  Peer& peer_;
  const Wait wait_;
  std::size_t writes_ = 0;
  std::size_t made_ = 0;  // chunks
  std::shared_ptr<std::vector<std::unique_ptr<Chunk>>> free_ = std::make_shared<std::vector<std::unique_ptr<Chunk>>>();
  std::shared_ptr<Chunk> chunk_;  // that is being filled
  std::deque<Piece> under_way_;   // the oldest first
};

}  // namespace fairlead::inline v0
