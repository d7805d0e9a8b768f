// Verbs objects that destroy themselves, over a VerbsApi.
//
// Ownership: each handle owns its object; the table must outlive it. Order is the user's: a queue pair goes before its
// completion queues, everything before the device context (members declared later are destroyed first).
// Errors: a failing destroy is logged (it means that something still refers to the object) and the object is given up.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "fairlead/log.h"
#include "verbs/provider/verbs_api.h"

namespace fairlead::verbs {

template <typename T, int (*VerbsApi::*kDestroy)(T*)>
class Handle {
 public:
  Handle() noexcept = default;
  Handle(const VerbsApi& api, T* object) noexcept : api_(&api), object_(object) {}
  Handle(Handle&& other) noexcept : api_(other.api_), object_(std::exchange(other.object_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(api_, other.api_);
    std::swap(object_, other.object_);
    return *this;
  }
  ~Handle() { reset(); }

  [[nodiscard]] T* get() const noexcept { return object_; }
  [[nodiscard]] T* operator->() const noexcept { return object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }

  /// Destroys the object now.
  void reset() noexcept {
    T* object = std::exchange(object_, nullptr);
    if (object == nullptr) return;
    const int error = (api_->*kDestroy)(object);
    if (error != 0 && log_enabled(LogLevel::kError)) {
      log(LogLevel::kError, fmt::format("{}: destroying a verbs object failed: {}", api_->source,
                                        std::strerror(error > 0 ? error : errno)));
    }
  }

 private:
  const VerbsApi* api_ = nullptr;
  T* object_ = nullptr;
};

using DeviceContext = Handle<ibv_context, &VerbsApi::close_device>;
using ProtectionDomain = Handle<ibv_pd, &VerbsApi::dealloc_pd>;
using MemoryRegion = Handle<ibv_mr, &VerbsApi::dereg_mr>;
using CompletionChannel = Handle<ibv_comp_channel, &VerbsApi::destroy_comp_channel>;
using CompletionQueue = Handle<ibv_cq, &VerbsApi::destroy_cq>;
using QueuePair = Handle<ibv_qp, &VerbsApi::destroy_qp>;

}  // namespace fairlead::verbs
