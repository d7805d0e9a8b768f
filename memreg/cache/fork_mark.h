// Whether this process made an object, or got it by fork(). One load to ask. Threads: any.
#pragma once

namespace fairlead::memreg::cache {

class ForkMark {
 public:
  ForkMark() noexcept;
  /// Between the making of this object and now the process was forked, and this is the child.
  [[nodiscard]] bool inherited() const noexcept;

 private:
  unsigned made_in_;
};

}  // namespace fairlead::memreg::cache
