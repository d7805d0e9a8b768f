// A session's context on a GPU: what is made in it is apart from other sessions', and ends with it.
//
// Results of calls become outcomes here. A failure of the sticky kind loses the context: from then on no call is made
// but to free. Owns the context. Threads: one at a time. Source: CUDA Driver API, CUresult.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "fairlead/command_service.h"
#include "fairlead/status.h"
#include "gpu/driver/driver.h"

namespace fairlead::gpu {

class CudaContext {
 public:
  /// Errors: kInvalidArgument (no such device), kResourceExhausted, kUnavailable.
  static Result<std::unique_ptr<CudaContext>> create(std::shared_ptr<Driver> driver, int ordinal);
  /// Waits for what runs.
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  [[nodiscard]] const DriverApi& api() const noexcept { return driver_->api(); }
  [[nodiscard]] const std::shared_ptr<Driver>& driver() const noexcept { return driver_; }
  [[nodiscard]] CuContext handle() const noexcept { return context_; }

  /// What streams of it may have; to be called in it. Both 0: there are none.
  command::Outcome priorities(command::Priorities& range);

  /// What the result of a call means for the command that made it: fine, refused, or the context is lost.
  command::Outcome check(CuResult result, std::string_view call);
  /// The same of a call without which nobody knows what ran: any failure loses the context.
  command::Outcome check_sure(CuResult result, std::string_view call);
  /// From now on nothing is freed but with the context itself.
  void abandon() noexcept { abandoned_ = true; }
  [[nodiscard]] bool is_abandoned() const noexcept { return abandoned_; }
  /// Not ok: it is lost, and why.
  [[nodiscard]] const command::Outcome& lost() const noexcept { return lost_; }

 private:
  CudaContext(std::shared_ptr<Driver> driver, CuContext context) : driver_(std::move(driver)), context_(context) {}
  command::Outcome lose(CuResult result, std::string_view call);

  const std::shared_ptr<Driver> driver_;
  const CuContext context_;
  command::Outcome lost_;
  bool abandoned_ = false;
};

/// The context is current while this lives.
class InContext {
 public:
  explicit InContext(CudaContext& context) : scope_(context.api(), context.handle()) {
    if (context.lost().ok()) entered_ = context.check_sure(scope_.entered(), "cuCtxPushCurrent");
    if (entered_.ok() && !context.lost().ok()) entered_ = context.lost();
  }
  /// Not ok: no call may be made, for this reason.
  [[nodiscard]] const command::Outcome& entered() const noexcept { return entered_; }

 private:
  ContextScope scope_;
  command::Outcome entered_;
};

}  // namespace fairlead::gpu
