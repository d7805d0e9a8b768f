// Programs for sessions in processes of their own, in words of /bin/sh: what they say is said by hand.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "datapath/command/codec.h"
#include "datapath/command/process/frames.h"
#include "datapath/command/process/inherited.h"

namespace fairlead::datapath::command {

/// To say that frame.
inline std::string saying(FrameType type, Bytes bytes) {
  std::vector<std::byte> frame;
  put(frame, FrameHeader{type, 0, bytes.size()});
  frame.insert(frame.end(), bytes.begin(), bytes.end());
  std::string text;
  for (const std::byte byte : frame) text += fmt::format("\\{:03o}", static_cast<unsigned>(byte));
  return fmt::format("printf '{}' >&{}", text, kInheritedSocket);
}

/// A program that does this, says that it ran so, and then nothing any more until the service goes.
inline std::vector<std::string> program_that_ran(const Ran& ran, const std::string& first = ":") {
  return {"/bin/sh", "-c",
          fmt::format("{}; {}; exec cat <&{} >/dev/null", first,
                      saying(FrameType::kRan, std::as_bytes(std::span(&ran, 1))), kInheritedSocket)};
}

}  // namespace fairlead::datapath::command
