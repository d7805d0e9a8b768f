// Memory that the client places, and gives back: the public face, and what is refused without asking.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <span>

#include "datapath/command/client_session.h"

namespace fairlead::inline v0::command {

using datapath::command::ClientChannel;
using datapath::command::no_channel;
using datapath::command::of;
using datapath::command::Opcode;

namespace {

using datapath::command::ClientRange;

ClientRange::Fate fate_of(const ClientChannel& channel, const Mark& mark) {
  const ClientChannel* const by = channel.session().channel(mark.channel);
  // In this order: what fails is settled, too, and may be so between the two.
  const bool settled = by != nullptr && by->is_settled(mark.sequence, Stage::kExecuted);
  if (by == nullptr || !by->verdict(mark.sequence).ok()) return ClientRange::Fate::kPassedOver;
  return settled ? ClientRange::Fate::kRan : ClientRange::Fate::kOpen;
}

/// Where that allocation is, unless the command that was to place it has failed or was passed over, or another has
/// released it.
std::optional<ClientRange::Placed> find(const ClientChannel& channel, Handle handle) {
  auto placed = channel.session().range().find({channel.options().device, handle.bits});
  if (!placed) return placed;
  const bool is_there = fate_of(channel, placed->by) != ClientRange::Fate::kPassedOver;
  const bool stays = !placed->released || fate_of(channel, *placed->released) == ClientRange::Fate::kPassedOver;
  if (!is_there || !stays) placed.reset();
  return placed;
}

}  // namespace

Result<std::uint64_t> Channel::allocate_at(Handle handle, std::uint64_t address, std::uint64_t bytes) {
  if (!valid()) return no_channel();
  const AddressRange& range = of(channel_)->limits().range;
  if (range.bytes == 0) {
    return Status(Code::kInvalidArgument,
                  "this session has no range of addresses: set SessionOptions::range_bytes, or allocate()");
  }
  const std::uint64_t offset = address - range.base;
  if (handle.bits == 0 || bytes == 0 || address % range.alignment != 0 || address < range.base ||
      offset > range.bytes || bytes > range.bytes - offset) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("{} bytes at {:#x} named {}; neither bytes nor handle are 0, and the place is a multiple of "
                    "{} within the device's {} bytes at {:#x}",
                    bytes, address, handle.bits, range.alignment, range.bytes, range.base));
  }
  if (find(*of(channel_), handle)) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("handle {} names memory that was placed; release it first, or take another", handle.bits));
  }
  const datapath::command::AllocateAtBody body{handle.bits, address, bytes};
  const Result<std::uint64_t> sequence = of(channel_)->append({static_cast<std::uint16_t>(Opcode::kAllocateAt),
                                                               datapath::command::kMustKnow,
                                                               std::as_bytes(std::span(&body, 1)),
                                                               {}});
  if (sequence) {
    of(channel_)->session().range().add({device(), handle.bits}, {address, bytes, {number(), *sequence}});
  }
  return sequence;
}

Result<std::uint64_t> Channel::release(Handle handle) {
  if (!valid()) return no_channel();
  const ClientChannel& channel = *of(channel_);
  const datapath::command::ReleaseBody body{handle.bits};
  const Result<std::uint64_t> sequence =
      of(channel_)->append({static_cast<std::uint16_t>(Opcode::kRelease), 0, std::as_bytes(std::span(&body, 1)), {}});
  if (sequence && channel.limits().range.bytes != 0) {
    ClientRange& range = channel.session().range();
    range.release({device(), handle.bits}, {number(), *sequence});
    range.settle([&channel](const Mark& mark) { return fate_of(channel, mark); });
  }
  return sequence;
}

Result<std::uint64_t> Channel::address_of(Handle handle, std::uint64_t offset) const {
  if (!valid()) return no_channel();
  const auto placed = find(*of(channel_), handle);
  if (!placed) {
    return Status(Code::kNotFound,
                  fmt::format("handle {} names no memory that was placed, or none any more", handle.bits));
  }
  if (offset > placed->bytes) {
    return Status(Code::kOutOfRange,
                  fmt::format("byte {} of allocation {}, which has {}", offset, handle.bits, placed->bytes));
  }
  return placed->address + offset;
}

}  // namespace fairlead::inline v0::command
