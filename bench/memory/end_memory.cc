#include "bench/memory/end_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/crc.h"
#include "bench/memory/pattern.h"
#include "fairlead/cuda.h"
#include "gpu/driver/driver.h"
#include "gpu/driver/pinned.h"

namespace fairlead::bench {

// Memory of a device's, and the stream and the pinned memory that it is copied by. Freed when nobody has it any more:
// neither an EndMemory nor the registration.
class DeviceBytes {
 public:
  static Result<std::shared_ptr<DeviceBytes>> allocate(int ordinal, std::uint64_t bytes) {
    Result<std::shared_ptr<gpu::Driver>> driver = gpu::process_driver();
    if (!driver) return driver.error();
    const Result<gpu::CuContext> context = (*driver)->primary(ordinal);
    if (!context) return context.error();
    std::shared_ptr<DeviceBytes> made(new DeviceBytes(*std::move(driver), *context, bytes));
    const Status fine = made->within([&](const gpu::DriverApi& api) -> Status {
      if (Status got = made->check(api.memory_alloc(&made->address_, bytes), "cuMemAlloc"); !got.ok()) {
        return {got.code(), fmt::format("no memory of {} bytes on cuda:{}: {}; lower --size or --footprint", bytes,
                                        ordinal, got.message())};
      }
      return made->check(api.stream_create(&made->stream_, gpu::kStreamNonBlocking), "cuStreamCreate");
    });
    if (!fine.ok()) return fine;
    Result<std::unique_ptr<gpu::PinnedMemory>> pinned =
        gpu::PinnedMemory::allocate(made->driver_, *context, std::min<std::uint64_t>(bytes, kPiece), "--size");
    if (!pinned) return pinned.error();
    made->pinned_ = *std::move(pinned);
    return made;
  }

  ~DeviceBytes() {
    static_cast<void>(within([this](const gpu::DriverApi& api) {
      if (stream_ != nullptr) static_cast<void>(api.stream_destroy(stream_));
      if (address_ != 0) static_cast<void>(api.memory_free(address_));  // nothing is to be done about either
      return Status();
    }));
  }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {reinterpret_cast<std::byte*>(address_), bytes_}; }

  Status write(std::uint64_t offset, std::span<const std::byte> from) {
    return in_pieces(from.size(), [&](std::uint64_t at, std::span<std::byte> piece) {
      std::ranges::copy(from.subspan(at, piece.size()), piece.begin());
      return done([&](const gpu::DriverApi& api) {
        return check(api.copy_to_device(address_ + offset + at, piece.data(), piece.size(), stream_),
                     "cuMemcpyHtoDAsync");
      });
    });
  }
  Status read(std::uint64_t offset, std::span<std::byte> to) {
    return in_pieces(to.size(), [&](std::uint64_t at, std::span<std::byte> piece) {
      const Status read = done([&](const gpu::DriverApi& api) {
        return check(api.copy_to_host(piece.data(), address_ + offset + at, piece.size(), stream_),
                     "cuMemcpyDtoHAsync");
      });
      if (read.ok()) std::ranges::copy(piece, to.begin() + static_cast<std::ptrdiff_t>(at));
      return read;
    });
  }
  Status clear() {
    return done(
        [&](const gpu::DriverApi& api) { return check(api.fill(address_, 0, bytes_, stream_), "cuMemsetD8Async"); });
  }

 private:
  static constexpr std::uint64_t kPiece = std::uint64_t{1} << 20;

  DeviceBytes(std::shared_ptr<gpu::Driver> driver, gpu::CuContext context, std::uint64_t bytes)
      : driver_(std::move(driver)), context_(context), bytes_(bytes) {}

  [[nodiscard]] Status check(gpu::CuResult result, std::string_view call) const { return driver_->check(result, call); }
  template <typename Work>
  Status within(Work work) {
    const gpu::ContextScope scope(driver_->api(), context_);
    if (Status entered = check(scope.entered(), "cuCtxPushCurrent"); !entered.ok()) return entered;
    return work(driver_->api());
  }
  // `work` of each part of `bytes` that the pinned memory can hold: where the part begins, and room for it.
  template <typename Work>
  Status in_pieces(std::uint64_t bytes, Work work) {
    for (std::uint64_t at = 0; at < bytes; at += kPiece) {
      const Status done = work(at, pinned_->bytes().first(std::min(bytes - at, kPiece)));
      if (!done.ok()) return done;
    }
    return {};
  }
  // To its end.
  template <typename Work>
  Status done(Work work) {
    return within([&](const gpu::DriverApi& api) -> Status {
      if (Status begun = work(api); !begun.ok()) return begun;
      return check(api.stream_synchronize(stream_), "cuStreamSynchronize");
    });
  }

  const std::shared_ptr<gpu::Driver> driver_;
  const gpu::CuContext context_;
  const std::uint64_t bytes_;
  gpu::CuAddress address_ = 0;
  gpu::CuStream stream_ = nullptr;
  std::unique_ptr<gpu::PinnedMemory> pinned_;
};

Status usable(Place place) {
  if (place.on_host()) return {};
  const Result<std::shared_ptr<gpu::Driver>> driver = gpu::process_driver();
  return driver ? (*driver)->primary(place.device).status() : driver.error();
}

Result<EndMemory> EndMemory::allocate(Engine& engine, std::uint64_t size, std::uint64_t slots, Place place) {
  EndMemory made;
  made.size_ = size;
  made.slots_ = slots;
  Result<Memory> memory = [&]() -> Result<Memory> {
    if (place.on_host()) return engine.allocate(size * slots);
    Result<std::shared_ptr<DeviceBytes>> device = DeviceBytes::allocate(place.device, size * slots);
    if (!device) return device.error();
    made.device_ = *std::move(device);
    // The registration keeps the bytes, too: transfers may be under way when this object goes.
    return engine.register_memory(made.device_->bytes(), {.device = place.device, .release = [kept = made.device_] {}});
  }();
  if (!memory) return memory.error();
  made.memory_ = *std::move(memory);
  if (Status cleared = made.clear(); !cleared.ok()) return cleared;
  return made;
}

Status EndMemory::fill(std::uint64_t seed) const {
  std::vector<std::byte> copy(device_ != nullptr ? size_ : 0);
  for (std::uint64_t i = 0; i < slots_; ++i) {
    const std::span<std::byte> bytes = device_ != nullptr ? std::span(copy) : slot(i).bytes();
    fill_pattern(bytes, seed, i);
    if (device_ == nullptr) continue;
    if (Status written = device_->write(i * size_, bytes); !written.ok()) return written;
  }
  return {};
}

Status EndMemory::clear() const {
  if (device_ != nullptr) return device_->clear();
  std::memset(memory_.data(), 0, memory_.size());
  return {};
}

Result<std::vector<std::uint32_t>> EndMemory::checksums() const {
  std::vector<std::byte> copy(device_ != nullptr ? size_ : 0);
  std::vector<std::uint32_t> sums;
  for (std::uint64_t i = 0; i < slots_; ++i) {
    if (device_ != nullptr) {
      if (Status read = device_->read(i * size_, copy); !read.ok()) return read;
    }
    sums.push_back(crc32(device_ != nullptr ? std::span<const std::byte>(copy) : slot(i).bytes()));
  }
  return sums;
}

}  // namespace fairlead::bench
