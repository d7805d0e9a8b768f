// Lines of memory that two processes share: where they are, and what TSan is told of the order that a ring in them
// makes.
#pragma once

#ifdef __SANITIZE_THREAD__
extern "C" void __tsan_acquire(void* place);  // NOLINT: TSan's names
extern "C" void __tsan_release(void* place);
#endif

namespace fairlead {

/// Who reads the line next is on another core: to where both have it near, instead of out of this core's own cache.
/// For processors that cannot it is no operation.
inline void hand_over(const void* line) noexcept {
#if defined(__x86_64__)
  asm volatile("cldemote %0" : : "m"(*static_cast<const char*>(line)));
#else
  (void)line;
#endif
}

/// The line will be written, and is in another core's cache: it comes meanwhile. Not one that the other looks at.
inline void fetch_to_write(const void* line) noexcept {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

// TSan goes by addresses, and where a test has both ends of a ring in one process each sees it at one of its own. So
// whoever gives something to a ring, or takes it, says so. Without TSan nothing of this is there.
#ifdef __SANITIZE_THREAD__
inline char every_ring = 0;
inline void tell_tsan_of_release() noexcept { __tsan_release(&every_ring); }
inline bool tell_tsan_of_acquire(bool happened) noexcept {
  if (happened) __tsan_acquire(&every_ring);
  return happened;
}
#else
inline void tell_tsan_of_release() noexcept {}
inline bool tell_tsan_of_acquire(bool happened) noexcept { return happened; }
#endif

}  // namespace fairlead
