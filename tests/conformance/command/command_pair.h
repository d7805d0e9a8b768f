// A service of commands and a client's session with it, in one process, over every way that commands are tested on; the
// device is the host, or a GPU that is the double's.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fairlead/command.h"
#include "fairlead/command_service.h"
#include "tests/conformance/cuda_device.h"
#include "tests/conformance/engine_pair.h"
#include "tests/conformance/test_kernels.h"

namespace fairlead {

inline constexpr std::size_t kPendingBytes = std::size_t{4} << 20;  // that a client keeps and has not taken

struct CommandWay {
  Way way;
  command::ServiceConfig::Where where = command::ServiceConfig::Where::kOwnThread;
  bool isolated = false;  // each session in a process of its own
  bool cuda = false;
  [[nodiscard]] std::string name() const {
    if (isolated) return way.name + "_own_process" + (cuda ? "_cuda" : "");
    return way.name + (where == command::ServiceConfig::Where::kInTurn ? "_in_turn" : "_own_thread") +
           (cuda ? "_cuda" : "");
  }
};

inline std::vector<CommandWay> command_ways() {
  std::vector<CommandWay> all;
  for (const Way& way : ways()) {
    if (way.name == "staged" || way.name == "lossy") continue;  // what these do is nothing to commands
    all.push_back({way, command::ServiceConfig::Where::kOwnThread});
    all.push_back({way, command::ServiceConfig::Where::kInTurn});
    if (way.name != "pvrdma") all.push_back({way, command::ServiceConfig::Where::kOwnThread, true});
  }
#ifdef __SANITIZE_THREAD__
  // A process has one thread, and takes a second to start.
  std::erase_if(all, [](const CommandWay& each) { return each.isolated; });
#endif
  return all;
}

inline std::vector<CommandWay> cuda_command_ways() {
  std::vector<CommandWay> all = command_ways();
  std::erase_if(all, [](const CommandWay& each) {
    const bool in_turn = each.where == command::ServiceConfig::Where::kInTurn;
    return each.way.name == "pvrdma" || (each.way.name == "tcp" ? in_turn : each.isolated);
  });
  for (CommandWay& each : all) each.cuda = true;
  return all;
}

class CommandPair : public testing::TestWithParam<CommandWay> {
 protected:
  void SetUp() override { start({}); }
  void TearDown() override {
    kernels.signals().open.store(true);
    session.reset();
    client.reset();
    service.reset();
    // A process that is killed counts nothing any more.
    const int left = GetParam().isolated ? 0 : kernels.signals().executors.load();
    EXPECT_EQ(left, 0) << "all that sessions had is freed";
    if (cuda) cuda->expect_clean();
  }

  /// A fault of a session's ends more than it: CUDA for its process, as a real driver does it.
  static bool faults_spread() { return GetParam().cuda && !GetParam().isolated && gpu::testing::on_real_device(); }

  std::vector<std::string> session_program(std::uint64_t memory) {
    const char* const elsewhere = std::getenv("FAIRLEAD_TEST_SESSION_PROGRAM");  // where tests were copied to
    return {elsewhere != nullptr ? elsewhere : FAIRLEAD_TEST_SESSION, std::to_string(memory), kernels.path(),
            GetParam().cuda ? "cuda" : "host", std::to_string(devices)};
  }

  /// Without a session, if not asked for one.
  void start(command::ServiceConfig config, std::uint64_t memory = 48 << 20, bool connects = true,
             std::vector<std::string> program = {}) {
    session.reset();
    client.reset();
    service.reset();
    EngineConfig of_client = config_for(GetParam().way);
    EngineConfig of_server = of_client;
    of_client.max_pending_bytes = kPendingBytes;
    of_server.transport = "auto";
    of_server.listen = "127.0.0.1:0";
    put_on_wire(of_client);
    put_on_wire(of_server);
    change_server(of_server);
    Result<Engine> s = Engine::create(of_server);
    ASSERT_TRUE(s) << s.error().to_string();
    config.where = GetParam().where;
    if (GetParam().isolated) {
      config.program = program.empty() ? session_program(memory) : std::move(program);
    } else if (GetParam().cuda && !cuda) {
      cuda.emplace();
    }
    if (devices != 1) {
      for (int i = 0; i < devices; ++i)
        config.devices.push_back({"device " + std::to_string(i), executors_on(i, memory)});
    } else if (!GetParam().isolated) {
      config.executors = executors_on(0, memory);
    }
    Result<command::Service> started = command::Service::start(std::move(*s), std::move(config));
    ASSERT_TRUE(started) << started.error().to_string();
    service.emplace(std::move(*started));
    Result<Engine> c = Engine::create(of_client);
    ASSERT_TRUE(c) << c.error().to_string();
    client.emplace(std::move(*c));
    if (connects) session.emplace(connect());
  }

  /// Of sessions in this process; else none.
  command::ExecutorFactory executors_on(int device, std::uint64_t memory) {
    if (GetParam().isolated) return {};
    return GetParam().cuda ? cuda->executors(kernels, memory, false, device) : kernels.executors(memory);
  }

  static command::SessionOptions patient(command::SessionOptions options = {}) {
    options.patience = kPatience;
    return options;
  }
  command::Session connect(const command::SessionOptions& options = {}) {
    return connect(service->listen_address(), options);
  }
  command::Session connect(const std::string& address, const command::SessionOptions& options = {}) {
    Result<command::Session> made = command::Session::connect(*client, address, patient(options));
    EXPECT_TRUE(made) << made.error().to_string();
    if (!made) std::abort();
    return *made;
  }
  static command::Channel open(command::Session& of, std::uint32_t device = 0) {
    Result<command::Channel> made = of.open_channel({.device = device});
    EXPECT_TRUE(made) << made.error().to_string();
    return made ? *made : command::Channel();
  }
  template <typename T>
  static T must(Result<T> result) {
    EXPECT_TRUE(result) << result.error().to_string();
    return result ? *result : T();
  }
  static void expect_fine(command::Channel& channel) {
    const Status end = channel.synchronize(kPatience);
    EXPECT_TRUE(end.ok()) << end.to_string();
  }
  /// What it stands at.
  static command::Failure expect_failed(command::Channel& channel) {
    EXPECT_EQ(channel.synchronize(kPatience).code(), Code::kAborted);
    const std::optional<command::Failure> failure = channel.failure();
    EXPECT_TRUE(failure);
    return failure.value_or(command::Failure());
  }
  /// The same, which is recovered from.
  static command::Failure failure_of(command::Channel& channel) {
    command::Failure failure = expect_failed(channel);
    EXPECT_TRUE(channel.recover().ok());
    return failure;
  }

  /// Memory of the session's that is filled with these; a function; and what is in memory.
  command::Handle put(command::Channel& channel, const std::vector<float>& values) {
    const command::Handle handle = session->new_handle();
    must(channel.allocate(handle, values.size() * sizeof(float)));
    must(channel.copy_in(handle, 0, std::as_bytes(std::span(values))));
    return handle;
  }
  command::Handle load(command::Channel& channel, std::string_view name) {
    const command::Handle handle = session->new_handle();
    must(channel.load(handle, name));
    return handle;
  }
  static std::vector<float> get(command::Channel& channel, command::Handle from, std::size_t count) {
    std::vector<float> values(count);
    must(channel.copy_out(std::as_writable_bytes(std::span(values)), from, 0));
    expect_fine(channel);
    return values;
  }
  /// Whether it comes to hold; then at once.
  template <typename Holds>
  static bool comes_true(Holds holds) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!holds()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }

  std::optional<CudaOfTests> cuda;  // if the device is that
  TestKernels kernels;
  int devices = 1;  // of the service
  std::function<void(EngineConfig&)> change_server = [](EngineConfig&) {};
  std::optional<command::Service> service;
  std::optional<Engine> client;
  std::optional<command::Session> session;
};

}  // namespace fairlead
