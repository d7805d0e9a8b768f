#include "capi/outcome.h"

namespace fairlead::capi {

namespace {

struct Failure {
  Code code = Code::kOk;
  std::string text;
};

thread_local Failure last;

}  // namespace

fairlead_code tell(const Status& status) noexcept {
  if (status.ok()) return FAIRLEAD_OK;
  last.code = status.code();
  try {
    last.text = status.message().empty() ? std::string_view(to_string(status.code())) : status.message();
  } catch (const std::bad_alloc&) {
    last.text = "out of memory";  // short enough to need none
  }
  return static_cast<fairlead_code>(status.code());
}

Status missing(std::string_view argument) { return {Code::kInvalidArgument, std::string(argument) + " is NULL"}; }

Status check_access(std::uint32_t access) {
  constexpr std::uint32_t kAll = FAIRLEAD_REMOTE_READ_WRITE | FAIRLEAD_LOCAL_READ_ONLY | FAIRLEAD_REMOTE_ATOMIC;
  if ((access & ~kAll) == 0) return {};
  return {Code::kInvalidArgument, "access " + std::to_string(access) + " has flags that there are not"};
}

}  // namespace fairlead::capi

const char* fairlead_code_name(fairlead_code code) {
  if (code < 0 || code > FAIRLEAD_INTERNAL) return "?";
  return fairlead::to_string(static_cast<fairlead::Code>(code)).data();
}
const char* fairlead_last_error() { return fairlead::capi::last.text.c_str(); }
fairlead_code fairlead_last_code() { return static_cast<fairlead_code>(fairlead::capi::last.code); }
