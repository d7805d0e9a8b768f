// A capture file: frames in pcap format, readable by Wireshark, tshark and tcpdump.
//
// Link type RAW (each frame begins with its IP header), time in nanoseconds since 1970. One file per path and process,
// shared by all devices. Frames are handed to the system with every write(), whole, so that a process that is killed
// leaves a readable file. Processes that capture to one path at the same time append to it in turn; the first of them
// empties it. `%p` in a path becomes the process's number.
// Threads: every call from any thread.
// Source: draft-ietf-opsawg-pcap (the file format).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "fairlead/status.h"

namespace fairlead::soft {

inline constexpr std::size_t kPcapFileHeaderBytes = 24;
inline constexpr std::size_t kPcapRecordHeaderBytes = 16;

/// Frames on their way to a capture file; each was begun with its time and complete length.
class PcapRecords {
 public:
  /// `nanoseconds` since 1970.
  void begin(std::uint64_t nanoseconds, std::size_t frame_bytes);
  void append(std::span<const std::byte> bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  /// Room for so many bytes more.
  [[nodiscard]] std::span<std::byte> extend(std::size_t count) {
    bytes_.resize(bytes_.size() + count);
    return last(count);
  }
  /// The last `count` bytes that were appended.
  [[nodiscard]] std::span<std::byte> last(std::size_t count) { return std::span(bytes_).last(count); }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }
  void clear() noexcept { bytes_.clear(); }

 private:
  std::vector<std::byte> bytes_;
};

class PcapFile {
 public:
  /// The process's file of that path, which stays open until the process ends. Errors name the file and the reason.
  static Result<PcapFile*> open(std::string_view path);

  /// If the system does not take them, this is logged once and the file gets nothing more.
  void write(const PcapRecords& records) noexcept;

 private:
  PcapFile(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  const std::string path_;
  const UniqueFd fd_;
  std::atomic<bool> failed_{false};
};

}  // namespace fairlead::soft
