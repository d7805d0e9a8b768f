#include "verbs/soft/api/registration.h"

#include "base/guarded.h"
#include "verbs/soft/api/objects.h"
#include "verbs/soft/observe/refuse.h"

namespace fairlead::soft {
namespace {

constexpr unsigned kBasic =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_HUGETLB;
constexpr unsigned kFull =
    kBasic | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_ON_DEMAND;

bool wraps(std::uint64_t address, std::size_t length) noexcept { return address + length < address; }

}  // namespace

int check_access(std::string_view verb, unsigned access, Profile profile) {
  const unsigned known = profile == Profile::kFull ? kFull : kBasic;
  // Optional flags are hints; relaxed ordering, for one, is what this device does anyway.
  const unsigned unknown = access & ~known & ~static_cast<unsigned>(IBV_ACCESS_OPTIONAL_RANGE);
  if (unknown != 0) {
    return refuse_with(EOPNOTSUPP, fmt::format("{}: access flags {:#x} are not supported; this device knows {:#x}",
                                               verb, unknown, known));
  }
  // IBTA 10.6.3.1: a peer may write only what the owner may.
  if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0) {
    return refuse_with(EINVAL,
                       fmt::format("{}: remote write and remote atomic access require local write access", verb));
  }
  return 0;
}

Mr* register_region(Pd& pd, const Registration& wanted) {
  Device& device = impl(pd.context);
  if (const int error = check_access(wanted.verb, wanted.access, device.profile()); error != 0) return nullptr;
  if (wraps(reinterpret_cast<std::uintptr_t>(wanted.start), wanted.length) || wraps(wanted.base, wanted.length)) {
    return refuse(EINVAL, fmt::format("{}: {} bytes at {} wrap around the address space", wanted.verb, wanted.length,
                                      static_cast<void*>(wanted.start)));
  }
  install_fault_handlers();
  return make_or_errno(wanted.verb, [&]() -> Mr* {
    auto region = std::make_unique<Mr>();
    region->start = wanted.start;
    region->base = wanted.base;
    region->bytes = wanted.length;
    region->domain = &pd.root();
    region->access = wanted.access | kLocalRead;
    const DomainLock lock(device.domain());
    if (!device.domain().regions.add(*region)) {
      return refuse(ENOMEM,
                    fmt::format("{}: all {} keys are in use; register larger ranges", wanted.verb, MrTable::kMaxKeys));
    }
    device.domain().lender.map(*region);
    static_cast<ibv_mr&>(*region) = {pd.context,  &pd,         wanted.start, wanted.length,
                                     region->key, region->key, region->key};
    ++pd.users;
    return region.release();
  });
}

}  // namespace fairlead::soft
