// A session's range of addresses on the host: nothing can be reached in it but what was placed.
//
// Pages that were given back are zeros when they are placed again. All of a process have at most so many pieces that
// the kernel has mappings left for all else. Owns the addresses and what is behind them. Threads: one at a
// time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "fairlead/host_executor.h"
#include "fairlead/status.h"

namespace fairlead::gpu {

class HostRange final : public command::Addresses {
 public:
  /// `wish`: where it begins, if that is free; 0: anywhere. Errors: kResourceExhausted.
  static Result<std::unique_ptr<HostRange>> reserve(std::uint64_t bytes, std::uint64_t wish);
  ~HostRange() override;
  HostRange(const HostRange&) = delete;
  HostRange& operator=(const HostRange&) = delete;

  [[nodiscard]] command::AddressRange facts() const noexcept;
  /// Null: it cannot be placed there, and in `why` the reason.
  [[nodiscard]] std::byte* place(command::Handle handle, std::uint64_t address, std::uint64_t bytes,
                                 command::Outcome& why);
  /// What place() gave.
  void give(const std::byte* at) noexcept;

  [[nodiscard]] std::byte* find(std::uint64_t address, std::uint64_t bytes) const noexcept override;
  /// Which allocation that byte is of, or is the end of.
  [[nodiscard]] std::optional<command::Handle> at(std::uint64_t address) const noexcept;

 private:
  HostRange(std::uint64_t base, std::uint64_t bytes) noexcept : base_(base), bytes_(bytes) {}
  struct Piece {
    std::uint64_t bytes = 0;
    command::Handle handle;
  };
  using Pieces = std::map<std::uint64_t, Piece>;  // by address
  [[nodiscard]] Pieces::const_iterator piece_at(std::uint64_t address, std::uint64_t bytes) const noexcept;

  const std::uint64_t base_, bytes_;
  Pieces pieces_;
};

}  // namespace fairlead::gpu
