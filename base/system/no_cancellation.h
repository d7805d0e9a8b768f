// A scope in which pthread_cancel() does not end the thread, whatever it calls.
//
// A thread that is cancelled leaves the next cancellation point, mostly a system call, by unwinding its stack: out of
// work half done, and where it meets a noexcept function the process ends instead. So what a program calls of ours, and
// need not wait for, passes no such point: such a scope is around what is rare, as it costs 50 ns, and what is not
// makes its system calls by uncancelled.h. Where a program waits for others it may be cancelled, as in libibverbs.
// Threads of the library's nobody cancels.
#pragma once

#include <pthread.h>

namespace fairlead {

class NoCancellation {
 public:
  NoCancellation() noexcept { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NoCancellation() { ::pthread_setcancelstate(before_, nullptr); }
  NoCancellation(const NoCancellation&) = delete;
  NoCancellation& operator=(const NoCancellation&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace fairlead
