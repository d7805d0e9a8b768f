// A session of the command service with the CUDA executor on the double, fed by hand: no engine, one thread. It notes
// between which of the driver's calls each command ran.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "datapath/command/codec.h"
#include "datapath/command/server_session.h"
#include "fairlead/cuda_executor.h"
#include "tests/gpu/cuda_double.h"
#include "tests/gpu/cuda_kernels.h"

namespace fairlead::gpu::testing {

namespace wire = datapath::command;

/// What the executor was asked while the calls `first` to `last` of the driver were made.
struct Asked {
  enum class What : std::uint8_t { kCommand, kProgress, kEnd } what = What::kCommand;
  command::Place place;
  std::size_t first = 0, last = 0;
};

/// The executor, and what it was asked.
class Noted final : public command::Executor {
 public:
  using Outcome = command::Outcome;
  using Handle = command::Handle;
  Noted(std::unique_ptr<command::Executor> of, CudaDouble& cuda, std::vector<Asked>& log)
      : inner_(std::move(of)), cuda_(cuda), log_(log) {}
  ~Noted() override {
    note(Asked::What::kEnd, {}, [this] {
      inner_.reset();
      return 0;
    });
  }
  [[nodiscard]] command::ExecutorLimits limits() const override { return inner_->limits(); }
  Outcome allocate(Handle h, std::uint64_t n) override {
    return noted([&] { return inner_->allocate(h, n); });
  }
  Outcome release(Handle h) override {
    return noted([&] { return inner_->release(h); });
  }
  Outcome fill(Handle h, std::uint64_t at, std::uint64_t n, std::uint8_t v) override {
    return noted([&] { return inner_->fill(h, at, n, v); });
  }
  Outcome copy_in(Handle h, std::uint64_t at, std::span<const std::byte> from) override {
    return noted([&] { return inner_->copy_in(h, at, from); });
  }
  Outcome copy_out(std::span<std::byte> to, Handle h, std::uint64_t at) override {
    return noted([&] { return inner_->copy_out(to, h, at); });
  }
  Outcome copy_within(Handle a, std::uint64_t i, Handle b, std::uint64_t j, std::uint64_t n) override {
    return noted([&] { return inner_->copy_within(a, i, b, j, n); });
  }
  Outcome load(Handle h, std::string_view name) override {
    return noted([&] { return inner_->load(h, name); });
  }
  Outcome launch(const command::Launch& l, std::span<const std::byte> p) override {
    return noted([&] { return inner_->launch(l, p); });
  }
  Outcome user(std::uint16_t opcode, std::span<const std::byte> b) override { return inner_->user(opcode, b); }
  [[nodiscard]] bool is_short(Handle h) const noexcept override { return inner_->is_short(h); }
  Outcome load_module(Handle h, std::span<const std::byte> image) override {
    return noted([&] { return inner_->load_module(h, image); });
  }
  Outcome load_from(Handle h, Handle m, std::string_view name, std::span<const command::Parameter> p) override {
    return noted([&] { return inner_->load_from(h, m, name, p); });
  }
  Result<command::AddressRange> reserve(std::uint64_t bytes, std::uint64_t wish) override {
    return inner_->reserve(bytes, wish);
  }
  Outcome allocate_at(Handle h, std::uint64_t at, std::uint64_t n) override {
    return noted([&] { return inner_->allocate_at(h, at, n); });
  }
  Outcome make_graph(Handle h, std::span<const command::GraphCommand> commands, std::uint64_t bytes) override {
    return noted([&] { return inner_->make_graph(h, commands, bytes); });
  }
  Outcome launch_graph(Handle h) override {
    return noted([&] { return inner_->launch_graph(h); });
  }
  Outcome release_graph(Handle h) override {
    return noted([&] { return inner_->release_graph(h); });
  }
  Outcome update_graph(Handle h, std::uint32_t number, const command::Launch& l,
                       std::span<const std::byte> p) override {
    return noted([&] { return inner_->update_graph(h, number, l, p); });
  }
  [[nodiscard]] bool is_asynchronous() const noexcept override { return true; }
  void begin(const command::Place& place) noexcept override {
    place_ = place;
    inner_->begin(place);
  }
  Outcome fence(const command::Place& mark) override {
    return noted([&] { return inner_->fence(mark); });
  }
  void prioritize(std::uint32_t channel, std::int32_t priority) override { inner_->prioritize(channel, priority); }
  command::Progress progress(std::uint32_t channel) override {
    return note(Asked::What::kProgress, {channel, 0}, [&] { return inner_->progress(channel); });
  }

 private:
  template <typename Do>
  std::invoke_result_t<Do> note(Asked::What what, command::Place place, Do what_is_done) {
    const std::size_t before = cuda_.calls_counted();
    auto result = what_is_done();
    log_.push_back({what, place, before + 1, cuda_.calls_counted()});
    return result;
  }
  template <typename Do>
  Outcome noted(Do what_is_done) {
    return note(Asked::What::kCommand, place_, what_is_done);
  }

  std::unique_ptr<command::Executor> inner_;
  CudaDouble& cuda_;
  std::vector<Asked>& log_;
  command::Place place_;
};

class HandFed : private wire::Outlet {
 public:
  /// One device and its driver; sessions begin with greet().
  explicit HandFed(std::vector<command::HostKernel> kernels, CudaDouble::Features features = {.shuffle = 3})
      : cuda(features) {
    begin(CudaDouble::api(), std::move(kernels));
  }
  /// The same on a driver that is an older one.
  HandFed(const DriverApi& api, std::vector<command::HostKernel> kernels, CudaDouble::Features features = {})
      : cuda(features) {
    begin(api, std::move(kernels));
  }
  ~HandFed() {
    end();
    factory_ = {};
    replace_process_driver(nullptr);
    EXPECT_THAT(cuda.violations(), ::testing::IsEmpty());
    EXPECT_EQ(cuda.live_objects(), 0u);
  }

  /// Whether the session began; else `why`.
  bool greet(wire::Hello hello = {.payload_bytes = wire::kMaxPayload}, const wire::HelloMore& more = {}) {
    end();
    log.clear();
    channels.clear();
    why = Status();
    session_ = std::make_unique<wire::ServerSession>(
        static_cast<wire::Outlet&>(*this), terms, [this](std::uint32_t) -> Result<std::unique_ptr<command::Executor>> {
          Result<std::unique_ptr<command::Executor>> made = factory_(Peer());
          if (!made) return made.error();
          return std::unique_ptr<command::Executor>(std::make_unique<Noted>(*std::move(made), cuda, log));
        });
    session_->take(wire::hello_message(hello, more), TrafficClass::kCommands);
    return !session_->is_over();
  }
  void end() { session_.reset(); }

  template <typename Body>
  [[nodiscard]] static std::vector<std::byte> record(wire::Opcode opcode, const Body& body,
                                                     std::span<const std::byte> tail = {}, std::uint16_t flags = 0) {
    std::vector<std::byte> record;
    wire::put_record(record, opcode, flags, body, tail);
    return record;
  }
  template <typename Body>
  std::uint64_t give(std::uint16_t channel, wire::Opcode opcode, const Body& body, std::span<const std::byte> tail = {},
                     std::uint16_t flags = 0) {
    const std::vector<std::byte> record = HandFed::record(opcode, body, tail, flags);
    const std::uint64_t sequence = ++channels[channel].last;
    std::vector<std::byte> message =
        wire::make_message({static_cast<std::uint8_t>(wire::MessageType::kCommands), 0, channel, 1, sequence});
    message.insert(message.end(), record.begin(), record.end());
    session_->take(std::move(message), TrafficClass::kCommands);
    return sequence;
  }
  std::uint64_t mark(std::uint16_t channel) {
    const wire::RecordHeader header{static_cast<std::uint16_t>(wire::Opcode::kMark), 0, sizeof(wire::RecordHeader)};
    std::vector<std::byte> message = wire::make_message(
        {static_cast<std::uint8_t>(wire::MessageType::kCommands), 0, channel, 1, ++channels[channel].last});
    wire::put(message, header);
    session_->take(std::move(message), TrafficClass::kCommands);
    return channels[channel].last;
  }
  void prioritize(std::uint16_t channel, std::int32_t priority) {
    session_->take(wire::channel_message(channel, {.priority = priority}), TrafficClass::kCommands);
  }
  /// Of module `sequence` of a channel.
  void give_image(std::uint16_t channel, std::uint64_t sequence, std::uint64_t offset,
                  std::span<const std::byte> bytes) {
    std::vector<std::byte> message =
        wire::make_message({static_cast<std::uint8_t>(wire::MessageType::kImage), 0, channel, 1, sequence});
    wire::put(message, wire::ImageBody{offset});
    message.insert(message.end(), bytes.begin(), bytes.end());
    session_->take(std::move(message), TrafficClass::kBulk);
  }
  [[nodiscard]] bool is_over() const { return session_->is_over(); }
  bool step() { return session_->run(); }
  [[nodiscard]] bool is_pending() const { return session_->is_pending(); }
  [[nodiscard]] bool is_held() const { return session_->is_held(); }
  /// Until all that was given is complete, or failed. False: that does not come.
  bool settle() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    const auto is_settled = [this] {
      for (const auto& [number, channel] : channels) {
        if (channel.executed < channel.last || (!channel.failure && channel.complete < channel.last)) return false;
      }
      return true;
    };
    for (step(); !is_settled(); step()) {
      if (std::chrono::steady_clock::now() > deadline || session_->is_over()) return false;
      ::sched_yield();
    }
    return true;
  }
  /// Of the call that number `n` of the driver was made in; null: in none of these.
  [[nodiscard]] const Asked* asked_at(std::size_t n) const {
    for (const Asked& each : log) {
      if (each.first <= n && n <= each.last) return &each;
    }
    return nullptr;
  }

  struct Channel {
    std::uint64_t last = 0, executed = 0, complete = 0;
    std::optional<command::Failure> failure;
    std::map<std::uint64_t, std::vector<std::byte>> data;  // of copy-outs
  };
  CudaDouble cuda;
  wire::ServerSession::Terms terms;  // of the next session
  std::map<std::uint16_t, Channel> channels;
  std::vector<Asked> log;
  std::uint64_t paid = 0;                  // bytes that were to be copied
  std::optional<wire::WantedBody> wanted;  // of an image, last
  wire::WelcomeMore welcome;
  wire::WelcomeLast priorities;
  Status why;

 private:
  void begin(const DriverApi& api, std::vector<command::HostKernel> kernels) {
    Result<std::shared_ptr<Driver>> driver = Driver::open(api);
    if (!driver) throw std::runtime_error(driver.error().to_string());
    replace_process_driver(*driver);
    command::CudaExecutorConfig config;
    config.memory_bytes = std::uint64_t{1} << 20;
    config.staging_bytes = std::size_t{4} << 20;
    config.allocations = 8;
    config.functions = 4;
    config.modules = 2;
    config.own_process = true;  // one session at a time
    config.images.push_back(add_kernels(cuda, std::move(kernels)));
    Result<command::ExecutorFactory> made = command::cuda_executors(std::move(config));
    if (!made) throw std::runtime_error(made.error().to_string());
    factory_ = *std::move(made);
  }
  void send(TrafficClass, wire::Bytes message) override {
    wire::Bytes body = message;
    const auto header = wire::take<wire::MessageHeader>(body);
    ASSERT_TRUE(header);
    Channel& channel = channels[header->channel];
    if (header->type == static_cast<std::uint8_t>(wire::MessageType::kRefused)) {
      channels.erase(header->channel);
      why = wire::refusal_in(body);
    } else if (header->type == static_cast<std::uint8_t>(wire::MessageType::kWelcome)) {
      channels.erase(header->channel);
      (void)wire::take<wire::Welcome>(body);
      welcome = wire::take<wire::WelcomeMore>(body).value_or(wire::WelcomeMore());
      priorities = wire::take<wire::WelcomeLast>(body).value_or(wire::WelcomeLast());
    } else if (header->type == static_cast<std::uint8_t>(wire::MessageType::kWanted)) {
      wanted = wire::take<wire::WantedBody>(body);
    } else if (header->type == static_cast<std::uint8_t>(wire::MessageType::kResult)) {
      channel.data[header->sequence].assign(body.begin(), body.end());
    } else {
      const std::optional<wire::Reply> reply = wire::read_reply(*header, body);
      ASSERT_TRUE(reply);
      EXPECT_LE(reply->complete, reply->executed);
      EXPECT_GE(reply->complete, channel.complete);
      if (reply->failure) {
        EXPECT_GT(reply->failure->sequence, channel.complete) << "what was complete fails no more";
        channel.failure = reply->failure;
      }
      channel.executed = reply->executed;
      channel.complete = reply->complete;
      wire::Bytes data = reply->data;
      while (const std::optional<wire::ReplyData> item = wire::take_data(data)) {
        channel.data[item->sequence].assign(item->bytes.begin(), item->bytes.end());
      }
    }
  }
  [[nodiscard]] std::uint64_t untaken() override { return 0; }
  [[nodiscard]] bool may_copy(std::uint64_t bytes) override {
    paid += bytes;
    return true;
  }

  command::ExecutorFactory factory_;
  std::unique_ptr<wire::ServerSession> session_;
};

}  // namespace fairlead::gpu::testing
