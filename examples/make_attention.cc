// Writes a safetensors file with the weights of a small block of attention, made up: for remote_inference.
//   make_attention FILE
//
// "keys" and "values": 64 x 64 fp32 numbers each.
// Source: https://github.com/huggingface/safetensors, "Format".
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

int main(int argc, char** argv) {
  if (argc != 2 || argv[1][0] == '-') {
    std::fprintf(stderr, "usage: make_attention FILE\n");
    return 2;
  }
  std::string header = R"({"keys":{"dtype":"F32","shape":[64,64],"data_offsets":[0,16384]},)"
                       R"("values":{"dtype":"F32","shape":[64,64],"data_offsets":[16384,32768]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string content;  // little-endian, whatever this host is
  for (unsigned i = 0; i < 8; ++i) content += static_cast<char>(std::uint64_t{header.size()} >> (8 * i));
  content += header;
  std::uint32_t random = 1;
  for (int i = 0; i < 2 * 64 * 64; ++i) {
    random = random * 1664525 + 1013904223;  // Knuth's; the upper bits are the better ones
    const float value = static_cast<float>(random >> 8) * 0x1p-27F - 0.0625F;  // -1/16 to 1/16
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    for (unsigned j = 0; j < 4; ++j) content += static_cast<char>(bits >> (8 * j));
  }
  std::FILE* const file = std::fopen(argv[1], "wb");
  bool good = file != nullptr && std::fwrite(content.data(), content.size(), 1, file) == 1;
  if (file != nullptr && std::fclose(file) != 0) good = false;
  if (!good) {
    std::fprintf(stderr, "make_attention: cannot write %s: %s\n", argv[1], std::strerror(errno));
    return 1;
  }
  std::printf("%s: 2 tensors, %zu bytes\n", argv[1], content.size());
}
