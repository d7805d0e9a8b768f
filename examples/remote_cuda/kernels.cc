#include <kernels.h>

#include <cctype>
#include <cstring>
#include <sstream>

namespace {

std::optional<Kernel::Kind> kind_of(std::string_view word) {
  if (word == "pointer") return Kernel::Kind::kPointer;
  if (word == "u32") return Kernel::Kind::kU32;
  if (word == "u64") return Kernel::Kind::kU64;
  if (word == "f32") return Kernel::Kind::kF32;
  return std::nullopt;
}

std::optional<Kernel> parse_line(const std::string& line) {
  const std::size_t open = line.find('('), close = line.find(')');
  if (open == 0 || open == line.npos || close != line.size() - 1) return std::nullopt;
  Kernel kernel{line.substr(0, open), {}};
  std::istringstream words(line.substr(open + 1, close - open - 1));
  for (std::string word; std::getline(words >> std::ws, word, ',');) {
    const auto kind = kind_of(word);
    if (!kind) return std::nullopt;
    kernel.parameters.push_back(*kind);
  }
  return kernel;
}

void append(std::vector<std::byte>& bytes, const void* value, std::size_t size, std::size_t alignment) {
  const std::size_t at = (bytes.size() + alignment - 1) / alignment * alignment;
  bytes.resize(at + size);
  std::memcpy(bytes.data() + at, value, size);
}

}  // namespace

std::optional<std::vector<Kernel>> parse_module(std::string_view image) {
  std::vector<Kernel> kernels;
  std::istringstream lines{std::string(image)};
  for (std::string line; std::getline(lines, line);) {
    auto kernel = parse_line(line);
    if (!kernel) return std::nullopt;
    kernels.push_back(*std::move(kernel));
  }
  return kernels;
}

std::optional<std::vector<std::byte>> pack_parameters(const Kernel& kernel, void* const* values,
                                                      const Addresses& addresses) {
  std::vector<std::byte> bytes;
  for (const Kernel::Kind kind : kernel.parameters) {
    const void* const value = *values++;
    switch (kind) {
      case Kernel::Kind::kU32:
      case Kernel::Kind::kF32:
        append(bytes, value, 4, 4);
        break;
      case Kernel::Kind::kU64:
        append(bytes, value, 8, 8);
        break;
      case Kernel::Kind::kPointer: {
        std::uint64_t address = 0;
        std::memcpy(&address, value, sizeof address);
        const auto pointer = address == 0 ? fairlead::command::Pointer{} : addresses.find(address, 0);
        if (!pointer) return std::nullopt;
        append(bytes, &*pointer, sizeof *pointer, alignof(fairlead::command::Pointer));
      }
    }
  }
  return bytes;
}
