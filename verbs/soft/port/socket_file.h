// The sockets by which the two ends of a shared memory find each other: why one cannot serve.
//
// Asked before the driver is, whose own words ("Operation not permitted") name neither the file nor a remedy.
#pragma once

#include <string>

namespace fairlead::soft {

enum class SocketUse : unsigned char { kListen, kConnect };

/// Empty if nothing is wrong with a socket of this name in the file system, or what is and what to do.
[[nodiscard]] std::string refuse_socket_file(const std::string& path, SocketUse use);

}  // namespace fairlead::soft
