// For as long as it is there no thread can be begun by this process: its stack would be larger than any address space.
#pragma once

#include <gtest/gtest.h>
#include <pthread.h>

#include <cstddef>

namespace fairlead::test {

class NoThreads {
 public:
  NoThreads() {
    EXPECT_EQ(::pthread_getattr_default_np(&before_), 0);
    pthread_attr_t immense;
    EXPECT_EQ(::pthread_attr_init(&immense), 0);
    EXPECT_EQ(::pthread_attr_setstacksize(&immense, std::size_t{1} << 47), 0);
    EXPECT_EQ(::pthread_setattr_default_np(&immense), 0);
    ::pthread_attr_destroy(&immense);
  }
  ~NoThreads() {
    EXPECT_EQ(::pthread_setattr_default_np(&before_), 0);
    ::pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_{};
};

}  // namespace fairlead::test
