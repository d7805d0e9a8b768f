#include "datapath/flow/staging.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <cstring>
#include <numeric>

namespace fairlead::datapath::staging {
namespace {

PathMessage message(MessageType type, std::uint64_t sequence, std::uint64_t region = 0, std::uint64_t offset = 0) {
  PathMessage made;
  made.type = type;
  made.sequence = sequence;
  made.value = region;
  made.offset = offset;
  return made;
}

// ---- the target: 256 bytes, the first half may be written, all may be read

class StagingTarget : public testing::Test {
 protected:
  StagingTarget() {
    std::iota(reinterpret_cast<unsigned char*>(bytes.data()), reinterpret_cast<unsigned char*>(bytes.data()) + 256,
              static_cast<unsigned char>(0));
    auto range = table->add({.bytes = bytes, .access = Access::kRemoteReadWrite});
    EXPECT_TRUE(range);
    auto whole = std::make_shared<RegionImpl>(*range, bytes, Access::kRemoteReadWrite, nullptr);
    EXPECT_TRUE(table->publish("w", whole, std::span(bytes).first(128), Access::kRemoteWrite, std::nullopt).ok());
    EXPECT_TRUE(table->publish("r", whole, bytes, Access::kRemoteRead, std::nullopt).ok());
    EXPECT_TRUE(table->seen_by("").find("w", [&](const Publication& publication) { writable = publication.id; }).ok());
    EXPECT_TRUE(table->seen_by("").find("r", [&](const Publication& publication) { readable = publication.id; }).ok());
  }
  ~StagingTarget() override { table->shutdown(); }

  bool write(std::uint64_t sequence, std::uint64_t region, std::uint64_t offset, std::span<const std::byte> data) {
    PathMessage made = message(MessageType::kStagedWrite, sequence, region, offset);
    made.data = data;
    return target.on_write(made, table->seen_by(""), why);
  }
  bool read(std::uint64_t sequence, std::uint64_t offset, std::uint32_t length) {
    PathMessage made = message(MessageType::kStagedReadRequest, sequence, readable, offset);
    made.length = length;
    return target.on_read(made, why);
  }
  // What the target says, as long as the path has room.
  struct Said {
    MessageType type;
    std::uint64_t sequence, offset;
    Code code;
    std::vector<std::byte> data;
  };
  std::vector<Said> pump(std::size_t room = 1000, std::size_t bytes_each = 64) {
    std::vector<Said> said;
    target.pump(table->seen_by(""), kPathHeaderBytes + bytes_each, [&](const PathMessage& out) {
      if (said.size() == room) return false;
      said.push_back({out.type, out.sequence, out.offset, out.code, {out.data.begin(), out.data.end()}});
      return true;
    });
    return said;
  }

  std::shared_ptr<RegionTable> table = std::make_shared<RegionTable>();
  std::array<std::byte, 256> bytes{};
  std::array<std::byte, 16> ones = [] {
    std::array<std::byte, 16> made{};
    made.fill(std::byte{1});
    return made;
  }();
  std::uint64_t writable = 0, readable = 0;
  Target target;
  std::string why;
};

TEST_F(StagingTarget, PlacesAndAcknowledgesManyAtOnce) {
  ASSERT_TRUE(write(1, writable, 0, ones));
  ASSERT_TRUE(write(2, writable, 112, ones));
  EXPECT_TRUE(target.owes());
  const auto said = pump();
  ASSERT_EQ(said.size(), 1U);
  EXPECT_EQ(said[0].type, MessageType::kStagedAck);
  EXPECT_EQ(said[0].sequence, 2U);
  EXPECT_EQ(said[0].code, Code::kOk);
  EXPECT_EQ(std::memcmp(bytes.data(), ones.data(), 16), 0);
  EXPECT_EQ(std::memcmp(bytes.data() + 112, ones.data(), 16), 0);
  EXPECT_EQ(bytes[16], std::byte{16});
  EXPECT_FALSE(target.owes());
}

TEST_F(StagingTarget, RefusesWhatIsNotGrantedAndPlacesNothing) {
  ASSERT_TRUE(write(1, writable, 120, ones));  // beyond the half that may be written
  ASSERT_TRUE(write(2, readable, 0, ones));
  ASSERT_TRUE(write(3, 12345, 0, ones));
  ASSERT_TRUE(write(4, writable, ~std::uint64_t{0} - 7, ones));
  ASSERT_TRUE(write(5, writable, 0, ones));
  const auto said = pump();
  ASSERT_EQ(said.size(), 5U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(said[i].sequence, i + 1);
    EXPECT_EQ(said[i].code, Code::kProtectionError);
  }
  EXPECT_EQ(said[4].sequence, 5U);
  EXPECT_EQ(said[4].code, Code::kOk);
  for (std::size_t i = 16; i < 256; ++i) EXPECT_EQ(bytes[i], std::byte(static_cast<unsigned char>(i)));
}

TEST_F(StagingTarget, AnswersReadsInPiecesThatThePathTakes) {
  ASSERT_TRUE(read(1, 100, 150));
  EXPECT_EQ(pump(1).size(), 1U) << "the acknowledgement";
  auto said = pump(2);
  ASSERT_EQ(said.size(), 2U);
  EXPECT_EQ(said[0].offset, 0U);
  EXPECT_EQ(said[1].offset, 64U);
  EXPECT_TRUE(target.owes());
  said = pump();
  ASSERT_EQ(said.size(), 1U);
  EXPECT_EQ(said[0].type, MessageType::kStagedReadData);
  EXPECT_EQ(said[0].offset, 128U);
  EXPECT_EQ(said[0].data.size(), 22U);
  EXPECT_EQ(said[0].data.front(), std::byte{228});
  EXPECT_FALSE(target.owes());
}

TEST_F(StagingTarget, AReadBeyondWhatIsGrantedEndsWhereTheGrantDoes) {
  ASSERT_TRUE(read(1, 192, 100));
  const auto said = pump();
  ASSERT_EQ(said.size(), 3U);  // the acknowledgement, 64 bytes, and that the rest is refused
  EXPECT_EQ(said[1].code, Code::kOk);
  EXPECT_EQ(said[1].data.size(), 64U);
  EXPECT_EQ(said[2].code, Code::kProtectionError);
  EXPECT_TRUE(said[2].data.empty());
  EXPECT_FALSE(target.owes());
}

// Whoever does not take its refusals has no more operations to be refused: an honest one has so many under way at most.
TEST_F(StagingTarget, RefusalsThatNobodyTakesAreBounded) {
  std::uint64_t sequence = 0;
  while (sequence < kWindow) ASSERT_TRUE(write(++sequence, 12345, 0, ones)) << why;
  EXPECT_FALSE(write(sequence + 1, 12345, 0, ones));
  EXPECT_EQ(why, "sent staged operation 257 with 256 refusals not taken");
  ASSERT_EQ(pump().size(), kWindow);
  EXPECT_TRUE(write(sequence + 1, 12345, 0, ones));
}

TEST_F(StagingTarget, ThePeerKeepsTheOrderAndTheLimits) {
  EXPECT_FALSE(write(2, writable, 0, ones));
  EXPECT_EQ(why, "sent staged operation 2 where 1 was due");
  EXPECT_FALSE(read(3, 0, 1));
  EXPECT_FALSE(read(1, 0, kReadBytes + 1));
  for (std::uint64_t i = 1; i <= kReads; ++i) ASSERT_TRUE(read(i, 0, 1));
  EXPECT_FALSE(read(kReads + 1, 0, 1)) << "so many may wait at once";
}

TEST_F(StagingTarget, ANewPathCountsFromOneAndOwesNothing) {
  ASSERT_TRUE(write(1, writable, 0, ones));
  ASSERT_TRUE(read(2, 0, 64));
  target.reset();
  EXPECT_FALSE(target.owes());
  EXPECT_TRUE(pump().empty());
  EXPECT_TRUE(write(1, writable, 0, ones));
}

// ---- the initiator

class StagingInitiator : public testing::Test {
 protected:
  StagingInitiator() {
    transfer.own.kind = OpKind::kRead;
    transfer.own.ops = {{.data = memory.data(), .length = 10}, {.data = memory.data() + 50, .length = 30}};
    transfer.own.bytes = 40;
    transfer.list = &transfer.own;
  }

  std::uint64_t begin(bool read, std::uint64_t bytes, std::uint64_t at = 0) {
    const std::uint64_t number = initiator.take_number();
    initiator.push({.transfer = &transfer,
                    .bytes = bytes,
                    .sequence = number,
                    .at = at,
                    .is_read = read,
                    .cursor = transfer.own.find(at)});
    return number;
  }
  bool ack(std::uint64_t sequence, Code code = Code::kOk) {
    PathMessage made = message(MessageType::kStagedAck, sequence);
    made.code = code;
    return initiator.on_ack(made, why);
  }
  bool data(std::uint64_t sequence, std::uint64_t offset, std::span<const std::byte> bytes, Code code = Code::kOk) {
    PathMessage made = message(MessageType::kStagedReadData, sequence, 0, offset);
    made.data = bytes;
    made.code = code;
    return initiator.on_data(made, why);
  }
  std::vector<std::pair<std::uint64_t, Code>> retired() {
    std::vector<std::pair<std::uint64_t, Code>> ended;
    initiator.retire([&](const Initiator::Operation& each) { ended.emplace_back(each.sequence, each.code); });
    return ended;
  }

  std::array<std::byte, 100> memory{};
  std::array<std::byte, 40> answer = [] {
    std::array<std::byte, 40> made{};
    made.fill(std::byte{7});
    return made;
  }();
  TransferImpl transfer;
  Initiator initiator;
  std::string why;
};

using Ended = std::vector<std::pair<std::uint64_t, Code>>;

TEST_F(StagingInitiator, AnAcknowledgementEndsAllWritesBeforeIt) {
  for (int i = 0; i < 3; ++i) begin(false, 10);
  EXPECT_TRUE(ack(2));
  EXPECT_EQ(retired(), (Ended{{1, Code::kOk}, {2, Code::kOk}}));
  EXPECT_TRUE(ack(3, Code::kProtectionError));
  EXPECT_EQ(retired(), (Ended{{3, Code::kProtectionError}}));
}

TEST_F(StagingInitiator, AnAnswerThatEndsNothingIsNoNews) {
  begin(false, 10);
  EXPECT_TRUE(ack(0));
  EXPECT_FALSE(initiator.take_news());
  EXPECT_TRUE(ack(1));
  EXPECT_TRUE(initiator.take_news());
  EXPECT_FALSE(initiator.take_news()) << "asked once";
  EXPECT_TRUE(ack(1));
  EXPECT_FALSE(initiator.take_news()) << "said twice";
  begin(true, 8);
  EXPECT_TRUE(data(2, 0, {}));
  EXPECT_FALSE(initiator.take_news());
  EXPECT_TRUE(data(2, 0, std::span(answer).first(1)));
  EXPECT_TRUE(initiator.take_news());
  EXPECT_TRUE(data(2, 1, {}, Code::kProtectionError));
  EXPECT_TRUE(initiator.take_news());
}

TEST_F(StagingInitiator, WhatIsGoneHereStaysLostWhateverThePeerSays) {
  initiator.push({&transfer, 10, initiator.take_number(), 0, false, 0, false, Code::kDataLoss});
  EXPECT_TRUE(ack(1));
  EXPECT_EQ(retired(), (Ended{{1, Code::kDataLoss}}));
}

TEST_F(StagingInitiator, ARefusalSpeaksOfItsOwnWriteAlone) {
  for (int i = 0; i < 2; ++i) begin(false, 10);
  EXPECT_TRUE(ack(1, Code::kProtectionError));
  EXPECT_TRUE(ack(2));
  EXPECT_EQ(retired(), (Ended{{1, Code::kProtectionError}, {2, Code::kOk}}));
}

TEST_F(StagingInitiator, ReadBytesAreScatteredToTheirPlaces) {
  begin(true, 40);
  EXPECT_TRUE(data(1, 0, std::span(answer).first(25)));
  EXPECT_EQ(retired(), Ended{});
  EXPECT_TRUE(data(1, 25, std::span(answer).first(15)));
  EXPECT_EQ(retired(), (Ended{{1, Code::kOk}}));
  for (std::size_t i = 0; i < 100; ++i) {
    EXPECT_EQ(memory[i], (i < 10 || (i >= 50 && i < 80)) ? std::byte{7} : std::byte{0}) << i;
  }
}

TEST_F(StagingInitiator, EndsAreInTheOrderOfBeginning) {
  begin(true, 5);
  begin(false, 5);
  EXPECT_TRUE(ack(2));
  EXPECT_EQ(retired(), Ended{}) << "the read before it is not done";
  EXPECT_TRUE(data(1, 0, std::span(answer).first(5)));
  EXPECT_EQ(retired(), (Ended{{1, Code::kOk}, {2, Code::kOk}}));
}

TEST_F(StagingInitiator, WhatWasNotAskedForEndsTheSession) {
  begin(true, 20);
  EXPECT_FALSE(data(2, 0, std::span(answer).first(1))) << "no such read";
  EXPECT_FALSE(data(1, 1, std::span(answer).first(1))) << "a gap";
  EXPECT_FALSE(data(1, 0, std::span(answer).first(21))) << "too long";
  EXPECT_EQ(why, "answered staged read 1 with 21 bytes at 0 that were not asked for");
  EXPECT_FALSE(data(1, 0, {}, Code::kAborted)) << "no verdict";
  EXPECT_FALSE(ack(1, Code::kPeerDied));
  begin(false, 20);
  EXPECT_FALSE(data(2, 0, std::span(answer).first(1))) << "a write is not read";
  EXPECT_TRUE(data(1, 0, {}, Code::kProtectionError));
  EXPECT_FALSE(data(1, 0, std::span(answer).first(20))) << "it has ended";
}

TEST_F(StagingInitiator, MemoryThatIsGoneIsDataLossAndNoCrash) {
  void* const gone = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(gone, MAP_FAILED);
  transfer.own.ops = {{.data = static_cast<std::byte*>(gone), .length = 40}};
  begin(true, 8);
  EXPECT_TRUE(data(1, 0, std::span(answer).first(8)));
  EXPECT_EQ(retired(), (Ended{{1, Code::kDataLoss}}));
  ::munmap(gone, 4096);
}

TEST_F(StagingInitiator, TheWindowBoundsWhatIsUnderWay) {
  for (std::size_t i = 0; i < kReads; ++i) begin(true, 1);
  EXPECT_FALSE(initiator.has_room(true, 0, 0));
  EXPECT_TRUE(initiator.has_room(false, 0, 0));
  EXPECT_TRUE(initiator.has_room(false, kWindow - kReads - 1, 0));
  EXPECT_FALSE(initiator.has_room(false, kWindow - kReads, 0));
  for (std::size_t i = kReads; i < kWindow; ++i) begin(false, 1);
  EXPECT_FALSE(initiator.has_room(false, 0, 0));
}

TEST_F(StagingInitiator, NumbersThatThePathDidNotTakeComeAgain) {
  EXPECT_EQ(initiator.take_number(), 1U);
  EXPECT_EQ(initiator.take_number(), 2U);
  initiator.give_back(1);
  EXPECT_EQ(initiator.take_number(), 1U);
}

TEST_F(StagingInitiator, AnEndedPathAbortsWhatHadNotEnded) {
  begin(false, 1);
  begin(false, 1);
  begin(true, 1);
  EXPECT_TRUE(ack(1));
  Ended ended;
  initiator.reset([&](const Initiator::Operation& each) { ended.emplace_back(each.sequence, each.code); });
  EXPECT_EQ(ended, (Ended{{1, Code::kOk}, {2, Code::kAborted}, {3, Code::kAborted}}));
  EXPECT_TRUE(initiator.has_room(true, kWindow - 1, kReads - 1));
  EXPECT_EQ(initiator.take_number(), 1U);
}

}  // namespace
}  // namespace fairlead::datapath::staging
