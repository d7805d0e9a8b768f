#include "page_keeping_verbs.h"

#include <cerrno>

#include "verbs/provider/registration.h"

namespace fairlead::verbs::testing {

using memreg::cache::page_bytes;

struct PageKeepingVerbs::Table {
  static PageKeepingVerbs& of(const ibv_device* device) { return *static_cast<const Device*>(device)->owner; }

  static ibv_device** get_device_list(int* count) {
    if (count != nullptr) *count = 0;
    return nullptr;
  }
  static void free_device_list(ibv_device**) {}
  static const char* get_device_name(ibv_device*) { return "keeper0"; }
  static ibv_context* open_device(ibv_device* device) {
    auto* context = new ibv_context{};
    context->device = device;
    return context;
  }
  static int close_device(ibv_context* context) {
    delete context;
    return 0;
  }
  static int query_device(ibv_context*, ibv_device_attr* attr) {
    *attr = {};
    attr->max_mr_size = ~std::uint64_t{0};
    attr->max_mr = 1 << 20;
    attr->page_size_cap = ~std::uint64_t{0xfff};
    attr->max_pd = 1;
    return 0;
  }
  static ibv_pd* alloc_pd(ibv_context* context) { return new ibv_pd{context, 0}; }
  static int dealloc_pd(ibv_pd* pd) {
    delete pd;
    return 0;
  }
  static ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t length, int) {
    PageKeepingVerbs& verbs = of(pd->context->device);
    const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(address), mask = page_bytes() - 1;
    Region region;
    region.first_page = begin & ~mask;
    region.locked = ((begin + length + mask) & ~mask) - region.first_page;
    {
      const std::lock_guard lock(verbs.mutex_);
      if (verbs.limits_.locked_bytes != 0 && verbs.locked_ + region.locked > verbs.limits_.locked_bytes) {
        errno = ENOMEM;
        return nullptr;
      }
      verbs.locked_ += region.locked;
    }
    const bool kept = !verbs.limits_.keeps_pages || verbs.keep(region);
    const int why = errno;
    const std::lock_guard lock(verbs.mutex_);
    if (!kept) {
      verbs.locked_ -= region.locked;
      errno = why;
      return nullptr;
    }
    ++verbs.ever_;
    const std::uint32_t key = ++verbs.last_key_;
    region.mr = {
        .context = pd->context, .pd = pd, .addr = address, .length = length, .handle = key, .lkey = key, .rkey = key};
    return &verbs.regions_.emplace(key, std::move(region)).first->second.mr;
  }
  static int dereg_mr(ibv_mr* mr) {
    PageKeepingVerbs& verbs = of(mr->context->device);
    const std::lock_guard lock(verbs.mutex_);
    const auto at = verbs.regions_.find(mr->lkey);
    if (at == verbs.regions_.end()) return EINVAL;
    verbs.locked_ -= at->second.locked;
    verbs.regions_.erase(at);
    return 0;
  }
  static std::string take_refusal() { return {}; }
  static DeviceActivity activity(ibv_context*) { return {}; }
};

const VerbsApi& PageKeepingVerbs::api() {
  static const VerbsApi table = [] {
    VerbsApi api{};
    api.source = "double";
    api.get_device_list = &Table::get_device_list;
    api.free_device_list = &Table::free_device_list;
    api.get_device_name = &Table::get_device_name;
    api.open_device = &Table::open_device;
    api.close_device = &Table::close_device;
    api.query_device = &Table::query_device;
    api.alloc_pd = &Table::alloc_pd;
    api.dealloc_pd = &Table::dealloc_pd;
    api.reg_mr = &Table::reg_mr;
    api.dereg_mr = &Table::dereg_mr;
    api.take_refusal = &Table::take_refusal;
    api.activity = &Table::activity;
    return api;
  }();
  return table;
}

PageKeepingVerbs::PageKeepingVerbs(Limits limits) : limits_(limits) {
  device_.owner = this;
  context_ = api().open_device(&device_);
  pd_ = api().alloc_pd(context_);
}

PageKeepingVerbs::~PageKeepingVerbs() {
  api().dealloc_pd(pd_);
  api().close_device(context_);
}

bool PageKeepingVerbs::keep(Region& region) {
  auto* const begin = reinterpret_cast<std::byte*>(region.first_page);  // NOLINT(performance-no-int-to-ptr)
  region.pages = PinnedPages::hold({begin, region.locked});
  return region.pages != nullptr;
}

std::vector<std::byte> PageKeepingVerbs::sends(std::uint32_t key, const void* address, std::size_t length) {
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find(key);
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  if (found == regions_.end()) return {};
  const Region& region = found->second;
  const auto first = reinterpret_cast<std::uintptr_t>(region.mr.addr);
  if (begin < first || begin + length > first + region.mr.length) return {};
  return region.pages->read(begin - region.first_page, length);
}

std::size_t PageKeepingVerbs::registrations() const {
  const std::lock_guard lock(mutex_);
  return ever_;
}

std::size_t PageKeepingVerbs::live() const {
  const std::lock_guard lock(mutex_);
  return regions_.size();
}

std::size_t PageKeepingVerbs::locked_bytes() const {
  const std::lock_guard lock(mutex_);
  return locked_;
}

std::uint64_t PageKeepingVerbs::milliseconds() const {
  const std::lock_guard lock(mutex_);
  return ever_ * static_cast<std::uint64_t>(limits_.milliseconds);
}

memreg::cache::RegisterHook hook_of(PageKeepingVerbs& verbs) {
  return [&verbs](std::span<std::byte> bytes) -> Result<std::shared_ptr<void>> {
    const VerbsApi& api = PageKeepingVerbs::api();
    Result<ibv_mr*> region = register_user_memory(api, verbs.pd(), "keeper0", bytes, Access::kNone);
    if (!region) return region.error();
    return std::shared_ptr<void>(*region, [&api](void* mr) { api.dereg_mr(static_cast<ibv_mr*>(mr)); });
  };
}

std::uint32_t key_of(const memreg::cache::Lease& lease, const void* address) {
  const memreg::cache::Piece& piece = lease.piece_at(reinterpret_cast<std::uintptr_t>(address));
  return static_cast<const ibv_mr*>(piece.registration.get())->lkey;
}

}  // namespace fairlead::verbs::testing
