// What becomes one registration, what gives way to what, what is declared, and that nothing is left.
#include "memreg/cache/registration_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <mutex>
#include <thread>
#include <vector>

#include "bench/micro/model_shapes.h"
#include "cached_memory.h"
#include "tests/no_threads.h"

namespace fairlead::memreg::cache {
namespace {

using testing::HasSubstr;
using When = RegistrationCache::When;

using Cache = RegistrationCacheTest;

TEST_F(Cache, NeighboursBecomeOne) {
  make();
  Pages memory(12);
  memory.fill('a');
  found(memory.pages(0, 4));
  found(memory.pages(4, 4));                                        // touches
  found(memory.all().subspan(7 * page_bytes() + 5, page_bytes()));  // overlaps
  EXPECT_EQ(cache().stats().entries, 1U);
  EXPECT_EQ(cache().stats().pinned_bytes, 9 * page_bytes());
  EXPECT_EQ(cache().stats().merged, 2U);
  EXPECT_EQ(sent(memory.pages(0, 9)), "a");
  EXPECT_EQ(cache().stats().registrations, 3U);
  found(memory.pages(11, 1));  // a page apart: another
  EXPECT_EQ(cache().stats().entries, 2U);
  found(memory.pages(10, 1));  // which touches that one alone
  EXPECT_EQ(cache().stats().entries, 2U);
  found(memory.pages(9, 1));
  EXPECT_EQ(cache().stats().entries, 1U);
  EXPECT_EQ(cache().stats().pinned_bytes, verbs().locked_bytes());
  expect_nothing_pinned();
}

TEST_F(Cache, NeighboursOfTwoMappingsStayTwo) {
  make({}, {.keeps_pages = false});
  const Pages memory(8);
  ASSERT_EQ(::mprotect(memory.page(4), 4 * page_bytes(), PROT_READ), 0);
  found(memory.pages(2, 2));
  found(memory.pages(4, 2));
  EXPECT_EQ(cache().stats().entries, 2U);
  found(memory.pages(3, 2));  // somebody uses both as one
  EXPECT_EQ(cache().stats().entries, 1U);
}

TEST_F(Cache, WhatIsTakenUpStaysAsLongAsItIsHeld) {
  make();
  Pages memory(8);
  memory.fill('a');
  {
    const Lease small = found(memory.pages(2, 2));
    const Lease large = found(memory.all());
    EXPECT_EQ(verbs().live(), 2U);
    EXPECT_EQ(sent(small, memory.pages(2, 2)), "a");
    EXPECT_EQ(sent(large, memory.all()), "a");
  }
  settle();
  expect_nothing_pinned();
}

TEST_F(Cache, ABatchSharesWhatLiesInOneMapping) {
  make();
  Pages memory(32);
  memory.fill('a');
  const std::vector<std::span<std::byte>> ranges = {memory.pages(20, 2), memory.pages(0, 2), memory.pages(2, 1),
                                                    memory.all().subspan(10 * page_bytes() + 9, 100),
                                                    memory.pages(20, 1)};
  {
    const auto leases = cache().find(ranges);
    ASSERT_TRUE(leases.has_value()) << leases.status().to_string();
    ASSERT_EQ(leases->size(), ranges.size());
    for (std::size_t i = 0; i < ranges.size(); ++i) EXPECT_EQ(sent((*leases)[i], ranges[i]), "a") << i;
    EXPECT_EQ(verbs().registrations(), 1U);
    EXPECT_EQ(cache().stats().pinned_bytes, 22 * page_bytes());
  }
  ASSERT_TRUE(cache().find(ranges).has_value());
  EXPECT_EQ(verbs().registrations(), 1U);
  // What nobody asked for lies in it, and may have been about to be emptied then: it is registered when it is asked
  // for.
  EXPECT_EQ(sent(memory.pages(5, 1)), "a");
  EXPECT_EQ(verbs().registrations(), 2U);
  EXPECT_EQ(sent(memory.pages(5, 1)), "a");
  EXPECT_EQ(verbs().registrations(), 2U);
  expect_nothing_pinned();
}

TEST_F(Cache, ABatchIsAllOrNothing) {
  make();
  Pages memory(8);
  memory.fill('a');
  std::vector<std::span<std::byte>> ranges = {memory.pages(0, 2), memory.pages(4, 2)};
  ASSERT_EQ(::munmap(memory.page(4), page_bytes()), 0);
  const auto leases = cache().find(ranges);
  ASSERT_FALSE(leases.has_value());
  EXPECT_EQ(leases.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(leases.error().message(), HasSubstr("range 1 of 2"));
  expect_nothing_pinned();
  EXPECT_EQ(cache().find(std::span<std::byte>()).status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(cache().find(std::span<const std::span<std::byte>>()).has_value());
}

TEST_F(Cache, FarApartIsNotRegisteredBetween) {
  make({.gap_bytes = 4 * page_bytes()});
  Pages memory(64);
  memory.fill('a');
  const std::vector<std::span<std::byte>> ranges = {memory.pages(0, 1), memory.pages(5, 1), memory.pages(60, 1)};
  ASSERT_TRUE(cache().find(ranges).has_value());
  EXPECT_EQ(cache().stats().entries, 2U);
  EXPECT_EQ(cache().stats().pinned_bytes, 7 * page_bytes());
}

TEST_F(Cache, TheTensorsOfAModel) {
  const std::vector<std::size_t> sizes = bench::tensor_bytes();
  ASSERT_EQ(sizes.size(), 1265U);
  make({}, {.keeps_pages = false});
  std::size_t total = 0;
  for (const std::size_t each : sizes) total += each;
  EXPECT_EQ(total / 1'000'000'000, 51U) << "as the source says";
  Pages memory(total / page_bytes() + 1, nullptr, MAP_NORESERVE);
  if (memory.data() == nullptr) GTEST_SKIP() << "no address space for " << memory.all().size() << " bytes";
  std::vector<std::span<std::byte>> tensors;
  for (std::size_t at = 0; const std::size_t each : sizes) {
    tensors.push_back(memory.all().subspan(at, each));
    at += each;
  }
  {
    const auto leases = cache().find(tensors);
    ASSERT_TRUE(leases.has_value()) << leases.status().to_string();
    EXPECT_LE(verbs().registrations(), 3U);
    EXPECT_LE(verbs().milliseconds(), 17U);
  }
  ASSERT_TRUE(cache().find(tensors).has_value());
  EXPECT_LE(verbs().registrations(), 3U) << "found the second time";
  expect_nothing_pinned();
}

TEST_F(Cache, TheTensorsOfAModelInAMappingEach) {
  const std::vector<std::size_t> sizes = bench::tensor_bytes();
  make({}, {.keeps_pages = false});
  std::vector<Pages> mappings;
  std::vector<std::span<std::byte>> tensors;
  constexpr std::size_t kTogether = 5;  // tensors in a mapping, with a page between
  for (std::size_t i = 0; i < sizes.size(); i += kTogether) {
    std::size_t pages = 0;
    for (std::size_t j = i; j < i + kTogether; ++j) pages += sizes[j] / page_bytes() + 2;
    mappings.emplace_back(pages, nullptr, MAP_NORESERVE);
    if (mappings.back().data() == nullptr) GTEST_SKIP() << "no address space for the tensors of a model";
    for (std::size_t j = i, at = 0; j < i + kTogether; at += (sizes[j] / page_bytes() + 2) * page_bytes(), ++j) {
      tensors.push_back(mappings.back().all().subspan(at, sizes[j]));
    }
  }
  ASSERT_TRUE(cache().find(tensors).has_value());
  EXPECT_EQ(verbs().registrations(), mappings.size());
  expect_nothing_pinned();
}

TEST_F(Cache, WhatIsIdleLongestGivesWay) {
  make({.max_bytes = 8 * page_bytes()});
  const Pages first(4), second(4), third(4);
  found(first.all());
  found(second.all());
  found(first.all());
  found(third.all());
  EXPECT_EQ(cache().stats().evicted, 1U);
  EXPECT_EQ(verbs().registrations(), 3U);
  found(first.all());
  found(third.all());
  EXPECT_EQ(verbs().registrations(), 3U) << "the second went";
  found(second.all());
  EXPECT_EQ(verbs().registrations(), 4U);
  EXPECT_LE(verbs().locked_bytes(), 8 * page_bytes());
}

TEST_F(Cache, TheLimitIsNamedWhereAllIsInUse) {
  make({.max_bytes = 8 * page_bytes()});
  const Pages first(4), second(4), third(4), large(9);
  {
    const Lease a = found(first.all()), b = found(second.all());
    const auto refused = cache().find(third.all());
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code(), Code::kResourceExhausted);
    EXPECT_THAT(refused.error().message(), HasSubstr(std::to_string(8 * page_bytes())));
    EXPECT_EQ(verbs().live(), 2U);
  }
  found(third.all());
  EXPECT_EQ(cache().find(large.all()).status().code(), Code::kResourceExhausted);
  expect_nothing_pinned();
}

TEST_F(Cache, TheDevicesLimitMakesIdleOnesGiveWay) {
  make({}, {.locked_bytes = 8 * page_bytes()});
  const Pages first(4), second(4), third(4);
  found(first.all());
  {
    const Lease held = found(second.all());
    found(third.all());
    EXPECT_EQ(verbs().live(), 2U);
    EXPECT_EQ(cache().stats().evicted, 1U);
    const Lease both = found(third.all());
    const auto refused = cache().find(first.all());
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code(), Code::kResourceExhausted);
    EXPECT_EQ(verbs().live(), 2U);
  }
  found(first.all());
  expect_nothing_pinned();
}

TEST_F(Cache, NeighboursThatDoNotFitTogetherAreRegisteredAlone) {
  make({}, {.locked_bytes = 6 * page_bytes()});
  const Pages memory(8);
  {
    const Lease held = found(memory.pages(0, 4));
    found(memory.pages(4, 2));
    EXPECT_EQ(verbs().locked_bytes(), 6 * page_bytes());
  }
  expect_nothing_pinned();
}

TEST_F(Cache, LargeOnesAreRegisteredInPieces) {
  make({.chunk_bytes = 4 * page_bytes()});
  Pages memory(19);
  memory.fill('a');
  {
    const Lease lease = found(memory.all());
    ASSERT_EQ(lease.pieces().size(), 3U);
    EXPECT_EQ(verbs().live(), 3U);
    std::uintptr_t at = range_of(memory.all()).begin;
    for (const Piece& piece : lease.pieces()) {
      EXPECT_EQ(piece.range.begin, at);
      at = piece.range.end;
      EXPECT_EQ(sent(lease, bytes_of(piece.range)), "a");
    }
    EXPECT_EQ(at, range_of(memory.all()).end);
  }
  expect_nothing_pinned();
}

TEST_F(Cache, PiecesAreMadeOneByOneWithoutThreads) {
  make({.chunk_bytes = 4 * page_bytes()});
  Pages memory(19);
  found(memory.pages(0, 1));  // the cache's own thread is there
  {
    const test::NoThreads none;
    EXPECT_EQ(found(memory.all()).pieces().size(), 3U);
  }
  found(memory.pages(1, 2));
  expect_nothing_pinned();
}

TEST_F(Cache, PiecesAreFewAndAsLargeAsTheyMayBe) {
  const auto pieces_of = [this](std::size_t pages, CacheConfig config) {
    make(std::move(config), {.keeps_pages = false});
    const Pages memory(pages);
    return found(memory.all()).pieces().size();
  };
  CacheConfig config{.chunk_bytes = 4 * page_bytes(), .largest_chunk_bytes = 100 * page_bytes()};
  EXPECT_EQ(pieces_of(4, config), 1U);
  EXPECT_EQ(pieces_of(8, config), 2U);
  EXPECT_EQ(pieces_of(9, config), 3U);
  EXPECT_EQ(pieces_of(300, config), 3U);
  EXPECT_EQ(pieces_of(301, config), 4U);
  config.device_most_bytes = [] { return 10 * page_bytes() + 17; };  // whole pages of it
  EXPECT_EQ(pieces_of(30, config), 3U);
  EXPECT_EQ(pieces_of(31, config), 4U);
  config.device_most_bytes = [] { return 3 * page_bytes(); };
  EXPECT_EQ(pieces_of(4, config), 2U);
  config.device_most_bytes = [] { return std::size_t{17}; };  // it refuses a page: then it says so
  EXPECT_EQ(pieces_of(4, config), 4U);
}

TEST_F(Cache, APieceThatFailsTakesTheOthersAlong) {
  make({.chunk_bytes = 4 * page_bytes()}, {.locked_bytes = 16 * page_bytes()});
  const Pages memory(18);
  EXPECT_EQ(cache().find(memory.all()).status().code(), Code::kResourceExhausted);
  expect_nothing_pinned();
}

TEST_F(Cache, MemoryThatMayChangeUnseenIsDeclared) {
  make();
  void* const shared = ::mmap(nullptr, 4 * page_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  const std::span<std::byte> bytes(static_cast<std::byte*>(shared), 4 * page_bytes());
  std::memset(shared, 'a', bytes.size());
  const auto refused = cache().find(bytes);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kUnimplemented);
  EXPECT_THAT(refused.error().message(), HasSubstr("declare"));
  ASSERT_TRUE(cache().declare(bytes).ok());
  EXPECT_EQ(sent(bytes), "a");
  EXPECT_EQ(sent(bytes.subspan(10, 10)), "a");
  EXPECT_EQ(cache().stats().declared_hits, 2U);
  ASSERT_TRUE(cache().withdraw(bytes.data()).ok());
  EXPECT_EQ(verbs().live(), 0U);
  EXPECT_EQ(cache().find(bytes).status().code(), Code::kUnimplemented);
  ::munmap(shared, bytes.size());
}

TEST_F(Cache, DeclaredMemory) {
  make({.max_bytes = 16 * page_bytes()});
  Pages memory(8);
  memory.fill('a');
  const std::span<std::byte> odd = memory.all().subspan(100, 2 * page_bytes());
  ASSERT_TRUE(cache().declare(odd, When::kFirstUse).ok());
  EXPECT_EQ(verbs().registrations(), 0U);
  EXPECT_EQ(sent(odd.subspan(5, 50)), "a");
  EXPECT_EQ(verbs().registrations(), 1U);
  EXPECT_EQ(cache().declare(odd.subspan(1, 1)).code(), Code::kAlreadyExists);
  EXPECT_EQ(cache().withdraw(odd.data() + 1).code(), Code::kNotFound);
  cache().trim();
  EXPECT_EQ(verbs().live(), 1U) << "it is not idle";
  {
    const Lease held = found(odd);
    ASSERT_TRUE(cache().withdraw(odd.data()).ok());
    EXPECT_EQ(verbs().live(), 1U);
  }
  cache().trim();
  EXPECT_EQ(verbs().live(), 0U);
  EXPECT_EQ(cache().declare(Pages(17).all()).code(), Code::kResourceExhausted);
  expect_nothing_pinned();
}

TEST_F(Cache, DeclaredMemoryIsRegisteredOnceByManyThreads) {
  make();
  Pages memory(8);
  memory.fill('a');
  ASSERT_TRUE(cache().declare(memory.all(), When::kFirstUse).ok());
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 100; ++round) EXPECT_EQ(sent(memory.all()), "a");
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(verbs().registrations(), 1U);
  EXPECT_EQ(cache().stats().declared_hits, 799U);
}

TEST_F(Cache, NothingIsFoundOnceItIsClosed) {
  make();
  const Pages memory(8), declared(2);
  ASSERT_TRUE(cache().declare(declared.all()).ok());
  {
    const Lease held = found(memory.pages(0, 2));
    found(memory.pages(5, 2));
    cache().close();
    EXPECT_EQ(cache().find(memory.all()).status().code(), Code::kUnavailable);
    EXPECT_EQ(cache().find(declared.all()).status().code(), Code::kUnavailable);
    EXPECT_EQ(verbs().live(), 1U);
  }
  EXPECT_EQ(verbs().live(), 0U);
  EXPECT_EQ(cache().stats().pinned_bytes, 0U);
}

TEST_F(Cache, TwoCachesWatchTheSameMemory) {
  make();
  PageKeepingVerbs others_device;
  RegistrationCache other({}, verbs::testing::hook_of(others_device));
  Pages memory(4);
  memory.fill('a');
  EXPECT_EQ(sent(memory.all()), "a");
  ASSERT_TRUE(other.find(memory.all()).has_value());
  other.trim();  // the one that stays still watches
  const std::span<std::byte> where = memory.all();
  memory.unmap();
  const Pages next = mapped_again(where, 'b');
  EXPECT_EQ(sent(where), "b");
}

TEST_F(Cache, EndlessCyclesLeaveNothing) {
  make({.max_bytes = 4 * page_bytes()}, {.keeps_pages = false});
  const Pages memory(64);
  for (std::size_t i = 0; i < 5000; ++i) found(memory.pages(i * 2 % 64, 1));
  const CacheStats stats = cache().stats();
  EXPECT_LE(stats.entries, 4U);
  EXPECT_LE(stats.pinned_bytes, 4 * page_bytes());
  EXPECT_EQ(verbs().registrations(), 5000U);
  expect_nothing_pinned();
}

}  // namespace
}  // namespace fairlead::memreg::cache
