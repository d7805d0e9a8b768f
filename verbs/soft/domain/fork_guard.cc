#include "verbs/soft/domain/fork_guard.h"

#include <pthread.h>

#include <mutex>
#include <vector>

#include "base/private_fd.h"
#include "verbs/soft/domain/domain.h"

namespace fairlead::soft {
namespace {

struct List {
  std::mutex mutex;
  std::vector<Domain*> domains;
};

List& list() {
  static List& instance = *new List;  // outlives every static that may still hold a device
  return instance;
}

void before_fork() {
  list().mutex.lock();
  for (Domain* domain : list().domains) domain->lock();
}

void after_fork() {
  for (Domain* domain : list().domains) domain->unlock();
  list().mutex.unlock();
}

}  // namespace

ForkGuard::ForkGuard(Domain& domain) : domain_(domain) {
  PrivateFd::watch_forks();
  static const int kHandlers = ::pthread_atfork(&before_fork, &after_fork, &after_fork);
  static_cast<void>(kHandlers);
  const std::lock_guard lock(list().mutex);
  list().domains.push_back(&domain_);
}

ForkGuard::~ForkGuard() {
  const std::lock_guard lock(list().mutex);
  std::erase(list().domains, &domain_);
}

}  // namespace fairlead::soft
