// Copies between host memory that CUDA knows (pinned) and device memory, which nobody waits for.
//
// A copy is started on a stream of this copier's and told to its end by poll(). On one stream copies happen in the
// order of starting; there is one for each context and use. Ownership: an end outlives its copy. Threads: one at a
// time, but for settle(). Errors: a copy that fails says so to its end; one that cannot be started is not told.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/counter.h"
#include "gpu/driver/driver.h"

namespace fairlead::gpu {

/// Who is told.
class CopyEnd {
 public:
  /// From inside poll() or finish(); it may start another. Not `good`: some of the bytes may have been copied.
  virtual void copied(bool good) noexcept = 0;

 protected:
  ~CopyEnd() = default;
};

class Copier {
 public:
  enum class Use : std::uint8_t { kIn, kOut, kForPeers };
  enum class Way : std::uint8_t { kToDevice, kToHost };

  explicit Copier(std::shared_ptr<Driver> driver) : driver_(std::move(driver)) {}
  /// finish() was called, or nothing is under way.
  ~Copier();
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;

  /// False, after a word in the log: the driver refused, and `end` is not told. `host` is pinned.
  [[nodiscard]] bool start(Use use, Way way, CuContext context, std::byte* device, std::byte* host, std::size_t bytes,
                           CopyEnd& end) noexcept;
  /// Tells those that have ended. Whether there were any.
  bool poll() noexcept;
  [[nodiscard]] bool idle() const noexcept { return under_way_ == 0; }
  /// Waits for all that is under way, and tells it.
  void finish() noexcept;
  /// Any thread: when it returns, what was started before for peers has ended, though its end may not have been told.
  void settle() noexcept;

  Counter bytes_in, bytes_out;  // to the device, from it; of copies that ended well

 private:
  struct Copy {
    CuEvent event = nullptr;
    CopyEnd* end = nullptr;
    std::size_t bytes = 0;
    Way way = Way::kToDevice;
  };
  struct Stream {
    CuContext context = nullptr;
    Use use = Use::kIn;
    CuStream stream = nullptr;
    std::vector<Copy> copies{};  // oldest first
    std::vector<CuEvent> spare{};
  };

  [[nodiscard]] Stream* stream_for(CuContext context, Use use) noexcept;
  bool poll(Stream& stream) noexcept;
  void say(CuResult result, const char* call) noexcept;

  const std::shared_ptr<Driver> driver_;
  std::mutex streams_growing_;                    // taken to add a stream, and by settle()
  std::vector<std::unique_ptr<Stream>> streams_;  // few
  std::vector<Copy> ended_;
  std::size_t under_way_ = 0;
  bool said_ = false;
};

}  // namespace fairlead::gpu
