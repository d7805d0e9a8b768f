#include "pinned_pages.h"

#include <fcntl.h>
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/unique_fd.h"
#include "memreg/cache/pages.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace fairlead::verbs::testing {
namespace {

using memreg::cache::page_bytes;

/// Finds the pages for writing, as a device does that may write: else those nobody has written are the zero page.
void populate(std::span<std::byte> pages) {
  if (::madvise(pages.data(), pages.size(), MADV_POPULATE_WRITE) == 0 || errno != EINVAL) return;
  for (std::size_t at = 0; at < pages.size(); at += page_bytes())
    __atomic_fetch_or(reinterpret_cast<unsigned char*>(pages.data() + at), 0, __ATOMIC_RELAXED);
}

/// A part of a ring that is shared with the kernel.
class Shared {
 public:
  Shared() = default;
  Shared(int ring, std::size_t bytes, std::uint64_t which)
      : bytes_(bytes),
        data_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring,
                     static_cast<off_t>(which))) {}
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  ~Shared() {
    if (good()) ::munmap(data_, bytes_);
  }
  [[nodiscard]] bool good() const { return data_ != MAP_FAILED; }
  template <typename T>
  [[nodiscard]] T* at(std::size_t offset) const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(data_) + offset);
  }

 private:
  std::size_t bytes_ = 0;
  void* data_ = MAP_FAILED;
};

/// An io_uring with the pages as its only buffer: what lies in them comes out through a file.
class ByRing final : public PinnedPages {
 public:
  static std::unique_ptr<PinnedPages> hold(std::span<std::byte> pages) {
    auto held = std::unique_ptr<ByRing>(new ByRing(pages));
    held->ring_.reset(static_cast<int>(::syscall(SYS_io_uring_setup, 1, &held->parameters_)));
    if (!held->ring_) return nullptr;
    const iovec buffer{pages.data(), pages.size()};
    if (::syscall(SYS_io_uring_register, held->ring_.get(), IORING_REGISTER_BUFFERS, &buffer, 1) != 0) return nullptr;
    return held;
  }

  // At once, and not some time after the ring is closed.
  ~ByRing() override { ::syscall(SYS_io_uring_register, ring_.get(), IORING_UNREGISTER_BUFFERS, nullptr, 0); }

  std::vector<std::byte> read(std::size_t offset, std::size_t length) override {
    const io_sqring_offsets& sq = parameters_.sq_off;
    const io_cqring_offsets& cq = parameters_.cq_off;
    const Shared submissions(ring_.get(), sq.array + parameters_.sq_entries * sizeof(std::uint32_t),
                             IORING_OFF_SQ_RING);
    const Shared completions(ring_.get(), cq.cqes + parameters_.cq_entries * sizeof(io_uring_cqe), IORING_OFF_CQ_RING);
    const Shared entries(ring_.get(), parameters_.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES);
    const UniqueFd file(::memfd_create("pinned", MFD_CLOEXEC));
    if (!submissions.good() || !completions.good() || !entries.good() || !file) return {};
    auto* const entry = entries.at<io_uring_sqe>(0);
    std::memset(entry, 0, sizeof *entry);
    entry->opcode = IORING_OP_WRITE_FIXED;
    entry->fd = file.get();
    entry->addr = first_ + offset;
    entry->len = static_cast<std::uint32_t>(length);
    *submissions.at<std::uint32_t>(sq.array) = 0;
    const auto tail = std::atomic_ref(*submissions.at<std::uint32_t>(sq.tail));
    tail.store(tail.load() + 1, std::memory_order_release);
    if (::syscall(SYS_io_uring_enter, ring_.get(), 1, 1, IORING_ENTER_GETEVENTS, nullptr, 0) != 1) return {};
    const auto head = std::atomic_ref(*completions.at<std::uint32_t>(cq.head));
    const std::uint32_t at = head.load() & *completions.at<std::uint32_t>(cq.ring_mask);
    const std::int32_t written = completions.at<io_uring_cqe>(cq.cqes)[at].res;
    head.store(head.load() + 1, std::memory_order_release);
    std::vector<std::byte> bytes(length);
    const bool all = written == static_cast<std::int32_t>(length) &&
                     ::pread(file.get(), bytes.data(), length, 0) == static_cast<::ssize_t>(length);
    return all ? bytes : std::vector<std::byte>();
  }

 private:
  explicit ByRing(std::span<std::byte> pages) : first_(reinterpret_cast<std::uintptr_t>(pages.data())) {}

  const std::uintptr_t first_;
  io_uring_params parameters_{};
  UniqueFd ring_;
};

struct Pipe {
  UniqueFd read, write;
};

bool open_pipe(Pipe& pipe) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return false;
  pipe.read.reset(ends[0]);
  pipe.write.reset(ends[1]);
  return true;
}

/// Pipes that are filled with the pages, and read through copies (tee(2)).
class ByPipes final : public PinnedPages {
 public:
  static std::unique_ptr<PinnedPages> hold(std::span<std::byte> pages) {
    auto held = std::make_unique<ByPipes>();
    for (std::size_t at = 0; at < pages.size();) {
      Pipe pipe;
      if (!open_pipe(pipe)) return nullptr;
      const std::size_t end = std::min(pages.size(), at + kPipePages * page_bytes());
      while (at < end) {
        iovec piece{pages.data() + at, end - at};
        const ::ssize_t kept = ::vmsplice(pipe.write.get(), &piece, 1, SPLICE_F_NONBLOCK);
        if (kept <= 0) return nullptr;
        at += static_cast<std::size_t>(kept);
      }
      held->pipes_.push_back(std::move(pipe.read));
    }
    return held;
  }

  std::vector<std::byte> read(std::size_t offset, std::size_t length) override {
    std::vector<std::byte> all;
    const std::size_t pipe_bytes = kPipePages * page_bytes();
    for (std::size_t i = offset / pipe_bytes; i <= (offset + length - 1) / pipe_bytes; ++i) {
      Pipe copy;
      if (!open_pipe(copy)) return {};
      const ::ssize_t held = ::tee(pipes_[i].get(), copy.write.get(), pipe_bytes, SPLICE_F_NONBLOCK);
      std::vector<std::byte> bytes(held > 0 ? static_cast<std::size_t>(held) : 0);
      std::size_t got = 0;
      while (got < bytes.size()) {
        const ::ssize_t n = ::read(copy.read.get(), bytes.data() + got, bytes.size() - got);
        if (n <= 0) return {};
        got += static_cast<std::size_t>(n);
      }
      const std::size_t from = i * pipe_bytes < offset ? offset - i * pipe_bytes : 0;
      const std::size_t to = std::min(bytes.size(), offset + length - i * pipe_bytes);
      if (from > to) return {};
      all.insert(all.end(), bytes.begin() + static_cast<std::ptrdiff_t>(from),
                 bytes.begin() + static_cast<std::ptrdiff_t>(to));
    }
    return all;
  }

 private:
  static constexpr std::size_t kPipePages = 16;  // what a pipe holds by default

  std::vector<UniqueFd> pipes_;  // kPipePages of them each
};

}  // namespace

bool PinnedPages::are_pinned() {
  static const bool kThey = [] {
    alignas(4096) static std::byte page[4096];
    return ByRing::hold(page) != nullptr;
  }();
  return kThey;
}

std::unique_ptr<PinnedPages> PinnedPages::hold(std::span<std::byte> pages) {
  populate(pages);
  // A plain user may pin less than the tests register.
  if (std::unique_ptr<PinnedPages> pinned = are_pinned() ? ByRing::hold(pages) : nullptr) return pinned;
  return ByPipes::hold(pages);
}

}  // namespace fairlead::verbs::testing
