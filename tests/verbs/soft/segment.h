// Ethernet devices on a wire in memory: what one sends all others receive, in order and without loss. One that attaches
// payload may keep its loans open, as a NIC does whose ring moves slowly.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "verbs/soft/port/frame/frame_device.h"

namespace fairlead::soft::test {

class MemoryDevice;

/// Devices must not outlive it.
struct Segment {
  std::vector<MemoryDevice*> stations;
  std::vector<std::vector<std::byte>> seen;  // every frame that was sent, if they are kept
  bool keep = true;
  bool two_ways = false;  // what is urgent has its own
};

class MemoryDevice final : public FrameDevice {
 public:
  MemoryDevice(Segment& segment, std::uint8_t station, std::uint32_t mtu = 4200, std::size_t peer_slots = 0,
               bool attaches = false)
      : segment_(segment), info_{{{2, 0, 0, 0, 0, station}}, mtu, 0, 1 << 20, peer_slots} {
    info_.attaches = attaches;
    segment_.stations.push_back(this);
  }
  ~MemoryDevice() override { std::erase(segment_.stations, this); }

  [[nodiscard]] FrameDeviceInfo info() const noexcept override { return info_; }
  std::size_t receive(std::span<std::span<const std::byte>> frames) noexcept override {
    look_at_urgent_ = !look_at_urgent_;
    const std::size_t count = hand_out(look_at_urgent_ ? arrived_urgent : arrived, frames);
    return count != 0 ? count : hand_out(look_at_urgent_ ? arrived : arrived_urgent, frames);
  }
  std::size_t receive_urgent(std::span<std::span<const std::byte>> frames) noexcept override {
    return hand_out(arrived_urgent, frames);
  }
  [[nodiscard]] bool sets_apart() const noexcept override { return segment_.two_ways; }
  std::size_t reserve_urgent(std::span<std::byte*> rooms) noexcept override {
    const std::size_t count = reserve(rooms);
    urgent_ = segment_.two_ways;
    return count;
  }
  std::size_t reserve(std::span<std::byte*> rooms) noexcept override {
    urgent_ = false;
    const std::size_t count = std::min(rooms.size(), rooms_left);
    attached_.assign(count, {});
    rooms_.assign(count, std::vector<std::byte>(EthernetHeader::kBytes + info_.mtu));
    for (std::size_t i = 0; i < count; ++i) rooms[i] = rooms_[i].data();
    return count;
  }
  bool attach(std::size_t room, std::uint32_t head, std::span<const iovec> pieces) noexcept override {
    if (!attaching) return false;
    attached_[room] = {head, {pieces.begin(), pieces.end()}};
    open_loans.push_back(book_.make());
    return true;
  }
  [[nodiscard]] Loans loans() noexcept override {
    if (!keeps_loans) let_go();
    return book_.loans();
  }
  void end_loans() noexcept override {
    ++forced;
    let_go();
  }
  void map(const void* start, std::size_t bytes) noexcept override { mapped.emplace_back(start, bytes); }
  void unmap(const void* start, std::size_t bytes) noexcept override { std::erase(mapped, std::pair(start, bytes)); }
  /// Of the loans that it keeps, the one at `index`; or all.
  void let_go(std::size_t index) noexcept {
    book_.end(open_loans[index]);
    open_loans.erase(open_loans.begin() + static_cast<std::ptrdiff_t>(index));
  }
  void let_go() noexcept {
    while (!open_loans.empty()) let_go(0);
  }
  std::size_t send(std::span<const std::uint32_t> sizes) noexcept override {
    std::size_t sent = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] == 0 || !up) continue;
      ++sent;
      rooms_[i].resize(sizes[i]);
      const Attached& attached = attached_[i];
      auto at = rooms_[i].begin() + attached.head;
      for (const iovec& piece : attached.pieces) {
        const auto* bytes = static_cast<const std::byte*>(piece.iov_base);
        at = rooms_[i].insert(at, bytes, bytes + piece.iov_len) + static_cast<std::ptrdiff_t>(piece.iov_len);
      }
      if (segment_.keep) segment_.seen.push_back(rooms_[i]);
      for (MemoryDevice* other : segment_.stations) {
        if (other != this && other->up) (urgent_ ? other->arrived_urgent : other->arrived).push_back(rooms_[i]);
      }
    }
    return sent;
  }
  [[nodiscard]] bool link_up() noexcept override { return up; }

  bool up = true;
  std::size_t rooms_left = 1000;
  std::deque<std::vector<std::byte>> arrived, arrived_urgent;
  bool attaching = true;  // of one that attaches: it takes what it is offered
  bool keeps_loans = false;
  std::vector<std::uint64_t> open_loans;
  int forced = 0;  // calls of end_loans()
  std::vector<std::pair<const void*, std::size_t>> mapped;

 private:
  std::size_t hand_out(std::deque<std::vector<std::byte>>& from, std::span<std::span<const std::byte>> frames) {
    std::size_t count = 0;
    for (handed_out_.clear(); count < frames.size() && !from.empty(); from.pop_front()) {
      handed_out_.push_back(std::move(from.front()));
      frames[count++] = handed_out_.back();
    }
    return count;
  }

  Segment& segment_;
  FrameDeviceInfo info_;
  bool urgent_ = false;  // the rooms
  bool look_at_urgent_ = false;
  struct Attached {
    std::uint32_t head = 0;
    std::vector<iovec> pieces;
  };
  std::vector<std::vector<std::byte>> rooms_;
  std::vector<Attached> attached_;
  LoanBook book_;
  std::deque<std::vector<std::byte>> handed_out_;
};

}  // namespace fairlead::soft::test
