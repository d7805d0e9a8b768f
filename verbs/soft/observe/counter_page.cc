#include "verbs/soft/observe/counter_page.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/system/own_user.h"
#include "fairlead/log.h"

namespace fairlead::soft {
namespace {

template <std::size_t kBytes>
void copy_text(char (&to)[kBytes], std::string_view text) noexcept {
  const std::size_t length = std::min(text.size(), kBytes - 1);
  std::copy_n(text.data(), length, to);
  to[length] = '\0';
}

}  // namespace

// Other users must neither read nor plant pages.
std::string counter_directory() {
  if (const char* run = std::getenv("XDG_RUNTIME_DIR"); run != nullptr && *run == '/') {
    std::string path = std::string(run) + "/fairlead";
    if (make_own_directory(path).ok()) return path;
  }
  std::string path = fmt::format("/dev/shm/fairlead-{}", ::geteuid());
  return make_own_directory(path).ok() ? path : std::string();
}

std::uint64_t pid_namespace() noexcept {
  struct stat of_namespace{};
  return ::stat("/proc/self/ns/pid", &of_namespace) == 0 ? of_namespace.st_ino : 0;
}

CounterPage::CounterPage() {
  void* page = ::mmap(nullptr, kCounterPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) throw std::bad_alloc();
  layout_ = new (page) Layout{};
  CounterPageHeader& header = layout_->header;
  header.magic = kCounterPageMagic;
  header.version = kCounterPageVersion;
  header.values_at = offsetof(Layout, counters);
  header.names_at = offsetof(Layout, names);
  for (const CounterValue& counter : read(layout_->counters)) copy_text(layout_->names[header.count++], counter.name);
}

CounterPage::~CounterPage() {
  // A forked child has the page, but the file is its parent's.
  if (!path_.empty() && fork_mark_.is_mine()) ::unlink(path_.c_str());
  ::munmap(layout_, kCounterPageBytes);
}

// The file gets its final name when it is complete and locked, so that no reader takes it for a dead process's.
bool CounterPage::map_file(const std::string& directory) {
  static std::atomic<unsigned> next{0};
  const std::string name = fmt::format("{}-{}.{}", ::getpid(), pid_namespace(), next++);
  const std::string draft = directory + "/draft." + name;
  std::string path = directory + "/counters." + name;
  UniqueFd fd(::open(draft.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return false;
  // Allocated, not only sized: a page of a full file system would end the process when it is touched.
  const int full = ::posix_fallocate(fd.get(), 0, kCounterPageBytes);
  // By a descriptor of its own: a forked child's mapping would keep the other's lock.
  UniqueFd lock(::open(draft.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  bool mapped = full == 0 && lock && ::flock(lock.get(), LOCK_SH) == 0 &&
                ::pwrite(fd.get(), layout_, sizeof(Layout), 0) == static_cast<ssize_t>(sizeof(Layout)) &&
                ::rename(draft.c_str(), path.c_str()) == 0;
  if (mapped) {
    // In place of the private page, so that references to the counters stay good.
    mapped = ::mmap(layout_, kCounterPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd.get(), 0) == layout_;
  }
  if (!mapped) {
    const int error = full != 0 ? full : errno;
    ::unlink(draft.c_str());
    ::unlink(path.c_str());
    errno = error;
    return false;
  }
  path_ = std::move(path);
  lock_ = PrivateFd(std::move(lock));
  return true;
}

void CounterPage::add_address(std::string_view address) {
  auto& text = layout_->header.address;
  const std::string all = fmt::format("{}, {}", text, address);
  copy_text(text, all.size() < sizeof(text) ? all : fmt::format("{}, ...", address));
}

void CounterPage::publish(std::string_view device, std::string_view address) {
  CounterPageHeader& header = layout_->header;
  header.process = static_cast<std::uint32_t>(::getpid());
  copy_text(header.device, device);
  copy_text(header.address, address);
  copy_text(header.program, ::program_invocation_short_name);
  const std::string directory = counter_directory();
  if (!directory.empty() && map_file(directory)) return;
  log(LogLevel::kInfo,
      fmt::format("softroce: the counters of {} are not visible to other processes: no file can be made in {}: {}",
                  device, directory.empty() ? "$XDG_RUNTIME_DIR or /dev/shm" : directory, std::strerror(errno)));
}

}  // namespace fairlead::soft
