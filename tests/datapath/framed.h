// What tests say over a control connection: frames as they lie on the wire, and a hello.
#pragma once

#include <string>

#include "datapath/protocol/frames.h"

namespace fairlead::datapath {

inline std::string framed(const control::Frame& frame) {
  std::string body;
  control::append_to(body, frame);
  std::string bytes;
  for (unsigned shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(body.size() >> shift));
  return bytes + body;
}

/// Of an anonymous end of version 1 that has tcp.
inline control::Hello plain_hello() {
  control::Hello made;
  made.version_min = made.version_max = 1;
  made.transports = {{.name = "tcp", .kind = "tcp", .software = false, .describe = {}}};
  made.max_message_bytes = 4096;
  made.event_window = 16;
  return made;
}

}  // namespace fairlead::datapath
