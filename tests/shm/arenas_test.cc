// Memory that peers map: what is copied how, what a peer may do with it, and peers that lie about it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/system/unix_packets.h"
#include "fairlead/log.h"
#include "tests/out_of_descriptors.h"
#include "tests/shm/arenas_mapped.h"
#include "tests/shm/end.h"
#include "tests/shm/half.h"
#include "tests/shm/own_directory.h"

namespace fairlead::shm {
namespace {

using datapath::LocalSegment;
using datapath::OpKind;
using datapath::WorkRequest;

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE;
constexpr std::size_t kPage = 4096;
constexpr int kPollsUntilHeard = 1000;  // of one that does not sleep: it looks at its sockets now and then

const datapath::Copies& copies(const End& end) { return end.endpoint->traffic().copies; }

// ---- two ends that mean it

class ShmArenas : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    config_ = directory_.config();
    config_.pull = GetParam();
    ASSERT_TRUE(ends_.meet(config_, true));
    std::ranges::fill(one_.memory, std::byte{1});
    std::ranges::fill(other_.memory, std::byte{2});
  }
  Code carry_out(OpKind kind, std::size_t bytes = End::kBytes) {
    const std::size_t before = one_.codes.size();
    if (!one_.post(kind, other_.granted.key, bytes)) return Code::kInternal;
    return ends_.both_until([&] { return one_.codes.size() > before; }) ? one_.codes.back() : Code::kInternal;
  }

  OwnDirectory directory_;
  ShmConfig config_;
  Ends ends_;
  End &one_ = ends_.one, &other_ = ends_.other;
};

// The first operation may go another way: nobody had said that it maps the arena.
TEST_P(ShmArenas, AreCopiedFromWithoutTheKernel) {
  while (copies(other_).mapped.get() == 0) ASSERT_EQ(carry_out(OpKind::kWrite), Code::kOk);
  EXPECT_TRUE(std::ranges::all_of(other_.memory, [](std::byte each) { return each == std::byte{1}; }));
  std::ranges::fill(other_.memory, std::byte{3});
  while (copies(one_).mapped.get() == 0) ASSERT_EQ(carry_out(OpKind::kRead), Code::kOk);
  EXPECT_TRUE(std::ranges::all_of(one_.memory, [](std::byte each) { return each == std::byte{3}; }));
  const std::uint64_t written = copies(other_).mapped.get(), read = copies(one_).mapped.get();
  ASSERT_EQ(carry_out(OpKind::kWrite), Code::kOk);
  ASSERT_EQ(carry_out(OpKind::kRead), Code::kOk);
  EXPECT_EQ(copies(other_).mapped.get() - written, End::kBytes);
  EXPECT_EQ(copies(one_).mapped.get() - read, End::kBytes);
  EXPECT_EQ(copies(one_).by_kernel.get() + copies(other_).by_kernel.get(), 0u);
}

TEST_P(ShmArenas, WhatIsLargeGoesPastTheCaches) {
  while (copies(other_).mapped.get() == 0) ASSERT_EQ(carry_out(OpKind::kWrite), Code::kOk);
  ASSERT_EQ(carry_out(OpKind::kWrite), Code::kOk);
  one_.codes.clear();
  ASSERT_EQ(copies(other_).streamed.get(), 0u) << "each begins anew where the last began";
  static_assert(End::kBytes <= kStreamedFrom);
  std::vector<std::byte> large(4 * End::kBytes, std::byte{0});
  const auto granted = other_.device->grant({.bytes = large, .access = Access::kRemoteWrite});
  ASSERT_TRUE(granted);
  const auto write = [&](std::uint64_t pieces) {
    one_.codes.clear();
    for (std::uint64_t i = 0; i < pieces; ++i) {
      const LocalSegment segment{one_.memory.data(), End::kBytes, one_.registration.local};
      const WorkRequest work{.local = {&segment, 1}, .remote_address = i * End::kBytes, .remote_key = granted->key};
      if (one_.path->post({&work, 1}) != 1) return std::uint64_t{0};
    }
    const std::uint64_t before = copies(other_).streamed.get();
    EXPECT_TRUE(ends_.both_until([&] { return one_.codes.size() == pieces; }));
    return copies(other_).streamed.get() - before;
  };
  EXPECT_EQ(write(4), 4 * End::kBytes - kStreamedFrom);
  EXPECT_EQ(write(4), 4 * End::kBytes) << "as long as the one before, it is supposed";
  EXPECT_EQ(write(1), End::kBytes);
  EXPECT_EQ(write(1), 0u) << "the one before was not";
  EXPECT_TRUE(std::ranges::all_of(large, [](std::byte each) { return each == std::byte{1}; }));
  other_.device->revoke(*granted);
}

// Addresses are used again: what lies there is not what the peer has mapped.
TEST_P(ShmArenas, OneThatIsGoneIsTakenBackBeforeItsAddressesMeanSomethingElse) {
  while (copies(other_).mapped.get() == 0) ASSERT_EQ(carry_out(OpKind::kWrite), Code::kOk);
  one_.device->deregister(one_.registration);
  ASSERT_NE(
      ::mmap(one_.memory.data(), End::kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
      MAP_FAILED);
  std::ranges::fill(one_.memory, std::byte{9});
  one_.registration = *one_.device->register_memory({.bytes = one_.memory, .access = Access::kRemoteReadWrite});
  ASSERT_EQ(carry_out(OpKind::kWrite), Code::kOk);
  EXPECT_TRUE(std::ranges::all_of(other_.memory, [](std::byte each) { return each == std::byte{9}; }));
}

// What was copied before is all that goes over the path: its pages are free all the same.
TEST_P(ShmArenas, OneThatIsGoneIsTakenBackThoughNothingIsPosted) {
  const std::ptrdiff_t before = arenas_mapped();
  while (copies(other_).mapped.get() == 0) ASSERT_EQ(carry_out(OpKind::kWrite), Code::kOk);
  ASSERT_EQ(arenas_mapped() - before, 1);
  one_.device->deregister(one_.registration);
  one_.endpoint->poll();
  for (int i = 0; i < kPollsUntilHeard; ++i) other_.endpoint->poll();
  EXPECT_EQ(arenas_mapped(), before);
}

TEST_P(ShmArenas, OneThatIsGoneIsTakenBackByWhoGoesToSleep) {
  const std::ptrdiff_t before = arenas_mapped();
  while (copies(other_).mapped.get() == 0) ASSERT_EQ(carry_out(OpKind::kWrite), Code::kOk);
  while (one_.endpoint->poll() || other_.endpoint->poll()) {
  }
  one_.device->deregister(one_.registration);
  EXPECT_TRUE(one_.endpoint->arm());
  for (int i = 0; i < kPollsUntilHeard; ++i) other_.endpoint->poll();
  EXPECT_EQ(arenas_mapped(), before);
}

TEST_P(ShmArenas, RevokeStopsAReadOfOne) {
  while (copies(one_).mapped.get() == 0) ASSERT_EQ(carry_out(OpKind::kRead, 64 * kPage), Code::kOk);
  one_.codes.clear();
  std::ranges::fill(other_.memory, std::byte{7});
  const auto read = [&] { return std::ranges::count(one_.memory, std::byte{7}); };
  ASSERT_TRUE(one_.post(OpKind::kRead, other_.granted.key));
  ASSERT_TRUE(ends_.both_until([&] { return read() > 0; }));
  const auto before = read();
  ASSERT_LT(before, static_cast<std::ptrdiff_t>(End::kBytes));
  other_.device->revoke(other_.granted);
  ASSERT_TRUE(ends_.both_until([&] { return one_.codes.size() == 1; }));
  EXPECT_EQ(one_.codes.back(), Code::kProtectionError);
  EXPECT_EQ(read(), before);
}

INSTANTIATE_TEST_SUITE_P(Ways, ShmArenas, testing::Bool(),
                         [](const auto& each) { return each.param ? "BesideTheKernel" : "Alone"; });

TEST(ShmArena, CannotBeWrittenByWhoeverHasItsDescriptor) {
  const auto arena = memreg::Arena::map(kPage, {.readable = true});
  ASSERT_TRUE(arena);
  const UniqueFd again(::open(("/proc/self/fd/" + std::to_string(arena->fd())).c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(again) << "a descriptor can be opened again for writing,";
  EXPECT_EQ(::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, again.get(), 0), MAP_FAILED);
  EXPECT_EQ(::pwrite(again.get(), "x", 1, 0), -1);
  EXPECT_NE(::ftruncate(again.get(), 0), 0);
  EXPECT_NE(::fallocate(again.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kPage), 0);
  arena->bytes()[0] = std::byte{1};  // its owner can
}

// ---- a peer that lies

class ShmArenaLies : public testing::Test, public Half {
 protected:
  static UniqueFd make(int seals, std::size_t bytes = kPage) {
    UniqueFd file(::memfd_create("arena", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(::ftruncate(file.get(), static_cast<off_t>(bytes)), 0);
    EXPECT_EQ(::fcntl(file.get(), F_ADD_SEALS, seals), 0);
    return file;
  }
  static ArenaPacket given(std::uint8_t index, std::uint64_t address, std::uint64_t bytes = kPage) {
    return {.kind = ArenaNews::kGiven, .index = index, .address = address, .bytes = bytes};
  }
  static ArenaPacket taken_back(std::uint8_t index) {
    return {.kind = ArenaNews::kTakenBack, .index = index, .bytes = 1};
  }
  std::string_view say(const ArenaPacket& packet, int descriptor = -1) {
    peers->sides[0].arenas.told.fetch_add(1);
    EXPECT_TRUE(send_packet(sockets[0].get(), std::as_bytes(std::span(&packet, 1)), descriptor));
    memory.listen();
    return memory.reason();
  }
  std::uint64_t mapped() const { return own->sides[1].arenas.mapped; }
};

TEST_F(ShmArenaLies, WhatIsAsAgreedIsMapped) {
  const UniqueFd arena = make(kSeals);
  EXPECT_EQ(say(given(5, 1 << 20), arena.get()), "");
  EXPECT_EQ(mapped(), 1u << 5);
  EXPECT_EQ(say(taken_back(5)), "");
  EXPECT_EQ(mapped(), 0u);
  EXPECT_EQ(say(given(5, 1 << 20), arena.get()), "") << "the place is free again";
}

TEST_F(ShmArenaLies, SealsThatAreNotThereAreSeen) {
  for (const int missing : {F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_FUTURE_WRITE}) {
    Half each;
    const UniqueFd arena = make(kSeals & ~missing);
    const ArenaPacket packet = given(0, 1 << 20);
    ASSERT_TRUE(send_packet(each.sockets[0].get(), std::as_bytes(std::span(&packet, 1)), arena.get()));
    each.memory.listen();
    EXPECT_EQ(each.memory.reason(), "an arena that is not sealed against a change and writing") << missing;
    EXPECT_EQ(each.own->sides[1].arenas.mapped, 0u);
  }
}

TEST_F(ShmArenaLies, AreSeen) {
  const UniqueFd arena = make(kSeals), larger = make(kSeals, 4 * kPage);
  const UniqueFd file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  const UniqueFd device(::open("/dev/zero", O_RDWR | O_CLOEXEC));
  struct Lie {
    ArenaPacket packet;
    int descriptor;
  };
  ArenaPacket padded = given(1, 1 << 20), unknown = given(1, 1 << 20);
  padded.zeros[3] = 1;
  unknown.kind = static_cast<ArenaNews>(9);
  const std::vector<Lie> lies = {
      {given(1, 1 << 20), -1},                      // no memory
      {given(1, 1 << 20, 2 * kPage), arena.get()},  // which would end before
      {given(1, 1 << 20), larger.get()},
      {given(1, 1 << 20), file.get()},
      {given(1, 1 << 20), device.get()},
      {given(0, 1 << 20), arena.get()},                // where one is already
      {given(1, (8 << 20) + kPage - 1), arena.get()},  // whose addresses are another's
      {given(kMostArenas, 1 << 20), arena.get()},
      {given(255, 1 << 20), arena.get()},
      {given(1, ~std::uint64_t{0} - 1), arena.get()},
      {given(1, 1 << 20, 0), arena.get()},
      {given(1, 1 << 20, kMostArenaBytes + 1), arena.get()},
      {taken_back(1), -1},
      {padded, arena.get()},
      {unknown, arena.get()},
  };
  for (std::size_t i = 0; i < lies.size(); ++i) {
    Half each;
    for (const Lie& said : {Lie{given(0, 8 << 20), arena.get()}, lies[i]}) {
      ASSERT_TRUE(send_packet(each.sockets[0].get(), std::as_bytes(std::span(&said.packet, 1)), said.descriptor));
      each.memory.listen();
    }
    EXPECT_NE(each.memory.reason(), "") << i;
    EXPECT_EQ(each.own->sides[1].arenas.mapped, 1u) << i;
  }
}

TEST_F(ShmArenaLies, NothingIsMappedThatWasNotOffered) {
  memory.start(&own->sides[0], &own->sides[1], true, false);
  const UniqueFd arena = make(kSeals);
  EXPECT_NE(say(given(0, 1 << 20), arena.get()), "");
  EXPECT_EQ(mapped(), 0u);
}

// The kernel could not hand its descriptor over: the peer gave it all the same.
TEST_F(ShmArenaLies, OneThatThisProcessHasNoDescriptorForIsNone) {
  static int warnings = 0;
  set_log_sink([](LogLevel, std::string_view line) { warnings += line.find("ulimit -n") != line.npos ? 1 : 0; });
  const UniqueFd arena = make(kSeals);
  {
    const fairlead::test::OutOfDescriptors limit;
    EXPECT_EQ(say(given(0, 1 << 20), arena.get()), "");
    EXPECT_EQ(say(given(1, 2 << 20), arena.get()), "");
  }
  set_log_sink(nullptr);
  EXPECT_EQ(mapped(), 0u);
  EXPECT_EQ(warnings, 1);
  EXPECT_EQ(say(taken_back(0)), "");
  EXPECT_EQ(say(given(0, 1 << 20), arena.get()), "");
  EXPECT_EQ(mapped(), 1u);
  EXPECT_NE(say(given(2, 3 << 20)), "") << "none was sent";
}

// Memory that has no pages costs it nothing.
TEST_F(ShmArenaLies, DoNotUseUpTheAddressesOfThisProcess) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer leaves a process few addresses";
#endif
  const std::array all = {make(kSeals, kMostArenaBytes), make(kSeals, kMostMappedOfPath)};
  for (int round = 0; round < 2; ++round) {
    std::array<Half, 2 * kMostMapped / kMostMappedOfPath> paths;
    std::uint64_t arenas = 0;
    for (Half& each : paths) {
      for (std::uint8_t i = 0; i < 4; ++i) {
        const UniqueFd& arena = all[i % 2];
        const ArenaPacket packet = given(i, i * kMostArenaBytes, i % 2 == 0 ? kMostArenaBytes : kMostMappedOfPath);
        ASSERT_TRUE(send_packet(each.sockets[0].get(), std::as_bytes(std::span(&packet, 1)), arena.get()));
        each.memory.listen();
        EXPECT_EQ(each.memory.reason(), "");
      }
      arenas += static_cast<std::uint64_t>(std::popcount(each.own->sides[1].arenas.mapped.load()));
    }
    EXPECT_EQ(arenas, kMostMapped / kMostMappedOfPath) << "as of all that were there before: " << round;
    constexpr int kNoPages = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* const ours = ::mmap(nullptr, kMostArenaBytes, PROT_NONE, kNoPages, -1, 0);
    ASSERT_NE(ours, MAP_FAILED) << round;
    ::munmap(ours, kMostArenaBytes);
    std::byte from{5}, to{0};
    EXPECT_EQ(paths.back().memory.copy(&to, reinterpret_cast<std::uint64_t>(&from), 1), PeerMemory::Copied::kAll);
    EXPECT_EQ(to, std::byte{5});
  }
}

TEST_F(ShmArenaLies, OneThatIsTakenBackMakesRoomForAnother) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer leaves a process few addresses";
#endif
  const UniqueFd large = make(kSeals, kMostMappedOfPath), small = make(kSeals);
  EXPECT_EQ(say(given(0, kMostMappedOfPath, kMostMappedOfPath), large.get()), "");
  EXPECT_EQ(say(given(1, kPage), small.get()), "");
  EXPECT_EQ(mapped(), 1u) << "the other is copied in other ways";
  EXPECT_EQ(say(taken_back(1)), "");
  EXPECT_EQ(say(taken_back(0)), "");
  EXPECT_EQ(say(given(1, kPage), small.get()), "");
  EXPECT_EQ(mapped(), 1u << 1);
}

// It says that it has given one, and has not.
TEST_F(ShmArenaLies, ACountThatRunsAheadEndsNothing) {
  peers->sides[0].arenas.told = 1000;
  std::byte from{5}, to{0};
  EXPECT_EQ(memory.copy(&to, reinterpret_cast<std::uint64_t>(&from), 1), PeerMemory::Copied::kAll);
  EXPECT_EQ(to, std::byte{5});
}

}  // namespace
}  // namespace fairlead::shm
