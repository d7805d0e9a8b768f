// What a verb says by errno of a port that it could not have.
#pragma once

#include <cerrno>

#include "fairlead/status.h"

namespace fairlead::soft {

/// `otherwise`: of what neither another has nor the system is short of.
[[nodiscard]] inline int port_errno(const Status& status, int otherwise) noexcept {
  switch (status.code()) {
    case Code::kAlreadyExists:
      return EADDRINUSE;
    case Code::kResourceExhausted:  // descriptors or threads
      return EAGAIN;
    default:
      return otherwise;
  }
}

}  // namespace fairlead::soft
