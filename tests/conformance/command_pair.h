// A service of commands and a client's session with it, in one process, over every way that commands are tested on.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
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
#include "fairlead/host_executor.h"
#include "tests/conformance/engine_pair.h"

namespace fairlead {

inline constexpr std::size_t kPendingBytes = std::size_t{4} << 20;  // that a client keeps and has not taken

struct CommandWay {
  Way way;
  command::ServiceConfig::Where where = command::ServiceConfig::Where::kOwnThread;
  [[nodiscard]] std::string name() const {
    return way.name + (where == command::ServiceConfig::Where::kInTurn ? "_in_turn" : "_own_thread");
  }
};

inline std::vector<CommandWay> command_ways() {
  std::vector<CommandWay> all;
  for (const Way& way : ways()) {
    if (way.name == "staged" || way.name == "lossy") continue;  // what these do is nothing to commands
    all.push_back({way, command::ServiceConfig::Where::kOwnThread});
    all.push_back({way, command::ServiceConfig::Where::kInTurn});
  }
  return all;
}

/// Kernels of tests, beside those that come along.
struct TestKernels {
  std::shared_ptr<std::atomic<bool>> open = std::make_shared<std::atomic<bool>>(false);
  std::shared_ptr<std::atomic<int>> entered = std::make_shared<std::atomic<int>>(0);
  std::shared_ptr<std::atomic<int>> executors = std::make_shared<std::atomic<int>>(0);  // that live

  [[nodiscard]] std::vector<command::HostKernel> kernels() const {
    std::vector<command::HostKernel> all = command::standard_kernels();
    all.push_back({"fault", {}, {}, [](const auto&) { return Status(Code::kInternal, "a fault"); }, true});
    // Until the test opens the gate.
    all.push_back({"gate",
                   {},
                   {},
                   [open = open, entered = entered](const auto&) {
                     entered->fetch_add(1);
                     while (!open->load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                     return Status();
                   },
                   false});
    return all;
  }
};

class CommandPair : public testing::TestWithParam<CommandWay> {
 protected:
  void SetUp() override { start({}); }
  void TearDown() override {
    kernels.open->store(true);
    session.reset();
    client.reset();
    service.reset();
    EXPECT_EQ(kernels.executors->load(), 0) << "all that sessions had is freed";
  }

  /// Without a session, if not asked for one.
  void start(command::ServiceConfig config, std::uint64_t memory = 64 << 20, bool connects = true) {
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
    command::HostExecutorConfig host;
    host.memory_bytes = memory;
    host.kernels = kernels.kernels();
    config.where = GetParam().where;
    config.executors = counted(command::host_executors(std::move(host)));
    Result<command::Service> started = command::Service::start(std::move(*s), std::move(config));
    ASSERT_TRUE(started) << started.error().to_string();
    service.emplace(std::move(*started));
    Result<Engine> c = Engine::create(of_client);
    ASSERT_TRUE(c) << c.error().to_string();
    client.emplace(std::move(*c));
    if (connects) session.emplace(connect());
  }

  command::Session connect(command::SessionOptions options = {}) {
    options.patience = kPatience;
    Result<command::Session> made = command::Session::connect(*client, service->listen_address(), options);
    EXPECT_TRUE(made) << made.error().to_string();
    if (!made) std::abort();
    return *made;
  }
  static command::Channel open(command::Session& of) {
    Result<command::Channel> made = of.open_channel();
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

  TestKernels kernels;
  std::function<void(EngineConfig&)> change_server = [](EngineConfig&) {};
  std::optional<command::Service> service;
  std::optional<Engine> client;
  std::optional<command::Session> session;

 private:
  struct Counted final : command::Executor {
    Counted(std::unique_ptr<command::Executor> of, std::shared_ptr<std::atomic<int>> count)
        : inner(std::move(of)), live(std::move(count)) {
      live->fetch_add(1);
    }
    ~Counted() override { live->fetch_sub(1); }
    using Outcome = command::Outcome;
    using Handle = command::Handle;
    [[nodiscard]] command::ExecutorLimits limits() const override { return inner->limits(); }
    Outcome allocate(Handle h, std::uint64_t n) override { return inner->allocate(h, n); }
    Outcome release(Handle h) override { return inner->release(h); }
    Outcome fill(Handle h, std::uint64_t at, std::uint64_t n, std::uint8_t v) override {
      return inner->fill(h, at, n, v);
    }
    Outcome copy_in(Handle h, std::uint64_t at, std::span<const std::byte> from) override {
      return inner->copy_in(h, at, from);
    }
    Outcome copy_out(std::span<std::byte> to, Handle h, std::uint64_t at) override {
      return inner->copy_out(to, h, at);
    }
    Outcome copy_within(Handle a, std::uint64_t i, Handle b, std::uint64_t j, std::uint64_t n) override {
      return inner->copy_within(a, i, b, j, n);
    }
    Outcome load(Handle h, std::string_view name) override { return inner->load(h, name); }
    Outcome launch(const command::Launch& l, std::span<const std::byte> p) override { return inner->launch(l, p); }
    /// 0x8001 is known here: it does nothing.
    Outcome user(std::uint16_t opcode, std::span<const std::byte> b) override {
      return opcode == 0x8001 ? Outcome() : inner->user(opcode, b);
    }
    [[nodiscard]] bool is_short(Handle h) const noexcept override { return inner->is_short(h); }

    std::unique_ptr<command::Executor> inner;
    std::shared_ptr<std::atomic<int>> live;
  };

  [[nodiscard]] command::ExecutorFactory counted(command::ExecutorFactory factory) const {
    return [factory = std::move(factory),
            count = kernels.executors](const Peer& peer) -> Result<std::unique_ptr<command::Executor>> {
      Result<std::unique_ptr<command::Executor>> made = factory(peer);
      if (!made) return made.error();
      return std::unique_ptr<command::Executor>(std::make_unique<Counted>(*std::move(made), count));
    };
  }
};

}  // namespace fairlead
