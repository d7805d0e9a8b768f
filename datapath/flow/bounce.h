// Our transfers of GPU memory that the path does not reach, carried through slots of pinned host memory.
//
// A part of a transfer's data becomes pieces of a slot each. A piece of a write is copied out of the device and then
// written from the slot; one of a read is read into the slot and then copied into the device. In between it is a
// transfer of its own in the same outbox, of host memory, and what becomes of paths (fence, replay, another transport,
// rails) is none of this class's business. Several pieces are under way at a time, so copies and paths overlap. What
// was cancelled, is late, or has failed begins no more pieces, and ends once those under way have: until then its
// memory is in use.
//
// Ownership: pieces are its own; slots go back as each piece ends. Threads: the driver. Nothing waits for a copy but
// stop().
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "datapath/flow/device_staging.h"
#include "datapath/flow/outbox.h"
#include "datapath/transfer/transfer_impl.h"

namespace fairlead::datapath {

class Bounce final : public ApartCarrier, private SlotWaiter {
 public:
  /// `staging` gives the lane's, or null; `moved` is called when advance() has something to do.
  Bounce(std::function<DeviceStaging*()> staging, std::function<void()> moved)
      : staging_(std::move(staging)), moved_(std::move(moved)) {}
  ~Bounce();

  void take(TransferImpl& transfer, Extent part, Cursor cursor) override;
  void piece_ended(TransferImpl& piece, Code code) noexcept override;
  /// Goes on with what has ended, and begins what there are slots for. `outbox`: the one that gave it all this.
  void advance(Outbox& outbox, Clock::time_point now);
  /// Waits for copies that are under way; the outbox is about to end all transfers.
  void stop() noexcept;
  /// Forgets everything: all transfers have ended.
  void clear() noexcept;
  [[nodiscard]] bool empty() const noexcept { return jobs_.empty(); }
  /// A copy reads or writes a transfer's memory.
  [[nodiscard]] bool copies() const noexcept;

 private:
  struct Job {
    TransferImpl* transfer = nullptr;
    Extent part;
    Cursor next = {};         // of the part: where its next piece begins
    std::uint64_t begun = 0;  // bytes of it
    std::size_t pieces = 0;   // under way
    Code code = Code::kOk;
    std::string reason{};
    [[nodiscard]] bool goes_on() const noexcept { return code == Code::kOk && transfer->failure == Code::kOk; }
  };
  struct Piece final : gpu::CopyEnd {
    enum class State : std::uint8_t { kCopying, kCopied, kOnPath, kCarried, kEnded };
    void copied(bool good) noexcept override;

    Bounce* bounce = nullptr;
    DeviceStaging* staging = nullptr;
    Job* job = nullptr;
    const Op* op = nullptr;
    std::uint64_t offset = 0;  // in the operation
    std::uint64_t bytes = 0;
    std::byte* slot = nullptr;
    TransferImpl* carried = nullptr;  // what crosses; one reference
    State state = State::kCopying;
    bool cancelled = false;
    Code code = Code::kOk;
  };

  void slot_free() noexcept override { moved_(); }
  void begin_pieces(Outbox& outbox);
  void begin_piece(Outbox& outbox, Job& job, DeviceStaging& staging, std::byte* slot);
  void go_on(Outbox& outbox, Piece& piece, Clock::time_point now);
  void post(Outbox& outbox, Piece& piece);
  void copy(Piece& piece, gpu::Copier::Way way);
  void end(Piece& piece);
  void end_jobs(Outbox& outbox, bool look_at_all);

  const std::function<DeviceStaging*()> staging_;
  const std::function<void()> moved_;
  Clock::time_point looked_at_{};
  std::list<Job> jobs_;  // in the order of coming
  std::deque<std::unique_ptr<Piece>> pieces_;
};

}  // namespace fairlead::datapath
