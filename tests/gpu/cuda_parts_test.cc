// The parts of the CUDA executor: ranges, images, layouts, settings.
#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "gpu/executor/cuda_executor.h"
#include "gpu/executor/cuda_image.h"
#include "gpu/executor/ranges.h"
#include "tests/gpu/cuda_session.h"

namespace fairlead::gpu::testing {
namespace {

using command::Pointer;
using ::testing::HasSubstr;

TEST(Ranges, NeverOverlapAndJoinAgain) {
  constexpr std::uint64_t kSize = 1000;
  std::mt19937 random(5);
  Ranges ranges(kSize);
  std::map<std::uint64_t, std::uint64_t> taken;
  for (int i = 0; i < 5000; ++i) {
    if (random() % 2 == 0) {
      const std::uint64_t bytes = random() % 90 + 1;
      std::optional<std::uint64_t> at;
      if (random() % 2 == 0) {  // a place that somebody picks
        const std::uint64_t wish = random() % (kSize + 50);
        const bool is_free = wish + bytes <= kSize && std::ranges::none_of(taken, [&](const auto& each) {
                               return each.first < wish + bytes && wish < each.first + each.second;
                             });
        ASSERT_EQ(ranges.take_at(wish, bytes), is_free) << wish << ", " << bytes;
        if (!is_free) continue;
        at = wish;
      } else {
        at = ranges.take(bytes);
      }
      if (!at) {
        ASSERT_LT(ranges.longest(), bytes);
        continue;
      }
      ASSERT_LE(*at + bytes, kSize);
      const auto next = taken.lower_bound(*at);
      ASSERT_TRUE(next == taken.end() || *at + bytes <= next->first);
      ASSERT_TRUE(next == taken.begin() || std::prev(next)->first + std::prev(next)->second <= *at);
      taken[*at] = bytes;
    } else if (!taken.empty()) {
      const auto one = std::next(taken.begin(), static_cast<std::ptrdiff_t>(random() % taken.size()));
      ranges.give(one->first, one->second);
      taken.erase(one);
    }
  }
  for (const auto& [at, bytes] : taken) ranges.give(at, bytes);
  EXPECT_EQ(ranges.longest(), kSize);
  EXPECT_EQ(ranges.take(kSize), 0u);
  EXPECT_FALSE(ranges.take(1));
  EXPECT_FALSE(ranges.take_at(0, 1));
  EXPECT_FALSE(ranges.take_at(~std::uint64_t{0}, ~std::uint64_t{0}));
}

TEST(CudaImage, WhatIsCutShortIsNone) {
  const auto check = [](const std::string& bytes) { return check_image(std::as_bytes(std::span(bytes))); };
  EXPECT_TRUE(check(".version 8.0\n.target sm_70\n").ok());
  EXPECT_THAT(check("int main() {}").message(), HasSubstr("neither PTX, nor a cubin, nor a fatbin"));
  EXPECT_FALSE(check("").ok());
  EXPECT_FALSE(check(std::string(".version 8.0\0x", 14)).ok()) << "the driver would read half of it";

  std::string elf(200, '\0');
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_shoff = sizeof header;
  header.e_shnum = 1;
  header.e_shentsize = sizeof(Elf64_Shdr);
  Elf64_Shdr section{};
  section.sh_type = SHT_PROGBITS;
  section.sh_offset = 150;
  section.sh_size = 50;
  const auto with = [&](Elf64_Ehdr h, Elf64_Shdr s) {
    std::memcpy(elf.data(), &h, sizeof h);
    std::memcpy(elf.data() + sizeof h, &s, sizeof s);
    return check(elf).ok();
  };
  EXPECT_TRUE(with(header, section));
  for (std::size_t length = SELFMAG; length < elf.size(); ++length)
    EXPECT_FALSE(check(elf.substr(0, length)).ok()) << length;
  section.sh_size = ~std::uint64_t{0};
  EXPECT_FALSE(with(header, section));
  section.sh_size = 50;
  header.e_shoff = ~std::uint64_t{0} - 8;
  EXPECT_FALSE(with(header, section));
  header.e_shoff = sizeof header;
  header.e_shentsize = 8;
  EXPECT_FALSE(with(header, section));

  std::string fatbin(64, '\0');
  const std::uint32_t magic = 0xba55ed50;
  const std::uint16_t front = 16;
  std::uint64_t rest = 48;
  std::memcpy(fatbin.data(), &magic, 4);
  std::memcpy(fatbin.data() + 6, &front, 2);
  std::memcpy(fatbin.data() + 8, &rest, 8);
  EXPECT_TRUE(check(fatbin).ok());
  EXPECT_FALSE(check(fatbin.substr(0, 63)).ok());
  EXPECT_FALSE(check(fatbin.substr(0, 12)).ok());
}

TEST(CudaLayout, PlacesParametersAsTheDeviceHasThem) {
  struct alignas(16) Four {
    float values[4];
  };
  const auto parameters = command::layout<std::uint32_t, Pointer, std::uint8_t, std::uint16_t, Four, double>();
  const Result<CudaLayout> layout = CudaLayout::of(parameters);
  ASSERT_TRUE(layout) << layout.error().to_string();
  std::vector<std::uint32_t> from, to;
  for (const CudaLayout::Place& place : layout->places()) {
    from.push_back(place.from);
    to.push_back(place.to);
  }
  EXPECT_THAT(from, ::testing::ElementsAre(0, 8, 24, 26, 32, 48));
  EXPECT_THAT(to, ::testing::ElementsAre(0, 8, 16, 18, 32, 48)) << "a pointer has 8 bytes there";
  EXPECT_EQ(layout->device_bytes(), 56u);
  const auto refused = [](std::vector<command::Parameter> parameters, std::string_view words) {
    const Result<CudaLayout> made = CudaLayout::of(parameters);
    ASSERT_FALSE(made);
    EXPECT_THAT(made.error().message(), HasSubstr(words));
  };
  refused({{4, 4}, {0, 1}}, "parameter 1 is said to have 0 bytes");
  refused({{8, 3}}, "at a multiple of 3");
  refused({{8, 32}}, "at a multiple of 32");
  refused({{6, 4}}, "6 bytes");
  refused({{8, 8, true}}, "8 bytes at a multiple of 8, as a pointer");
  refused(std::vector<command::Parameter>(257, {1, 1}), "257 parameters");
  refused({{4096, 8}, {8, 8}}, "4104 bytes of parameters");
}

TEST(CudaExecutors, SaySettingsThatAreOutOfRange) {
  CudaDouble cuda;
  cuda.install();
  const auto refused = [](command::CudaExecutorConfig config, Code code, std::string_view words) {
    const Result<command::ExecutorFactory> made = command::cuda_executors(std::move(config));
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code(), code);
    EXPECT_THAT(made.error().message(), HasSubstr(words));
  };
  refused({.ordinal = 1}, Code::kInvalidArgument, "there is no CUDA device 1; legal: 0 to 0");
  refused({.ordinal = -1}, Code::kInvalidArgument, "there is no CUDA device -1");
  refused({.memory_bytes = 0}, Code::kInvalidArgument, "memory_bytes is 0");
  refused({.staging_bytes = 1000}, Code::kInvalidArgument, "staging_bytes is 1000");
  command::CudaExecutorConfig config;
  config.images.push_back({{}, {{"f", {{3, 2}}}}});
  refused(std::move(config), Code::kInvalidArgument, "function 'f': parameter 0");
  // A session's share that the device does not have.
  Result<command::ExecutorFactory> factory =
      command::cuda_executors({.memory_bytes = std::uint64_t{1} << 40, .staging_bytes = 4 << 20});
  ASSERT_TRUE(factory);
  const auto executor = (*factory)(Peer());
  ASSERT_FALSE(executor);
  EXPECT_EQ(executor.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(executor.error().message(), HasSubstr("lower memory_bytes"));
  EXPECT_EQ(cuda.live_objects(), 0u);
  EXPECT_THAT(CudaDouble::context_stack(), ::testing::IsEmpty());
  replace_process_driver(nullptr);
}

}  // namespace
}  // namespace fairlead::gpu::testing
