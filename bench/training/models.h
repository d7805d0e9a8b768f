// Networks as a training step sees them: which gradients there are, how large, and which share of the computation
// passes before each of them is known.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "fairlead/status.h"

namespace fairlead::bench {

/// One layer with parameters; layers without count into the next one's computation.
struct Layer {
  std::string name;
  std::vector<std::size_t> gradients;  // elements of each of its tensors
  double forward_macs = 0;             // multiply-accumulates for one sample
};

struct Model {
  std::string name, source, sample;  // sample: what a step counts ("image", "sequence of 128 tokens")
  std::vector<Layer> layers;         // in forward order
  [[nodiscard]] std::size_t parameters() const noexcept;
  [[nodiscard]] double forward_macs() const noexcept;
};

/// "resnet50" (He et al. 2015; stride in the 3x3, as torchvision's), "vgg16" (Simonyan and Zisserman 2014), "bert-base"
/// (Devlin et al. 2018, uncased). Errors: kInvalidArgument, with the names.
Result<Model> model_by_name(std::string_view name);

/// The same network with `scale` times the elements in each tensor, at least one. Computed for `scale` times as long it
/// has as many bytes of gradients for each second, in the same order: a step that is shorter, and not another one, but
/// for what each sum costs beyond its bytes.
[[nodiscard]] Model scaled(Model model, double scale);

}  // namespace fairlead::bench
