// The sizes of the tensors of a language model: 1,265 of them, as a checkpoint of 79 layers in bfloat16 has.
//
// Each layer has the shapes of an attention with biases and grouped keys, a gated feed-forward, two norms and four
// norms and scales of its heads; the embedding stands alone. The width is small, so that all of it fits anywhere: what
// matters for registering is how many there are, that they are of very different sizes, and that few end on a page.
#pragma once

#include <cstddef>
#include <vector>

namespace fairlead::bench {

/// In bytes, in the order of the file.
[[nodiscard]] inline std::vector<std::size_t> tensor_bytes() {
  constexpr std::size_t kElement = 2, kLayers = 79, kWidth = 896, kKeys = 128, kInner = 2432, kWords = 32000;
  std::vector<std::size_t> sizes{kWords * kWidth * kElement};
  for (std::size_t layer = 0; layer < kLayers; ++layer) {
    for (const std::size_t elements :
         {kWidth, kWidth * kWidth, kWidth, kKeys * kWidth, kKeys, kKeys * kWidth, kKeys, kWidth * kWidth, kKeys / 2,
          kKeys / 2, kWidth, kInner * kWidth, kInner * kWidth, kWidth * kInner, std::size_t{1}, std::size_t{1}}) {
      sizes.push_back(elements * kElement);
    }
  }
  return sizes;
}

}  // namespace fairlead::bench
