// Touches memory that may be gone: an application can unmap what it registered, or truncate the file behind it.
//
// A fault inside attempt() ends the attempt instead of the process. It costs a sigsetjmp that saves no mask (4 ns a
// packet) and no system call. The handlers of SIGSEGV and SIGBUS that make it work are the process's, so:
// - they are installed when memory is first registered (install_fault_handlers), and never removed;
// - they act only on a fault that the CPU raised, within the range that this thread said it is about to touch; every
//   other one goes to the handler that was there before, or has the system's default effect;
// - a handler that the application installs later comes first, and must pass on what it does not know, as these do;
//   else a fault here is what it would be without them.
// Threads: pure functions; the state is the thread's.
#pragma once

#include <setjmp.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace fairlead {

/// Any thread, any number of times.
void install_fault_handlers() noexcept;

namespace detail {

struct FaultScope {
  sigjmp_buf back;
  std::uintptr_t begin;
  std::size_t length;
};

// initial-exec: a signal handler reads it, so that access must not allocate.
extern thread_local FaultScope* volatile fault_scope __attribute__((tls_model("initial-exec")));
extern thread_local bool thread_takes_faults __attribute__((tls_model("initial-exec")));

/// A blocked signal that a fault raises ends the process, and threads of libraries often block all.
void take_faults_on_this_thread() noexcept;

}  // namespace detail

/// A range that is longer is better not guarded at once: a fault within is taken for one of the body's.
inline constexpr std::size_t kMostGuarded = std::size_t{1} << 30;

/// Runs body(), which touches [start, start + length) and must need no destructors. False when the memory faulted: then
/// body has done part of its work.
template <typename Body>
[[nodiscard]] __attribute__((noinline)) bool attempt(const void* start, std::size_t length, const Body& body) noexcept {
  detail::FaultScope scope;
  scope.begin = reinterpret_cast<std::uintptr_t>(start);
  scope.length = length;
  if (!detail::thread_takes_faults) detail::take_faults_on_this_thread();
  if (sigsetjmp(scope.back, 0) != 0) return false;
  detail::fault_scope = &scope;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  body();
  std::atomic_signal_fence(std::memory_order_seq_cst);
  detail::fault_scope = nullptr;
  return true;
}

/// In an attempt, before an atomic access: a fault comes here, where ThreadSanitizer's runtime holds no lock. What is
/// read does not matter, so that whoever writes it meanwhile races with nobody.
__attribute__((no_sanitize("thread"))) inline void touch(const std::byte* at) noexcept {
  static_cast<void>(*static_cast<const volatile std::byte*>(at));
}

/// Whether all pages of the range can be read now.
[[nodiscard]] bool readable(const std::byte* start, std::size_t length) noexcept;
[[nodiscard]] bool guarded_copy(std::byte* to, const std::byte* from, std::size_t length,
                                const void* may_be_gone) noexcept;

}  // namespace fairlead
