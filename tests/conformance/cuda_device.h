// The device of tests that is a GPU: the double of the CUDA driver, or what FAIRLEAD_TEST_CUDA says; and executors with
// the kernels of tests.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "fairlead/cuda_executor.h"
#include "gpu/driver/driver.h"
#include "tests/conformance/test_kernels.h"
#include "tests/gpu/cuda_double.h"
#include "tests/gpu/cuda_kernels.h"
#include "tests/gpu/real_device.h"

namespace fairlead {

/// Streams beside each other in an order that chance decides.
inline constexpr gpu::testing::CudaDouble::Features kCudaOfTests{.devices = 3, .shuffle = 7};

class CudaOfTests {
 public:
  CudaOfTests() {
    if (!gpu::testing::on_real_device()) double_.emplace(kCudaOfTests).install();
  }
  ~CudaOfTests() { let_go(); }
  CudaOfTests(const CudaOfTests&) = delete;
  CudaOfTests& operator=(const CudaOfTests&) = delete;

  /// Null: it is a real one.
  gpu::testing::CudaDouble* find_double() { return double_ ? &*double_ : nullptr; }
  /// Code of such a name, with the kernels that come along.
  command::CudaModule code(const std::string& name) {
    return double_ ? gpu::testing::add_kernels(*double_, command::standard_kernels(), name)
                   : gpu::testing::real_code(command::standard_kernels(), nullptr, name);
  }
  /// Executors, counted. `own_process`: each session is the only one of its process. Where there is one device, it
  /// stands for all.
  command::ExecutorFactory executors(const TestKernels& kernels, std::uint64_t memory, bool own_process = false,
                                     int ordinal = 0) {
    command::CudaExecutorConfig config;
    config.ordinal = double_ ? ordinal : 0;
    config.own_process = own_process;
    config.memory_bytes = memory;
    config.staging_bytes = std::size_t{4} << 20;
    if (double_) {
      config.images.push_back(gpu::testing::add_kernels(*double_, kernels.kernels()));
    } else {
      if (page_ == nullptr) page_ = gpu::testing::let_device_reach(&kernels.signals(), sizeof(TestSignals));
      config.images.push_back(gpu::testing::real_code(kernels.kernels(), &kernels.signals()));
    }
    Result<command::ExecutorFactory> made = command::cuda_executors(std::move(config));
    if (!made) throw std::runtime_error(made.error().to_string());
    return kernels.counted(*std::move(made));
  }
  /// Nobody has it any more: what is left then, and what was done that is not allowed, the double knows.
  void let_go() {
    page_.reset();
    gpu::replace_process_driver(nullptr);
  }
  void expect_clean() {
    let_go();
    if (!double_) return;
    EXPECT_THAT(double_->violations(), testing::IsEmpty());
    EXPECT_EQ(double_->live_objects(), 0u);
  }

 private:
  std::optional<gpu::testing::CudaDouble> double_;
  std::shared_ptr<void> page_;  // that kernels of a real one reach
};

}  // namespace fairlead
