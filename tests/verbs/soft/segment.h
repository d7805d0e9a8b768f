// Ethernet devices on a wire in memory: what one sends all others receive, in order and without loss.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <vector>

#include "verbs/soft/port/frame_device.h"

namespace fairlead::soft::test {

class MemoryDevice;

/// Devices must not outlive it.
struct Segment {
  std::vector<MemoryDevice*> stations;
  std::vector<std::vector<std::byte>> seen;  // every frame that was sent, if they are kept
  bool keep = true;
};

class MemoryDevice final : public FrameDevice {
 public:
  MemoryDevice(Segment& segment, std::uint8_t station, std::uint32_t mtu = 4200, std::size_t peer_slots = 0)
      : segment_(segment), info_{{{2, 0, 0, 0, 0, station}}, mtu, 0, 1 << 20, peer_slots} {
    segment_.stations.push_back(this);
  }
  ~MemoryDevice() override { std::erase(segment_.stations, this); }

  [[nodiscard]] FrameDeviceInfo info() const noexcept override { return info_; }
  std::size_t receive(std::span<std::span<const std::byte>> frames) noexcept override {
    std::size_t count = 0;
    for (handed_out_.clear(); count < frames.size() && !arrived.empty(); arrived.pop_front()) {
      handed_out_.push_back(std::move(arrived.front()));
      frames[count++] = handed_out_.back();
    }
    return count;
  }
  std::size_t reserve(std::span<std::byte*> rooms) noexcept override {
    const std::size_t count = std::min(rooms.size(), rooms_left);
    rooms_.assign(count, std::vector<std::byte>(EthernetHeader::kBytes + info_.mtu));
    for (std::size_t i = 0; i < count; ++i) rooms[i] = rooms_[i].data();
    return count;
  }
  std::size_t send(std::span<const std::uint32_t> sizes) noexcept override {
    std::size_t sent = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] == 0 || !up) continue;
      ++sent;
      rooms_[i].resize(sizes[i]);
      if (segment_.keep) segment_.seen.push_back(rooms_[i]);
      for (MemoryDevice* other : segment_.stations) {
        if (other != this && other->up) other->arrived.push_back(rooms_[i]);
      }
    }
    return sent;
  }
  [[nodiscard]] bool link_up() noexcept override { return up; }

  bool up = true;
  std::size_t rooms_left = 1000;
  std::deque<std::vector<std::byte>> arrived;

 private:
  Segment& segment_;
  const FrameDeviceInfo info_;
  std::vector<std::vector<std::byte>> rooms_;
  std::deque<std::vector<std::byte>> handed_out_;
};

}  // namespace fairlead::soft::test
