// The engine's pool as programs see it: Engine::allocate with options, what may be published for whom, figures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fairlead/engine.h"
#include "tests/keys_file.h"
#include "tests/other_process.h"

namespace fairlead {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Names = std::vector<std::string>;

constexpr std::size_t kArena = std::size_t{1} << 20;

class EnginePool : public testing::Test {
 protected:
  Engine make(const std::function<void(EngineConfig&)>& change = [](EngineConfig&) {}) {
    EngineConfig config;
    config.transport = "tcp";
    config.pool_arena_bytes = kArena;
    config.keys_file = keys_.path();
    change(config);
    Result<Engine> made = Engine::create(config);
    EXPECT_TRUE(made) << made.error().to_string();
    return std::move(*made);
  }

 private:
  test::KeysFile keys_{"alice " + std::string(64, '1') + "\nbob " + std::string(64, '2') + "\n"};
};

bool all_are(const Memory& memory, std::byte value) {
  return std::all_of(memory.bytes().begin(), memory.bytes().end(), [value](std::byte each) { return each == value; });
}
void fill(const Memory& memory, int value) { std::memset(memory.data(), value, memory.size()); }

TEST_F(EnginePool, AlignsAsAskedFor) {
  Engine engine = make();
  for (const std::size_t alignment : {std::size_t{256}, std::size_t{65'536}, std::size_t{4} << 20}) {
    const Result<Memory> memory = engine.allocate(5000, {.alignment = alignment});
    ASSERT_TRUE(memory) << memory.error().to_string();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory->data()) % alignment, 0u);
    EXPECT_EQ(memory->size(), 5000u);
  }
  EXPECT_EQ(engine.allocate(5000, {.alignment = 48}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(engine.allocate(5000, {.node = 4000}).status().code(), Code::kInvalidArgument);
}

TEST_F(EnginePool, ClearsMemoryThatGoesFromOneAudienceToAnother) {
  Engine engine = make();
  const std::optional<Names> none, alice = Names{"alice"}, both = Names{"bob", "alice"}, everybody = Names{};
  const std::byte* last = nullptr;
  const auto left = [&](const std::optional<Names>& audience) {
    const Result<Memory> memory = engine.allocate(9000, {.audience = audience});
    EXPECT_TRUE(memory) << memory.status().to_string();
    EXPECT_TRUE(last == nullptr || last == memory->data()) << "other memory shows nothing";
    last = memory->data();
    const bool stayed = all_are(*memory, std::byte{0xa5});
    EXPECT_TRUE(stayed || all_are(*memory, std::byte{0}));
    fill(*memory, 0xa5);
    return stayed;
  };
  EXPECT_FALSE(left(alice));
  EXPECT_TRUE(left(alice));
  EXPECT_FALSE(left(both));
  EXPECT_TRUE(left(Names{"alice", "bob"}));
  EXPECT_FALSE(left(everybody));
  EXPECT_TRUE(left(everybody));
  EXPECT_FALSE(left(none));
  EXPECT_FALSE(left(none));
  EXPECT_FALSE(left(alice));
  const auto nobodys = engine.allocate(9000, {.audience = Names{"carol"}});
  EXPECT_EQ(nobodys.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(nobodys.status().message(), HasSubstr("carol"));
}

// It may hold what its audience left there.
TEST_F(EnginePool, PublishesMemoryForNobodyButItsAudience) {
  Engine engine = make();
  const Memory alices = *engine.allocate(100, {.audience = Names{"alice"}});
  const Memory some = *engine.allocate(100, {.audience = Names{"*"}});
  const Memory all = *engine.allocate(100, {.audience = Names{}});
  const Memory cleared = *engine.allocate(100);
  int count = 0;
  const auto publish = [&](const Memory& memory, const Names& audience) {
    return engine.publish(std::to_string(count++), memory, Access::kRemoteRead, std::nullopt, audience);
  };
  EXPECT_TRUE(publish(alices, {"alice"}).ok());
  for (const Names& others : {Names{}, Names{"bob"}, Names{"alice", "bob"}, Names{"*"}}) {
    const Status refused = publish(alices, others);
    EXPECT_EQ(refused.code(), Code::kPermissionDenied);
    EXPECT_THAT(refused.message(), AllOf(HasSubstr("allocated for alice"), HasSubstr("AllocateOptions::audience")));
  }
  EXPECT_EQ(publish(alices.slice(10, 10), {}).code(), Code::kPermissionDenied);
  EXPECT_TRUE(publish(some, {"bob"}).ok());
  EXPECT_TRUE(publish(some, {"*", "alice"}).ok());
  EXPECT_EQ(publish(some, {}).code(), Code::kPermissionDenied);
  for (const Memory& any : {all, cleared}) {
    for (const Names& audience : {Names{}, Names{"bob"}, Names{"*"}}) EXPECT_TRUE(publish(any, audience).ok());
  }
}

TEST_F(EnginePool, SharesWithAnotherProcessWhatItIsAskedTo) {
  OtherProcess other;
  Engine engine = make();
  const Memory shared = *engine.allocate(10'000, {.shared = true});
  const Memory part = shared.slice(5000, 100);
  ASSERT_TRUE(part.shared_file());
  EXPECT_EQ(part.shared_file()->offset, shared.shared_file()->offset + 5000);
  std::memset(shared.data(), 1, shared.size());
  std::memset(part.data(), 9, part.size());
  EXPECT_TRUE(other.sees(part.shared_file()->fd, part.shared_file()->offset, part.size(), std::byte{9}, std::byte{5}));
  EXPECT_EQ(part.data()[0], std::byte{5});
  EXPECT_EQ(part.data()[99], std::byte{5});
  EXPECT_TRUE(other.sees(shared.shared_file()->fd, shared.shared_file()->offset, 5000, std::byte{1}, std::byte{2}));
  EXPECT_EQ(part.data()[0], std::byte{5});
  EXPECT_FALSE(engine.allocate(100)->shared_file());
  EXPECT_FALSE(Memory().shared_file());
}

TEST_F(EnginePool, SaysWhatItHolds) {
  Engine engine = make();
  EXPECT_NE(engine.stats().pool.pages, "") << "also before there is an arena";
  Memory memory = *engine.allocate(65'536);
  EngineStats stats = engine.stats();
  EXPECT_EQ(stats.pool.blocks, 1u);
  EXPECT_EQ(stats.pool.used_bytes, 65'536u);
  EXPECT_EQ(stats.pool.bytes, kArena);
  EXPECT_EQ(stats.pool_bytes, kArena);
  EXPECT_EQ(stats.pool_bytes_used, 65'536u);
  EXPECT_EQ(stats.registered_bytes, kArena);
  ASSERT_EQ(stats.pool.arenas.size(), 4u);
  std::uint64_t arenas = 0, bytes = 0;
  for (const PoolArenas& each : stats.pool.arenas) {
    arenas += each.arenas;
    bytes += each.bytes;
  }
  EXPECT_EQ(arenas, 1u);
  EXPECT_EQ(bytes, kArena);
  memory = Memory();
  EXPECT_EQ(engine.stats().pool.used_bytes, 0u);
  EXPECT_EQ(engine.stats().pool.cached_bytes, 65'536u);
  engine.trim_pool();
  stats = engine.stats();
  EXPECT_EQ(stats.pool.bytes, 0u);
  EXPECT_EQ(stats.pool.cached_bytes, 0u);
  EXPECT_EQ(stats.pool.given_back, 1u);
  EXPECT_EQ(stats.pool.given_back_bytes, kArena);
  EXPECT_EQ(stats.registered_bytes, 0u) << "what is given back is deregistered";
  EXPECT_TRUE(engine.allocate(10));
}

TEST_F(EnginePool, KeepsItsLimit) {
  Engine engine = make([](EngineConfig& config) { config.pool_max_bytes = kArena; });
  const Result<Memory> first = engine.allocate(kArena);
  ASSERT_TRUE(first);
  const Result<Memory> second = engine.allocate(1);
  EXPECT_EQ(second.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(second.status().message(), HasSubstr("pool_max_bytes"));
}

TEST_F(EnginePool, OutlivesItsEngineAndItsThreads) {
  Memory memory;
  {
    Engine engine = make();
    std::jthread([&] {
      memory = *engine.allocate(1000);
      Memory gone = *engine.allocate(1000);
    }).join();
  }
  fill(memory, 1);
  std::jthread([&] { memory = Memory(); }).join();
}

}  // namespace
}  // namespace fairlead
