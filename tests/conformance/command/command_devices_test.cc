// Sessions of several devices: memory, functions and failures are a device's, order between them is by fences, and who
// may use which is the service's to say.
#include <gmock/gmock.h>

#include <csignal>
#include <numeric>

#include "tests/conformance/command/command_tenants.h"
#include "tests/conformance/greeting_service.h"
#include "tests/relay.h"

namespace fairlead {
namespace {

using command::Channel;
using command::Handle;
using command::pack;
using command::Pointer;
using command::Scope;
using command::Session;
using testing::ElementsAre;
using testing::HasSubstr;

/// What devices have to do with is the service and its executors; over which transport is much the same.
std::vector<CommandWay> device_ways() {
  std::vector<CommandWay> all = command_ways();
  for (const CommandWay& cuda : cuda_command_ways()) all.push_back(cuda);
  std::erase_if(all, [](const CommandWay& each) {
    const bool in_turn = each.where == command::ServiceConfig::Where::kInTurn;
    return each.way.name != "tcp" && each.way.name != "memif" &&
           (each.way.name != "soft" || each.isolated || each.cuda || in_turn);
  });
  return all;
}
std::vector<CommandWay> device_ways_with_threads() {
  std::vector<CommandWay> all = device_ways();
  std::erase_if(all, [](const CommandWay& way) {  // the double's devices share a thread: they do wait for each other
    return way.where == command::ServiceConfig::Where::kInTurn || way.cuda;
  });
  return all;
}

class CommandDevices : public CommandTenants {
 protected:
  /// A service of so many.
  void begin_with(int count, command::ServiceConfig config = {}) {
    devices = count;
    start(std::move(config), device_bytes, false);
  }
  Session connect_to(std::vector<std::uint32_t> which, std::uint64_t range = 0) {
    command::SessionOptions options;
    options.devices = std::move(which);
    options.range_bytes = range;
    options.reserve_range_here = range == 0 || GetParam().isolated;
    return connect(options);
  }
  Session connect_to_all() { return connect_to({command::kAllDevices}); }
  /// The numbers 1, 2 and so on, added to themselves there, and what comes back.
  std::vector<float> doubled(Channel& channel, float first) {
    std::vector<float> in(100);
    std::iota(in.begin(), in.end(), first);
    const Handle x = put(channel, in), out = put(channel, std::vector<float>(100));
    must(channel.launch({load(channel, "vector_add")}, pack(Pointer{x}, Pointer{x}, Pointer{out}, 100u)));
    return get(channel, out, 100);
  }
  static std::vector<float> twice(float first) {
    std::vector<float> all(100);
    std::iota(all.begin(), all.end(), first);
    for (float& each : all) each *= 2;
    return all;
  }
};

TEST_P(CommandDevices, EachIsToldOfAndWorks) {
  begin_with(3);
  session.emplace(connect_to_all());
  ASSERT_EQ(session->device_count(), 3u);
  for (std::uint32_t i = 0; i < 3; ++i) {
    const command::Limits& limits = session->limits(i);
    EXPECT_EQ(limits.device_number, i);
    EXPECT_EQ(limits.memory_bytes, device_bytes);
    EXPECT_NE(limits.device_name, "");
    EXPECT_GT(limits.graph_records, 0u);
    Channel channel = open(*session, i);
    EXPECT_EQ(channel.device(), i);
    EXPECT_EQ(doubled(channel, static_cast<float>(i)), twice(static_cast<float>(i)));
  }
  EXPECT_EQ(session->open_channel({.device = 3}).status().code(), Code::kOutOfRange);
  EXPECT_THAT(session->open_channel({.device = 3}).status().message(),
              HasSubstr("a channel of device 3; the session has 3"));
}

TEST_P(CommandDevices, WithoutAWishThereIsTheFirst) {
  begin_with(2);
  session.emplace(connect_to({}));
  EXPECT_EQ(session->device_count(), 1u);
  Channel channel = open(*session);
  EXPECT_EQ(doubled(channel, 1), twice(1));
  ASSERT_EQ(service->tenants().at(0).devices.size(), 2u);
  EXPECT_TRUE(comes_true([&] { return service->tenants().at(0).devices[0].commands > 0; }));  // counted behind replies
  EXPECT_EQ(service->tenants().at(0).devices[1].commands, 0u);
}

TEST_P(CommandDevices, ThatAreNotThereAreRefused) {
  begin_with(2);
  const auto refused = [this](std::vector<std::uint32_t> which, Code code, std::string_view words) {
    command::SessionOptions options = patient();
    options.devices = std::move(which);
    const Result<Session> made = Session::connect(*client, service->listen_address(), options);
    ASSERT_FALSE(made) << words;
    EXPECT_EQ(made.error().code(), code) << made.error().to_string();
    EXPECT_THAT(made.error().message(), HasSubstr(words));
  };
  refused({0, 2}, Code::kPermissionDenied, "no device 2 for this client, which may use 0, 1");
  refused({16}, Code::kInvalidArgument, "device 16 of a service, which has at most 16");
  refused({0, command::kAllDevices}, Code::kInvalidArgument, "kAllDevices alone");
  session.emplace(connect_to({1}));
  EXPECT_EQ(session->device_count(), 1u);
  EXPECT_EQ(session->limits().device_number, 1u);
}

// A name is a device's: the same one names two things on two.
TEST_P(CommandDevices, NamesAndMemoryAreEachsOwn) {
  begin_with(2);
  session.emplace(connect_to_all());
  Channel first = open(*session, 0), second = open(*session, 1);
  const Handle x{77};
  must(first.allocate(x, 64));
  must(second.allocate(x, 128));
  must(first.fill(x, 0, 64, 1));
  must(second.fill(x, 0, 128, 2));
  std::array<std::byte, 64> one{}, two{};
  must(first.copy_out(one, x, 0));
  must(second.copy_out(two, x, 64));
  expect_fine(first);
  expect_fine(second);
  EXPECT_EQ(one[63], std::byte{1});
  EXPECT_EQ(two[63], std::byte{2});
  must(first.release(x));
  must(first.fill(x, 0, 1, 1));
  EXPECT_THAT(failure_of(first).text, HasSubstr("(on device 0)"));
  must(second.fill(x, 0, 128, 3));
  expect_fine(second);
}

TEST_P(CommandDevices, FencesOrderOneBehindAnother) {
  begin_with(2);
  session.emplace(connect_to_all());
  Channel first = open(*session, 0), second = open(*session, 1), gated = open(*session, 0);
  if (GetParam().where == command::ServiceConfig::Where::kInTurn) kernels.signals().open.store(true);
  const Handle gate = load(gated, "gate"), x = put(second, {1});
  must(gated.launch({gate}, {}));
  must(second.fence(must(gated.record())));
  must(second.fill(x, 0, 4, 0));
  second.flush();
  gated.flush();
  kernels.signals().open.store(true);
  EXPECT_EQ(get(second, x, 1), std::vector<float>{0});
  EXPECT_GE(gated.reached(command::Stage::kComplete), 2u) << "what it waited for is past by then";
  // And back and forth.
  for (int i = 0; i < 50; ++i) {
    must(first.fence(must(second.record())));
    must(second.fence(must(first.record())));
  }
  expect_fine(second);
}

TEST_P(CommandDevices, AContextThatIsLostLeavesTheOthers) {
  if (GetParam().cuda && gpu::testing::on_real_device())
    GTEST_SKIP() << "one GPU stands for both, and CUDA ends with it";
  begin_with(2);
  session.emplace(connect_to_all());
  Channel lost = open(*session, 0), other = open(*session, 1), waits = open(*session, 1);
  must(lost.launch({load(lost, "fault")}, {}));
  must(waits.fence(must(lost.record())));
  EXPECT_EQ(expect_failed(lost).scope, Scope::kContext);
  EXPECT_EQ(expect_failed(waits).scope, Scope::kStream);
  EXPECT_TRUE(waits.recover().ok());
  EXPECT_EQ(doubled(other, 4), twice(4));
  EXPECT_EQ(doubled(waits, 5), twice(5));
  EXPECT_EQ(lost.recover().code(), Code::kAborted);
  Channel again = open(*session, 0);
  must(again.allocate({99}, 8));
  EXPECT_EQ(expect_failed(again).scope, Scope::kContext) << "of that device nothing is left";
  EXPECT_TRUE(session->status().ok());
  EXPECT_TRUE(comes_true([&] { return service->tenants().at(0).devices[0].failures[2] >= 1; }));
  EXPECT_EQ(service->tenants().at(0).devices[1].failures[2], 0u);
}

TEST_P(CommandDevices, ACopyGoesFromOneToAnother) {
  begin_with(2);
  session.emplace(connect_to_all());
  Channel first = open(*session, 0), second = open(*session, 1);
  std::vector<float> values(100'000);
  std::iota(values.begin(), values.end(), 0.0f);
  const Handle x = put(first, values), y = put(second, std::vector<float>(100'001));
  for (int round = 0; round < 3; ++round) {
    must(second.fence(must(first.record())));
    must(second.copy_across(y, 4, 0, x, 0, values.size() * sizeof(float)));
    must(first.fence(must(second.record())));
    must(first.copy_across(x, 0, 1, y, 4, values.size() * sizeof(float)));
    must(first.fill(x, 0, 4, 0));
  }
  EXPECT_EQ(get(first, x, values.size()), values);
  std::vector<float> behind(values.size());
  must(second.copy_out(std::as_writable_bytes(std::span(behind)), y, 4));
  expect_fine(second);
  EXPECT_EQ(behind, values);
  must(second.copy_across(y, 0, 1, y, 4, 4));  // one device's own
  expect_fine(second);
  EXPECT_EQ(second.copy_across(y, 0, 2, x, 0, 8).status().code(), Code::kOutOfRange);
  must(second.copy_across(y, 0, 0, {12345}, 0, 8));
  EXPECT_THAT(failure_of(second).text, HasSubstr("a copy of 8 bytes from device 0 to device 1: "));
  if (GetParam().cuda && gpu::testing::on_real_device()) return;  // one GPU stands for both, and CUDA ends with it
  // From one that is lost nothing comes, and nobody waits for it.
  must(first.launch({load(first, "fault")}, {}));
  must(second.copy_across(y, 0, 0, x, 0, 8));
  EXPECT_EQ(expect_failed(first).scope, Scope::kContext);
  const Status end = second.synchronize(kPatience);
  EXPECT_TRUE(end.ok() || end.code() == Code::kAborted) << end.to_string();
  if (!end.ok()) {
    EXPECT_EQ(failure_of(second).scope, Scope::kStream);
  }
  must(second.copy_across(y, 0, 0, x, 0, 8));
  EXPECT_EQ(failure_of(second).scope, Scope::kStream);
  must(second.fill(y, 0, 4, 0));
  expect_fine(second);
}

TEST_P(CommandDevices, RangesAreApart) {
  begin_with(2);
  constexpr std::uint64_t kRange = std::uint64_t{1} << 20;
  session.emplace(connect_to_all());
  session.emplace(connect_to({0, 1}, kRange));
  const command::AddressRange one = session->limits(0).range, two = session->limits(1).range;
  EXPECT_GE(one.bytes, kRange);
  EXPECT_GE(two.bytes, kRange);
  EXPECT_TRUE(one.base + one.bytes <= two.base || two.base + two.bytes <= one.base);
  Channel first = open(*session, 0), second = open(*session, 1);
  must(first.allocate_at({1}, one.base, 4096));
  must(second.allocate_at({1}, two.base, 4096));
  EXPECT_EQ(must(first.address_of({1}, 5)), one.base + 5);
  EXPECT_EQ(must(second.address_of({1}, 5)), two.base + 5);
  EXPECT_THAT(second.allocate_at({2}, one.base + 8192, 8).error().message(), HasSubstr("within the device's"));
  must(second.launch({load(second, "add_one")}, pack(two.base, 4u)));
  EXPECT_EQ(get(second, {1}, 4), std::vector<float>(4, 1));
  expect_fine(first);
}

// The memory of a tenant is counted on each device, and who may use which is said.
TEST_P(CommandDevices, ATenantHasItsOwn) {
  if (test::over_memif()) GTEST_SKIP() << "a wire with two ends, and this takes several clients";
  devices = 3;
  device_bytes = 1 << 20;
  serve({{.name = "trainer", .memory_bytes = 4096, .devices = {0, 2}}, {.name = "store", .devices = {1}}},
        command::Sharing::kFree);
  command::SessionOptions options = patient();
  options.devices = {command::kAllDevices};
  Result<Session> trainer = begin("trainer", options), store = begin("store", options);
  ASSERT_TRUE(trainer && store);
  ASSERT_EQ(trainer->device_count(), 2u);
  EXPECT_EQ(trainer->limits(1).device_number, 2u);
  EXPECT_EQ(trainer->limits(1).memory_bytes, 4096u);
  EXPECT_EQ(store->limits().device_number, 1u);
  Channel first = open(*trainer, 0), second = open(*trainer, 1);
  must(first.allocate({1}, 4096));
  must(second.allocate({1}, 4000));
  expect_fine(first);
  expect_fine(second);
  EXPECT_EQ(stats_of("trainer").memory_bytes, 8096u);
  EXPECT_EQ(stats_of("trainer").devices[0].memory_bytes, 4096u);
  EXPECT_EQ(stats_of("trainer").devices[2].memory_bytes, 4000u);
  EXPECT_EQ(stats_of("store").devices[1].memory_bytes, 0u);
  must(second.allocate({2}, 97));
  EXPECT_THAT(failure_of(second).text, HasSubstr("97 bytes beside 4000 of 4096 that the tenant may have"));
  options.devices = {1};
  EXPECT_THAT(begin("trainer", options).status().message(),
              HasSubstr("no device 1 for this client, which may use 0, 2"));
  expect_works(*store);
  trainer->close();
  EXPECT_TRUE(comes_true([&] { return stats_of("trainer").memory_bytes == 0; }));
  const Status wrong = service->set_tenants({{.name = "trainer", .devices = {3}}});
  EXPECT_THAT(wrong.message(), HasSubstr("tenant 'trainer' may use device 3, of which there is none; legal: 0 to 2"));
}

TEST_P(CommandDevices, GoOnOverAnotherConnection) {
  if (test::over_memif() || GetParam().way.name != "tcp") GTEST_SKIP() << "the relay has one connection";
  change_server = [](EngineConfig& engine) { engine.max_cut_sessions = 0; };
  begin_with(2);
  test::Relay relay(service->listen_address());
  command::SessionOptions options;
  options.devices = {command::kAllDevices};
  options.resume_within = std::chrono::seconds(60);
  session.emplace(connect(relay.address(), options));
  ASSERT_GT(session->limits().kept_for.count(), 0);
  Channel first = open(*session, 0), second = open(*session, 1), quiet = open(*session, 1);
  const Handle x = put(first, {1, 2, 3}), y = put(second, {4, 5, 6});
  expect_fine(first);
  expect_fine(second);
  relay.hang_up();
  ASSERT_TRUE(comes_true([&] { return service->stats().away + service->stats().resumed != 0; }));
  // One of them has told nothing of itself yet.
  EXPECT_EQ(doubled(quiet, 7), twice(7));
  must(second.fence(must(first.record())));
  EXPECT_EQ(get(first, x, 3), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(get(second, y, 3), (std::vector<float>{4, 5, 6}));
  EXPECT_GE(session->resumptions(), 1u);
  EXPECT_EQ(session->device_count(), 2u);
  session.reset();
}

// A crash ends the session, on all its devices, and no other; a client that goes frees what it has on all.
TEST_P(CommandDevices, ACrashInTheMiddleFreesAll) {
  if (!GetParam().isolated || GetParam().cuda) GTEST_SKIP() << "a kernel of the host's that crashes ends its process";
  begin_with(2);
  session.emplace(connect_to_all());
  Channel first = open(*session, 0), second = open(*session, 1);
  put(first, {1, 2});
  put(second, {3, 4});
  expect_fine(first);
  expect_fine(second);
  EXPECT_EQ(service->tenants().at(0).memory_bytes, 16u);
  must(second.launch({load(second, "crash")}, {}));
  EXPECT_EQ(second.synchronize(kPatience).code(), Code::kAborted);
  EXPECT_EQ(first.synchronize(kPatience).code(), first.last() == 2 ? Code::kOk : Code::kAborted);
  EXPECT_FALSE(session->status().ok());
  EXPECT_THAT(session->status().message(), HasSubstr("of channel 1"));
  EXPECT_TRUE(comes_true([&] { return service->tenants().at(0).memory_bytes == 0; }));
  session.emplace(connect_to_all());
  EXPECT_EQ(session->device_count(), 2u);
}

TEST_P(CommandDevices, AClientThatGoesInTheMiddleFreesAll) {
  begin_with(2);
  session.emplace(connect_to_all());
  Channel first = open(*session, 0), second = open(*session, 1);
  put(first, {1, 2});
  put(second, {3, 4});
  expect_fine(first);
  expect_fine(second);
  must(second.fence({0, 1000}));  // nobody comes there
  second.flush();
  session->close();
  EXPECT_TRUE(comes_true([&] { return service->tenants().at(0).memory_bytes == 0; }));
  EXPECT_TRUE(comes_true([&] { return service->stats().sessions == 0; }));
}

TEST_P(CommandDevices, AnOlderServiceHasOne) {
  if (test::over_memif()) GTEST_SKIP() << "a wire with two ends, and the service has the other";
  begin_with(1);
  const auto of_version_5 = datapath::command::welcome_message(
      GreetingService::welcome(5), datapath::command::WelcomeMore(), datapath::command::WelcomeLast());
  const GreetingService old(config_for(GetParam().way), of_version_5);
  command::SessionOptions options = patient();
  for (const std::vector<std::uint32_t>& fine : {std::vector<std::uint32_t>{}, {0}, {command::kAllDevices}}) {
    options.devices = fine;
    Result<Session> made = Session::connect(*client, old.address(), options);
    ASSERT_TRUE(made) << made.error().to_string();
    EXPECT_EQ(made->device_count(), 1u);
    EXPECT_EQ(made->limits().version, 5u);
  }
  options.devices = {0, 1};
  const Result<Session> none = Session::connect(*client, old.address(), options);
  EXPECT_EQ(none.status().code(), Code::kVersionMismatch);
  EXPECT_THAT(none.status().message(), HasSubstr("version 5 of the commands' protocol, which knows of one device"));
}

TEST_P(CommandDevices, WhatAServiceSaysOfThemIsLookedAt) {
  if (test::over_memif()) GTEST_SKIP() << "a wire with two ends, and the service has the other";
  namespace wire = datapath::command;
  begin_with(1);
  const auto said = [&](const std::optional<std::vector<wire::DeviceFacts>>& facts, std::size_t cut,
                        std::uint64_t range) {
    auto greeting = wire::welcome_message(GreetingService::welcome(6), wire::WelcomeMore(), wire::WelcomeLast(),
                                          wire::WelcomeKept(), facts);
    greeting.resize(greeting.size() - cut);
    const GreetingService liar(config_for(GetParam().way), std::move(greeting));
    command::SessionOptions options = patient();
    options.range_bytes = range;
    options.reserve_range_here = false;
    return Session::connect(*client, liar.address(), options).status();
  };
  const auto at = [](std::uint64_t base) {
    wire::DeviceFacts device{{}, "liar"};
    device.facts.range_base = base;
    device.facts.range_bytes = 4096;
    device.facts.range_alignment = 16;
    return device;
  };
  EXPECT_TRUE(said({{at(1 << 30), at(2 << 20)}}, 0, 4096).ok());
  EXPECT_EQ(said({{at(1 << 30)}}, 8, 0).code(), Code::kDataLoss);
  EXPECT_EQ(said(std::nullopt, 0, 0).code(), Code::kDataLoss) << "none";
  EXPECT_EQ(said(std::vector<wire::DeviceFacts>(), 0, 0).code(), Code::kDataLoss);
  EXPECT_EQ(said(std::vector(17, at(0)), 0, 0).code(), Code::kDataLoss) << "more than there can be";
  EXPECT_THAT(said({{at(1 << 20), at((1 << 20) + 4095)}}, 0, 4096).message(),
              HasSubstr("ranges of devices 0 and 1 overlap"));
  wire::DeviceFacts odd = at(1 << 20);
  odd.facts.least_priority = -1;
  EXPECT_EQ(said({{odd}}, 0, 0).code(), Code::kDataLoss);
}

INSTANTIATE_TEST_SUITE_P(Ways, CommandDevices, testing::ValuesIn(device_ways()),
                         [](const auto& info) { return info.param.name(); });

class SharedDevices : public CommandDevices {};

// Each is shared by itself: who has one for long keeps nobody from the other.
TEST_P(SharedDevices, TurnsAreADevices) {
  if (test::over_memif()) GTEST_SKIP() << "a wire with two ends, and this takes several clients";
  devices = 2;
  serve({{.name = "trainer"}, {.name = "store"}}, command::Sharing::kEqual);
  command::SessionOptions options = patient();
  options.devices = {0};
  Result<Session> hog = begin("trainer", options);
  options.devices = {1};
  Result<Session> other = begin("store", options);
  options.devices = {command::kAllDevices};
  Result<Session> both = begin("store", options);
  ASSERT_TRUE(hog && other && both);
  Channel gated = open(*hog);
  const Handle gate = hog->new_handle();
  must(gated.load(gate, "gate"));
  must(gated.launch({gate}, {}));
  gated.flush();
  ASSERT_TRUE(comes_true([&] { return kernels.signals().entered.load() != 0; }));
  expect_works(*other);
  EXPECT_TRUE(comes_true([&] { return stats_of("store").devices[1].service_ns > 0; }));
  kernels.signals().open.store(true);
  expect_fine(gated);
  for (std::uint32_t device = 0; device < 2; ++device) {
    Channel channel = open(*both, device);
    must(channel.allocate({1}, 8));
    expect_fine(channel);
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, SharedDevices, testing::ValuesIn(device_ways_with_threads()),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace fairlead
