// Writes a safetensors file with the names, shapes and dtypes of torchvision's ResNet-50 and made-up values.
//
//   make_resnet50 FILE
//
// 320 tensors, as state_dict() has them: 161 parameters (25,557,032 fp32 values, the fully connected layer included)
// and, for each of the 53 batch normalisations, running_mean and running_var (fp32, 53,120 values in all) and
// num_batches_tracked (an int64 scalar). 102,441,032 bytes of data.
// Every value is a function of (tensor number, element number): two runs agree bit by bit.
//
// Layout: the int64 scalars first and the header padded to 8 bytes, so that every tensor is aligned in the file.
// Source: https://github.com/huggingface/safetensors, "Format"; torchvision.models.resnet50.
#include <fmt/core.h>

#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace {

struct Tensor {
  std::string name;
  std::vector<std::int64_t> shape;
  float low = 0, high = 0;  // range of the values
  bool counter = false;     // num_batches_tracked: I64

  [[nodiscard]] std::uint64_t elements() const {
    std::uint64_t count = 1;
    for (const std::int64_t dimension : shape) count *= static_cast<std::uint64_t>(dimension);
    return count;
  }
  [[nodiscard]] std::uint64_t bytes() const { return elements() * (counter ? 8 : 4); }
};

// The order of state_dict(): a module's own tensors in the order in which its constructor makes them.
class Model {
 public:
  Model() {
    convolution("conv1", 64, 3, 7);
    batch_norm("bn1", 64);
    std::int64_t in = 64;
    constexpr int kBlocks[] = {3, 4, 6, 3};
    for (int stage = 0; stage < 4; ++stage) {
      const std::int64_t width = std::int64_t{64} << stage;
      for (int block = 0; block < kBlocks[stage]; ++block) {
        bottleneck(fmt::format("layer{}.{}", stage + 1, block), in, width, block == 0);
        in = width * 4;
      }
    }
    const float bound = 1.0F / std::sqrt(2048.0F);
    tensors_.push_back({"fc.weight", {1000, 2048}, -bound, bound});
    tensors_.push_back({"fc.bias", {1000}, -bound, bound});
  }
  [[nodiscard]] const std::vector<Tensor>& tensors() const { return tensors_; }

 private:
  void convolution(const std::string& name, std::int64_t out, std::int64_t in, std::int64_t kernel) {
    const float bound = 1.0F / std::sqrt(static_cast<float>(in * kernel * kernel));
    tensors_.push_back({name + ".weight", {out, in, kernel, kernel}, -bound, bound});
  }
  void batch_norm(const std::string& name, std::int64_t channels) {
    tensors_.push_back({name + ".weight", {channels}, 0.5F, 1.5F});
    tensors_.push_back({name + ".bias", {channels}, -0.5F, 0.5F});
    tensors_.push_back({name + ".running_mean", {channels}, -1.0F, 1.0F});
    tensors_.push_back({name + ".running_var", {channels}, 0.1F, 2.0F});
    tensors_.push_back({name + ".num_batches_tracked", {}, 0, 0, true});
  }
  void bottleneck(const std::string& name, std::int64_t in, std::int64_t width, bool downsample) {
    convolution(name + ".conv1", width, in, 1);
    batch_norm(name + ".bn1", width);
    convolution(name + ".conv2", width, width, 3);
    batch_norm(name + ".bn2", width);
    convolution(name + ".conv3", width * 4, width, 1);
    batch_norm(name + ".bn3", width * 4);
    if (downsample) {
      convolution(name + ".downsample.0", width * 4, in, 1);
      batch_norm(name + ".downsample.1", width * 4);
    }
  }

  std::vector<Tensor> tensors_;
};

// splitmix64 of a counter: no state, so any element can be computed alone. Source: Steele, Lea, Flood, OOPSLA 2014.
std::uint64_t random_bits(std::uint64_t tensor, std::uint64_t element) {
  std::uint64_t z = ((tensor << 40) + element + 1) * 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

std::vector<char> values(const Tensor& tensor, std::uint64_t number) {
  std::vector<char> out(tensor.bytes());
  if (tensor.counter) {
    const auto count = static_cast<std::int64_t>(random_bits(number, 0) % 1'000'000);
    std::memcpy(out.data(), &count, sizeof count);
    return out;
  }
  for (std::uint64_t i = 0; i < tensor.elements(); ++i) {
    const float unit = static_cast<float>(random_bits(number, i) >> 40) * 0x1p-24F;  // [0, 1)
    const float value = tensor.low + unit * (tensor.high - tensor.low);
    std::memcpy(out.data() + i * sizeof value, &value, sizeof value);
  }
  return out;
}

// The header and, in the order of the file, the tensors' numbers.
std::string make_header(const std::vector<Tensor>& tensors, std::vector<std::size_t>& order) {
  for (const bool counters : {true, false}) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].counter == counters) order.push_back(i);
    }
  }
  std::string json = R"({"__metadata__":{"model":"resnet50","values":"made up"})";
  std::uint64_t offset = 0;
  for (const std::size_t i : order) {
    const Tensor& tensor = tensors[i];
    std::string shape;
    for (const std::int64_t dimension : tensor.shape) shape += (shape.empty() ? "" : ",") + std::to_string(dimension);
    json += fmt::format(R"(,"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", tensor.name,
                        tensor.counter ? "I64" : "F32", shape, offset, offset + tensor.bytes());
    offset += tensor.bytes();
  }
  json += '}';
  json.resize((json.size() + 7) / 8 * 8, ' ');
  return json;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 || argv[1][0] == '-') {
    fmt::print(stderr, "usage: make_resnet50 FILE\n");
    return 2;
  }
  const Model model;
  const std::vector<Tensor>& tensors = model.tensors();
  std::vector<std::size_t> order;
  const std::string header = make_header(tensors, order);
  unsigned char length[8];  // little endian, whatever this host is
  for (unsigned i = 0; i < 8; ++i) length[i] = static_cast<unsigned char>(std::uint64_t{header.size()} >> (8 * i));

  std::FILE* file = std::fopen(argv[1], "wb");
  bool good = file != nullptr && std::fwrite(length, sizeof length, 1, file) == 1 &&
              std::fwrite(header.data(), header.size(), 1, file) == 1;
  std::uint64_t total = 0;
  for (const std::size_t i : order) {
    const std::vector<char> data = values(tensors[i], i);
    good = good && std::fwrite(data.data(), data.size(), 1, file) == 1;
    total += data.size();
  }
  if (file != nullptr && std::fclose(file) != 0) good = false;
  if (!good) {
    fmt::print(stderr, "make_resnet50: cannot write {}: {}\n", argv[1], std::strerror(errno));
    return 1;
  }
  fmt::print("{}: {} tensors, {} bytes of data\n", argv[1], tensors.size(), total);
  return 0;
}
