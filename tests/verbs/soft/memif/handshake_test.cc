// How two ends agree, and what each does not take from the other.
#include "verbs/soft/port/memif/handshake.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include "tests/verbs/soft/memif/two_ends.h"

namespace fairlead::soft::memif::test {
namespace {

using testing::HasSubstr;

TEST(MemifHandshake, BothAgree) {
  TwoEnds ends({}, {.log2_slots = 4});
  EXPECT_EQ(ends.talk(), "");
  ASSERT_NE(ends.master->wire(), nullptr);
  ASSERT_NE(ends.slave->wire(), nullptr);
  for (Handshake* each : {ends.master.get(), ends.slave.get()}) {
    EXPECT_EQ(each->wire()->sender.free(100), 16U);
    EXPECT_FALSE(each->wire()->receiver.has_more());
  }
}

TEST(MemifHandshake, WhoDoesNotFitIsToldWhy) {
  EXPECT_THAT(TwoEnds({.interface = 1}, {.interface = 2}).talk(), HasSubstr("interface 2, and this is 1"));
  EXPECT_THAT(TwoEnds({.secret = "a"}, {.secret = "b"}).talk(), HasSubstr("does not know the secret"));
  EXPECT_THAT(TwoEnds({.secret = "a"}, {}).talk(), HasSubstr("does not know the secret"));
  EXPECT_EQ(TwoEnds({.secret = "a"}, {.secret = "a"}).talk(), "");
  EXPECT_EQ(TwoEnds({}, {.secret = "a"}).talk(), "");
}

// A slave that says what the test wants.
struct Liar {
  Liar() {
    std::vector<std::byte> zeros(kBytes);
    memory = UniqueFd(::memfd_create("liar", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(::ftruncate(memory.get(), kBytes), 0);
    EXPECT_EQ(::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
    wakes = UniqueFd(::eventfd(0, EFD_CLOEXEC));
    EXPECT_TRUE(master->begin());
  }
  /// What the master thinks of it; empty: it is acknowledged.
  std::string say(const Message& message, int descriptor = -1) {
    auto answer = master->take(message, UniqueFd(descriptor >= 0 ? ::dup(descriptor) : -1));
    return answer ? "" : answer.error().message();
  }
  void begin() {
    ASSERT_EQ(say(Init{}), "");
    ASSERT_EQ(say(AddRegion{0, kBytes}, memory.get()), "");
  }

  static constexpr std::size_t kBytes = 1 << 16;
  UniqueFd memory, wakes;
  std::unique_ptr<Handshake> master = Handshake::of(Role::kMaster, {});
};

TEST(MemifHandshake, TheSlaveSpeaksInTurn) {
  const AddRing ring{};
  EXPECT_NE(Liar().say(AddRegion{0, 4096}), "");
  EXPECT_NE(Liar().say(ring), "");
  EXPECT_NE(Liar().say(Connect{}), "");
  EXPECT_NE(Liar().say(Ack{}), "");
  EXPECT_NE(Liar().say(Hello{}), "");
  EXPECT_NE(Liar().say(Connected{}), "");
  EXPECT_THAT(Liar().say(Disconnect{0, "enough"}), HasSubstr("saying: enough"));
  Liar twice;
  EXPECT_EQ(twice.say(Init{}), "");
  EXPECT_NE(twice.say(Init{}), "");
  Liar early;
  early.begin();
  EXPECT_THAT(early.say(Connect{}), HasSubstr("without rings"));
  EXPECT_THAT(Liar().say(Init{.version = 0x0300}), HasSubstr("version 3.0"));
  EXPECT_THAT(Liar().say(Init{.mode = 1}), HasSubstr("Ethernet"));
}

TEST(MemifHandshake, MemoryThatCouldFaultIsNotTaken) {
  const auto refused = [](UniqueFd fd, std::uint64_t bytes, std::uint16_t index = 0) {
    Liar liar;
    EXPECT_EQ(liar.say(Init{}), "");
    return liar.say(AddRegion{index, bytes}, fd.get());
  };
  const auto memory = [](off_t bytes, int seals, unsigned flags = 0) {
    UniqueFd fd(::memfd_create("liar", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags));
    EXPECT_EQ(::ftruncate(fd.get(), bytes), 0);
    EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
    return fd;
  };
  EXPECT_EQ(refused(memory(8192, F_SEAL_SHRINK), 8192), "");
  EXPECT_THAT(refused(memory(8192, F_SEAL_GROW), 8192), HasSubstr("not sealed"));
  EXPECT_THAT(refused(memory(8192, F_SEAL_SHRINK), 8193), HasSubstr("8193 bytes, of memory that has 8192"));
  EXPECT_NE(refused(memory(8192, F_SEAL_SHRINK), ~std::uint64_t{0}), "");
  EXPECT_NE(refused(memory(8192, F_SEAL_SHRINK), 0), "");
  EXPECT_THAT(refused(memory(8192, F_SEAL_SHRINK | F_SEAL_WRITE), 8192), HasSubstr("sealed against writing"));
  EXPECT_THAT(refused(memory(8192, F_SEAL_SHRINK), 8192, 1), HasSubstr("do not count from 0"));
  EXPECT_NE(refused(UniqueFd(), 8192), "");
  EXPECT_NE(refused(UniqueFd(::open("/dev/zero", O_RDWR | O_CLOEXEC)), 8192), "");
  EXPECT_THAT(refused(memory(2 << 20, F_SEAL_SHRINK, MFD_HUGETLB), 2 << 20), HasSubstr("huge pages"));
  Liar liar;
  EXPECT_EQ(liar.say(Init{}), "");
  for (std::uint16_t i = 0; i < Regions::kMost; ++i) {
    EXPECT_EQ(liar.say(AddRegion{i, 4096}, liar.memory.get()), "");
  }
  EXPECT_THAT(liar.say(AddRegion{Regions::kMost, 4096}, liar.memory.get()), HasSubstr("more than 16 regions"));
}

TEST(MemifHandshake, RingsLieInRegions) {
  const auto refused = [](const AddRing& ring) {
    Liar liar;
    liar.begin();
    return liar.say(ring, liar.wakes.get());
  };
  const AddRing good{.direction = Direction::kToMaster, .offset = 0, .log2_slots = 8};
  EXPECT_EQ(refused(good), "");
  AddRing bad = good;
  bad.offset = Liar::kBytes - static_cast<std::uint32_t>(RingView::bytes(8));
  EXPECT_EQ(refused(bad), "");
  bad.offset += 8;
  EXPECT_THAT(refused(bad), HasSubstr("not in its region"));
  bad.offset = ~0U - 7;
  EXPECT_THAT(refused(bad), HasSubstr("not in its region"));
  bad.offset = 4;
  EXPECT_THAT(refused(bad), HasSubstr("not in its region"));
  bad = good;
  bad.region = 1;
  EXPECT_THAT(refused(bad), HasSubstr("not in its region"));
  bad = good;
  bad.log2_slots = 13;
  EXPECT_THAT(refused(bad), HasSubstr("not in its region"));
  for (const int log2 : {15, 31, 32, 63, 64, 255}) {
    bad.log2_slots = static_cast<std::uint8_t>(log2);
    EXPECT_THAT(refused(bad), HasSubstr("more than 16384 slots"));
  }
  bad = good;
  bad.index = 1;
  EXPECT_THAT(refused(bad), HasSubstr("leave out queues="));
  bad = good;
  bad.private_bytes = 4;
  EXPECT_THAT(refused(bad), HasSubstr("private headers"));
}

TEST(MemifHandshake, ARingComesOnceAndWithAnEventfd) {
  Liar liar;
  liar.begin();
  EXPECT_THAT(liar.say(AddRing{}), HasSubstr("without an eventfd"));
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const UniqueFd reads(ends[0]), writes(ends[1]);
  EXPECT_THAT(Liar().say(Init{}), "");
  Liar piped;
  piped.begin();
  EXPECT_THAT(piped.say(AddRing{.log2_slots = 4}, writes.get()), HasSubstr("without an eventfd"));
  Liar twice;
  twice.begin();
  EXPECT_EQ(twice.say(AddRing{.log2_slots = 4}, twice.wakes.get()), "");
  EXPECT_NE(twice.say(AddRing{.log2_slots = 4}, twice.wakes.get()), "");
  EXPECT_EQ(twice.say(AddRing{.direction = Direction::kToSlave, .offset = 4096, .log2_slots = 4}, twice.wakes.get()),
            "");
  EXPECT_THAT(twice.say(Connect{}), HasSubstr("its ring is none")) << "no cookie";
  // Whatever it was, writing to it must not wait.
  EXPECT_NE(::fcntl(twice.wakes.get(), F_GETFL) & O_NONBLOCK, 0);
}

TEST(MemifHandshake, TheMasterSpeaksInTurn) {
  const auto heard = [](const Message& message) {
    auto slave = Handshake::of(Role::kSlave, {});
    auto answer = slave->take(message, {});
    return answer ? "" : answer.error().message();
  };
  EXPECT_NE(heard(Ack{}), "");
  EXPECT_NE(heard(Connected{}), "");
  EXPECT_NE(heard(Init{}), "");
  EXPECT_THAT(heard(Hello{"", 0x0201, 0x0300}), HasSubstr("versions 2.1 to 3.0"));
  EXPECT_THAT(heard(Hello{"", 0x0100, 0x0101}), HasSubstr("versions 1.0 to 1.1"));
  EXPECT_EQ(heard(Hello{"", 0x0100, 0x0300}), "");
  auto slave = Handshake::of(Role::kSlave, {});
  EXPECT_TRUE(slave->take(Hello{}, {}));
  EXPECT_FALSE(slave->take(Connected{}, {})) << "before it has connected";
  auto small = Handshake::of(Role::kSlave, {});
  EXPECT_TRUE(small->take(Hello{.most_log2_slots = 255}, {}));
}

}  // namespace
}  // namespace fairlead::soft::memif::test
