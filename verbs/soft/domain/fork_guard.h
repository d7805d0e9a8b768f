// fork() waits for the locks of these domains, so that a child cannot inherit one that a thread of the parent's held.
//
// Threads: any. Lock order: the list, then the domains in its order.
#pragma once

namespace fairlead::soft {

class Domain;

/// Guards a domain for as long as it lives.
class ForkGuard {
 public:
  explicit ForkGuard(Domain& domain);
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

 private:
  Domain& domain_;
};

}  // namespace fairlead::soft
