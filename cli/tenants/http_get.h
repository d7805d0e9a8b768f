// One page of an HTTP server, in whole or not at all: what `fairlead status` reads.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

#include "fairlead/status.h"

namespace fairlead::cli {

/// The body of http://HOST:PORT/path, with HTTP/1.0. Errors: kUnavailable (nobody is there, or no such page),
/// kDeadlineExceeded (not all of it came in time), kResourceExhausted (more than `most` bytes), kDataLoss (no HTTP).
Result<std::string> http_get(std::string_view host_port, std::string_view path, std::chrono::milliseconds patience,
                             std::size_t most = std::size_t{8} << 20);

}  // namespace fairlead::cli
