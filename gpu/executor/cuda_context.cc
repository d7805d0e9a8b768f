#include "gpu/executor/cuda_context.h"

#include <fmt/format.h>

namespace fairlead::gpu {

using command::Outcome;
using command::Scope;

namespace {

/// After these the context gives the same to every call.
bool is_sticky(CuResult result) noexcept {
  switch (const int number = static_cast<int>(result)) {
    case 4:    // deinitialized: the process ends
    case 201:  // invalid context
    case 214:  // an ECC error that was not corrected
    case 220:  // the same of NVLink
    case 226:  // contained
    case 700:  // illegal address
    case 702:  // launch timeout
    case 709:  // the context is destroyed
    case 710:  // assert
    case 999:  // unknown
      return true;
    default:
      return number >= 714 && number <= 719;  // stack, instruction, alignment, address space, program counter, launch
  }
}

}  // namespace

Result<std::unique_ptr<CudaContext>> CudaContext::create(std::shared_ptr<Driver> driver, int ordinal) {
  const DriverApi& api = driver->api();
  if (ordinal < 0 || static_cast<std::size_t>(ordinal) >= driver->devices().size()) {
    return Status(Code::kInvalidArgument,
                  fmt::format("there is no CUDA device {}; legal: 0 to {}", ordinal, driver->devices().size() - 1));
  }
  CuDevice device = 0;
  if (Status fine = driver->check(api.device_get(&device, ordinal), "cuDeviceGet"); !fine.ok()) return fine;
  CuContext made = nullptr, popped = nullptr;
  const CuResult created = api.context_create(&made, 0, device);
  if (Status fine = driver->check(created, "cuCtxCreate"); !fine.ok()) {
    if (!is_sticky(created)) return fine;
    return Status(fine.code(),
                  fine.message() +
                      ": a kernel of some session has ended CUDA for this process; start it anew, and give "
                      "each session a process of its own");
  }
  std::unique_ptr<CudaContext> context(new CudaContext(std::move(driver), made));
  // It was made current, which is whoever calls this's affair.
  if (Status fine = context->driver()->check(context->api().context_pop(&popped), "cuCtxPopCurrent"); !fine.ok()) {
    return fine;
  }
  return context;
}

CudaContext::~CudaContext() { static_cast<void>(api().context_destroy(context_)); }

Outcome CudaContext::priorities(command::Priorities& range) {
  range = {0, 0};
  if (api().stream_create_priority == nullptr || api().stream_priorities == nullptr) return {};
  return check(api().stream_priorities(&range.least, &range.greatest), "cuCtxGetStreamPriorityRange");
}

Outcome CudaContext::check(CuResult result, std::string_view call) {
  if (result == CuResult::kSuccess) return {};
  if (is_sticky(result)) return lose(result, call);
  return {static_cast<std::int32_t>(result), Scope::kCommand, driver_->check(result, call).message()};
}

Outcome CudaContext::check_sure(CuResult result, std::string_view call) {
  return result == CuResult::kSuccess ? Outcome() : lose(result, call);
}

Outcome CudaContext::lose(CuResult result, std::string_view call) {
  if (lost_.ok()) {
    lost_ = {static_cast<std::int32_t>(result), Scope::kContext,
             fmt::format("the device lost the session's context, as {} said; a command that was not complete by then "
                         "failed",
                         driver_->check(result, call).message())};
  }
  return lost_;
}

}  // namespace fairlead::gpu
