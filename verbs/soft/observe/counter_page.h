// Where a device's counters live: a page of memory that other processes of the user can read once it is published.
//
// The page is private at first. publish() puts it into a file in the user's run directory ($XDG_RUNTIME_DIR/fairlead,
// else /dev/shm/fairlead-UID), which says what it holds, so that programs of other versions read it too. Counting costs
// the same either way. The file is locked while its process lives and removed with the page; what a killed process
// leaves is removed by the next reader (live_devices.h). Processes of several PID namespaces, as containers have them,
// may share the directory: the file's name says of which the number is, counters.PROCESS-NAMESPACE.N.
// Threads: counters as counters.h says; publish() before the device is used.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/private_fd.h"
#include "base/system/fork_mark.h"
#include "verbs/soft/observe/counters.h"

namespace fairlead::soft {

inline constexpr std::uint32_t kCounterPageMagic = 0x43734c46;  // "FLsC"
inline constexpr std::uint32_t kCounterPageVersion = 1;
inline constexpr std::size_t kCounterPageBytes = 8192;
inline constexpr std::size_t kCounterNameBytes = 32;

/// How the page begins. Texts end with a zero. `count` values of 8 bytes lie at `values_at`, as many names of
/// kCounterNameBytes at `names_at`.
struct CounterPageHeader {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t process;
  std::uint32_t count;
  std::uint32_t values_at;
  std::uint32_t names_at;
  char device[64];
  char address[48];
  char program[16];
};

class CounterPage {
 public:
  CounterPage();
  ~CounterPage();
  CounterPage(const CounterPage&) = delete;
  CounterPage& operator=(const CounterPage&) = delete;

  [[nodiscard]] Counters& counters() noexcept { return layout_->counters; }
  /// Makes the page readable under these names. Where there is no place for the file it stays private; that is logged.
  void publish(std::string_view device, std::string_view address);
  /// The device is used at this address too. What does not fit any more gives way to the newest.
  void add_address(std::string_view address);

 private:
  struct Layout {
    CounterPageHeader header;
    Counters counters;
    char names[kMostCounters][kCounterNameBytes];
  };
  static_assert(sizeof(Layout) <= kCounterPageBytes);

  bool map_file(const std::string& directory);

  Layout* layout_;
  std::string path_;
  PrivateFd lock_;  // no child keeps it for longer
  const ForkMark fork_mark_;
};

/// The user's directory of published pages, made if it is not there; empty where that fails.
[[nodiscard]] std::string counter_directory();

/// The calling process's PID namespace (its inode); 0 where the system has none.
[[nodiscard]] std::uint64_t pid_namespace() noexcept;

}  // namespace fairlead::soft
