#include "cli/models/file_checksums.h"

#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/crc.h"
#include "bench/base/file_output.h"

namespace fairlead::cli {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 20;  // fits a cache, so that the copy costs little

double thread_cpu_seconds() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

}  // namespace

FileChecksums::FileChecksums() : buffer_(kPiece), thread_([this](const std::stop_token& stop) { run(stop); }) {}

FileChecksums::~FileChecksums() = default;

void FileChecksums::add(const Range& range) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(range);
  }
  changed_.notify_one();
}

Result<std::vector<std::uint32_t>> FileChecksums::finish() {
  {
    const std::lock_guard lock(mutex_);
    complete_ = true;
  }
  changed_.notify_one();
  thread_.join();
  if (!status_.ok()) return status_;
  return std::move(crcs_);
}

void FileChecksums::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [this] { return !waiting_.empty() || complete_; }) && !waiting_.empty()) {
    const Range range = waiting_.front();
    waiting_.pop_front();
    lock.unlock();
    const Result<std::uint32_t> crc = checksum(range, stop);
    lock.lock();
    if (!crc) {
      status_ = crc.error();
      return;
    }
    crcs_.push_back(*crc);
  }
}

Result<std::uint32_t> FileChecksums::checksum(const Range& range, const std::stop_token& stop) {
  std::uint32_t crc = 0;
  for (std::uint64_t at = 0; at < range.bytes && !stop.stop_requested();) {
    const std::size_t want = std::min<std::uint64_t>(buffer_.size(), range.bytes - at);
    const ssize_t got = ::pread(range.fd, buffer_.data(), want, static_cast<off_t>(range.offset + at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return bench::file_error("read", *range.path, errno);
    if (got == 0) {
      return Status(Code::kDataLoss,
                    fmt::format("{} ends at byte {}, but had bytes up to {} when it was opened: somebody cut it",
                                *range.path, range.offset + at, range.offset + range.bytes));
    }
    crc = crc32(std::span(buffer_).first(static_cast<std::size_t>(got)), crc);
    at += static_cast<std::uint64_t>(got);
    cpu_seconds_.store(thread_cpu_seconds(), std::memory_order_relaxed);
  }
  return crc;
}

}  // namespace fairlead::cli
