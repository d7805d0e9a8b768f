// Whether this process made an object, or got it by fork(). A member of the object, which is made with it; a copy says
// what the original does. One load to ask. Threads: any.
#pragma once

#include <atomic>

namespace fairlead {

class ForkMark {
 public:
  ForkMark() noexcept;
  /// False in a child that was forked after the mark was made, and in that one's children.
  [[nodiscard]] bool is_mine() const noexcept { return forks_.load(std::memory_order_relaxed) == made_after_; }

 private:
  static inline std::atomic<unsigned> forks_{0};  // between the process that made the first mark and this one
  unsigned made_after_;
};

}  // namespace fairlead
