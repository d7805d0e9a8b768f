// CRC-32s of ranges of files, computed by a thread of its own beside whatever else goes on.
//
// Bytes that are mapped are summed where they are, others are read. A file that somebody cuts meanwhile is an error
// that names it, not a SIGBUS. Threads: one owner; its own thread is joined by finish() and by the destructor.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "cli/models/read_part.h"
#include "fairlead/status.h"

namespace fairlead::cli {

class FileChecksums {
 public:
  FileChecksums();
  ~FileChecksums();
  FileChecksums(const FileChecksums&) = delete;
  FileChecksums& operator=(const FileChecksums&) = delete;

  /// The file must stay open, and its path and its mapping alive, until finish() returns or this is gone.
  void add(const FileRange& range);
  /// Waits for all; their checksums in the order of the calls. Errors: kDataLoss for a file that ends too early, and
  /// what reading it gave.
  Result<std::vector<std::uint32_t>> finish();
  /// Processor time that it took so far.
  [[nodiscard]] double cpu_seconds() const noexcept { return cpu_seconds_.load(std::memory_order_relaxed); }

 private:
  void run(const std::stop_token& stop);
  Result<std::uint32_t> checksum(const FileRange& range, const std::stop_token& stop);

  std::vector<std::byte> buffer_;  // of the thread
  std::atomic<double> cpu_seconds_{0};
  std::mutex mutex_;  // guards what follows
  std::condition_variable_any changed_;
  std::deque<FileRange> waiting_;
  bool complete_ = false;  // no more are added
  std::vector<std::uint32_t> crcs_;
  Status status_;
  std::jthread thread_;  // last: it uses the rest
};

}  // namespace fairlead::cli
