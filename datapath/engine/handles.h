// Behind the public handles: the one place that turns them into the engine's objects, and back.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "base/passkey.h"
#include "datapath/region/regions.h"
#include "datapath/region/remote_region.h"
#include "datapath/session/session.h"
#include "datapath/transfer/transfer_impl.h"
#include "fairlead/memory.h"
#include "fairlead/peer.h"
#include "fairlead/transfer.h"

namespace fairlead::datapath {

// Of a handle that is not valid, each of these gives null.
[[nodiscard]] inline RegionImpl* region_of(const Memory& memory) noexcept {
  return static_cast<RegionImpl*>(memory.object(Passkey()).get());
}
[[nodiscard]] inline const RemoteRegionImpl* region_of(const RemoteMemory& memory) noexcept {
  return static_cast<const RemoteRegionImpl*>(memory.object(Passkey()).get());
}
[[nodiscard]] inline SessionImpl* session_of(const Peer& peer) noexcept {
  return static_cast<SessionImpl*>(peer.object(Passkey()).get());
}
[[nodiscard]] inline TransferImpl* transfer_of(const Transfer& transfer) noexcept {
  return static_cast<TransferImpl*>(transfer.object(Passkey()));
}
[[nodiscard]] inline const PreparedImpl* list_of(const Prepared& prepared) noexcept {
  return static_cast<const PreparedImpl*>(prepared.object(Passkey()).get());
}

/// ok, or why calls of a handle come to nothing; null: it names no peer.
[[nodiscard]] inline Status usable(SessionImpl* session) {
  return session != nullptr ? session->host().usable() : Status(Code::kInvalidArgument, "this handle names no peer");
}

// The same, as a share.
[[nodiscard]] inline std::shared_ptr<RegionImpl> share_of(const Memory& memory) noexcept {
  return std::static_pointer_cast<RegionImpl>(memory.object(Passkey()));
}
[[nodiscard]] inline std::shared_ptr<const RemoteRegionImpl> share_of(const RemoteMemory& memory) noexcept {
  return std::static_pointer_cast<const RemoteRegionImpl>(memory.object(Passkey()));
}
[[nodiscard]] inline std::shared_ptr<SessionImpl> share_of(const Peer& peer) noexcept {
  return std::static_pointer_cast<SessionImpl>(peer.object(Passkey()));
}
[[nodiscard]] inline std::shared_ptr<const PreparedImpl> share_of(const Prepared& prepared) noexcept {
  return std::static_pointer_cast<const PreparedImpl>(prepared.object(Passkey()));
}

// Handles of what there is.
[[nodiscard]] inline Memory make_memory(std::shared_ptr<RegionImpl> region, std::span<std::byte> bytes) noexcept {
  return {Passkey(), std::move(region), bytes};
}
[[nodiscard]] inline RemoteMemory make_remote_memory(const std::shared_ptr<const RemoteRegionImpl>& region) noexcept {
  return {Passkey(), std::const_pointer_cast<RemoteRegionImpl>(region), 0, region->size};
}
[[nodiscard]] inline Peer make_peer(std::shared_ptr<SessionImpl> session) noexcept {
  return {Passkey(), std::move(session)};
}
[[nodiscard]] inline Prepared make_prepared(std::shared_ptr<PreparedImpl> list) noexcept {
  return {Passkey(), std::move(list)};
}
/// Takes over one reference.
[[nodiscard]] inline Transfer make_transfer(TransferImpl* transfer) noexcept { return {Passkey(), transfer}; }

}  // namespace fairlead::datapath
