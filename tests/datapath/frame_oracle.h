// What protoc's code says of a frame's bytes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace fairlead::datapath {

/// The frame as protoc's code writes it: known fields only, in order. Nothing if it refuses the bytes.
std::optional<std::string> as_protoc_writes(std::string_view bytes);

/// Whether proto3 says what a reader does with these bytes. Where it does not, readers differ: groups (proto2 had
/// them), numbers from 19000 to 19999 (reserved for implementations), numbers and lengths in more bytes than they may
/// need.
bool is_proto3(std::string_view bytes);

}  // namespace fairlead::datapath
