// A control frame as it lies on the wire, its length before it.
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

}  // namespace fairlead::datapath
