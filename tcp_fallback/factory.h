// How the rest of the house gets TCP as a Device.
#pragma once

#include <memory>

#include "fairlead/config.h"
#include "fairlead/status.h"
#include "transport/device.h"

namespace fairlead::tcp_fallback {

/// A device whose endpoint has a listening socket of its own, on all interfaces (IPv6 and IPv4, or IPv4 alone where
/// there is no IPv6). Errors: kInvalidArgument (a setting).
Result<std::unique_ptr<datapath::Device>> open_device(const TcpConfig& config);

}  // namespace fairlead::tcp_fallback
