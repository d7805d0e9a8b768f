// TCP sockets for control connections: made, listened on, named.
//
// Threads: stateless, but for the stream (control_stream.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/unique_fd.h"
#include "datapath/session/control_stream.h"

namespace fairlead::datapath {

/// Takes over a non-blocking socket, which a forked child does not keep.
[[nodiscard]] std::unique_ptr<ControlStream> make_control_stream(UniqueFd fd);
/// Starts a non-blocking connection to a numeric address. Errors name the address and the cause.
Result<UniqueFd> start_connect(const std::string& numeric_host, std::uint16_t port);
/// A listening socket; an empty host means all addresses. Errors: the port in use, an address that is not ours.
Result<UniqueFd> start_listen(const std::string& host, std::uint16_t port);
/// "host:port" of a socket's own end.
std::string socket_address(int fd, bool peer_end);

}  // namespace fairlead::datapath
