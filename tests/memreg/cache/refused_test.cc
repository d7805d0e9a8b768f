// Where the system refuses userfaultfd: nothing is cached, said once, and declared memory still works.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <fstream>
#include <string_view>

#include "base/system/mapping_budget.h"
#include "base/system/process_limits.h"
#include "cached_memory.h"
#include "fairlead/log.h"
#include "tests/no_threads.h"
#include "tests/out_of_descriptors.h"
#include "tests/refused_call.h"

namespace fairlead::memreg::cache {
namespace {

std::atomic<int> warnings{0};
void count_warnings(LogLevel level, std::string_view line) {
  if (level == LogLevel::kWarning && line.find("declare memory") != std::string_view::npos) ++warnings;
}

constexpr int kSkipped = 77;

/// In a child. 0: as it should be; else the number of what was not.
int without_userfaultfd() {
  if (!test::refuse_call(SYS_userfaultfd, EPERM)) return kSkipped;
  set_log_sink(count_warnings);
  set_log_level(LogLevel::kWarning);
  PageKeepingVerbs verbs;
  RegistrationCache cache({}, verbs::testing::hook_of(verbs));
  Pages memory(4);
  memory.fill('a');
  const auto refused = cache.find(memory.all());
  if (refused.has_value() || refused.error().code() != Code::kUnimplemented) return 1;
  if (refused.error().message().find("userfaultfd is refused") == std::string::npos) return 2;
  if (cache.find(memory.all()).has_value() || warnings.load() != 1) return 3;
  if (verbs.registrations() != 0) return 4;
  if (!cache.declare(memory.all()).ok()) return 5;
  const auto lease = cache.find(memory.all());
  if (!lease) return 6;
  const auto sends = verbs.sends(verbs::testing::key_of(*lease, memory.data()), memory.data(), 1);
  return sends == std::vector<std::byte>{std::byte{'a'}} ? 0 : 7;
}

TEST(CacheRefused, OnlyDeclaredMemoryIsFoundAndItSaysSoOnce) {
  const int code = in_child(without_userfaultfd);
  if (code == kSkipped) GTEST_SKIP() << "no seccomp filters here";
  EXPECT_EQ(code, 0);
}

/// In a child: no thread or descriptor to be had, for a moment.
template <typename Shortage>
int without() {
  PageKeepingVerbs verbs;
  RegistrationCache cache({}, verbs::testing::hook_of(verbs));
  Pages memory(4);
  {
    const Shortage none;
    const auto refused = cache.find(memory.all());
    if (refused || refused.error().code() != Code::kResourceExhausted) return 1;
  }
  return cache.find(memory.all()) ? 0 : 2;
}

TEST(CacheRefused, ButOnlyForAsLongAsThereIsTooLittle) {
  if (!Watcher::shared()) GTEST_SKIP() << "memory cannot be watched here";
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "under ThreadSanitizer the child of a process with threads cannot start its own";
#endif
  EXPECT_EQ(in_child(without<test::NoThreads>), 0);
  EXPECT_EQ(in_child(without<test::OutOfDescriptors>), 0);
}

/// In a child: nearly as many mappings as there may be.
int without_mappings() {
  constexpr std::size_t kMost = 300'000, kLeft = 20;  // fewer than stay free for others
  std::ifstream file("/proc/sys/vm/max_map_count");
  std::size_t limit = 0;
  if (!(file >> limit) || limit > kMost || limit < 1000) return kSkipped;
  PageKeepingVerbs verbs;
  RegistrationCache cache({}, verbs::testing::hook_of(verbs));
  Pages memory(4), many(limit);
  if (!cache.find(memory.pages(0, 1)).has_value()) return 1;
  static_cast<void>(MappingBudget::own().take(2 * kMost));  // to count them anew
  for (std::size_t used = read_mappings(SystemFiles()).used, i = 0; used + kLeft < limit; used += 2, i += 2) {
    if (::mprotect(many.page(i), page_bytes(), PROT_READ) != 0) return 2;
  }
  const auto refused = cache.find(memory.pages(2, 1));
  if (refused || refused.error().code() != Code::kResourceExhausted) return 3;
  if (refused.error().message().find("vm.max_map_count is " + std::to_string(limit)) == std::string::npos) return 4;
  if (verbs.registrations() != 1 || !cache.find(memory.pages(0, 1)).has_value()) return 5;
  if (!cache.declare(memory.pages(2, 1)).ok()) return 6;
  many.unmap();
  return cache.find(memory.pages(3, 1)).has_value() ? 0 : 7;
}

TEST(CacheRefused, SomeMappingsAreLeftForOthers) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "under ThreadSanitizer the child of a process with threads cannot start its own";
#endif
  if (!Watcher::shared()) GTEST_SKIP() << "memory cannot be watched here";
  const int code = in_child(without_mappings);
  if (code == kSkipped) GTEST_SKIP() << "too many mappings are allowed here";
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace fairlead::memreg::cache
