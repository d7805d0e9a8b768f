#include "datapath/region/probe.h"

#include <span>

namespace fairlead::datapath {

Result<std::unique_ptr<Probe>> Probe::make(MemoryDomain& domain) {
  std::unique_ptr<Probe> probe(new Probe(domain));
  const MemoryDescriptor all{.bytes = probe->memory_, .access = Access::kRemoteWrite};
  const Result<Registration> registration = domain.register_memory(all);
  if (!registration) return registration.error();
  probe->registration_ = *registration;
  probe->registered_ = true;
  const Result<Grant> target = domain.grant(part_of(all, all.bytes.first(kProbeBytes), Access::kRemoteWrite));
  if (!target) return target.error();
  probe->target_ = *target;
  probe->granted_ = true;
  return probe;
}

Probe::~Probe() {
  if (granted_) domain_.revoke(target_);
  if (registered_) domain_.deregister(registration_);
}

}  // namespace fairlead::datapath
