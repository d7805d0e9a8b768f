// Atomics: executed once whatever the network does, in order with READs, within what was granted.
#include <atomic>
#include <thread>

#include "tests/verbs/soft/raw_peer.h"
#include "tests/verbs/soft/simulation.h"
#include "verbs/soft/api/objects.h"

namespace fairlead::soft::test {
namespace {

int post_atomic(Endpoint& from, ibv_wr_opcode opcode, std::uint64_t id, std::size_t offset, const Endpoint& to,
                std::size_t remote_offset, std::uint64_t compare_add, std::uint64_t swap = 0, unsigned flags = 0) {
  ibv_sge segment = from.sge(offset, 8);
  ibv_send_wr wr{};
  wr.wr_id = id;
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED | flags;
  wr.sg_list = &segment;
  wr.num_sge = 1;
  wr.wr.atomic.remote_addr = reinterpret_cast<std::uint64_t>(to.buffer.data()) + remote_offset;
  wr.wr.atomic.compare_add = compare_add;
  wr.wr.atomic.swap = swap;
  wr.wr.atomic.rkey = to.mr->rkey;
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(from.qp, &wr, &bad);
}

std::uint64_t& word(Endpoint& of, std::size_t offset) {
  return *reinterpret_cast<std::uint64_t*>(of.buffer.data() + offset);
}

TEST(Atomics, FetchAddAndCompareSwapAnswerWhatWasThere) {
  Simulation world;
  connect(*world.a, *world.b);
  word(*world.b, 64) = 40;
  ASSERT_EQ(post_atomic(*world.a, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, *world.b, 64, 2), 0);
  ASSERT_EQ(post_atomic(*world.a, IBV_WR_ATOMIC_CMP_AND_SWP, 2, 8, *world.b, 64, 42, ~std::uint64_t{0}), 0);
  ASSERT_EQ(post_atomic(*world.a, IBV_WR_ATOMIC_CMP_AND_SWP, 3, 16, *world.b, 64, 42, 7), 0);  // no longer 42
  ASSERT_EQ(post_atomic(*world.a, IBV_WR_ATOMIC_FETCH_AND_ADD, 4, 24, *world.b, 64, 1), 0);    // wraps
  ASSERT_TRUE(world.run_until([&] { return world.a->done.size() == 4; }));
  for (const ibv_wc& completion : world.a->done) EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
  EXPECT_EQ(world.a->done[0].opcode, IBV_WC_FETCH_ADD);
  EXPECT_EQ(world.a->done[1].opcode, IBV_WC_COMP_SWAP);
  EXPECT_EQ(world.a->done[0].byte_len, 8U);
  EXPECT_EQ(word(*world.a, 0), 40U);
  EXPECT_EQ(word(*world.a, 8), 42U);
  EXPECT_EQ(word(*world.a, 16), ~std::uint64_t{0});
  EXPECT_EQ(word(*world.a, 24), ~std::uint64_t{0});
  EXPECT_EQ(word(*world.b, 64), 0U);
}

// As hardware says it, which is what programs look for: among queue pairs here, toward the host there.
TEST(Atomics, ADeviceSaysThatTheyAreAtomicToTheHostToo) {
  Simulation world;
  ibv_device_attr_ex attr{};
  ASSERT_EQ(api::query_device_ex(world.a->context, nullptr, &attr, sizeof(attr)), 0);
  EXPECT_EQ(attr.orig_attr.atomic_cap, IBV_ATOMIC_HCA);
  EXPECT_EQ(attr.pci_atomic_caps.fetch_add, IBV_PCI_ATOMIC_OPERATION_8_BYTE_SIZE_SUP);
  EXPECT_EQ(attr.pci_atomic_caps.compare_swap, IBV_PCI_ATOMIC_OPERATION_8_BYTE_SIZE_SUP);
}

TEST(Atomics, MoreThanMayBeInFlightWaitTheirTurn) {
  Simulation world;
  connect(*world.a, *world.b, {.max_reads = 2});
  for (std::uint64_t i = 0; i < 50; ++i) {
    ASSERT_EQ(post_atomic(*world.a, IBV_WR_ATOMIC_FETCH_AND_ADD, i, i * 8, *world.b, 0, 1), 0);
    ASSERT_EQ(world.a->post(IBV_WR_RDMA_READ, 100 + i, 4096 + i * 8, 8, world.b.get(), 0), 0);
  }
  word(*world.b, 0) = 0;
  ASSERT_TRUE(world.run_until([&] { return world.a->done.size() == 100; }));
  for (std::uint64_t i = 0; i < 50; ++i) {
    EXPECT_EQ(word(*world.a, i * 8), i);
    EXPECT_EQ(world.a->done[2 * i].status, IBV_WC_SUCCESS);
    EXPECT_GE(word(*world.a, 4096 + i * 8), i + 1) << "a READ ran before the atomic that it followed";
  }
}

TEST(Atomics, AFencedWriteWaitsForThem) {
  Simulation world;
  connect(*world.a, *world.b);
  word(*world.b, 0) = 5;
  word(*world.b, 8) = 0;
  word(*world.a, 0) = 99;
  ASSERT_EQ(post_atomic(*world.a, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, *world.b, 0, 0), 0);
  ASSERT_EQ(world.a->post(IBV_WR_RDMA_WRITE, 2, 0, 8, world.b.get(), 8, IBV_SEND_SIGNALED | IBV_SEND_FENCE), 0);
  ASSERT_TRUE(world.run_until([&] { return world.a->done.size() == 2; }));
  EXPECT_EQ(word(*world.b, 8), 5U) << "the WRITE left before the atomic's result had come";
}

struct Network {
  const char* name;
  FaultConfig config;
};

class AtomicsOverBadNetworks : public testing::TestWithParam<Network> {};

// Each of the additions must answer the sum of all before it: one executed twice or lost would show.
void expect_each_executed_once(const FaultConfig& one, unsigned max_reads) {
  SCOPED_TRACE(max_reads);
  FaultConfig other = one;
  other.seed += 77;
  Simulation world(one, other);
  if (one.delay != 0) world.step_time = one.delay / 4;  // a poll while packets are held gives the core away
  connect(*world.a, *world.b, {.min_rnr_timer = 1, .max_reads = static_cast<std::uint8_t>(max_reads)});
  constexpr std::uint64_t kCount = 400;
  fill_pattern(world.a->buffer, 3);
  word(*world.b, 0) = 0;
  std::uint64_t posted = 0;
  const auto feed = [&] {
    for (; posted < kCount && posted - world.a->done.size() < 40; ++posted) {
      // A WRITE now and then, so that plain acknowledgements imply lost answers.
      if (posted % 5 == 4) {
        ASSERT_EQ(world.a->post(IBV_WR_RDMA_WRITE, posted, 0, 2000, world.b.get(), 65536), 0);
      } else if (posted % 5 == 3) {
        ASSERT_EQ(world.a->post(IBV_WR_RDMA_READ, posted, 65536, 2000, world.b.get(), 131072), 0);
      } else {
        ASSERT_EQ(post_atomic(*world.a, IBV_WR_ATOMIC_FETCH_AND_ADD, posted, 8 * posted, *world.b, 0, posted + 1), 0);
      }
    }
  };
  feed();
  ASSERT_TRUE(world.run_until([&] {
    feed();
    return world.a->done.size() == kCount;
  }));
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(world.a->done[i].status, IBV_WC_SUCCESS);
    ASSERT_EQ(world.a->done[i].wr_id, i);
    if (i % 5 >= 3) continue;
    ASSERT_EQ(word(*world.a, 8 * i), sum) << i;
    sum += i + 1;
  }
  EXPECT_EQ(word(*world.b, 0), sum);
}

TEST_P(AtomicsOverBadNetworks, EachIsExecutedOnce) {
  for (const unsigned max_reads : {1u, 2u, 4u, 128u}) expect_each_executed_once(GetParam().config, max_reads);
}

INSTANTIATE_TEST_SUITE_P(
    Networks, AtomicsOverBadNetworks,
    testing::Values(Network{"good", {}}, Network{"drop", {.drop = 0.1, .seed = 5}},
                    Network{"burst", {.drop = 0.05, .burst = 6, .seed = 6}},
                    Network{"duplicate", {.duplicate = 0.3, .seed = 7}},
                    Network{"reorder", {.reorder = 0.2, .seed = 8}}, Network{"late", {.delay = 2 * kMillisecond}},
                    Network{"late_and_lossy", {.drop = 0.05, .delay = 2 * kMillisecond, .seed = 10}},
                    Network{"everything",
                            {.drop = 0.03, .reorder = 0.05, .duplicate = 0.1, .corrupt = 0.03, .seed = 9}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(ResponderAtomics, ARepetitionIsAnsweredFromMemory) {
  RawPeer peer;
  word(*peer.device, 0) = 10;
  const AtomicEth add{peer.target(0, 8).address, peer.device->mr->rkey, 5, 0};
  peer.send({.opcode = Opcode::kFetchAdd, .psn = peer.psn, .atomic = add});
  auto seen = peer.receive();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].opcode, Opcode::kAtomicAcknowledge);
  EXPECT_EQ(seen[0].original, 10U);
  EXPECT_EQ(seen[0].psn, peer.psn);
  peer.send({.opcode = Opcode::kFetchAdd, .psn = peer.psn, .atomic = add});
  seen = peer.receive();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].original, 10U);
  EXPECT_EQ(word(*peer.device, 0), 15U);
  EXPECT_EQ(peer.device->counter("duplicate_request"), 1U);
}

// Who may not use the memory learns nothing of it by a PSN that another's question had.
TEST(ResponderAtomics, ARepetitionOfAnotherWordIsNone) {
  RawPeer peer;
  const AtomicEth add{peer.target(0, 8).address, peer.device->mr->rkey, 5, 0};
  peer.send({.opcode = Opcode::kFetchAdd, .psn = peer.psn, .atomic = add});
  ASSERT_EQ(peer.receive().size(), 1U);
  for (const AtomicEth& other :
       {AtomicEth{add.address + 8, add.rkey, 5, 0}, AtomicEth{add.address, add.rkey ^ 1, 5, 0}}) {
    peer.send({.opcode = Opcode::kFetchAdd, .psn = peer.psn, .atomic = other});
    EXPECT_TRUE(peer.receive().empty());
  }
  EXPECT_EQ(peer.device->counter("drop_bogus"), 2U);
  EXPECT_EQ(peer.device->state(), IBV_QPS_RTS);
}

TEST(ResponderAtomics, AResultOlderThanThoseKeptIsNotInvented) {
  RawPeer peer({}, {.max_reads = 2});
  const AtomicEth add{peer.target(0, 8).address, peer.device->mr->rkey, 1, 0};
  for (std::uint32_t i = 0; i < 3; ++i) {
    peer.send({.opcode = Opcode::kFetchAdd, .psn = peer.psn + i, .atomic = add});
    EXPECT_EQ(peer.receive().size(), 1U);
  }
  peer.send({.opcode = Opcode::kFetchAdd, .psn = peer.psn, .atomic = add});
  EXPECT_TRUE(peer.receive().empty());
  peer.send({.opcode = Opcode::kFetchAdd, .psn = peer.psn + 1, .atomic = add});
  EXPECT_EQ(peer.receive().size(), 1U);
  EXPECT_EQ(word(*peer.device, 0), 3U);
}

// As if so many packets had come that ask nothing.
void pass(RawPeer& peer, std::uint32_t packets) {
  ReceiveState& r = impl(peer.device->qp).receive;
  r.expected = r.expected + packets;
  r.position += packets;
}

// 2^24 packets later their numbers are the same.
TEST(ResponderAtomics, AResultIsNotTakenForThatOfALaterOneWithTheSamePsn) {
  constexpr std::uint32_t kRound = Psn::kMask + 1;
  RawPeer peer;
  word(*peer.device, 0) = 10;
  const Forged add{
      .opcode = Opcode::kFetchAdd, .psn = peer.psn, .atomic = {peer.target(0, 8).address, peer.device->mr->rkey, 5, 0}};
  peer.send(add);
  EXPECT_EQ(peer.receive().size(), 1U);
  pass(peer, kRound);
  peer.send(add);
  EXPECT_TRUE(peer.receive().empty()) << "no repetition of anything in this round";
  pass(peer, kRound - 1);
  peer.send(add);
  auto seen = peer.receive();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].original, 15U);
  peer.send(add);
  seen = peer.receive();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].original, 15U);
  EXPECT_EQ(word(*peer.device, 0), 20U);
}

TEST(ResponderAtomics, WhatWasNotGrantedIsRefused) {
  struct Case {
    std::int64_t offset;
    int access;
    std::uint32_t key_error;
    Syndrome expected;
  };
  constexpr int kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  for (const Case& each : {Case{4, kAll, 0, Syndrome::kNakInvalidRequest},  // not aligned
                           Case{8, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, 0, Syndrome::kNakRemoteAccess},
                           Case{8, kAll, 1, Syndrome::kNakRemoteAccess}, Case{-8, kAll, 0, Syndrome::kNakRemoteAccess},
                           Case{4096, kAll, 0, Syndrome::kNakRemoteAccess}}) {
    RawPeer peer({.buffer_bytes = 4096, .access = each.access});
    const AtomicEth add{peer.target(0, 8).address + static_cast<std::uint64_t>(each.offset),
                        peer.device->mr->rkey ^ each.key_error, 1, 0};
    peer.send({.opcode = Opcode::kFetchAdd, .psn = peer.psn, .atomic = add});
    peer.expect_answer(each.expected, peer.psn);
    EXPECT_EQ(peer.device->state(), IBV_QPS_ERR);
    for (const std::uint8_t byte : peer.device->buffer) ASSERT_EQ(byte, 0);
  }
}

TEST(ResponderAtomics, AQueuePairThatGrantsNoneRefusesThem) {
  RawPeer peer;
  ibv_qp_attr attr{};
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  ASSERT_EQ(api().modify_qp(peer.device->qp, &attr, IBV_QP_ACCESS_FLAGS), 0);
  peer.send({.opcode = Opcode::kCompareSwap,
             .psn = peer.psn,
             .atomic = {peer.target(0, 8).address, peer.device->mr->rkey, 1, 0}});
  peer.expect_answer(Syndrome::kNakRemoteAccess, peer.psn);
}

TEST(RequesterAtomics, AnAnswerOfTheWrongKindCompletesNothing) {
  RawPeer peer;
  ASSERT_EQ(post_atomic(*peer.device, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, *peer.device, 8, 1), 0);
  ASSERT_EQ(peer.receive().size(), 1U);
  peer.send({.opcode = Opcode::kReadResponseOnly, .psn = peer.psn, .payload = RawPeer::payload(8, 1)});
  EXPECT_TRUE(peer.device->done.empty());
  peer.send({.opcode = Opcode::kAtomicAcknowledge, .psn = peer.psn, .atomic = {.compare = 0x0102030405060708}});
  ASSERT_EQ(peer.device->done.size(), 1U);
  EXPECT_EQ(peer.device->done[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(word(*peer.device, 0), 0x0102030405060708U);
}

// The other device's additions and this program's own, on one word.
TEST(AtomicsOverUdp, AreAtomicToThisHostsProcessor) {
  Endpoint a(open_on_wire());
  Endpoint b(open_on_wire());
  connect(a, b);
  constexpr std::uint64_t kCount = 3000;
  std::atomic_ref shared(word(b, 0));
  std::thread local([&] {
    for (std::uint64_t i = 0; i < kCount * 10; ++i) shared.fetch_add(1);
  });
  std::uint64_t posted = 0;
  const bool finished = drive(a, b, [&] {
    for (; posted < kCount && posted - a.done.size() < 64; ++posted) {
      if (post_atomic(a, IBV_WR_ATOMIC_FETCH_AND_ADD, posted, 8, b, 0, 1) != 0) break;
    }
    return a.done.size() == kCount;
  });
  local.join();
  EXPECT_TRUE(finished);
  EXPECT_EQ(shared.load(), kCount * 11);
}

}  // namespace
}  // namespace fairlead::soft::test
