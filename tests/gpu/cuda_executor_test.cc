// What a session of the CUDA executor does with the driver. Its parts: cuda_parts_test.cc.
#include "gpu/executor/cuda_executor.h"

#include <cstring>

#include "datapath/command/range/local_range.h"
#include "tests/gpu/cuda_session.h"

namespace fairlead::gpu::testing {
namespace {

using command::Pointer;
using ::testing::HasSubstr;
using wire::Opcode;

class CudaSession : public ::testing::Test {
 protected:
  CudaSession() : fed(command::standard_kernels()) { EXPECT_TRUE(fed.greet()); }

  std::uint64_t allocate(std::uint64_t handle, std::uint64_t bytes, std::uint16_t channel = 0) {
    return fed.give(channel, Opcode::kAllocate, wire::AllocateBody{handle, bytes});
  }
  std::uint64_t fill(std::uint64_t handle, std::uint64_t bytes, std::uint8_t value, std::uint16_t channel = 0) {
    return fed.give(channel, Opcode::kFill, wire::FillBody{handle, 0, bytes, value});
  }
  std::uint64_t copy_out(std::uint64_t handle, std::uint64_t bytes, std::uint16_t channel = 0) {
    return fed.give(channel, Opcode::kCopyOut, wire::CopyBody{handle, 0, bytes});
  }
  std::uint64_t release(std::uint64_t handle, std::uint16_t channel = 0) {
    return fed.give(channel, Opcode::kRelease, wire::ReleaseBody{handle});
  }
  const std::vector<std::byte>& data(std::uint64_t sequence, std::uint16_t channel = 0) {
    return fed.channels[channel].data[sequence];
  }
  void expect_fine() {
    ASSERT_TRUE(fed.settle());
    for (const auto& [number, channel] : fed.channels) {
      ASSERT_FALSE(channel.failure) << number << ": " << channel.failure->text;
    }
  }
  HandFed fed;
};

TEST_F(CudaSession, NoCommandWaitsForTheDevice) {
  fed.cuda.hold_copies();
  allocate(1, 4096);
  fill(1, 4096, 5);
  const std::uint64_t last = copy_out(1, 4096);
  for (int i = 0; i < 10; ++i) fed.step();
  EXPECT_EQ(fed.channels[0].executed, last);
  EXPECT_EQ(fed.channels[0].complete, 1u) << "an allocation is nothing to the device";
  EXPECT_TRUE(fed.is_pending());
  EXPECT_TRUE(data(last).empty());
  fed.cuda.let_copies_go();
  expect_fine();
  EXPECT_FALSE(fed.is_pending());
  EXPECT_EQ(data(last), std::vector<std::byte>(4096, std::byte{5}));
}

TEST_F(CudaSession, AChannelThatStandsHoldsNoOther) {
  // The first waits for a mark that is not there.
  allocate(1, 64, 1);
  fed.give(0, Opcode::kFence, wire::FenceBody{1, 3});
  fill(1, 64, 1, 1);
  for (int i = 0; i < 5; ++i) fed.step();
  EXPECT_EQ(fed.channels[0].executed, 0u);
  fed.mark(1);
  expect_fine();
}

TEST_F(CudaSession, CopiesBeyondTheStagingMemoryWaitForIt) {
  constexpr std::uint64_t kPiece = 1 << 18;
  fed.cuda.hold_copies();
  allocate(1, kPiece);
  std::uint64_t last = 0;
  for (int i = 0; i < 40; ++i) last = copy_out(1, kPiece);
  for (int i = 0; i < 100; ++i) fed.step();
  EXPECT_EQ(fed.channels[0].executed, 1u + (2 << 20) / kPiece) << "half of it is one channel's";
  // Another has the other half.
  allocate(2, 64, 1);
  copy_out(2, 64, 1);
  for (int i = 0; i < 10; ++i) fed.step();
  EXPECT_EQ(fed.channels[1].executed, 2u);
  fed.cuda.let_copies_go();
  expect_fine();
  EXPECT_EQ(data(last).size(), kPiece);
  EXPECT_EQ(fed.paid, 40 * kPiece + 64) << "what waited is paid for once";
}

// They take no staging memory, and what they give is kept all the same.
TEST_F(CudaSession, CopiesOfNoBytesAreBounded) {
  constexpr std::uint64_t kMost = 100, kGiven = 300;
  fed.terms.held_results = kMost * wire::kResultCost;
  ASSERT_TRUE(fed.greet());
  fed.cuda.hold_copies();
  allocate(1, 64);
  copy_out(1, 64);
  for (std::uint64_t i = 0; i < kGiven; ++i) copy_out(1, 0);
  while (fed.step()) {
  }
  EXPECT_LE(fed.channels[0].executed, 1 + kMost);
  EXPECT_GE(fed.channels[0].executed, 1 + kMost / 2);
  EXPECT_TRUE(fed.is_held());
  fed.cuda.let_copies_go();
  expect_fine();
  EXPECT_EQ(fed.channels[0].data.size(), 1 + kGiven);
}

// Nothing else would run it again: it has nothing under way, and nothing comes.
TEST_F(CudaSession, AContextThatIsLostFailsAlsoWhoStandsStill) {
  constexpr std::uint64_t kPiece = 1 << 18;
  constexpr std::uint64_t kMark = 42;
  fed.cuda.hold_copies();
  fed.cuda.break_copy();
  fed.give(0, Opcode::kFence, wire::FenceBody{1, kMark});
  allocate(1, kPiece, 1);
  for (int i = 0; i < 40; ++i) copy_out(1, kPiece, 1);
  ASSERT_EQ(fed.mark(1), kMark);
  for (int i = 0; i < 100; ++i) fed.step();
  EXPECT_LT(fed.channels[1].executed, kMark) << "copies beyond the staging memory wait";
  fed.cuda.let_copies_go();
  while (fed.step() || fed.is_pending()) {
  }
  ASSERT_TRUE(fed.channels[0].failure);
  EXPECT_EQ(fed.channels[0].failure->scope, command::Scope::kContext);
  EXPECT_EQ(fed.channels[0].failure->sequence, 1u);
  EXPECT_EQ(fed.channels[1].executed, kMark);
}

// What another channel still does to it is over before memory is another allocation's.
TEST_F(CudaSession, MemoryThatIsGivenAgainIsZeros) {
  constexpr std::uint64_t kHalf = 1 << 19;
  for (int round = 0; round < 20; ++round) {
    allocate(1, kHalf);
    allocate(2, kHalf);
    const std::uint64_t both = fed.mark(0);
    fed.give(1, Opcode::kFence, wire::FenceBody{0, both});
    for (int i = 0; i < 5; ++i) fill(1, kHalf, 0x5a, 1);
    const std::uint64_t filled = fed.mark(1);
    while (fed.channels[1].executed < filled) fed.step();  // not complete
    release(1, 2);
    allocate(3, kHalf, 2);
    const std::uint64_t seen = copy_out(3, kHalf, 2);
    expect_fine();
    ASSERT_EQ(data(seen, 2), std::vector<std::byte>(kHalf)) << round;
    release(2, 2);
    release(3, 2);
    expect_fine();
    const std::uint64_t freed = fed.mark(2);
    fed.give(0, Opcode::kFence, wire::FenceBody{2, freed});
  }
}

TEST_F(CudaSession, AnotherSessionFindsZeros) {
  allocate(1, 1 << 20);
  fill(1, 1 << 20, 0x77);
  expect_fine();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(fed.greet());
    allocate(1, 1 << 20);
    const std::uint64_t seen = copy_out(1, 1 << 20);
    expect_fine();
    ASSERT_EQ(data(seen), std::vector<std::byte>(1 << 20));
    fill(1, 1 << 20, 0x77);
    expect_fine();
  }
}

TEST_F(CudaSession, CopiesMayOverlap) {
  constexpr std::uint64_t kBytes = 200'000;
  std::vector<std::byte> model(kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) model[i] = static_cast<std::byte>(i * 7 + i / 256);
  allocate(1, kBytes);
  for (std::size_t at = 0; at < kBytes; at += 1000) {
    fed.give(0, Opcode::kCopyIn, wire::CopyBody{1, at, 1000}, std::span(model).subspan(at, 1000), wire::kInline);
  }
  const auto move = [&](std::uint64_t to, std::uint64_t from, std::uint64_t bytes) {
    fed.give(0, Opcode::kCopyWithin, wire::CopyWithinBody{1, to, 1, from, bytes});
    std::memmove(&model[to], &model[from], bytes);
  };
  move(1, 0, kBytes - 1);
  move(0, 7, kBytes - 7);
  move(500, 500, 100);
  move(0, kBytes / 2, kBytes / 2);
  const std::uint64_t seen = copy_out(1, kBytes);
  expect_fine();
  EXPECT_TRUE(data(seen) == model);
}

TEST_F(CudaSession, ALaunchThatTheDriverRejectsIsItsCommandsFailureAlone) {
  const std::string name = "nothing";
  fed.give(0, Opcode::kLoad, wire::LoadBody{1, name.size()}, std::as_bytes(std::span(name)));
  allocate(1, 64);
  const std::uint64_t wrong =
      fed.give(0, Opcode::kLaunch, wire::LaunchBody{1, {1, 1, 1}, {1, 1, 100}, 0, 0});  // 64 in that direction
  const std::uint64_t passed = fill(1, 64, 1);
  ASSERT_TRUE(fed.settle());
  auto& channel = fed.channels[0];
  ASSERT_TRUE(channel.failure);
  EXPECT_EQ(channel.failure->sequence, wrong);
  EXPECT_EQ(channel.failure->scope, command::Scope::kCommand);
  EXPECT_EQ(channel.failure->result, command::kInvalidValue);
  EXPECT_THAT(channel.failure->text, HasSubstr("'nothing': cuLaunchKernel: CUDA_ERROR_INVALID_VALUE"));
  EXPECT_EQ(channel.executed, passed);
  channel.failure.reset();
  fed.give(0, Opcode::kRecover, wire::RecoverBody{wrong});
  const std::uint64_t seen = copy_out(1, 64);
  expect_fine();
  EXPECT_EQ(data(seen), std::vector<std::byte>(64)) << "the fill was passed over";
}

TEST_F(CudaSession, QuotasAreSaid) {
  const auto refused = [&](std::string_view words) {
    ASSERT_TRUE(fed.settle());
    auto& channel = fed.channels[0];
    ASSERT_TRUE(channel.failure);
    EXPECT_EQ(channel.failure->result, command::kOutOfMemory);
    EXPECT_THAT(channel.failure->text, HasSubstr(words));
    fed.give(0, Opcode::kRecover, wire::RecoverBody{std::exchange(channel.failure, {})->sequence});
  };
  allocate(1, (1 << 20) + 1);
  refused("1048577 bytes beside 0 of 1048576");
  for (std::uint64_t i = 1; i <= 4; ++i) allocate(i, 1 << 18);
  release(1);
  release(3);
  expect_fine();
  allocate(5, 1 << 19);
  refused("524288 bytes left, but no more than 262144 of them in one piece");
  allocate(1, 1 << 18);
  for (std::uint64_t i = 5; i <= 9; ++i) allocate(i, 8);
  expect_fine();
  allocate(10, 8);
  refused("the session has 8 allocations, its limit");
  const std::string name = "nothing";
  const auto load = [&](std::uint64_t handle) {
    fed.give(0, Opcode::kLoad, wire::LoadBody{handle, name.size()}, std::as_bytes(std::span(name)));
  };
  for (std::uint64_t i = 1; i <= 4; ++i) load(i);
  load(4);
  expect_fine();
  load(5);
  refused("the session has loaded 4 functions, its limit");
  const auto image = add_kernels(fed.cuda, command::standard_kernels(), "sent").image;
  const auto load_module = [&](std::uint64_t handle) {
    const std::uint64_t sequence =
        fed.give(0, Opcode::kModule, wire::ModuleBody{handle, image.size(), *wire::sha256_of(image)});
    fed.step();
    fed.give_image(0, sequence, 0, image);
  };
  load_module(1);
  load_module(2);
  expect_fine();
  load_module(3);
  refused("the session has 2 modules, its limit");
}

// It could not be told that what was executed has failed.
TEST_F(CudaSession, AnOldClientIsRefused) {
  EXPECT_FALSE(fed.greet({.oldest = 1, .newest = 1}));
  EXPECT_EQ(fed.why.code(), Code::kVersionMismatch);
  EXPECT_THAT(fed.why.message(), HasSubstr("knows no device that works by itself; version 2 does"));
  EXPECT_TRUE(fed.greet());
}

TEST_F(CudaSession, AnImageIsTakenAsItWasAskedFor) {
  const std::string text(3000, 'x');
  const auto image = std::as_bytes(std::span(text));
  wire::ModuleBody body{1, image.size(), *wire::sha256_of(image)};
  std::uint64_t sequence = fed.give(0, Opcode::kModule, body);
  fed.step();
  ASSERT_TRUE(fed.wanted);
  EXPECT_EQ(fed.wanted->offset, 0u);
  EXPECT_EQ(fed.wanted->bytes, 3000u);
  fed.give_image(0, sequence, 0, image.first(1000));
  fed.step();
  EXPECT_EQ(fed.channels[0].executed, 0u);
  std::vector<std::byte> other(2000, std::byte{'y'});
  fed.give_image(0, sequence, 1000, other);
  ASSERT_TRUE(fed.settle());
  ASSERT_TRUE(fed.channels[0].failure);
  EXPECT_THAT(fed.channels[0].failure->text, HasSubstr("have another SHA-256 than was said"));
  fed.give_image(0, sequence, 0, image);  // of a command that is over
  EXPECT_FALSE(fed.is_over());
  // More than was asked for, not in order, for another command, or nothing at all.
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(fed.greet());
    sequence = fed.give(0, Opcode::kModule, body);
    fed.step();
    fed.give_image(0, i == 2 ? sequence + 1 : sequence, i == 1 ? 1 : 0,
                   i == 0 ? std::as_bytes(std::span(text.data(), 3001)) : image.first(i == 3 ? 0 : 100));
    EXPECT_TRUE(fed.is_over()) << i;
    EXPECT_THAT(fed.why.message(), HasSubstr("of an image that was not asked for")) << i;
  }
}

// ---- ranges of addresses -------------------------------------------------------------------------------------------

constexpr std::uint64_t kRange = std::uint64_t{1} << 20;
constexpr wire::Hello kHello{.payload_bytes = wire::kMaxPayload};

class CudaRange : public CudaSession {
 protected:
  /// Fills 8 bytes at an address of the range, and reads them.
  void use(std::uint64_t address) {
    fed.give(0, Opcode::kAllocateAt, wire::AllocateAtBody{1, address, 8});
    const std::uint64_t zeros = copy_out(1, 8);
    fill(1, 8, 0x77);
    const std::uint64_t last = copy_out(1, 8);
    expect_fine();
    EXPECT_EQ(data(zeros)[3], std::byte{0}) << "memory is cleared";
    EXPECT_EQ(data(last)[7], std::byte{0x77});
  }
};

TEST_F(CudaRange, BeginsWhereTheClientWishes) {
  Result<wire::LocalRange> free = wire::LocalRange::reserve(kRange);
  ASSERT_TRUE(free);
  std::uint64_t wish = free->base();
  ASSERT_TRUE(fed.greet(kHello, {kRange, wish}));
  EXPECT_NE(fed.welcome.range_base, wish) << "it is taken here";
  use(fed.welcome.range_base);
  fed.end();
  *free = wire::LocalRange();
  // What is free may be taken by anybody who maps memory meanwhile, a sanitizer above all, which takes megabytes for
  // each thread: then there is another.
  for (int tries = 0; tries < 100; ++tries) {
    ASSERT_TRUE(fed.greet(kHello, {kRange / 2 + 1, wish}));
    if (fed.welcome.range_base == wish) break;
    fed.end();
    wish = wire::LocalRange::reserve(2048 * kRange)->base() + 1024 * kRange;  // who comes takes from above
  }
  ASSERT_EQ(fed.welcome.range_base, wish);
  EXPECT_EQ(fed.welcome.range_bytes, kRange / 2 + 256);
  EXPECT_EQ(fed.welcome.range_alignment, 256u);
  use(wish + kRange / 2);
  fed.end();
  ASSERT_TRUE(wire::LocalRange::reserve_at(wish, kRange)) << "the addresses are free again";
  EXPECT_EQ(fed.cuda.live_objects(), 0u);
  EXPECT_FALSE(fed.greet(kHello, {kRange + 1, 0}));
  EXPECT_EQ(fed.why.code(), Code::kResourceExhausted);
}

// Kernels reach more than the client may allocate.
TEST_F(CudaRange, IsClearedToTheEndOfWhatIsMapped) {
  ASSERT_TRUE(fed.greet(kHello, {4096, 0}));
  auto* const base = reinterpret_cast<std::byte*>(fed.welcome.range_base);
  const std::span<std::byte> held = fed.cuda.shadow({base, CudaDouble::kBlock});
  EXPECT_TRUE(std::ranges::all_of(held, [](std::byte each) { return each == std::byte{0}; }));
}

TEST_F(CudaRange, AFailureAtEveryCallRefusesTheSession) {
  std::size_t refused = 0;
  for (std::size_t n = 1;; ++n) {
    fed.end();
    fed.cuda.fail_call(n, CuResult::kOutOfMemory);
    const bool began = fed.greet(kHello, {kRange, 0});
    if (fed.cuda.failed_call().empty()) break;
    fed.end();
    EXPECT_EQ(fed.cuda.live_objects(), 0u) << fed.cuda.failed_call();
    if (began) continue;  // it undid something, or asked what there is
    ++refused;
    EXPECT_THAT(fed.why.message(), HasSubstr("cu")) << "it names the call";
  }
  EXPECT_GE(refused, 12u);
}

TEST(CudaOldDriver, HasARangeWhereverItsMemoryIs) {
  for (const bool knows_calls : {false, true}) {
    DriverApi api = CudaDouble::api();
    if (!knows_calls) api.memory_map = nullptr;
    HandFed fed(api, command::standard_kernels(), {.mapping = knows_calls ? false : true});
    ASSERT_TRUE(fed.greet(kHello, {kRange, std::uint64_t{0x2000} << 32}));
    fed.give(0, Opcode::kAllocateAt, wire::AllocateAtBody{1, fed.welcome.range_base + 512, 8});
    const std::uint64_t outside =
        fed.give(0, Opcode::kAllocateAt, wire::AllocateAtBody{2, fed.welcome.range_base + kRange, 8});
    ASSERT_TRUE(fed.settle());
    ASSERT_TRUE(fed.channels[0].failure);
    EXPECT_EQ(fed.channels[0].failure->sequence, outside);
    EXPECT_EQ(fed.cuda.calls("address_reserve"), 0u);
  }
}

// ---- priorities ----------------------------------------------------------------------------------------------------

TEST_F(CudaSession, AStreamHasItsChannelsPriority) {
  EXPECT_EQ(fed.priorities.least_priority, 0);
  EXPECT_EQ(fed.priorities.greatest_priority, -5);
  fed.prioritize(1, -3);
  fed.prioritize(2, -100);
  fed.prioritize(3, 7);
  allocate(1, 8);
  const std::uint64_t marked = fed.mark(0);
  for (std::uint16_t channel = 1; channel <= 3; ++channel) {
    fed.give(channel, Opcode::kFence, wire::FenceBody{0, marked});
    fed.give(channel, Opcode::kFill, wire::FillBody{1, 0, 8, channel});
  }
  expect_fine();
  EXPECT_THAT(fed.cuda.priorities(), ::testing::UnorderedElementsAre(-3, -5)) << "0 is what others have";
}

TEST(CudaOldDriver, HasNoPriorities) {
  DriverApi api = CudaDouble::api();
  api.stream_create_priority = nullptr;
  HandFed fed(api, command::standard_kernels());
  ASSERT_TRUE(fed.greet());
  EXPECT_EQ(fed.priorities.greatest_priority, 0);
  fed.prioritize(0, -5);
  fed.give(0, Opcode::kAllocate, wire::AllocateBody{1, 8});
  fed.give(0, Opcode::kFill, wire::FillBody{1, 0, 8, 1});
  ASSERT_TRUE(fed.settle());
  EXPECT_FALSE(fed.channels[0].failure);
}

// ---- graphs --------------------------------------------------------------------------------------------------------

// Its commands are done in the order of the stream, and what runs of it goes on when it is released.
TEST_F(CudaSession, AGraphIsOneCallForAllItsCommands) {
  fed.cuda.hold_copies();
  allocate(1, 8);
  std::vector<std::byte> records;
  for (int i = 0; i < 10; ++i) {
    const auto one = HandFed::record(Opcode::kFill, wire::FillBody{1, 0, 8, static_cast<std::uint64_t>(i)});
    records.insert(records.end(), one.begin(), one.end());
  }
  fed.give(0, Opcode::kGraph, wire::GraphBody{7, records.size(), 10}, records, wire::kInline);
  while (fed.step()) {
  }
  const std::size_t calls = fed.cuda.calls("fill");
  std::uint64_t last = 0;
  for (int i = 0; i < 20; ++i) {
    fill(1, 8, 0x55);
    fed.give(0, Opcode::kLaunchGraph, wire::GraphHandleBody{7});
    last = copy_out(1, 8);
  }
  fed.give(0, Opcode::kReleaseGraph, wire::GraphHandleBody{7});
  while (fed.step()) {
  }
  EXPECT_EQ(fed.channels[0].executed, fed.channels[0].last) << "nothing waits for the device";
  EXPECT_LT(fed.channels[0].complete, last);
  EXPECT_EQ(fed.cuda.calls("graph_launch"), 20u);
  EXPECT_EQ(fed.cuda.calls("graph_instantiate"), 1u);
  EXPECT_EQ(fed.cuda.calls("graph_exec_destroy"), 1u);
  EXPECT_EQ(fed.cuda.calls("fill"), calls + 20) << "its fills were captured, and no call is made for them any more";
  fed.cuda.let_copies_go();
  expect_fine();
  for (const auto& [sequence, bytes] : fed.channels[0].data) EXPECT_EQ(bytes[7], std::byte{9}) << sequence;
  EXPECT_EQ(fed.channels[0].data.size(), 20u);
}

TEST(CudaOldDriver, TakesNoGraphs) {
  DriverApi api = CudaDouble::api();
  api.graph_instantiate = nullptr;
  HandFed fed(api, command::standard_kernels());
  ASSERT_TRUE(fed.greet());
  fed.give(0, Opcode::kAllocate, wire::AllocateBody{1, 8});
  const auto record = HandFed::record(Opcode::kFill, wire::FillBody{1, 0, 8, 1});
  fed.give(0, Opcode::kGraph, wire::GraphBody{7, record.size(), 1}, record, wire::kInline);
  ASSERT_TRUE(fed.settle());
  ASSERT_TRUE(fed.channels[0].failure);
  EXPECT_EQ(fed.channels[0].failure->sequence, 2u);
  EXPECT_EQ(fed.channels[0].failure->result, command::kNotSupported);
  EXPECT_EQ(fed.cuda.calls("capture_begin"), 0u);
}

TEST(CudaOldDriver, LeavesLaunchesOfGraphsAsTheyAre) {
  DriverApi api = CudaDouble::api();
  api.capture_info = nullptr;
  HandFed fed(api, command::standard_kernels());
  ASSERT_TRUE(fed.greet());
  const std::string name = "reduce";
  fed.give(0, Opcode::kLoad, wire::LoadBody{1, name.size()}, std::as_bytes(std::span(name)));
  fed.give(0, Opcode::kAllocate, wire::AllocateBody{1, 64});
  const auto parameters = command::pack(Pointer{{1}}, Pointer{{1}, 32}, 4u);
  const auto record =
      HandFed::record(Opcode::kLaunch, wire::LaunchBody{1, {1, 1, 1}, {1, 1, 1}, 0, parameters.size()}, parameters);
  fed.give(0, Opcode::kGraph, wire::GraphBody{7, record.size(), 1}, record, wire::kInline);
  fed.give(0, Opcode::kLaunchGraph, wire::GraphHandleBody{7});
  const std::uint64_t refused = fed.give(
      0, Opcode::kUpdateGraph, wire::UpdateGraphBody{7, 1, parameters.size(), {1, 1, 1}, {1, 1, 1}, 0, 0}, parameters);
  ASSERT_TRUE(fed.settle());
  ASSERT_TRUE(fed.channels[0].failure);
  EXPECT_EQ(fed.channels[0].failure->sequence, refused);
  EXPECT_EQ(fed.channels[0].failure->result, command::kNotSupported);
  EXPECT_EQ(fed.cuda.calls("graph_destroy"), 1u) << "nobody keeps what was captured";
}

// A driver older than CUDA 12.4 does not tell what functions take: a launch with too few bytes is refused by it.
TEST(CudaOldDriver, TrustsALayoutAndComparesItsLength) {
  DriverApi api = CudaDouble::api();
  api.function_parameter = nullptr;
  HandFed fed(api, command::standard_kernels());
  ASSERT_TRUE(fed.greet());
  const std::string name = "reduce";
  fed.give(0, Opcode::kLoad, wire::LoadBody{1, name.size()}, std::as_bytes(std::span(name)));
  fed.give(0, Opcode::kAllocate, wire::AllocateBody{1, 64});
  const auto fits = command::pack(Pointer{{1}}, Pointer{{1}, 32}, 4u);
  fed.give(0, Opcode::kLaunch, wire::LaunchBody{1, {1, 1, 1}, {1, 1, 1}, 0, fits.size()}, fits);
  ASSERT_TRUE(fed.settle());
  ASSERT_FALSE(fed.channels[0].failure) << fed.channels[0].failure->text;
  EXPECT_EQ(fed.cuda.calls("function_parameter"), 0u);

  const auto image = add_kernels(fed.cuda, command::standard_kernels(), "sent").image;
  fed.give(0, Opcode::kModule, wire::ModuleBody{1, image.size(), *wire::sha256_of(image)});
  fed.step();
  fed.give_image(0, fed.channels[0].last, 0, image);
  std::vector<std::byte> tail;
  wire::put(tail, wire::ParameterItem{16, 8, wire::kPointerItem});
  const auto text = std::as_bytes(std::span(name));
  tail.insert(tail.end(), text.begin(), text.end());
  fed.give(0, Opcode::kLoadFrom, wire::LoadFromBody{2, 1, 1, static_cast<std::uint32_t>(name.size())}, tail);
  const auto few = command::pack(Pointer{{1}});
  const std::uint64_t wrong =
      fed.give(0, Opcode::kLaunch, wire::LaunchBody{2, {1, 1, 1}, {1, 1, 1}, 0, few.size()}, few);
  ASSERT_TRUE(fed.settle());
  ASSERT_TRUE(fed.channels[0].failure);
  EXPECT_EQ(fed.channels[0].failure->sequence, wrong) << fed.channels[0].failure->text;
  EXPECT_EQ(fed.channels[0].failure->result, command::kInvalidValue);
}

TEST_F(CudaSession, ASessionThatEndsInTheMiddleLeavesNothing) {
  allocate(1, 4096);
  for (int i = 0; i < 50; ++i) {
    fill(1, 4096, 1);
    copy_out(1, 4096);
    fed.step();
  }
  fed.end();
  EXPECT_EQ(fed.cuda.live_objects(), 0u);
  EXPECT_EQ(fed.cuda.orphans(), 0u);
}

}  // namespace
}  // namespace fairlead::gpu::testing
