#include "fairlead/status.h"

namespace fairlead::inline v0 {

std::string_view to_string(Code code) noexcept {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kInvalidArgument:
      return "invalid argument";
    case Code::kNotFound:
      return "not found";
    case Code::kAlreadyExists:
      return "already exists";
    case Code::kOutOfRange:
      return "out of range";
    case Code::kPermissionDenied:
      return "permission denied";
    case Code::kProtectionError:
      return "protection error";
    case Code::kResourceExhausted:
      return "resource exhausted";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kPeerDied:
      return "peer died";
    case Code::kDeadlineExceeded:
      return "deadline exceeded";
    case Code::kCancelled:
      return "cancelled";
    case Code::kAborted:
      return "aborted";
    case Code::kDataLoss:
      return "data loss";
    case Code::kVersionMismatch:
      return "version mismatch";
    case Code::kUnimplemented:
      return "unimplemented";
    case Code::kOutcomeUnknown:
      return "outcome unknown";
    case Code::kInternal:
      return "internal error";
  }
  return "unknown code";
}

std::string Status::to_string() const {
  std::string text(fairlead::to_string(code_));
  if (!message_.empty()) text.append(": ").append(message_);
  return text;
}

}  // namespace fairlead::inline v0
