#include "memreg/cache/watcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <span>
#include <system_error>
#include <vector>

#include "base/system/mapping_budget.h"
#include "base/system/no_descriptor.h"
#include "base/system/no_thread.h"
#include "base/system/quiet_thread.h"
#include "memreg/cache/mappings.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

namespace fairlead::memreg::cache {
namespace {

constexpr __u64 kFeatures =
    UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_REMAP;
constexpr int kLooks = 8;  // at what is mapped, until two agree
constexpr std::size_t kEvents = 16;

using Clock = std::chrono::steady_clock;
// Kernels before 6.14 forget that a mremap which fails half-way is over: then nothing is found any more, and this says
// so.
constexpr std::chrono::seconds kPatience{10};

uffdio_range kernel_range(Range pages) noexcept { return {.start = pages.begin, .len = pages.size()}; }

int start_watching(int fd, Range pages) noexcept {
  uffdio_register request{.range = kernel_range(pages), .mode = UFFDIO_REGISTER_MODE_WP, .ioctls = 0};
  return ::ioctl(fd, UFFDIO_REGISTER, &request) == 0 ? 0 : errno;
}

Status refused(std::string_view what, int error) {
  return {error == ENOMEM ? Code::kResourceExhausted : Code::kUnimplemented,
          fmt::format("{}: {}", what, std::strerror(error))};
}

Status cannot_watch(Range pages, int error) {
  std::string_view remedy;
  if (error == EBUSY) remedy = "; another userfaultfd of this process watches them: declare the memory";
  if (error == ENOMEM) remedy = "; each watched range takes up to two mappings more: raise vm.max_map_count";
  return {error == ENOMEM ? Code::kResourceExhausted : Code::kUnavailable,
          fmt::format("cannot watch {} bytes at {:#x}: {}{}", pages.size(), pages.begin, std::strerror(error), remedy)};
}

std::vector<Range> parts_of(const std::vector<Mapping>& mappings, Range range) {
  std::vector<Range> parts;
  for (const Mapping& each : mappings) {
    if (each.range.overlaps(range)) parts.push_back(each.range.within(range));
  }
  return parts;
}

}  // namespace

// ---- beginning and end

Result<std::shared_ptr<Watcher>> Watcher::open(WatcherProbes probes) {
  std::shared_ptr<Watcher> watcher(new Watcher);
  if (Status begun = watcher->begin(std::move(probes)); !begun.ok()) return begun;
  return watcher;
}

Result<std::shared_ptr<Watcher>> Watcher::shared() {
  // Never destroyed: a cache may outlive every static.
  struct Only {
    std::mutex mutex;
    std::weak_ptr<Watcher> watcher;  // of this process: under mutex
  };
  static Only& only = *new Only;
  static const int kHandlers = [] {
    PrivateFd::watch_forks();
    return ::pthread_atfork([] { only.mutex.lock(); }, [] { only.mutex.unlock(); },
                            [] {
                              only.watcher.reset();
                              only.mutex.unlock();
                            });
  }();
  static_cast<void>(kHandlers);
  const std::lock_guard lock(only.mutex);
  if (std::shared_ptr<Watcher> watcher = only.watcher.lock()) return watcher;
  Result<std::shared_ptr<Watcher>> made = open();
  if (made) only.watcher = *made;
  return made;
}

Status Watcher::begin(WatcherProbes probes) {
  probes_ = std::move(probes);
  const auto fd = ::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
  if (fd < 0 && is_descriptor_limit(errno)) return no_descriptor("userfaultfd", errno);
  if (fd < 0) return refused("userfaultfd is refused", errno);
  fd_ = PrivateFd(UniqueFd(static_cast<int>(fd)));
  uffdio_api api{.api = UFFD_API, .features = kFeatures, .ioctls = 0};
  if (::ioctl(fd_.get(), UFFDIO_API, &api) != 0) return refused("userfaultfd cannot tell of what is unmapped", errno);
  if ((api.features & kFeatures) != kFeatures) return refused("userfaultfd cannot tell of what is unmapped", ENOTSUP);
  void* const page =
      ::mmap(nullptr, page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (page == MAP_FAILED) return {Code::kResourceExhausted, fmt::format("mmap of a page: {}", std::strerror(errno))};
  sentinel_ = page;
  null_.reset(::open("/dev/null", O_RDWR | O_CLOEXEC));
  stop_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!null_ || !stop_) return {Code::kResourceExhausted, "no file descriptors left; raise `ulimit -n`"};
  const Range pages = sentinel();
  if (const int error = start_watching(fd_.get(), pages); error != 0) {
    return refused("userfaultfd cannot watch memory (UFFDIO_REGISTER_MODE_WP)", error);
  }
  if (const int error = protect_nothing(pages); error != 0 && error != EAGAIN) {
    return refused("userfaultfd cannot say whether a change is pending (UFFDIO_WRITEPROTECT)", error);
  }
  try {
    reader_ = quiet_thread("fl-cache-events", [this] { read_until_stopped(); });
  } catch (const std::system_error& error) {
    return no_thread("the registration cache", error);
  }
  return {};
}

Watcher::~Watcher() {
  stopping_.store(true);
  if (reader_.joinable()) {
    const std::uint64_t one = 1;
    // Cannot fail: the counter is 0. The flag alone would do for a reader that is not asleep.
    static_cast<void>(::write(stop_.get(), &one, sizeof one));
    reader_.join();
  }
  fd_.reset();  // first: without a reader, to unmap what is watched would wait for ever
  if (sentinel_ != nullptr) ::munmap(sentinel_, page_bytes());
}

void Watcher::add(Listener& listener) noexcept {
  const std::scoped_lock lock(watching_, reading_);
  listeners_.push_back(listener.link);
}

void Watcher::remove(Listener& listener) noexcept {
  const std::scoped_lock lock(watching_, reading_);
  listener.link.unlink();
}

// ---- events

void Watcher::read_until_stopped() noexcept {
  std::array<pollfd, 2> watched{{{fd_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}}};
  while (!stopping_.load()) {
    if (::poll(watched.data(), watched.size(), -1) <= 0 || watched[0].revents == 0) continue;
    if (probes_.before_read) probes_.before_read();
    drain();
  }
  // Ends the watching here: what follows in this thread gives memory back, and nobody reads any more. Whoever waits for
  // an event to be read goes on.
  ::dup3(null_.get(), fd_.get(), O_CLOEXEC);
}

void Watcher::drain() noexcept {
  const std::lock_guard lock(reading_);
  closed_.store(true);
  std::array<uffd_msg, kEvents> events{};
  const ::ssize_t got = ::read(fd_.get(), events.data(), sizeof events);
  for (std::size_t i = 0; got > 0 && i < static_cast<std::size_t>(got) / sizeof(uffd_msg); ++i) {
    const uffd_msg& event = events[i];
    const bool moved = event.event == UFFD_EVENT_REMAP, unmapped = event.event == UFFD_EVENT_UNMAP;
    Range gone;
    if (event.event == UFFD_EVENT_UNMAP || event.event == UFFD_EVENT_REMOVE) {
      gone = {event.arg.remove.start, event.arg.remove.end};
    } else if (moved) {
      // Of the old place the kernel tells by an event of its own, unless the mapping stays there (MREMAP_DONTUNMAP).
      gone = {event.arg.remap.from, event.arg.remap.from + event.arg.remap.len};
      note_moved({event.arg.remap.to, event.arg.remap.to + event.arg.remap.len});
    }
    for (Listener* each = listeners_.front(); each != nullptr; each = List<Listener>::next(each->link)) {
      each->on_gone(gone, unmapped);
      if (moved) each->on_moved();
    }
  }
  closed_.store(false);
}

/// With reading_ held.
void Watcher::note_moved(Range to) noexcept {
  const std::size_t count = count_of_moved_.load();
  if (count < kMostMoved) moved_.at(count) = to;
  count_of_moved_.store(std::min(count, kMostMoved) + 1);
}

/// 0, or an errno: EAGAIN while any change is pending, ENOENT where the pages are not watched.
int Watcher::protect_nothing(Range pages) const noexcept {
  uffdio_writeprotect request{.range = kernel_range(pages), .mode = 0};
  return ::ioctl(fd_.get(), UFFDIO_WRITEPROTECT, &request) == 0 ? 0 : errno;
}

/// The same once no change is pending; EAGAIN: one stays so for longer than any should.
int Watcher::ask(Range pages) noexcept {
  int error = protect_nothing(pages);
  if (error != EAGAIN && error != EINTR) return error;
  const Clock::time_point patience = Clock::now() + kPatience;
  while ((error == EAGAIN || error == EINTR) && Clock::now() < patience) {
    drain();
    ::sched_yield();  // what was read is over once the thread that did it has run
    error = protect_nothing(pages);
  }
  return error;
}

bool Watcher::catch_up() noexcept {
  if (ask(sentinel()) != 0) return false;
  // None is pending; but one may be read and not told.
  if (closed_.load()) {
    const std::lock_guard told(reading_);
  }
  return true;
}

// ---- ranges

// A range is registered with holes, and whatever is mapped into one afterwards is not watched. A look at what is mapped
// does not say what is watched, and asking that (UFFDIO_WRITEPROTECT) does not tell of holes. Together they do: the
// kernel never keeps what is watched and what is not as one mapping. So a mapping of which a part was watched, and
// which is the same afterwards, is watched as a whole, unless a change has been told by then.
Status Watcher::watch_alone(Range pages) {
  Status last;
  for (int look = 0; look < kLooks; ++look) {
    if (const int error = start_watching(fd_.get(), pages); error != 0) {
      const auto mappings = mappings_near(pages);
      if (!mappings) return mappings.error();
      if (Status good = check_watchable(*mappings, pages); !good.ok()) return good;
      last = cannot_watch(pages, error);
      continue;
    }
    const auto before = mappings_near(pages);
    if (!before) return before.error();
    if (Status good = check_watchable(*before, pages); !good.ok()) return good;
    const std::vector<Range> parts = parts_of(*before, pages);
    const bool watched = each_is_watched(parts);
    const auto after = mappings_near(pages);
    if (!after) return after.error();
    if (watched && parts == parts_of(*after, pages)) return {};
    last = {Code::kUnavailable, fmt::format("cannot watch {} bytes at {:#x}: what is mapped there keeps changing",
                                            pages.size(), pages.begin)};
  }
  return last;
}

bool Watcher::each_is_watched(const std::vector<Range>& parts) noexcept {
  for (const Range& part : parts) {
    if (ask({part.begin, part.begin + page_bytes()}) != 0) return false;
  }
  return true;
}

Status Watcher::watch(Range pages) {
  constexpr std::uint32_t kMappings = 2;  // more: one is cut in up to three
  if (const Status room = MappingBudget::own().take(kMappings); !room.ok()) {
    return {room.code(), fmt::format("cannot watch {} bytes at {:#x}: {}", pages.size(), pages.begin, room.message())};
  }
  const std::lock_guard lock(watching_);
  return watch_alone(pages);
}

void Watcher::unwatch(Range pages) noexcept {
  const std::lock_guard lock(watching_);
  unwatch_alone(pages);
}

// What grew as it was moved is one mapping, and all of that is watched. Of more than were remembered nobody knows where
// they are: all that is watched may be theirs.
void Watcher::unwatch_moved() noexcept {
  if (count_of_moved_.load() == 0) return;
  const std::lock_guard lock(watching_);
  std::array<Range, kMostMoved> moved{};
  std::size_t count = 0;
  {
    const std::lock_guard told(reading_);
    moved = moved_;
    count = count_of_moved_.exchange(0);
  }
  if (count > kMostMoved) {
    for (const Range& each : tracked_mappings()) unwatch_alone(each);
    return;
  }
  for (const Range& place : std::span(moved).first(count)) {
    const auto mappings = mappings_near(place);
    if (!mappings) continue;
    for (const Mapping& each : *mappings) {
      if (each.range.overlaps(place)) unwatch_alone(each.range);
    }
  }
}

/// With watching_ held.
void Watcher::unwatch_alone(Range pages) noexcept {
  if (const Range own = sentinel(); pages.overlaps(own)) {  // which may be of one mapping with what was moved
    if (pages.begin < own.begin) unwatch_alone({pages.begin, own.begin});
    if (own.end < pages.end) unwatch_alone({own.end, pages.end});
    return;
  }
  for (std::uintptr_t at = pages.begin; at < pages.end;) {
    Range nobodys{at, pages.end};
    for (Listener* each = listeners_.front(); each != nullptr; each = List<Listener>::next(each->link)) {
      const Range next = each->not_needed(pages, nobodys.begin);
      if (next.begin >= nobodys.end) {
        nobodys.begin = nobodys.end;
        break;
      }
      nobodys = nobodys.within(next);
    }
    if (!nobodys.empty()) stop_watching(nobodys);
    at = nobodys.end;
  }
}

// Before Linux 6.17 UFFDIO_UNREGISTER takes away what any userfaultfd of the process watches. To register what is this
// one's changes nothing, and is refused where it is another's.
bool Watcher::stop_watching_own(Range pages) noexcept {
  uffdio_range request = kernel_range(pages);
  return start_watching(fd_.get(), pages) == 0 && ::ioctl(fd_.get(), UFFDIO_UNREGISTER, &request) == 0;
}

void Watcher::stop_watching(Range pages) noexcept {
  if (probes_.before_unwatch) probes_.before_unwatch(pages);
  if (stop_watching_own(pages)) return;
  // Refused for all if anything was mapped there since that cannot be watched, or if nothing is mapped.
  const auto mappings = mappings_near(pages);
  if (!mappings) return;
  for (const Range& part : parts_of(*mappings, pages)) static_cast<void>(stop_watching_own(part));
}

}  // namespace fairlead::memreg::cache
