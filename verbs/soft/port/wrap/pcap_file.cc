#include "verbs/soft/port/wrap/pcap_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "base/system/own_user.h"
#include "base/system/uncancelled.h"
#include "fairlead/log.h"

namespace fairlead::soft {
namespace {

constexpr std::uint32_t kMagic = 0xa1b23c4d;      // nanoseconds, in the writer's byte order
constexpr std::uint32_t kVersion = 4U << 16 | 2;  // 2.4: two 16-bit numbers, the major one first
static_assert(std::endian::native == std::endian::little);
constexpr std::uint32_t kSnapLength = 65535;
constexpr std::uint32_t kLinkTypeRaw = 101;
constexpr std::uint64_t kNanosPerSecond = 1'000'000'000;

std::string expand(std::string_view path) {
  std::string expanded(path);
  const std::string process = std::to_string(::getpid());
  for (std::size_t at = 0; (at = expanded.find("%p", at)) != std::string::npos; at += process.size()) {
    expanded.replace(at, 2, process);
  }
  return expanded;
}

Status refuse(const std::string& path, int error) {
  return {Code::kInvalidArgument,
          fmt::format("cannot write the capture file {}: {}; name a file in a directory that exists and that this "
                      "user may write to",
                      path, std::strerror(error))};
}

// The lock tells whether another process captures to this file: then it has the header already.
bool begin_file(int fd) noexcept {
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) {
    const std::array<std::uint32_t, 6> header{kMagic, kVersion, 0, 0, kSnapLength, kLinkTypeRaw};
    if (::ftruncate(fd, 0) != 0 || ::write(fd, header.data(), sizeof(header)) != sizeof(header)) return false;
  } else if (errno != EWOULDBLOCK) {
    return false;
  }
  return ::flock(fd, LOCK_SH) == 0;
}

}  // namespace

void PcapRecords::begin(std::uint64_t nanoseconds, std::size_t frame_bytes) {
  const std::array<std::uint32_t, 4> header{static_cast<std::uint32_t>(nanoseconds / kNanosPerSecond),
                                            static_cast<std::uint32_t>(nanoseconds % kNanosPerSecond),
                                            static_cast<std::uint32_t>(frame_bytes),
                                            static_cast<std::uint32_t>(frame_bytes)};
  static_assert(sizeof(header) == kPcapRecordHeaderBytes);
  append(std::as_bytes(std::span(header)));
}

Result<PcapFile*> PcapFile::open(std::string_view path) {
  // Never destroyed: a device may be left open at exit.
  static auto& mutex = *new std::mutex;
  static auto& files = *new std::map<std::string, std::unique_ptr<PcapFile>>;
  std::string name = expand(path);
  const std::lock_guard lock(mutex);
  if (const auto found = files.find(name); found != files.end()) return found->second.get();
  // Not for others: it holds what the frames carry.
  UniqueFd fd(::open(name.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  struct stat info{};
  if (fd && ::fstat(fd.get(), &info) == 0 && !is_own_user(info.st_uid)) {
    return {Code::kPermissionDenied,
            fmt::format("the capture file {} is uid {}'s, who could read what is captured; remove it or name another",
                        name, info.st_uid)};
  }
  if (!fd || !begin_file(fd.get())) return refuse(name, errno);
  auto& file = files[name];
  file.reset(new PcapFile(name, std::move(fd)));
  return file.get();
}

void PcapFile::write(const PcapRecords& records) noexcept {
  if (records.bytes().empty() || failed_.load(std::memory_order_relaxed)) return;
  // One call, so that the frames of several threads and processes do not mix: the file is open for appending.
  const ssize_t written = uncancelled::write(fd_.get(), records.bytes().data(), records.bytes().size());
  if (written == static_cast<ssize_t>(records.bytes().size()) || failed_.exchange(true)) return;
  log(LogLevel::kError, fmt::format("softroce: the capture file {} ends here: {}", path_,
                                    written < 0 ? std::strerror(errno) : "the disk is full"));
}

}  // namespace fairlead::soft
