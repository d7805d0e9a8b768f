// A channel's stream: what was put on it, and how far the device is.
//
// An event is recorded behind what was put on it since the last, when somebody asks how far it is or waits for it; so
// that tells of whole groups of commands. Staging memory of a copy is kept until the device is past it; then what was
// copied out goes to where the command said. Owns the stream and its events. Threads: one at a time, in the context.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "fairlead/command_service.h"
#include "gpu/executor/cuda_context.h"
#include "gpu/executor/cuda_staging.h"

namespace fairlead::gpu {

class CudaStream {
 public:
  static constexpr std::size_t kEvents = 64;  // under way; then what follows shares the next

  CudaStream(CudaContext& context, CudaStaging& staging) : context_(context), staging_(staging) {}
  /// The device is past all that is on it, or the context is lost.
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  /// Before anything is put on it.
  command::Outcome open() {
    if (stream_ != nullptr) return {};
    const DriverApi& api = context_.api();
    if (priority_ == 0) return context_.check(api.stream_create(&stream_, kStreamNonBlocking), "cuStreamCreate");
    return context_.check(api.stream_create_priority(&stream_, kStreamNonBlocking, priority_),
                          "cuStreamCreateWithPriority");
  }
  /// Before open(): one that the device has.
  void set_priority(int priority) noexcept { priority_ = priority; }
  [[nodiscard]] CuStream handle() const noexcept { return stream_; }

  /// What follows is of that command.
  void begin(std::uint64_t sequence) noexcept { last_ = sequence; }
  /// That command put nothing on it, and will be begun again.
  void put_off() noexcept { --last_; }
  /// Something was put on it.
  void worked() noexcept;
  /// The present command copies through that piece; out of it to `to`, if that is not empty.
  void hold(std::span<std::byte> piece, std::span<std::byte> to);
  /// The present command failed: nothing is written where it said.
  void let_go_of_targets() noexcept;
  /// Bytes of staging memory that its copies hold.
  [[nodiscard]] std::size_t held_bytes() const noexcept { return held_bytes_; }

  /// What follows waits until the device is past that command of another stream.
  command::Outcome wait_for(CudaStream& other, std::uint64_t sequence);
  /// The same of all that is on it.
  command::Outcome wait_for(CudaStream& other) { return wait_for(other, other.worked_); }

  /// Nothing is under way.
  [[nodiscard]] bool is_idle() const noexcept { return marks_.empty() && !has_unmarked(); }
  /// Looks how far the device is.
  command::Outcome poll();
  /// The last command that it is past.
  [[nodiscard]] std::uint64_t complete() const noexcept { return complete_; }

  /// For copies whose source and destination overlap: kScratch bytes of device memory.
  static constexpr std::size_t kScratch = std::size_t{1} << 20;
  command::Outcome scratch(CuAddress& at);

 private:
  struct Mark {
    std::uint64_t sequence = 0;  // the last command whose work is before it
    CuEvent event = nullptr;
  };
  struct Held {
    std::uint64_t sequence = 0;
    std::span<std::byte> piece, to;
  };

  [[nodiscard]] bool has_unmarked() const noexcept { return worked_ > marked_; }
  struct Called {
    CuResult result = CuResult::kSuccess;
    const char* call = "";
  };
  Called mark();
  void pass(std::uint64_t sequence) noexcept;

  CudaContext& context_;
  CudaStaging& staging_;
  CuStream stream_ = nullptr;
  int priority_ = 0;
  CuAddress scratch_ = 0;
  std::uint64_t last_ = 0;    // the present command
  std::uint64_t worked_ = 0;  // the last that put something on it
  std::uint64_t marked_ = 0;  // of worked_, what the last event is behind
  std::uint64_t complete_ = 0;
  std::deque<Mark> marks_;
  std::vector<CuEvent> spare_;
  std::deque<Held> held_;
  std::size_t held_bytes_ = 0;
};

}  // namespace fairlead::gpu
