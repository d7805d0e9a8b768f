// The small stack of examples/remote_cuda, by the calls of a driver; what serves it is this process.
#include <fairlead/command_service.h>
#include <fairlead/host_executor.h>
#include <gtest/gtest.h>
#include <remote_cuda.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace fairlead;  // NOLINT(google-build-using-namespace): a program of one file

constexpr std::uint64_t kMemory = 8 << 20;
constexpr const char* kModule =
    "vector_add(pointer, pointer, pointer, u32)\nsaxpy(f32, pointer, pointer, u32)\nnobody(u64)\nbreak(u32)";

class RemoteCuda : public testing::Test {
 protected:
  void SetUp() override {
    EngineConfig listens;
    listens.listen = "127.0.0.1:0";
    auto engine = Engine::create(listens);
    ASSERT_TRUE(engine) << engine.error().to_string();
    command::HostExecutorConfig config;
    config.memory_bytes = kMemory;
    config.kernels.push_back({"break", {{command::ParameterKind::kU32, 1}}, {}, [](const command::Call&) {
                                return Status(Code::kInternal, "it broke");
                              }});
    auto service =
        command::Service::start(*std::move(engine), {.executors = command::host_executors(std::move(config))});
    ASSERT_TRUE(service) << service.error().to_string();
    service_.emplace(*std::move(service));
    ::setenv("REMOTE_CUDA", service_->listen_address().c_str(), 1);
    ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxCreate(&context_, 0, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuModuleLoadData(&module_, kModule), CUDA_SUCCESS);
    add_ = function("vector_add");
  }
  void TearDown() override {
    if (module_ != nullptr) {
      EXPECT_EQ(cuModuleUnload(module_), CUDA_SUCCESS);
    }
    if (context_ != nullptr) {
      EXPECT_EQ(cuCtxDestroy(context_), CUDA_SUCCESS);
    }
  }

  CUfunction function(const char* name) {
    CUfunction found = nullptr;
    EXPECT_EQ(cuModuleGetFunction(&found, module_, name), CUDA_SUCCESS) << name;
    return found;
  }
  static CUdeviceptr memory(std::size_t bytes) {
    CUdeviceptr address = 0;
    EXPECT_EQ(cuMemAlloc(&address, bytes), CUDA_SUCCESS);
    return address;
  }
  CUresult add(CUdeviceptr x, CUdeviceptr y, CUdeviceptr sum, std::uint32_t n, CUstream stream = nullptr,
               unsigned threads = 256) {
    void* parameters[] = {&x, &y, &sum, &n};
    return cuLaunchKernel(add_, 1, 1, 1, threads, 1, 1, 0, stream, parameters, nullptr);
  }

  std::optional<command::Service> service_;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction add_ = nullptr;
};

TEST_F(RemoteCuda, AddsWhatItIsGiven) {
  const CUdeviceptr x = memory(4096), y = memory(4096);
  EXPECT_EQ(x % 256, 0u);
  std::vector<float> numbers(1024), sums(1024);
  std::iota(numbers.begin(), numbers.end(), 0.0F);
  ASSERT_EQ(cuMemcpyHtoD(x, numbers.data(), 4096), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyDtoDAsync(y, x, 4096, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(add(x + 4, y, y, 1023), CUDA_SUCCESS);  // a pointer into the middle
  ASSERT_EQ(cuMemcpyDtoH(sums.data(), y, 4096), CUDA_SUCCESS);
  for (std::size_t i = 0; i < 1023; ++i) ASSERT_EQ(sums[i], numbers[i] + numbers[i + 1]);
  EXPECT_EQ(sums[1023], 1023);
  ASSERT_EQ(cuMemsetD8Async(x, 0, 4096, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyDtoH(sums.data(), x, 4096), CUDA_SUCCESS);
  EXPECT_EQ(sums, std::vector<float>(1024));
}

TEST_F(RemoteCuda, TellsTheTruthOfAllocationsAtOnce) {
  std::size_t total = 0;
  ASSERT_EQ(cuDeviceTotalMem(&total, 0), CUDA_SUCCESS);
  EXPECT_EQ(total, kMemory);
  for (int round = 0; round < 20; ++round) {
    const CUdeviceptr most = memory(kMemory / 4 * 3);
    CUdeviceptr more = 0;
    ASSERT_EQ(cuMemAlloc(&more, kMemory / 2), CUDA_ERROR_OUT_OF_MEMORY);
    ASSERT_EQ(cuMemAlloc(&more, std::size_t{1} << 40), CUDA_ERROR_OUT_OF_MEMORY);
    ASSERT_EQ(cuMemFree(most), CUDA_SUCCESS);  // which the next one is behind
  }
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
}

TEST_F(RemoteCuda, RefusesAddressesThatLeadNowhere) {
  const CUdeviceptr x = memory(4096), gone = memory(4096);
  ASSERT_EQ(cuMemFree(gone), CUDA_SUCCESS);
  std::array<char, 64> bytes{};
  EXPECT_EQ(cuMemFree(gone), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFree(x + 256), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyHtoD(gone, bytes.data(), 64), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyHtoD(x + 4096 - 63, bytes.data(), 64), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyHtoD(x + 4096 - 64, bytes.data(), 64), CUDA_SUCCESS);
  EXPECT_EQ(cuMemcpyDtoH(bytes.data(), x - 1, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(bytes.data()), bytes.data(), 64), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(add(gone, x, x, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
}

TEST_F(RemoteCuda, ReadingADevicesPointerFaults) {
  const CUdeviceptr x = memory(4096);
  EXPECT_DEATH(std::printf("%d", *reinterpret_cast<volatile int*>(x)), "");
}

TEST_F(RemoteCuda, ALaunchThatCannotBeIsRefusedWhereItIsMade) {
  const CUdeviceptr x = memory(4096);
  EXPECT_EQ(add(x, x, x, 8, nullptr, 4096), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(add(x, x, x, 8), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
}

TEST_F(RemoteCuda, WhatFailsLaterIsToldOnce) {
  const CUdeviceptr x = memory(4096);
  ASSERT_EQ(add(x, x, x, 1025), CUDA_SUCCESS);  // beyond its allocation, as the server finds
  EXPECT_NE(cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  ASSERT_EQ(add(x, x, x, 1024), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
}

TEST_F(RemoteCuda, WhatWasPassedOverForAFailureIsNoLossOfTheDevice) {
  const CUdeviceptr x = memory(4096);
  CUevent event = nullptr;
  ASSERT_EQ(cuEventCreate(&event, 0), CUDA_SUCCESS);
  ASSERT_EQ(add(x, x, x, 1025), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(event, nullptr), CUDA_SUCCESS);
  EXPECT_NE(cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuEventSynchronize(event), CUDA_ERROR_UNKNOWN) << "it did not come to pass";
  EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_UNKNOWN);
  ASSERT_EQ(add(x, x, x, 1024), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(cuEventDestroy(event), CUDA_SUCCESS);
}

TEST_F(RemoteCuda, ThreadsThatAskForTooMuchDoNotDisturbOthers) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([t] {
      for (int round = 0; round < 200; ++round) {
        CUdeviceptr address = 0;
        if (t == 0) {
          ASSERT_EQ(cuMemAlloc(&address, 4096), CUDA_SUCCESS) << "there is room for that";
          ASSERT_EQ(cuMemFree(address), CUDA_SUCCESS);
        } else {
          ASSERT_EQ(cuMemAlloc(&address, kMemory + 4096), CUDA_ERROR_OUT_OF_MEMORY);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
}

TEST_F(RemoteCuda, AGapThatIsFilledIsNoPlaceForMore) {
  const CUdeviceptr first = memory(1000), second = memory(8192);
  ASSERT_EQ(cuMemFree(first), CUDA_SUCCESS);
  std::vector<std::pair<CUdeviceptr, std::size_t>> all{{second, 8192}};
  for (const auto bytes : std::to_array<std::size_t>({1024, 4096, 500, 1000, 256, 255})) {
    all.emplace_back(memory(bytes), bytes);
  }
  std::ranges::sort(all);
  for (std::size_t i = 1; i < all.size(); ++i) {
    EXPECT_LT(all[i - 1].first + all[i - 1].second, all[i].first) << "the end of one is no other's begin";
  }
}

TEST_F(RemoteCuda, AContextThatIsLostStaysSo) {
  const CUfunction breaks = function("break");
  std::uint32_t number = 1;
  void* parameters[] = {&number};
  ASSERT_EQ(cuLaunchKernel(breaks, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAlloc(&address, 4096), CUDA_ERROR_LAUNCH_FAILED);
  ASSERT_EQ(cuCtxDestroy(context_), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAlloc(&address, 4096), CUDA_ERROR_INVALID_CONTEXT);
  ASSERT_EQ(cuCtxCreate(&context_, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAlloc(&address, 4096), CUDA_SUCCESS);
}

TEST_F(RemoteCuda, TheDefaultStreamWaitsForAllAndAllForIt) {
  constexpr std::size_t kBytes = 1 << 20;  // crosses apart from commands, and later than those
  CUstream one, other;
  ASSERT_EQ(cuStreamCreate(&one, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamCreate(&other, 1), CUDA_SUCCESS);  // CU_STREAM_NON_BLOCKING: it waits all the same
  const CUdeviceptr x = memory(kBytes), y = memory(kBytes), z = memory(kBytes);
  std::vector<std::uint8_t> in(kBytes), out(kBytes);
  for (std::uint8_t round = 1; round < 20; ++round) {
    std::fill(in.begin(), in.end(), round);
    ASSERT_EQ(cuMemcpyHtoDAsync(x, in.data(), kBytes, one), CUDA_SUCCESS);
    ASSERT_EQ(cuMemcpyDtoDAsync(y, x, kBytes, nullptr), CUDA_SUCCESS);
    ASSERT_EQ(cuMemcpyDtoDAsync(z, y, kBytes, other), CUDA_SUCCESS);
    ASSERT_EQ(cuMemcpyDtoHAsync(out.data(), z, kBytes, other), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(other), CUDA_SUCCESS);
    ASSERT_EQ(out, in);
  }
  EXPECT_EQ(cuStreamDestroy(one), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamDestroy(one), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuMemsetD8Async(x, 0, 1, one), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(RemoteCuda, EventsOrderStreams) {
  constexpr std::size_t kBytes = 1 << 20;
  CUstream one, other;
  CUevent event;
  ASSERT_EQ(cuStreamCreate(&one, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamCreate(&other, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuEventCreate(&event, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuEventQuery(event), CUDA_SUCCESS);  // nobody recorded it
  const CUdeviceptr x = memory(kBytes);
  std::vector<std::uint8_t> in(kBytes), out(kBytes);
  for (std::uint8_t round = 1; round < 20; ++round) {
    std::fill(in.begin(), in.end(), round);
    ASSERT_EQ(cuMemcpyHtoDAsync(x, in.data(), kBytes, one), CUDA_SUCCESS);
    ASSERT_EQ(cuEventRecord(event, one), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamWaitEvent(other, event, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuMemcpyDtoHAsync(out.data(), x, kBytes, other), CUDA_SUCCESS);
    ASSERT_EQ(cuEventRecord(event, other), CUDA_SUCCESS);
    CUresult reached;
    do {
      reached = cuEventQuery(event);
    } while (reached == CUDA_ERROR_NOT_READY);
    ASSERT_EQ(reached, CUDA_SUCCESS);
    ASSERT_EQ(out, in);
  }
  EXPECT_EQ(cuEventDestroy(event), CUDA_SUCCESS);
}

TEST_F(RemoteCuda, StreamsEndWhereChannelsDoAndComeBack) {
  std::vector<CUstream> streams;
  CUstream stream = nullptr;
  while (cuStreamCreate(&stream, 0) == CUDA_SUCCESS) streams.push_back(stream);
  ASSERT_GT(streams.size(), 2u);
  const CUdeviceptr x = memory(4096);
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(cuMemsetD8Async(x, 1, 4096, streams.back()), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamDestroy(streams.back()), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamCreate(&streams.back(), 0), CUDA_SUCCESS);
  }
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
}

TEST_F(RemoteCuda, ModulesAreTextAndFunctionsTheServers) {
  CUmodule module = nullptr;
  for (const char* wrong : {"\x7f"
                            "ELF",
                            "vector_add", "vector_add(pointer", "(u32)", "f(u16)", "f(u32) ", "\n"}) {
    EXPECT_EQ(cuModuleLoadData(&module, wrong), CUDA_ERROR_INVALID_IMAGE) << wrong;
  }
  CUfunction found = nullptr;
  EXPECT_EQ(cuModuleGetFunction(&found, module_, "subtract"), CUDA_ERROR_NOT_FOUND);  // the module has none
  EXPECT_EQ(cuModuleGetFunction(&found, module_, "nobody"), CUDA_ERROR_NOT_FOUND);    // the server has none
  EXPECT_EQ(cuModuleGetFunction(&found, module_, "saxpy"), CUDA_SUCCESS);
}

TEST_F(RemoteCuda, SaysWhatItDoesNotDo) {
  CUdeviceptr address = 0;
  float time = 0;
  const std::pair<const char*, std::function<CUresult()>> calls[] = {
      {"cuMemAllocManaged", [&] { return cuMemAllocManaged(&address, 64, 1); }},
      {"cuMemHostGetDevicePointer", [&] { return cuMemHostGetDevicePointer(&address, &time, 0); }},
      {"cuLaunchHostFunc", [&] { return cuLaunchHostFunc(nullptr, nullptr, nullptr); }},
      {"cuEventElapsedTime", [&] { return cuEventElapsedTime(&time, nullptr, nullptr); }},
      {"cuStreamBeginCapture", [&] { return cuStreamBeginCapture(nullptr, 0); }},
      {"extra", [&] {
         void* extra[] = {nullptr};
         return cuLaunchKernel(add_, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra);
       }}};
  for (const auto& [name, call] : calls) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(call(), CUDA_ERROR_NOT_SUPPORTED) << name;
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find(name), said.npos) << said;
    EXPECT_NE(said.find("is not supported: "), said.npos) << said;
  }
}

TEST_F(RemoteCuda, ThereIsOneDeviceAndOneContext) {
  int number = 0;
  ASSERT_EQ(cuDeviceGetCount(&number), CUDA_SUCCESS);
  EXPECT_EQ(number, 1);
  CUdevice device = 7;
  EXPECT_EQ(cuDeviceGet(&device, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuDeviceGet(&device, 1), CUDA_ERROR_INVALID_DEVICE);
  CUcontext again = nullptr;
  EXPECT_EQ(cuCtxCreate(&again, 0, device), CUDA_SUCCESS);
  EXPECT_EQ(again, context_);
  EXPECT_EQ(cuCtxDestroy(nullptr), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(RemoteCuda, AChildDoesNotReachTheDevice) {
  const CUdeviceptr x = memory(4096);
  const pid_t child = ::fork();
  if (child == 0) {
    CUdeviceptr address = 0;
    char byte = 0;
    const bool refused = cuMemAlloc(&address, 64) != CUDA_SUCCESS && cuMemcpyHtoD(x, &byte, 1) != CUDA_SUCCESS &&
                         cuCtxSynchronize() != CUDA_SUCCESS;
    std::_Exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(add(x, x, x, 8), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
}

TEST_F(RemoteCuda, AServerThatIsGoneIsToldOfByEveryCall) {
  const CUdeviceptr x = memory(4096);
  service_.reset();
  CUresult result;
  do {  // until it is heard of
    result = add(x, x, x, 8);
  } while (result == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_DEVICE_UNAVAILABLE);
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAlloc(&address, 64), CUDA_ERROR_DEVICE_UNAVAILABLE);
}

TEST(RemoteCudaDeathTest, NothingIsThereBeforeItIsAskedFor) {
  int count = 0;
  CUdeviceptr address = 0;
  EXPECT_EXIT(
      {
        ::unsetenv("REMOTE_CUDA");
        const bool right = cuMemAlloc(&address, 64) == CUDA_ERROR_NOT_INITIALIZED &&
                           cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED &&
                           cuInit(0) == CUDA_ERROR_NO_DEVICE && cuInit(1) == CUDA_ERROR_INVALID_VALUE;
        std::_Exit(right ? 0 : 1);
      },
      testing::ExitedWithCode(0), "REMOTE_CUDA is to be the HOST:PORT");
}

}  // namespace
