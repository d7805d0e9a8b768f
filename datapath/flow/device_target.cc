#include "datapath/flow/device_target.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace fairlead::datapath::staging {

using State = SlotCopy::State;

bool SlotCopy::start(gpu::Copier::Way way, const CudaMemory& memory, std::span<std::byte> bytes) noexcept {
  const bool begun = staging_.copier().start(gpu::Copier::Use::kForPeers, way, memory.context, bytes.data(), slot_,
                                             bytes.size(), *this);
  state_ = begun ? State::kCopying : State::kFailed;
  return begun;
}

void SlotCopy::spare_slot(std::size_t bytes) {
  if (state_ < State::kDone || slot_ == nullptr || !staging_.is_short(DeviceStaging::Side::kPeers)) return;
  kept_.assign(slot_, slot_ + bytes);
  staging_.give_back(DeviceStaging::Side::kPeers, std::exchange(slot_, nullptr));
}

void SlotCopy::copied(bool good) noexcept {
  state_ = good ? State::kDone : State::kFailed;
  moved_();
}

DeviceTarget::~DeviceTarget() { stop(); }

void DeviceTarget::stop() noexcept {
  reset();
  if (!let_go_.empty()) staging_()->copier().finish();
  let_go_.clear();
  in_waiting.unlink();
}

// ---- writes --------------------------------------------------------------------------------------------------------

void DeviceTarget::write(std::uint64_t sequence, std::uint64_t region, std::uint64_t offset,
                         std::span<const std::byte> bytes) {
  const std::size_t gathered = kept_.empty() ? gather(sequence, region, offset, bytes) : 0;
  if (gathered == bytes.size()) return;
  bytes = bytes.subspan(gathered);
  kept_.push_back({sequence, region, offset + gathered, {bytes.begin(), bytes.end()}});
}

/// As much of a write as there are slots for. Each that it has a part in has its number: all must go well.
std::size_t DeviceTarget::gather(std::uint64_t sequence, std::uint64_t region, std::uint64_t offset,
                                 std::span<const std::byte> bytes) {
  DeviceStaging& staging = *staging_();
  std::size_t done = 0;
  while (done < bytes.size()) {
    Batch* last = batches_.empty() ? nullptr : batches_.back().get();
    const bool follows = last != nullptr && last->state() == State::kWaiting && last->region == region &&
                         last->offset + last->filled == offset + done && last->filled < staging.slot_bytes();
    if (!follows) {
      std::byte* const slot = staging.take(DeviceStaging::Side::kPeers, *this);
      if (slot == nullptr) return done;
      last = batches_.emplace_back(std::make_unique<Batch>(staging, slot, moved_)).get();
      last->region = region;
      last->offset = offset + done;
    }
    const std::size_t size = std::min(bytes.size() - done, staging.slot_bytes() - last->filled);
    std::memcpy(last->slot() + last->filled, bytes.data() + done, size);
    last->filled += size;
    done += size;
    if (last->sequences.empty() || last->sequences.back() != sequence) last->sequences.push_back(sequence);
  }
  return done;
}

std::uint64_t DeviceTarget::oldest_write() const noexcept {
  if (!batches_.empty()) return batches_.front()->sequences.front();
  return kept_.empty() ? 0 : kept_.front().sequence;
}

void DeviceTarget::begin(Batch& batch, const RegionTable::View& regions) {
  const Code code =
      regions.with_memory(batch.region, batch.offset, batch.filled, Access::kRemoteWrite,
                          [&](std::span<std::byte> bytes, const MemoryKind& kind) {
                            const auto* cuda = std::get_if<CudaMemory>(&kind);
                            return cuda != nullptr && batch.start(gpu::Copier::Way::kToDevice, *cuda, bytes);
                          });
  if (code != Code::kOk) batch.fail();
}

void DeviceTarget::pump(const RegionTable::View& regions, const std::function<void(std::uint64_t)>& refuse) {
  sweep();
  for (bool again = true; again;) {
    again = false;
    while (!kept_.empty()) {
      Kept& kept = kept_.front();
      const std::size_t gathered = gather(kept.sequence, kept.region, kept.offset, kept.bytes);
      if (gathered != kept.bytes.size()) {
        kept.offset += gathered;
        kept.bytes.erase(kept.bytes.begin(), kept.bytes.begin() + static_cast<std::ptrdiff_t>(gathered));
        break;
      }
      kept_.pop_front();
    }
    for (const std::unique_ptr<Batch>& batch : batches_) {
      if (batch->state() == State::kWaiting) begin(*batch, regions);
    }
    while (!batches_.empty() && batches_.front()->state() >= State::kDone) {
      const std::unique_ptr<Batch> ended = std::move(batches_.front());
      batches_.pop_front();
      if (ended->state() == State::kFailed) {
        for (const std::uint64_t sequence : ended->sequences) refuse(sequence);
      }
      again = !kept_.empty();  // there is a slot
    }
  }
}

// ---- reads ---------------------------------------------------------------------------------------------------------

std::optional<std::unique_ptr<SlotCopy>> DeviceTarget::read(std::uint64_t region, std::uint64_t offset,
                                                            std::uint64_t length, const RegionTable::View& regions) {
  std::unique_ptr<SlotCopy> copy;
  bool is_device = false;
  const Code code = regions.with_memory(region, offset, length, Access::kRemoteRead,
                                        [&](std::span<std::byte> bytes, const MemoryKind& kind) {
                                          const auto* cuda = std::get_if<CudaMemory>(&kind);
                                          if (cuda == nullptr) return true;
                                          is_device = true;
                                          DeviceStaging* const staging = staging_();
                                          if (staging == nullptr || !kept_.empty()) return staging != nullptr;
                                          std::byte* const slot = staging->take(DeviceStaging::Side::kPeers, *this);
                                          if (slot == nullptr) return true;
                                          copy = std::make_unique<SlotCopy>(*staging, slot, moved_);
                                          return copy->start(gpu::Copier::Way::kToHost, *cuda, bytes);
                                        });
  if (!is_device || (code != Code::kOk && copy == nullptr)) return std::nullopt;
  return copy;
}

void DeviceTarget::let_go(std::unique_ptr<SlotCopy> copy) {
  if (copy->state() == State::kCopying) let_go_.push_back(std::move(copy));
}

// ---- the end of a path ---------------------------------------------------------------------------------------------

bool DeviceTarget::copies() const noexcept {
  const auto is_under_way = [](const auto& copy) { return copy->state() == State::kCopying; };
  return std::ranges::any_of(batches_, is_under_way) || std::ranges::any_of(let_go_, is_under_way);
}

void DeviceTarget::sweep() {
  std::erase_if(let_go_, [](const auto& copy) { return copy->state() != State::kCopying; });
}

void DeviceTarget::reset() {
  kept_.clear();
  while (!batches_.empty()) {
    let_go(std::move(batches_.front()));
    batches_.pop_front();
  }
  sweep();
}

}  // namespace fairlead::datapath::staging
