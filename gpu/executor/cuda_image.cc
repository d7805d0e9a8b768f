#include "gpu/executor/cuda_image.h"

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <string_view>

namespace fairlead::gpu {

namespace {

using Bytes = std::span<const std::byte>;

constexpr std::uint32_t kFatbin = 0xba55ed50;

Status wrong(const char* what) { return {Code::kInvalidArgument, what}; }

template <typename T>
T at(Bytes bytes, std::uint64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

bool within(Bytes bytes, std::uint64_t offset, std::uint64_t length) noexcept {
  return offset <= bytes.size() && length <= bytes.size() - offset;
}

bool elf_is_whole(Bytes image) {
  if (image.size() < sizeof(Elf64_Ehdr)) return false;
  const auto header = at<Elf64_Ehdr>(image, 0);
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB) return false;
  const bool sections = header.e_shnum == 0 || header.e_shentsize == sizeof(Elf64_Shdr);
  const bool segments = header.e_phnum == 0 || header.e_phentsize == sizeof(Elf64_Phdr);
  if (!sections || !segments || !within(image, header.e_shoff, header.e_shnum * sizeof(Elf64_Shdr)) ||
      !within(image, header.e_phoff, header.e_phnum * sizeof(Elf64_Phdr))) {
    return false;
  }
  for (std::size_t i = 0; i < header.e_shnum; ++i) {
    const auto section = at<Elf64_Shdr>(image, header.e_shoff + i * sizeof(Elf64_Shdr));
    if (section.sh_type != SHT_NOBITS && !within(image, section.sh_offset, section.sh_size)) return false;
  }
  for (std::size_t i = 0; i < header.e_phnum; ++i) {
    const auto segment = at<Elf64_Phdr>(image, header.e_phoff + i * sizeof(Elf64_Phdr));
    if (!within(image, segment.p_offset, segment.p_filesz)) return false;
  }
  return header.e_shstrndx == SHN_UNDEF || header.e_shstrndx < header.e_shnum;
}

bool fatbin_is_whole(Bytes image) {
  if (image.size() < 16) return false;
  const auto header = at<std::uint16_t>(image, 6);
  return header >= 16 && header <= image.size() && at<std::uint64_t>(image, 8) <= image.size() - header;
}

}  // namespace

Status check_image(Bytes image) {
  const std::string_view text(reinterpret_cast<const char*>(image.data()), image.size());
  if (text.starts_with(std::string_view(ELFMAG, SELFMAG))) {
    return elf_is_whole(image) ? Status() : wrong("the cubin is cut short, or no 64-bit ELF file");
  }
  if (image.size() >= 4 && at<std::uint32_t>(image, 0) == kFatbin) {
    return fatbin_is_whole(image) ? Status() : wrong("the fatbin is cut short");
  }
  if (text.find(".version") != std::string_view::npos && text.find('\0') == std::string_view::npos) return {};
  return wrong("the image is neither PTX, nor a cubin, nor a fatbin");
}

}  // namespace fairlead::gpu
