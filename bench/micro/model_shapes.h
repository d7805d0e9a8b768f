// The sizes of the tensors of a language model: the 1,265 that one of eight workers holds of Llama 3.1 405B in FP8.
//
// That is the model whose registration, tensor by tensor, took 2.4 s (https://github.com/ai-dynamo/nixl/pull/1498:
// 1,265 tensors, 51 GB a worker). Shapes follow from the public config.json of meta-llama/Llama-3.1-405B: hidden_size
// 16384, intermediate_size 53248, 126 layers, 128 heads of 128 with 8 of keys and values, 128256 words, 131072
// positions; cut for eight workers and joined as vLLM does it (query, key and value are one tensor, so are gate and
// up). Weights of layers have a byte an element and a scale in float32 for each row; embedding, output and norms are
// bfloat16. That makes 1,263 tensors. Which the other two are the source does not say: they are taken to be the two
// tables of rotary positions, cosines and sines.
//
// Most of it is never touched: what matters for registering is how many there are, how large, and where they end.
#pragma once

#include <cstddef>
#include <vector>

namespace fairlead::bench {

/// In bytes, in the order of the file.
[[nodiscard]] inline std::vector<std::size_t> tensor_bytes() {
  constexpr std::size_t kWorkers = 8, kLayers = 126, kWidth = 16384, kHead = 128, kHeads = 128, kKeyHeads = 8;
  constexpr std::size_t kInner = 53248 / kWorkers, kWords = 128256 / kWorkers, kPositions = 131072;
  constexpr std::size_t kQueries = kHeads * kHead / kWorkers, kKeys = kKeyHeads * kHead / kWorkers;
  constexpr std::size_t kHalf = 2, kScale = 4;  // bytes of bfloat16 and float32
  std::vector<std::size_t> sizes{kWords * kWidth * kHalf};
  const auto add = [&sizes](std::size_t rows, std::size_t columns) {
    sizes.push_back(rows * columns);
    sizes.push_back(rows * kScale);
  };
  for (std::size_t layer = 0; layer < kLayers; ++layer) {
    sizes.push_back(kWidth * kHalf);  // the norm before attention
    add(kQueries + 2 * kKeys, kWidth);
    add(kWidth, kQueries);
    sizes.push_back(kWidth * kHalf);  // and before what follows
    add(2 * kInner, kWidth);
    add(kWidth, kInner);
  }
  sizes.push_back(kWidth * kHalf);
  sizes.push_back(kWords * kWidth * kHalf);
  sizes.insert(sizes.end(), 2, kPositions * kHead / 2 * kHalf);
  return sizes;
}

}  // namespace fairlead::bench
