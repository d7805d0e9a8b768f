// Which CPUs a thread may run on: set, and read back.
//
// CPUs are the system's indexes. Threads: any; functions without state.
#pragma once

#include <pthread.h>

#include <span>
#include <vector>

#include "fairlead/status.h"

namespace fairlead {

/// Ascending; empty where the system does not say.
[[nodiscard]] std::vector<unsigned> affinity_of(pthread_t thread);
/// Errors: kInvalidArgument (none of them is one that this process may use), kPermissionDenied; nothing is changed
/// then.
Status set_affinity(pthread_t thread, std::span<const unsigned> cpus);

/// The calling thread, while this lives, may run where `cpus` says: threads that it starts inherit what it has. Of no
/// CPUs, and where the system refuses, it stays as it is.
class ElsewhereMeanwhile {
 public:
  explicit ElsewhereMeanwhile(std::span<const unsigned> cpus);
  ~ElsewhereMeanwhile();
  ElsewhereMeanwhile(const ElsewhereMeanwhile&) = delete;
  ElsewhereMeanwhile& operator=(const ElsewhereMeanwhile&) = delete;

 private:
  std::vector<unsigned> before_;  // empty: nothing to set again
};

}  // namespace fairlead
