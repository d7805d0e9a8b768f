// How two ends agree, and what each does not take from the other.
#include "verbs/soft/port/memif/handshake.h"

#include <fcntl.h>
#include <fmt/format.h>
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

TEST(MemifHandshake, OfOneKindTheyHaveTwoWays) {
  TwoEnds ends({}, {.log2_slots = 4});
  EXPECT_EQ(ends.talk(), "");
  for (Handshake* each : {ends.master.get(), ends.slave.get()}) {
    ASSERT_TRUE(each->wire()->urgent);
    EXPECT_EQ(each->wire()->urgent->sender.free(100), 16U);
  }
  const std::vector<std::byte> frame(100, std::byte{1}), urgent(100, std::byte{2});
  std::array<std::span<const std::byte>, 4> got;
  for (const bool to_master : {true, false}) {
    Wire& from = *(to_master ? ends.slave : ends.master)->wire();
    Wire& to = *(to_master ? ends.master : ends.slave)->wire();
    ASSERT_EQ(from.sender.copy(0, frame), 1U);
    ASSERT_EQ(from.urgent->sender.copy(0, urgent), 1U);
    static_cast<void>(from.sender.publish(1));
    static_cast<void>(from.urgent->sender.publish(1));
    ASSERT_EQ(to.urgent->receiver.take(got), 1U);
    EXPECT_EQ(got[0][0], std::byte{2});
    ASSERT_EQ(to.receiver.take(got), 1U);
    EXPECT_EQ(got[0][0], std::byte{1});
  }
}

// DPDK's and VPP's masters say that they take hundreds, and let go who has more than they were set up for.
TEST(MemifHandshake, AMasterOfAnotherKindIsOfferedOneWay) {
  for (const std::uint16_t last : std::initializer_list<std::uint16_t>{0, 2, 255}) {
    auto slave = Handshake::of(Role::kSlave, {});
    auto said = slave->take(Hello{.last_region = 255, .last_to_slave = last, .last_to_master = last}, {});
    unsigned rings = 0;
    while (said && *said && !std::holds_alternative<Connect>((*said)->message)) {
      rings += std::holds_alternative<AddRing>((*said)->message) ? 1 : 0;
      said = slave->take(Ack{}, {});
    }
    EXPECT_EQ(rings, 2U) << last;
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

  void write_cookie(off_t ring) const {
    EXPECT_EQ(::pwrite(memory.get(), &kCookie, sizeof kCookie, ring), static_cast<ssize_t>(sizeof kCookie));
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
  EXPECT_EQ(refused(bad), "");
  bad.index = 2;
  EXPECT_THAT(refused(bad), HasSubstr("more than two rings"));
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

TEST(MemifHandshake, TheSecondRingsComeBothOrNone) {
  const auto connected = [](std::size_t rings) {
    Liar liar;
    liar.begin();
    for (std::size_t i = 0; i < rings; ++i) {
      const auto offset = static_cast<std::uint32_t>(i * RingView::bytes(4));
      liar.write_cookie(offset);
      const auto direction = i % 2 == 0 ? Direction::kToMaster : Direction::kToSlave;
      EXPECT_EQ(liar.say(AddRing{direction, static_cast<std::uint16_t>(i / 2), 0, offset, 4, 0}, liar.wakes.get()), "");
    }
    const std::string why = liar.say(Connect{});
    return why.empty() ? fmt::format("urgent: {}", liar.master->wire()->urgent.has_value()) : why;
  };
  EXPECT_THAT(connected(1), HasSubstr("without rings"));
  EXPECT_EQ(connected(2), "urgent: false");
  EXPECT_THAT(connected(3), HasSubstr("two rings one way"));
  EXPECT_EQ(connected(4), "urgent: true");
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
