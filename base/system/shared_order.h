// What TSan is told of the order that a ring in shared memory makes.
//
// It goes by addresses, and where a test has both ends of a ring in one process each sees it at one of its own. So
// whoever gives something to a ring, or takes it, says so. Without TSan nothing of this is there.
#pragma once

#ifdef __SANITIZE_THREAD__
extern "C" void __tsan_acquire(void* place);  // NOLINT: TSan's names
extern "C" void __tsan_release(void* place);
#endif

namespace fairlead {

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
