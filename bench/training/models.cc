#include "bench/training/models.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

namespace fairlead::bench {
namespace {

/// A convolution without bias and its batch normalisation, at `side` x `side` outputs.
Layer convolution(std::string name, std::size_t in, std::size_t out, std::size_t kernel, std::size_t side) {
  const std::size_t weights = in * out * kernel * kernel;
  return {std::move(name), {weights, out, out}, static_cast<double>(weights) * static_cast<double>(side * side)};
}

/// A matrix and its bias, applied `times` times a sample.
Layer linear(std::string name, std::size_t in, std::size_t out, std::size_t times = 1) {
  return {std::move(name), {in * out, out}, static_cast<double>(in * out) * static_cast<double>(times)};
}

Model resnet50() {
  Model model{"resnet50", "He et al., Deep Residual Learning for Image Recognition, 2015, table 1", "image", {}};
  model.layers.push_back(convolution("conv1", 3, 64, 7, 112));
  constexpr std::array<std::size_t, 4> kBlocks{3, 4, 6, 3};
  std::size_t in = 64, width = 64, side = 56;
  for (std::size_t stage = 0; stage < kBlocks.size(); ++stage, width *= 2) {
    for (std::size_t block = 0; block < kBlocks[stage]; ++block) {
      const std::size_t out = 4 * width;
      const std::size_t before =
          stage > 0 && block == 0 ? side * 2 : side;  // the 3x3 of a stage's first block halves it
      const std::string name = fmt::format("conv{}_{}", stage + 2, block + 1);
      model.layers.push_back(convolution(name + ".1", in, width, 1, before));
      model.layers.push_back(convolution(name + ".2", width, width, 3, side));
      model.layers.push_back(convolution(name + ".3", width, out, 1, side));
      if (block == 0) model.layers.push_back(convolution(name + ".shortcut", in, out, 1, side));
      in = out;
    }
    side /= 2;
  }
  model.layers.push_back(linear("fc", 2048, 1000));
  return model;
}

Model vgg16() {
  Model model{"vgg16", "Simonyan and Zisserman, Very Deep Convolutional Networks, 2014, configuration D", "image", {}};
  constexpr std::array<std::pair<std::size_t, std::size_t>, 5> kStages{
      {{2, 64}, {2, 128}, {3, 256}, {3, 512}, {3, 512}}};
  std::size_t in = 3, side = 224, number = 1;
  for (const auto& [convolutions, out] : kStages) {
    for (std::size_t i = 0; i < convolutions; ++i) {
      model.layers.push_back(
          {fmt::format("conv{}", number++), {in * out * 9, out}, static_cast<double>(in * out * 9 * side * side)});
      in = out;
    }
    side /= 2;
  }
  model.layers.push_back(linear("fc6", in * side * side, 4096));
  model.layers.push_back(linear("fc7", 4096, 4096));
  model.layers.push_back(linear("fc8", 4096, 1000));
  return model;
}

Model bert_base() {
  constexpr std::size_t kHidden = 768, kTokens = 128;
  Model model{"bert-base", "Devlin et al., BERT, 2018 (uncased, 128 tokens)", "sequence of 128 tokens", {}};
  model.layers.push_back({"embeddings", {30522 * kHidden, 512 * kHidden, 2 * kHidden, kHidden, kHidden}, 0});
  for (std::size_t i = 0; i < 12; ++i) {
    const std::string name = fmt::format("layer{}", i);
    for (const char* part : {".query", ".key", ".value"})
      model.layers.push_back(linear(name + part, kHidden, kHidden, kTokens));
    Layer output = linear(name + ".output", kHidden, kHidden, kTokens);
    output.forward_macs += 2.0 * kTokens * kTokens * kHidden;  // scores, and values by scores
    output.gradients.insert(output.gradients.end(), {kHidden, kHidden});
    model.layers.push_back(std::move(output));
    model.layers.push_back(linear(name + ".up", kHidden, 4 * kHidden, kTokens));
    Layer down = linear(name + ".down", 4 * kHidden, kHidden, kTokens);
    down.gradients.insert(down.gradients.end(), {kHidden, kHidden});
    model.layers.push_back(std::move(down));
  }
  model.layers.push_back(linear("pooler", kHidden, kHidden));
  return model;
}

}  // namespace

std::size_t Model::parameters() const noexcept {
  std::size_t sum = 0;
  for (const Layer& layer : layers) sum = std::accumulate(layer.gradients.begin(), layer.gradients.end(), sum);
  return sum;
}

double Model::forward_macs() const noexcept {
  double sum = 0;
  for (const Layer& layer : layers) sum += layer.forward_macs;
  return sum;
}

Result<Model> model_by_name(std::string_view name) {
  if (name == "resnet50") return resnet50();
  if (name == "vgg16") return vgg16();
  if (name == "bert-base") return bert_base();
  return Status(Code::kInvalidArgument, fmt::format("no model '{}'; there are resnet50, vgg16, bert-base", name));
}

Model scaled(Model model, double scale) {
  for (Layer& layer : model.layers) {
    for (std::size_t& elements : layer.gradients)
      elements = std::max<std::size_t>(1, static_cast<std::size_t>(static_cast<double>(elements) * scale));
  }
  return model;
}

}  // namespace fairlead::bench
