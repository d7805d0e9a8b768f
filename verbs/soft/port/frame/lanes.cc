#include "verbs/soft/port/frame/lanes.h"

#include <utility>

namespace fairlead::soft {

Lane::Rings::Rings(unsigned count, std::size_t frame_bytes) : lanes(count), ring(std::size_t{count} * count) {
  for (unsigned from = 0; from < count; ++from) {
    for (unsigned to = 0; to < count; ++to) {
      if (from != to) ring[from * count + to] = std::make_unique<FrameRing>(frame_bytes);
    }
  }
}

std::vector<Lane> Lane::make(unsigned lanes, std::size_t frame_bytes) {
  const auto rings = std::make_shared<Rings>(lanes, frame_bytes);
  std::vector<Lane> all;
  for (unsigned number = 0; number < lanes; ++number) all.push_back(Lane(rings, number));
  return all;
}

void Lane::tell_others(std::span<const std::byte> frame) noexcept {
  for (unsigned to = 0; to < rings_->lanes; ++to) {
    if (to != number_) static_cast<void>(rings_->between(number_, to).push(frame));
  }
}

std::size_t Lane::take(std::span<std::span<const std::byte>> frames) noexcept {
  if (taken_from_ != nullptr) std::exchange(taken_from_, nullptr)->release();
  for (unsigned i = 0; i < rings_->lanes; ++i) {
    const unsigned from = std::exchange(turn_, (turn_ + 1) % rings_->lanes);
    if (from == number_) continue;
    FrameRing& ring = rings_->between(from, number_);
    if (const std::size_t count = ring.take(frames); count > 0) {
      taken_from_ = &ring;
      return count;
    }
  }
  return 0;
}

}  // namespace fairlead::soft
