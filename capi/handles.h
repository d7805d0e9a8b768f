// What stands behind the handles of the C API: those of the C++ API.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/passkey.h"
#include "capi/outcome.h"
#include "fairlead/engine.h"
#include "fairlead/fairlead.h"

struct fairlead_engine {
  explicit fairlead_engine(fairlead::Engine&& made)
      : engine(std::make_shared<fairlead::Engine>(std::move(made))), own(true) {}
  explicit fairlead_engine(std::shared_ptr<fairlead::Engine> other) noexcept : engine(std::move(other)) {}
  ~fairlead_engine() {
    if (own) engine->shutdown();  // metrics of it may still be there
  }
  fairlead_engine(const fairlead_engine&) = delete;
  fairlead_engine& operator=(const fairlead_engine&) = delete;

  std::shared_ptr<fairlead::Engine> engine;  // shared with its metrics alone
  const bool own = false;                    // else it is a service's
  std::string require, forbid;               // as fairlead_engine_get_config() shows them
};
struct fairlead_memory {
  fairlead::Memory memory;
};
struct fairlead_remote_memory {
  fairlead::RemoteMemory memory;
};
struct fairlead_peer {
  fairlead::Peer peer;
};
struct fairlead_prepared {
  fairlead::Prepared prepared;
};
// A fairlead_transfer* is the transfer's own object, with one reference to it: posting allocates nothing.

namespace fairlead::capi {

/// Before anything is looked at, so that a result is never what happened to be there.
template <typename Handle>
void clear(Handle** handle) noexcept {
  if (handle != nullptr) *handle = nullptr;
}

/// A new handle for what `act` gives, or its error. Room for the handle comes first: what was made is never lost for
/// want of it.
template <typename Do, typename Handle>
Status hand_over(Do&& act, Handle** handle) {
  static_assert(alignof(Handle) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);
  const auto give_back = [](void* room) { ::operator delete(room, sizeof(Handle)); };
  std::unique_ptr<void, decltype(give_back)> room(::operator new(sizeof(Handle)), give_back);
  auto made = std::forward<Do>(act)();
  if (!made) return std::move(made).error();
  *handle = new (room.get()) Handle{*std::move(made)};
  (void)room.release();
  return {};
}

/// A new handle for each, all or none.
template <typename Made, typename Handle>
Status hand_over_all(Result<std::vector<Made>> made, Handle** handles) {
  if (!made) return std::move(made).error();
  std::vector<std::unique_ptr<Handle>> all;
  for (Made& each : *made) all.push_back(std::make_unique<Handle>(Handle{std::move(each)}));
  for (std::size_t i = 0; i < all.size(); ++i) handles[i] = all[i].release();
  return {};
}

/// What a handle stands for; NULL stands for nothing, which the library then says of it.
[[nodiscard]] inline Memory memory_of(const fairlead_memory* memory) noexcept {
  return memory != nullptr ? memory->memory : Memory();
}
[[nodiscard]] inline RemoteMemory memory_of(const fairlead_remote_memory* memory) noexcept {
  return memory != nullptr ? memory->memory : RemoteMemory();
}

/// The transfer behind a handle, which keeps its reference.
class Borrowed {
 public:
  explicit Borrowed(const fairlead_transfer* handle) noexcept
      : transfer_(Passkey(), const_cast<fairlead_transfer*>(handle)) {}
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  ~Borrowed() {}  // NOLINT(modernize-use-equals-default): the reference is the handle's
  [[nodiscard]] Transfer& operator*() noexcept { return transfer_; }
  [[nodiscard]] Transfer* operator->() noexcept { return &transfer_; }

 private:
  union {
    Transfer transfer_;
  };
};

/// Its reference is the handle's from now on.
[[nodiscard]] inline fairlead_transfer* handle_of(Transfer&& transfer) noexcept {
  union Kept {
    explicit Kept(Transfer&& from) noexcept : transfer(std::move(from)) {}
    ~Kept() {}  // NOLINT(modernize-use-equals-default)
    Transfer transfer;
  } kept(std::move(transfer));
  return static_cast<fairlead_transfer*>(kept.transfer.object(Passkey()));
}

/// Error: NULL in place of a list that is said to hold names, or of one of them.
[[nodiscard]] Status names_of(const char* const* names, std::size_t count, std::vector<std::string>& to);

/// None where there is no list.
[[nodiscard]] inline std::vector<std::uint32_t> numbers_of(const std::uint32_t* from, std::size_t count) {
  return from != nullptr ? std::vector(from, from + count) : std::vector<std::uint32_t>();
}

}  // namespace fairlead::capi
