// A command that was refused, and changed nothing.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "fairlead/command_service.h"

namespace fairlead::gpu {

[[nodiscard]] inline command::Outcome refuse(std::int32_t result, std::string text) {
  return {result, command::Scope::kCommand, std::move(text)};
}

}  // namespace fairlead::gpu
