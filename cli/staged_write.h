// Writes tensors of files through memory of the engine's pool: each byte is read once, and summed, if sums are wanted,
// while the cache still has it. So what is summed is what is sent.
//
// It costs a copy more than to write from the mapped file. Over shm that saves more than it takes: the peer copies from
// a pool that it has mapped, by its own instructions, and not out of the file's pages by the kernel's. The bytes are
// read, not mapped: a file that somebody cuts meanwhile is an error that names it, no SIGBUS. Threads: one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cli/models/read_part.h"
#include "cli/session.h"

namespace fairlead::cli {

/// A tensor in a file, written to all of `remote`, which is as large.
struct FileMove {
  std::string name;
  FileRange from;
  RemoteMemory remote;
  std::uint64_t notify = 0;
};

struct StagedFigures {
  MoveFigures moved;                // without the processor time of the sums
  std::vector<std::uint32_t> crcs;  // of each move, if they were wanted
};

/// Errors: the session's, the pool's, those of reading, which name the file; kDataLoss for a file that ends too early.
Result<StagedFigures> write_staged(Session& session, std::span<const FileMove> moves, bool sums);

}  // namespace fairlead::cli
