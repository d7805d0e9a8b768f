// Small messages that join a bundle in a row: as one after the other, and what ends a row.
#include <sys/mman.h>

#include <algorithm>

#include "tests/verbs/soft/rc/small_messages.h"

namespace fairlead::soft::test {
namespace {

/// A peer that has taken a bundle: from its third message on a bundle is joined in rows.
struct Taker : Kin {
  explicit Taker(const EndpointOptions& options = {}) : Kin(true, options) {
    EXPECT_EQ(post_all(std::vector<Small>(2)).size(), 1U);
    acknowledge(2);
    device->done.clear();
  }
  /// Posts WRITEs of those segments, with ids from 0 on.
  int post_segments(std::span<ibv_sge> segments, unsigned flags = 0) {
    std::vector<ibv_send_wr> list(segments.size());
    for (std::size_t i = 0; i < list.size(); ++i) {
      list[i] = {};
      list[i].wr_id = i;
      list[i].opcode = IBV_WR_RDMA_WRITE;
      list[i].send_flags = IBV_SEND_SIGNALED | flags;
      list[i].sg_list = &segments[i];
      list[i].num_sge = 1;
      list[i].next = i + 1 < list.size() ? &list[i + 1] : nullptr;
    }
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(device->qp, list.data(), &bad);
  }
  /// Four left before the fifth failed, and with it the sixth.
  void expect_four_of_six() {
    const auto seen = receive();
    ASSERT_EQ(seen.size(), 1U);
    const auto all = taken_apart(seen[0]);
    ASSERT_EQ(all.size(), 4U);
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(all[i].payload.size(), 8U);
      EXPECT_EQ(all[i].payload[7], static_cast<std::byte>(i + 1));
    }
    EXPECT_TRUE(device->done.empty()) << "it fails in its turn";
    acknowledge(4);
    ASSERT_EQ(device->done.size(), 6U);
    for (std::size_t i = 0; i < 6; ++i) {
      EXPECT_EQ(device->done[i].wr_id, i);
      EXPECT_EQ(device->done[i].status, i < 4 ? IBV_WC_SUCCESS : i == 4 ? IBV_WC_LOC_PROT_ERR : IBV_WC_WR_FLUSH_ERR);
    }
  }
};

TEST(BundleRows, AreWhatWouldHaveBeenOneAfterTheOther) {
  Taker peer;
  const std::vector<Small> messages = {{},
                                       {},
                                       {.length = 191},
                                       {.opcode = IBV_WR_SEND, .length = 3, .flags = IBV_SEND_SOLICITED},
                                       {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .length = 0, .immediate = 0x01020304},
                                       {.opcode = IBV_WR_SEND_WITH_IMM, .length = 192, .immediate = 7},
                                       {.length = 1, .flags = 0}};
  const auto seen = peer.post_all(messages);
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].psn, peer.own);
  EXPECT_TRUE(seen[0].ack_request);
  const auto all = taken_apart(seen[0]);
  ASSERT_EQ(all.size(), 7U);
  const Opcode opcodes[] = {Opcode::kWriteOnly, Opcode::kWriteOnly,          Opcode::kWriteOnly,
                            Opcode::kSendOnly,  Opcode::kWriteOnlyImmediate, Opcode::kSendOnlyImmediate,
                            Opcode::kWriteOnly};
  for (std::size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(static_cast<Opcode>(all[i].bth.opcode), opcodes[i]);
    EXPECT_EQ(all[i].bth.psn, peer.own + static_cast<std::uint32_t>(i));
    EXPECT_EQ(all[i].bth.solicited, i == 3);
    ASSERT_EQ(all[i].payload.size(), messages[i].length);
    for (const std::byte each : all[i].payload) EXPECT_EQ(each, static_cast<std::byte>(i + 1));
  }
  EXPECT_EQ(all[2].reth.length, 191U);
  EXPECT_EQ(all[4].immediate, 0x01020304U);
  EXPECT_EQ(all[5].immediate, 7U);
  peer.acknowledge(7);
  ASSERT_EQ(peer.device->done.size(), 5U) << "those that asked for it";
  const std::uint64_t asked[] = {0, 1, 2, 4, 5};
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(peer.device->done[i].wr_id, asked[i]);
}

TEST(BundleRows, TakeInlineBytesAsTheyWereWhenPosted) {
  Taker peer({.max_inline = 64});
  std::vector<ibv_sge> segments;
  for (std::size_t i = 0; i < 6; ++i) segments.push_back(peer.device->sge(i * kPitch, 8));
  for (ibv_sge& each : segments) each.lkey = 0;
  ASSERT_EQ(peer.post_segments(segments, IBV_SEND_INLINE), 0);
  std::ranges::fill(peer.device->buffer, std::uint8_t{0});
  const auto seen = peer.receive();
  ASSERT_EQ(seen.size(), 1U);
  const auto all = taken_apart(seen[0]);
  ASSERT_EQ(all.size(), 6U);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(all[i].payload[0], static_cast<std::byte>(i + 1));
}

TEST(BundleRows, EndBeforeWhatIsLargeAndGoOnBehindIt) {
  Taker peer;
  std::vector<Small> messages(10);
  messages[4].length = 200;
  const auto seen = peer.post_all(messages);
  ASSERT_EQ(seen.size(), 3U);
  EXPECT_EQ(taken_apart(seen[0]).size(), 4U);
  EXPECT_EQ(seen[1].opcode, Opcode::kWriteOnly);
  EXPECT_EQ(seen[1].psn, peer.own + 4);
  EXPECT_EQ(seen[2].psn, peer.own + 5);
  EXPECT_EQ(taken_apart(seen[2]).size(), 5U);
  peer.acknowledge(10);
  EXPECT_EQ(peer.device->done.size(), 10U);
}

TEST(BundleRows, EndBeforeAKeyThatIsNone) {
  Taker peer;
  std::vector<ibv_sge> segments;
  for (std::size_t i = 0; i < 6; ++i) segments.push_back(peer.device->sge(i * kPitch, 8));
  segments[4].lkey ^= 1;
  ASSERT_EQ(peer.post_segments(segments), 0);
  peer.expect_four_of_six();
}

/// Memory of its own, most of which nothing ever touches.
class Mapped {
 public:
  Mapped(Taker& peer, std::size_t bytes)
      : bytes_(bytes),
        memory_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)),
        region_(api().reg_mr(peer.device->pd, memory_, bytes, IBV_ACCESS_LOCAL_WRITE)) {
    EXPECT_NE(region_, nullptr);
  }
  ~Mapped() {
    EXPECT_EQ(api().dereg_mr(region_), 0);
    ::munmap(memory_, bytes_);
  }
  [[nodiscard]] std::byte* at(std::size_t offset) const { return static_cast<std::byte*>(memory_) + offset; }
  /// Eight bytes there, which are `value`.
  [[nodiscard]] ibv_sge filled(std::size_t offset, std::size_t value) const {
    std::fill_n(at(offset), 8, static_cast<std::byte>(value));
    return {reinterpret_cast<std::uint64_t>(at(offset)), 8, region_->lkey};
  }

 private:
  std::size_t bytes_;
  void* memory_;
  ibv_mr* region_;
};

TEST(BundleRows, EndBeforeMemoryThatIsGone) {
  Taker peer;
  constexpr std::size_t kPage = 4096;
  const Mapped memory(peer, 2 * kPage);
  std::vector<ibv_sge> segments;
  for (std::size_t i = 0; i < 6; ++i) segments.push_back(memory.filled(i == 4 ? kPage : i * 8, i + 1));
  ASSERT_EQ(::munmap(memory.at(kPage), kPage), 0);
  ASSERT_EQ(peer.post_segments(segments), 0);
  peer.expect_four_of_six();
}

TEST(BundleRows, AreOfMemoryThatLiesFarApartToo) {
  Taker peer;
  constexpr std::size_t kFar = std::size_t{3} << 30;
  const Mapped memory(peer, kFar + 4096);
  std::vector<ibv_sge> segments;
  for (std::size_t i = 0; i < 8; ++i) segments.push_back(memory.filled((i % 2) * kFar + i * 8, i + 1));
  ASSERT_EQ(peer.post_segments(segments), 0);
  const auto seen = peer.receive();
  ASSERT_EQ(seen.size(), 1U);
  const auto all = taken_apart(seen[0]);
  ASSERT_EQ(all.size(), 8U);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(all[i].payload[7], static_cast<std::byte>(i + 1));
  peer.acknowledge(8);
  EXPECT_EQ(peer.device->done.size(), 8U);
}

TEST(BundleRows, MakeABundleOfSoManyAtMost) {
  Taker peer;
  const std::vector<Small> messages(kMostBundled + 6, {.opcode = IBV_WR_SEND, .length = 0, .flags = 0});
  const auto seen = peer.post_all(messages);
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(taken_apart(seen[0]).size(), std::size_t{kMostBundled});
  EXPECT_EQ(taken_apart(seen[1]).size(), 6U);
}

TEST(BundleRows, EndBeforeAFencedOneWhereAReadIsOutstanding) {
  Taker peer;
  ASSERT_EQ(peer.device->post(IBV_WR_RDMA_READ, 77, 0, 8, peer.device.get(), kThere), 0);
  std::vector<Small> messages(5);
  messages[3].flags |= IBV_SEND_FENCE;
  const auto seen = peer.post_all(messages);
  std::size_t writes = 0;
  for (const Seen& each : seen) {
    if (each.opcode == Opcode::kBundle) writes += taken_apart(each).size();
    if (each.opcode == Opcode::kWriteOnly) ++writes;
  }
  EXPECT_EQ(writes, 3U);
}

TEST(BundleRows, AreSentAgainMessageByMessage) {
  Taker peer;
  const std::vector<Small> messages(6);
  ASSERT_EQ(peer.post_all(messages).size(), 1U);
  std::vector<Seen> again;
  for (int i = 0; i < 100 && again.size() < 6; ++i) {
    for (Seen& each : peer.receive_after(10 * kMillisecond)) again.push_back(std::move(each));
  }
  ASSERT_GE(again.size(), 6U);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(again[i].opcode, Opcode::kWriteOnly);
    EXPECT_EQ(again[i].psn, peer.own + static_cast<std::uint32_t>(i));
    EXPECT_EQ(again[i].reth.length, 8U);
  }
  peer.acknowledge(6);
  ASSERT_EQ(peer.device->done.size(), 6U);
  for (const ibv_wc& each : peer.device->done) EXPECT_EQ(each.status, IBV_WC_SUCCESS);
}

TEST(BundleRows, StopWhereTheWindowIsFull) {
  Taker peer;
  const auto messages_in = [](std::span<const Seen> all) {
    std::size_t count = 0;
    for (const Seen& each : all) count += each.opcode == Opcode::kBundle ? taken_apart(each).size() : 1;
    return count;
  };
  std::vector<ibv_sge> segments(256, peer.device->sge(0, 192));  // all that the send queue takes
  ASSERT_EQ(peer.post_segments(segments), 0);
  std::size_t sent = messages_in(peer.receive()), turns = 1;
  EXPECT_LT(sent, segments.size());
  for (peer.acknowledge(static_cast<std::uint32_t>(sent)); sent < segments.size() && turns < 256; ++turns) {
    const std::size_t more = messages_in(peer.receive());
    sent += more;
    if (more != 0) peer.acknowledge(static_cast<std::uint32_t>(more));
  }
  EXPECT_EQ(sent, segments.size());
  for (std::size_t i = 0; i < 256 && peer.device->done.size() < segments.size(); ++i) peer.device->poll();
  EXPECT_EQ(peer.device->done.size(), segments.size());
}

}  // namespace
}  // namespace fairlead::soft::test
