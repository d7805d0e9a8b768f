#include "cli/models/file_checksums.h"

#include <algorithm>
#include <span>

#include "base/crc.h"
#include "base/guarded.h"
#include "bench/base/cpu_time.h"

namespace fairlead::cli {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 20;  // fits a cache, so that the copy costs little

std::span<const std::byte> mapped_part(const FileRange& range, std::uint64_t at) noexcept {
  if (range.mapped == nullptr) return {};
  return {range.mapped + at, static_cast<std::size_t>(std::min<std::uint64_t>(kPiece, range.bytes - at))};
}

/// False: the file was cut, which reading it says in words.
bool add_guarded(std::span<const std::byte> piece, std::uint32_t& crc) noexcept {
  return attempt(piece.data(), piece.size(), [&]() noexcept { crc = crc32(piece, crc); });
}

}  // namespace

FileChecksums::FileChecksums() : buffer_(kPiece), thread_([this](const std::stop_token& stop) { run(stop); }) {}

FileChecksums::~FileChecksums() = default;

void FileChecksums::add(const FileRange& range) {
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
    const FileRange range = waiting_.front();
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

Result<std::uint32_t> FileChecksums::checksum(const FileRange& range, const std::stop_token& stop) {
  std::uint32_t crc = 0;
  for (std::uint64_t at = 0; at < range.bytes && !stop.stop_requested();) {
    if (const auto piece = mapped_part(range, at); !piece.empty() && add_guarded(piece, crc)) {
      at += piece.size();
    } else {
      const Result<std::size_t> got = read_part(range, at, buffer_);
      if (!got) return got.error();
      crc = crc32(std::span(buffer_).first(*got), crc);
      at += *got;
    }
    cpu_seconds_.store(bench::thread_cpu_seconds(), std::memory_order_relaxed);
  }
  if (range.mapped != nullptr) {
    if (Status whole = check_end(range); !whole.ok()) return whole;
  }
  return crc;
}

}  // namespace fairlead::cli
