// Two engines whose memory is a GPU's, the double's or a real one: what the tests of the engine share.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fairlead/cuda.h"
#include "tests/bytes.h"
#include "tests/conformance/engine_pair.h"
#include "tests/gpu/cuda_double.h"
#include "tests/gpu/real_device.h"

namespace fairlead::test {

class CudaEngines : public testing::Test {
 protected:
  CudaEngines() {
    if (!is_real) cuda.install();
  }
  ~CudaEngines() override {
    pair.reset();
    gpu::replace_process_driver(nullptr);
    real_.clear();
    EXPECT_THAT(cuda.violations(), testing::IsEmpty());
    EXPECT_EQ(cuda.live_objects(), 0u);
  }

  void start(const Way& way, std::size_t staging = std::size_t{1} << 20) {
    EngineConfig config = config_for(way);
    config.cuda_staging_bytes = staging * lanes_under_test();
    EngineConfig server = config;
    server.transport = way.transport == "tcp" ? "tcp" : "auto";
    pair->start(server, config);
  }

  /// Device memory with these bytes in it, registered with the engine.
  std::pair<Memory, std::span<std::byte>> device(Engine& engine, std::size_t bytes, std::uint32_t seed = 0,
                                                 CudaOptions options = {}) {
    if (is_real) real_.push_back(std::make_unique<gpu::testing::RealBytes>(bytes, 0));
    const std::span<std::byte> made = is_real ? real_.back()->bytes() : cuda.allocate(bytes);
    put(made, seed);
    Result<Memory> memory = engine.register_memory(made, options);
    EXPECT_TRUE(memory) << memory.error().to_string();
    return {memory ? *memory : Memory(), made};
  }
  /// The same of the server's, published, and the client's view of it.
  std::pair<RemoteMemory, std::span<std::byte>> remote_device(const std::string& name, std::size_t bytes,
                                                              std::uint32_t seed = 0) {
    auto [memory, made] = device(*pair->server, bytes, seed);
    const Status published = pair->server->publish(name, memory, Access::kRemoteReadWrite);
    EXPECT_TRUE(published.ok()) << published.to_string();
    Result<RemoteMemory> remote = pair->peer.lookup(name, kPatience);
    EXPECT_TRUE(remote) << remote.error().to_string();
    return {remote ? *remote : RemoteMemory(), made};
  }

  /// Of device memory, when no copy is under way.
  void put(std::span<std::byte> device, std::uint32_t seed) {
    if (!is_real) return fill(cuda.shadow(device), seed);
    std::vector<std::byte> bytes(device.size());
    fill(bytes, seed);
    gpu::testing::put(device, bytes);
  }
  bool holds(std::span<std::byte> device, std::uint32_t seed) {
    return is_real ? is_filled(gpu::testing::get(device), seed) : is_filled(cuda.shadow(device), seed);
  }

  /// 0: as it is before anything is written.
  static void fill(std::span<std::byte> bytes, std::uint32_t seed) {
    if (seed == 0) return (void)std::ranges::fill(bytes, std::byte{0});
    fill_pattern(bytes, seed);
  }
  static bool is_filled(std::span<const std::byte> bytes, std::uint32_t seed) {
    return seed == 0 ? are_all(bytes, std::byte{0}) : is_pattern(bytes, seed);
  }
  static void expect_ok(Transfer transfer) {
    const Status end = transfer.wait(kPatience);
    EXPECT_TRUE(end.ok()) << end.to_string();
  }

  const bool is_real = gpu::testing::on_real_device();
  gpu::testing::CudaDouble cuda;  // the device, or nothing
  std::optional<EnginePair> pair{std::in_place};

 private:
  std::vector<std::unique_ptr<gpu::testing::RealBytes>> real_;
};

}  // namespace fairlead::test
