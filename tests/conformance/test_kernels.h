// Kernels of tests, beside those that come along, and executors that are counted. What tests and kernels say to each
// other lies on a page, which the process of a session maps as well.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "datapath/command/process/shared_page.h"
#include "fairlead/command_service.h"
#include "fairlead/executor_around.h"
#include "fairlead/host_executor.h"

namespace fairlead {

struct TestSignals {
  std::atomic<bool> open{false};  // the gate is
  std::atomic<int> entered{0};    // kernels that came to it
  std::atomic<int> executors{0};  // that live
};

class TestKernels {
 public:
  using Page = datapath::command::SharedPage<TestSignals>;

  TestKernels() : page_(std::move(*Page::create())) {}
  /// Of the test that started this process; `path`: as path() said it.
  explicit TestKernels(const std::string& path)
      : page_(std::move(*Page::adopt(UniqueFd(::open(path.c_str(), O_RDWR))))) {}

  [[nodiscard]] TestSignals& signals() const noexcept { return *page_.value; }
  [[nodiscard]] std::string path() const {
    return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(page_.fd.get());
  }

  [[nodiscard]] std::vector<command::HostKernel> kernels() const {
    std::vector<command::HostKernel> all = command::standard_kernels();
    all.push_back({"fault", {}, {}, [](const auto&) { return Status(Code::kInternal, "a fault"); }, true});
    // As a defect of its own would.
    all.push_back({"crash",
                   {},
                   {},
                   [](const auto&) -> Status {
                     std::raise(SIGKILL);
                     return {};
                   },
                   true});
    all.push_back({"exit", {}, {}, [](const auto&) -> Status { std::_Exit(7); }, true});
    all.push_back(list_sum());
    // Adds 1 to each of so many floats.
    all.push_back({"add_one",
                   {{command::ParameterKind::kAddress, alignof(float)}, {command::ParameterKind::kU32}},
                   [](const command::Call& call, std::size_t) { return std::uint64_t{4} * call.u32(1); },
                   [](const command::Call& call) {
                     for (std::size_t i = 0; i < call.u32(1); ++i) call.pointer<float>(0)[i] += 1;
                     return Status();
                   },
                   true});
    // Whether this process has a descriptor of what the test calls so.
    all.push_back({"inherits",
                   {},
                   {},
                   [](const auto&) {
                     for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
                       std::error_code gone;
                       const std::string what = std::filesystem::read_symlink(each.path(), gone).string();
                       if (what.find("of another session") != what.npos) return Status(Code::kPermissionDenied, what);
                     }
                     return Status();
                   },
                   true});
    // For a moment, until the test opens the gate.
    all.push_back({"tick",
                   {},
                   {},
                   [signals = page_.value](const auto&) {
                     signals->entered.fetch_add(1);
                     if (!signals->open.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                     return Status();
                   },
                   true});
    // Until the test opens the gate.
    all.push_back({"gate",
                   {},
                   {},
                   [signals = page_.value](const auto&) {
                     signals->entered.fetch_add(1);
                     while (!signals->open.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                     return Status();
                   },
                   false});
    return all;
  }

  /// Executors with these kernels, counted.
  [[nodiscard]] command::ExecutorFactory executors(std::uint64_t memory) const {
    command::HostExecutorConfig host;
    host.memory_bytes = memory;
    host.kernels = kernels();
    return counted(command::host_executors(std::move(host)));
  }
  [[nodiscard]] command::ExecutorFactory counted(command::ExecutorFactory factory) const {
    return [factory = std::move(factory),
            signals = page_.value](const Peer& peer) -> Result<std::unique_ptr<command::Executor>> {
      Result<std::unique_ptr<command::Executor>> made = factory(peer);
      if (!made) return made.error();
      return std::unique_ptr<command::Executor>(std::make_unique<Counted>(*std::move(made), signals));
    };
  }

  /// list_sum(head, out): of nodes that name each other by their addresses, the last 0.
  struct Node {
    std::uint64_t next = 0;
    float value = 0;
    std::uint32_t padding = 0;
  };

 private:
  static command::HostKernel list_sum() {
    return {"list_sum",
            {{command::ParameterKind::kAddress, alignof(Node)}, {command::ParameterKind::kPointer, alignof(float)}},
            [](const command::Call& call, std::size_t i) {
              return i == 1 ? sizeof(float) : call.u64(0) == 0 ? 0 : sizeof(Node);
            },
            [](const command::Call& call) {
              float sum = 0;
              for (std::uint64_t at = call.u64(0); at != 0;) {
                const auto* const node = call.at<Node>(at);
                if (node == nullptr) return Status(Code::kOutOfRange, "an address in the list is nobody's");
                sum += node->value;
                at = node->next;
              }
              *call.pointer<float>(1) = sum;
              return Status();
            },
            true};
  }
  struct Counted final : command::ExecutorAround {
    Counted(std::unique_ptr<command::Executor> of, std::shared_ptr<TestSignals> with)
        : ExecutorAround(std::move(of)), signals(std::move(with)) {
      signals->executors.fetch_add(1);
    }
    ~Counted() override { signals->executors.fetch_sub(1); }
    /// 0x8001 is known here: it does nothing.
    command::Outcome user(std::uint16_t opcode, std::span<const std::byte> bytes) override {
      return opcode == 0x8001 ? command::Outcome() : inner().user(opcode, bytes);
    }

    std::shared_ptr<TestSignals> signals;
  };

  Page page_;
};

}  // namespace fairlead
