// What the tests of the cache share: memory by mmap, a cache over the double, and what it would send.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "memreg/cache/registration_cache.h"
#include "page_keeping_verbs.h"

namespace fairlead::memreg::cache {

using verbs::testing::PageKeepingVerbs;

/// Where the kernel maps nothing of its own accord, because there is room above: what is unmapped there stays a hole
/// until the test maps it again. Far from what was given before.
inline void* own_address(std::size_t bytes) {
  static std::atomic<std::uintptr_t> next{std::uintptr_t{0x7e90} << 32};
  return reinterpret_cast<void*>(next.fetch_add(bytes + (std::size_t{1} << 20)));  // NOLINT(performance-no-int-to-ptr)
}

/// Pages of the test's own, at an address of its choice if it names one. They go when this does.
class Pages {
 public:
  explicit Pages(std::size_t count, void* at = nullptr, int flags = 0)
      : bytes_(count * page_bytes()),
        data_(static_cast<std::byte*>(::mmap(at != nullptr ? at : own_address(bytes_), bytes_, PROT_READ | PROT_WRITE,
                                             MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0))) {
    if (data_ == MAP_FAILED) data_ = nullptr;
  }
  Pages(Pages&& other) noexcept : bytes_(other.bytes_), data_(std::exchange(other.data_, nullptr)) {}
  ~Pages() { unmap(); }

  void unmap() noexcept {
    if (data_ != nullptr) ::munmap(std::exchange(data_, nullptr), bytes_);
  }
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::byte* page(std::size_t i) const noexcept { return data_ + i * page_bytes(); }
  [[nodiscard]] std::span<std::byte> all() const noexcept { return {data_, bytes_}; }
  [[nodiscard]] std::span<std::byte> pages(std::size_t first, std::size_t count) const noexcept {
    return all().subspan(first * page_bytes(), count * page_bytes());
  }
  void fill(char letter) const noexcept { std::memset(data_, letter, bytes_); }

 private:
  std::size_t bytes_;
  std::byte* data_;
};

/// Pages where nothing is mapped any more, full of that letter.
inline Pages mapped_again(std::span<std::byte> where, char letter) {
  Pages pages(where.size() / page_bytes(), where.data(), MAP_FIXED_NOREPLACE);
  EXPECT_EQ(pages.data(), where.data());
  if (pages.data() == where.data()) pages.fill(letter);
  return pages;
}

/// Runs `body` in a child, which ends without destructors. Its exit code; -1: it ended otherwise, or hung.
template <typename Body>
int in_child(const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    ::_exit(body());
  }
  int status = 0;
  const bool ended = child > 0 && ::waitpid(child, &status, 0) == child && WIFEXITED(status);
  return ended ? WEXITSTATUS(status) : -1;
}

/// Skips the test where memory cannot be watched.
class RegistrationCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto watcher = Watcher::shared(); !watcher) {
      GTEST_SKIP() << "memory cannot be watched here: " << watcher.error().message();
    }
  }

  void make(CacheConfig config = {}, PageKeepingVerbs::Limits limits = {}) {
    cache_.reset();
    verbs_ = std::make_unique<PageKeepingVerbs>(limits);
    cache_ = std::make_unique<RegistrationCache>(std::move(config), verbs::testing::hook_of(*verbs_));
  }
  [[nodiscard]] RegistrationCache& cache() { return *cache_; }
  [[nodiscard]] PageKeepingVerbs& verbs() { return *verbs_; }

  Lease found(std::span<std::byte> bytes) {
    Result<Lease> lease = cache_->find(bytes);
    EXPECT_TRUE(lease.has_value()) << lease.status().to_string();
    return lease ? *std::move(lease) : Lease();
  }
  /// What the device would send of these bytes, by the registration that the cache finds: their letters, each once.
  std::string sent(std::span<std::byte> bytes) {
    const Lease lease = found(bytes);
    return lease ? sent(lease, bytes) : "nothing";
  }
  std::string sent(const Lease& lease, std::span<const std::byte> bytes) {
    std::string letters;
    const auto sends = verbs_->sends(verbs::testing::key_of(lease, bytes.data()), bytes.data(), bytes.size());
    if (sends.size() != bytes.size()) return "too little";
    for (const std::byte each : sends) {
      if (letters.empty() || letters.back() != static_cast<char>(each)) letters += static_cast<char>(each);
    }
    return letters;
  }
  /// Waits until nothing is pinned but what is held or may be found.
  void settle() {
    cache_->trim();
    EXPECT_EQ(verbs_->locked_bytes(), cache_->stats().pinned_bytes);
  }
  void expect_nothing_pinned() {
    cache_->trim();
    EXPECT_EQ(verbs_->live(), 0U);
    EXPECT_EQ(verbs_->locked_bytes(), 0U);
    EXPECT_EQ(cache_->stats().pinned_bytes, 0U);
    EXPECT_EQ(cache_->stats().entries, 0U);
  }

 private:
  std::unique_ptr<PageKeepingVerbs> verbs_;
  std::unique_ptr<RegistrationCache> cache_;
};

}  // namespace fairlead::memreg::cache
