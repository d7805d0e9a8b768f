// Memory that processes share by a descriptor, which one of them makes and others look at before they map it.
//
// A mapping of it does not fault: its size is sealed, and its pages are ordinary ones. But a process that has it may
// punch holes, which are pages again at the next touch, as any are that are touched first: where the system has no
// memory left it ends one of its processes. A child of fork() does not have it. Threads: a mapping belongs to whoever
// uses it.
#pragma once

#include <cstddef>

#include "base/system/fork_mark.h"
#include "base/unique_fd.h"
#include "fairlead/status.h"

namespace fairlead {

/// Of this many bytes, zero; they can become neither more nor fewer. `name` is for /proc. Errors: kResourceExhausted.
[[nodiscard]] Result<UniqueFd> make_shared_memory(const char* name, std::size_t bytes);

/// Gives a memfd its size. False, and errno says why, EFBIG too where RLIMIT_FSIZE is less.
[[nodiscard]] bool give_size(int file, std::size_t bytes) noexcept;

/// How many bytes another process's memory has, if a mapping of them cannot fault: it has `seals`, F_SEAL_SHRINK at
/// least, and is not of reserved huge pages. Errors: kInvalidArgument.
[[nodiscard]] Result<std::size_t> size_of_shared_memory(int descriptor, int seals);

class SharedMapping {
 public:
  SharedMapping() noexcept = default;
  SharedMapping(SharedMapping&& other) noexcept;
  SharedMapping& operator=(SharedMapping&& other) noexcept;
  ~SharedMapping();

  /// For reading and writing. Errors: kResourceExhausted; kInvalidArgument: it is sealed against writing.
  [[nodiscard]] static Result<SharedMapping> map(int descriptor, std::size_t bytes);

  [[nodiscard]] std::byte* get() const noexcept { return at_; }
  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }
  /// Not in a child of fork(), which has the object but not the memory.
  [[nodiscard]] bool is_mine() const noexcept;

 private:
  std::byte* at_ = nullptr;
  std::size_t bytes_ = 0;
  ForkMark fork_mark_;
};

}  // namespace fairlead
