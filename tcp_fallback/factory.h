// How the rest of the house gets TCP as a Transport.
#pragma once

#include <memory>

#include "fairlead/config.h"
#include "fairlead/status.h"
#include "transport/transport.h"

namespace fairlead::tcp_fallback {

/// Opens a transport with a listening socket of its own, on all interfaces (IPv6 and IPv4, or IPv4 alone where there is
/// no IPv6). It must outlive its paths.
/// Errors: kAlreadyExists (the port is in use), kPermissionDenied (a port below 1024), kResourceExhausted
/// (descriptors).
Result<std::unique_ptr<datapath::Transport>> open_transport(const TcpConfig& config);

}  // namespace fairlead::tcp_fallback
