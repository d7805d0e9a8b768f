// Whether an image of code is whole. The driver believes the lengths that stand in it, and is not told how many bytes
// there are: what a client sent is looked at first. Not whether it is good code: that is the driver's to say.
//
// Source: ELF-64; the header of fatbins as nvcc writes it (magic 0xba55ed50, version, bytes of header, bytes behind
// it).
#pragma once

#include <cstddef>
#include <span>

#include "fairlead/status.h"

namespace fairlead::gpu {

/// ok: PTX (text), a cubin or a fatbin that ends within `image`, and a byte 0 follows. Errors: kInvalidArgument.
[[nodiscard]] Status check_image(std::span<const std::byte> image);

}  // namespace fairlead::gpu
