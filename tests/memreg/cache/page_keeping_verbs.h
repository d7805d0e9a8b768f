// A VerbsApi in memory whose regions keep the very pages they were registered with, as a device does that pins them.
//
// What is unmapped, moved, emptied or mapped over afterwards stays what it was for the region: whoever uses a key that
// has become stale is shown old bytes. Registering costs a virtual millisecond, which is counted and not slept, and
// locked memory, of which there may be a limit. Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "memreg/cache/registration_cache.h"
#include "pinned_pages.h"
#include "verbs/provider/verbs_api.h"

namespace fairlead::verbs::testing {

class PageKeepingVerbs {
 public:
  struct Limits {
    std::size_t locked_bytes = 0;  // 0: none
    bool keeps_pages = true;       // false: counts alone, for very many or very large regions
    int milliseconds = 1;          // of a registration
  };

  explicit PageKeepingVerbs(Limits limits);
  PageKeepingVerbs() : PageKeepingVerbs(Limits{}) {}
  ~PageKeepingVerbs();

  static const VerbsApi& api();
  /// Whether its pages are pinned as a device's are, also for fork().
  [[nodiscard]] static bool pins() { return PinnedPages::are_pinned(); }
  [[nodiscard]] ibv_device* device() noexcept { return &device_; }
  [[nodiscard]] ibv_pd* pd() noexcept { return pd_; }

  /// What the device would send from there; empty: the region does not hold it. Of a region that keeps its pages.
  [[nodiscard]] std::vector<std::byte> sends(std::uint32_t key, const void* address, std::size_t length);
  [[nodiscard]] std::size_t registrations() const;  // ever
  [[nodiscard]] std::size_t live() const;
  [[nodiscard]] std::size_t locked_bytes() const;
  [[nodiscard]] std::uint64_t milliseconds() const;  // that registering took

 private:
  struct Table;
  struct Device : ibv_device {
    PageKeepingVerbs* owner = nullptr;
  };
  struct Region {
    ibv_mr mr{};
    std::uintptr_t first_page = 0;
    std::size_t locked = 0;
    std::unique_ptr<PinnedPages> pages;
  };

  /// False, with errno: the pages cannot be had.
  bool keep(Region& region);

  const Limits limits_;
  Device device_{};
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  mutable std::mutex mutex_;                 // guards what follows
  std::map<std::uint32_t, Region> regions_;  // by key
  std::uint32_t last_key_ = 0;
  std::size_t ever_ = 0, locked_ = 0;
};

/// A cache's hook: registers with the double, as the verbs transport does.
[[nodiscard]] memreg::cache::RegisterHook hook_of(PageKeepingVerbs& verbs);
/// The key under which the byte at `address` is registered.
[[nodiscard]] std::uint32_t key_of(const memreg::cache::Lease& lease, const void* address);

}  // namespace fairlead::verbs::testing
