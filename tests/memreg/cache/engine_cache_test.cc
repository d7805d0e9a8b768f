// Engine::cached_memory: transfers from memory that nobody registered send what lies there now.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <string>
#include <vector>

#include "cached_memory.h"
#include "tests/conformance/engine_pair.h"

namespace fairlead {
namespace {

using memreg::cache::mapped_again;
using memreg::cache::page_bytes;
using memreg::cache::Pages;

class EngineCache : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (const auto watcher = memreg::cache::Watcher::shared(); !watcher) {
      GTEST_SKIP() << "memory cannot be watched here: " << watcher.error().message();
    }
    const EngineConfig config = config_for({"", GetParam()});
    ASSERT_NO_FATAL_FAILURE(pair_.start(config, config));
    std::tie(there_, remote_) = pair_.target("inbox", 8 * page_bytes());
  }

  /// Writes these bytes to the peer; what has arrived there, each letter once.
  std::string arrives(std::span<std::byte> bytes) {
    const Result<Memory> memory = pair_.client->cached_memory(bytes);
    if (!memory) return memory.error().to_string();
    return arrives(*memory);
  }
  std::string arrives(const Memory& memory) {
    std::memset(there_.data(), '-', there_.size());
    const Status end = pair_.peer.write(memory, remote_.slice(0, memory.size())).wait(kPatience);
    if (!end.ok()) return end.to_string();
    std::string letters;
    for (std::size_t i = 0; i < memory.size(); ++i) {
      const char each = static_cast<char>(there_.data()[i]);
      if (letters.empty() || letters.back() != each) letters += each;
    }
    return letters;
  }

  EnginePair pair_;
  Memory there_;
  RemoteMemory remote_;
};

TEST_P(EngineCache, SendsWhatLiesThereNow) {
  Pages memory(4);
  memory.fill('a');
  EXPECT_EQ(arrives(memory.all()), "a");
  EXPECT_EQ(arrives(memory.pages(1, 2)), "a");
  const std::span<std::byte> where = memory.all();
  memory.unmap();
  EXPECT_EQ(pair_.client->cached_memory(where).status().code(), Code::kInvalidArgument);
  const Pages next = mapped_again(where, 'b');
  EXPECT_EQ(arrives(where), "b");
  const CacheCounters counters = pair_.client->stats().cache;
  EXPECT_EQ(counters.hits, 1U);
  EXPECT_EQ(counters.misses, 2U);
  EXPECT_EQ(counters.invalidated, 1U);
}

TEST_P(EngineCache, ReadsIntoIt) {
  std::memset(there_.data(), 'r', there_.size());
  const Pages memory(8);
  const Result<Memory> local = pair_.client->cached_memory(memory.all());
  ASSERT_TRUE(local) << local.error().to_string();
  const Status end = pair_.peer.read(*local, remote_).wait(kPatience);
  ASSERT_TRUE(end.ok()) << end.to_string();
  EXPECT_EQ(std::memcmp(memory.data(), there_.data(), there_.size()), 0);
}

TEST_P(EngineCache, ABatchIsOneRegistration) {
  Pages memory(8);
  memory.fill('a');
  const std::vector<std::span<std::byte>> ranges = {memory.pages(0, 1), memory.pages(1, 1), memory.pages(6, 2)};
  const auto local = pair_.client->cached_memory(ranges);
  ASSERT_TRUE(local) << local.error().to_string();
  for (const Memory& each : *local) EXPECT_EQ(arrives(each), "a");
  EXPECT_EQ(pair_.client->stats().cache.registrations, 1U);
}

TEST_P(EngineCache, ATransferCrossesThePiecesOfALargeOne) {
  constexpr std::size_t kPiece = std::size_t{1} << 30;
  const Pages memory(kPiece / page_bytes() + 16, nullptr, MAP_NORESERVE);
  if (memory.data() == nullptr) GTEST_SKIP() << "no address space for " << memory.all().size() << " bytes";
  const Result<Memory> local = pair_.client->cached_memory(memory.all());
  ASSERT_TRUE(local) << local.error().to_string();
  std::memset(memory.data() + kPiece - 2 * page_bytes(), 'a', 2 * page_bytes());
  std::memset(memory.data() + kPiece, 'b', 2 * page_bytes());
  EXPECT_EQ(arrives(local->slice(kPiece - 2 * page_bytes(), 4 * page_bytes())), "ab");
}

TEST_P(EngineCache, DeclaredMemoryOfAnyKind) {
  const std::size_t bytes = 4 * page_bytes();
  void* const shared = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  const std::span<std::byte> where(static_cast<std::byte*>(shared), bytes);
  std::memset(shared, 's', bytes);
  EXPECT_EQ(pair_.client->cached_memory(where).status().code(), Code::kUnimplemented);
  ASSERT_TRUE(pair_.client->declare_memory(where, false).ok());
  EXPECT_EQ(arrives(where), "s");
  ASSERT_TRUE(pair_.client->withdraw_memory(where.data()).ok());
  EXPECT_EQ(pair_.client->withdraw_memory(where.data()).code(), Code::kNotFound);
  EXPECT_EQ(pair_.client->cached_memory(where).status().code(), Code::kUnimplemented);
  ::munmap(shared, bytes);
}

TEST_P(EngineCache, ItOutlivesTheEngineAndIsInertThere) {
  Pages memory(4);
  memory.fill('a');
  Result<Memory> held = pair_.client->cached_memory(memory.all());
  ASSERT_TRUE(held) << held.error().to_string();
  pair_.client->shutdown();
  EXPECT_EQ(pair_.client->cached_memory(memory.all()).status().code(), Code::kUnavailable);
  pair_.client.reset();
  memory.unmap();  // would wait for ever if nobody read the events
  held = Memory();
}

TEST_P(EngineCache, OfAChildIsInert) {
  Pages memory(4);
  memory.fill('a');
  EXPECT_EQ(arrives(memory.all()), "a");
  std::optional<Memory> held = *pair_.client->cached_memory(memory.all());
  EXPECT_EQ(memreg::cache::in_child([&] {
              const bool inert = pair_.client->cached_memory(memory.all()).status().code() == Code::kUnavailable;
              held.reset();
              memory.unmap();
              return inert ? 0 : 1;
            }),
            0);
  EXPECT_EQ(arrives(*held), "a");
}

INSTANTIATE_TEST_SUITE_P(Over, EngineCache, testing::Values("tcp", "verbs:soft0"), [](const auto& each) {
  return std::string(each.param).substr(0, 3) == "tcp" ? "tcp" : "soft";
});

}  // namespace
}  // namespace fairlead
