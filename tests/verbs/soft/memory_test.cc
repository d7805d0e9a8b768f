// Regions of every kind, and the keys that name them.
#include <sys/mman.h>
#include <unistd.h>

#include <set>

#include "base/unique_fd.h"
#include "tests/verbs/soft/simulation.h"
#include "verbs/soft/api/api.h"
#include "verbs/soft/memory/mr_table.h"
#include "verbs/soft/memory/scatter.h"

namespace fairlead::soft::test {
namespace {

constexpr int kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

class Regions : public testing::Test {
 protected:
  void SetUp() override { connect(*world.a, *world.b); }
  /// a writes 64 bytes of its buffer to (address, rkey) at b.
  ibv_wc_status write_to_b(std::uint64_t address, std::uint32_t rkey) {
    ibv_sge segment = world.a->sge(0, 64);
    return post(IBV_WR_RDMA_WRITE, segment, address, rkey);
  }
  ibv_wc_status post(ibv_wr_opcode opcode, ibv_sge segment, std::uint64_t address, std::uint32_t rkey) {
    ibv_send_wr wr{};
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &segment;
    wr.num_sge = 1;
    wr.wr.rdma = {address, rkey};
    ibv_send_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_send(world.a->qp, &wr, &bad), 0);
    const std::size_t before = world.a->done.size();
    EXPECT_TRUE(world.run_until([&] { return world.a->done.size() > before; }));
    return world.a->done.empty() ? IBV_WC_GENERAL_ERR : world.a->done.back().status;
  }
  [[nodiscard]] bool b_has(std::size_t offset) const {
    return std::memcmp(world.a->buffer.data(), world.b->buffer.data() + offset, 64) == 0;
  }

  Simulation world{{}, {}, {.buffer_bytes = 64 << 10}};
};

TEST_F(Regions, AnswerToTheAddressTheyWereGiven) {
  fill_pattern(world.a->buffer, 4);
  constexpr std::uint64_t kIova = 0x123456789000;
  ibv_mr* mr = api::reg_mr_iova(world.b->pd, world.b->buffer.data() + 4096, 4096, kIova, kAll);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(write_to_b(kIova + 4032, mr->rkey), IBV_WC_SUCCESS);
  EXPECT_TRUE(b_has(4096 + 4032));
  EXPECT_EQ(write_to_b(reinterpret_cast<std::uint64_t>(world.b->buffer.data()) + 4096, mr->rkey),
            IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(api::dereg_mr(mr), 0);
}

TEST_F(Regions, ZeroBasedOnesCountFromTheirBeginningAtBothEnds) {
  fill_pattern(world.a->buffer, 5);
  ibv_mr* there = api::reg_mr(world.b->pd, world.b->buffer.data() + 100, 4096, kAll | IBV_ACCESS_ZERO_BASED);
  ibv_mr* here = api::reg_mr(world.a->pd, world.a->buffer.data(), 4096, kAll | IBV_ACCESS_ZERO_BASED);
  EXPECT_EQ(post(IBV_WR_RDMA_WRITE, {0, 64, here->lkey}, 7, there->rkey), IBV_WC_SUCCESS);
  EXPECT_TRUE(b_has(107));
  EXPECT_EQ(api::dereg_mr(there), 0);
  EXPECT_EQ(api::dereg_mr(here), 0);
}

TEST_F(Regions, ReregistrationMovesThemAndChangesWhatTheyGrant) {
  fill_pattern(world.a->buffer, 6);
  auto* base = world.b->buffer.data();
  ibv_mr* mr = api::reg_mr(world.b->pd, base, 4096, kAll);
  const std::uint32_t rkey = mr->rkey;
  ASSERT_EQ(api::rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, base + 8192, 4096, 0), 0);
  EXPECT_EQ(mr->addr, base + 8192);
  EXPECT_EQ(mr->rkey, rkey);
  EXPECT_EQ(write_to_b(reinterpret_cast<std::uint64_t>(base) + 8192, rkey), IBV_WC_SUCCESS);
  EXPECT_TRUE(b_has(8192));
  ibv_pd* other = api::alloc_pd(world.b->context);
  ASSERT_EQ(api::rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, other, nullptr, 0, 0), 0);
  EXPECT_EQ(mr->pd, other);
  EXPECT_EQ(api::dealloc_pd(other), EBUSY);
  ASSERT_EQ(api::rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, world.b->pd, nullptr, 0, 0), 0);
  EXPECT_EQ(api::dealloc_pd(other), 0);
  ASSERT_EQ(api::rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE), 0);
  EXPECT_EQ(write_to_b(reinterpret_cast<std::uint64_t>(base) + 8192, rkey), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(api::rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_WRITE),
            IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(api::rereg_mr(mr, 0, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(api::rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(api::dereg_mr(mr), 0);
}

TEST_F(Regions, TheNullRegionReadsAsZeroesAndSwallowsWhatIsWritten) {
  fill_pattern(world.a->buffer, 7);
  fill_pattern(world.b->buffer, 8);
  ibv_mr* null = api::alloc_null_mr(world.a->pd);
  ASSERT_NE(null, nullptr);
  const std::uint64_t remote = reinterpret_cast<std::uint64_t>(world.b->buffer.data());
  EXPECT_EQ(post(IBV_WR_RDMA_READ, {0x1000, 20'000, null->lkey}, remote, world.b->mr->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(post(IBV_WR_RDMA_WRITE, {0x7777, 5000, null->lkey}, remote, world.b->mr->rkey), IBV_WC_SUCCESS);
  for (std::size_t i = 0; i < 5000; ++i) ASSERT_EQ(world.b->buffer[i], 0) << i;
  EXPECT_EQ(api::dereg_mr(null), 0);
}

TEST_F(Regions, TheNullRegionGrantsPeersNothing) {
  ibv_mr* null = api::alloc_null_mr(world.b->pd);
  ASSERT_NE(null, nullptr);
  for (const int more : {IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_MW_BIND,
                         IBV_ACCESS_ON_DEMAND}) {
    EXPECT_EQ(api::rereg_mr(null, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE | more),
              IBV_REREG_MR_ERR_INPUT)
        << more;
  }
  EXPECT_EQ(api::rereg_mr(null, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_RELAXED_ORDERING), 0);
  EXPECT_EQ(write_to_b(0, null->rkey), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(api::dereg_mr(null), 0);
}

TEST_F(Regions, ImplicitOnDemandPagingNamesAllOfTheAddressSpace) {
  fill_pattern(world.a->buffer, 9);
  EXPECT_EQ(api::reg_mr(world.b->pd, nullptr, SIZE_MAX, kAll), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_mr* all = api::reg_mr(world.b->pd, nullptr, SIZE_MAX, kAll | IBV_ACCESS_ON_DEMAND);
  ASSERT_NE(all, nullptr);
  EXPECT_EQ(write_to_b(reinterpret_cast<std::uint64_t>(world.b->buffer.data()) + 512, all->rkey), IBV_WC_SUCCESS);
  EXPECT_TRUE(b_has(512));
  EXPECT_EQ(write_to_b(4096, all->rkey), IBV_WC_REM_OP_ERR) << "nothing is mapped there";
  EXPECT_EQ(api::dereg_mr(all), 0);
}

TEST_F(Regions, AdviceChecksWhatItIsAbout) {
  auto* base = world.b->buffer.data();
  ibv_mr* mr = api::reg_mr(world.b->pd, base, 8192, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
  ibv_mr* constant = api::reg_mr(world.b->pd, base, 8192, IBV_ACCESS_ON_DEMAND);
  const auto advise = [&](ibv_advise_mr_advice advice, std::uint64_t offset, std::uint32_t length, std::uint32_t lkey) {
    ibv_sge segment{reinterpret_cast<std::uint64_t>(base) + offset, length, lkey};
    return api::advise_mr(world.b->pd, advice, IBV_ADVISE_MR_FLAG_FLUSH, &segment, 1);
  };
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, 0, 8192, mr->lkey), 0);
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 1, 8191, mr->lkey), 0);
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, 0, 1, mr->lkey), 0);
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, 0, 8193, mr->lkey), EFAULT);
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, 0, 8, mr->lkey ^ 1), EFAULT);
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, 0, 8, world.b->mr->lkey), EFAULT) << "not on demand";
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0, 8, constant->lkey), EFAULT);
  EXPECT_EQ(api::dereg_mr(mr), 0);
  EXPECT_EQ(api::dereg_mr(constant), 0);
}

TEST_F(Regions, DeviceMemoryIsReachedThroughItsRegionAndItsCopies) {
  fill_pattern(world.a->buffer, 10);
  ibv_alloc_dm_attr attr{4096, 6, 0};
  ibv_dm* dm = api::alloc_dm(world.b->context, &attr);
  ASSERT_NE(dm, nullptr);
  ibv_mr* mr = api::reg_dm_mr(world.b->pd, dm, 1024, 2048, kAll | IBV_ACCESS_ZERO_BASED);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(write_to_b(0, mr->rkey), IBV_WC_SUCCESS);
  std::uint8_t bytes[64];
  EXPECT_EQ(ibv_memcpy_from_dm(bytes, dm, 1024, sizeof(bytes)), 0);
  EXPECT_EQ(std::memcmp(bytes, world.a->buffer.data(), sizeof(bytes)), 0);
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 4093, bytes, 4), EINVAL);
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 4096, bytes, 4), EINVAL);
  EXPECT_EQ(api::reg_dm_mr(world.b->pd, dm, 0, 4100, kAll | IBV_ACCESS_ZERO_BASED), nullptr);
  EXPECT_EQ(api::reg_dm_mr(world.b->pd, dm, 0, 4096, kAll), nullptr);
  EXPECT_EQ(api::free_dm(dm), EBUSY);
  EXPECT_EQ(api::dereg_mr(mr), 0);
  EXPECT_EQ(api::free_dm(dm), 0);
  attr.comp_mask = 1;
  EXPECT_EQ(api::alloc_dm(world.b->context, &attr), nullptr);
}

TEST_F(Regions, ADescriptorIsMappedIfItCanBe) {
  fill_pattern(world.a->buffer, 11);
  UniqueFd fd(::memfd_create("region", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(fd.get(), 16384), 0);
  ibv_mr* mr = api::reg_dmabuf_mr(world.b->pd, 4100, 8000, 0x5000, fd.get(), kAll);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(write_to_b(0x5000, mr->rkey), IBV_WC_SUCCESS);
  std::uint8_t bytes[64];
  ASSERT_EQ(::pread(fd.get(), bytes, sizeof(bytes), 4100), 64);
  EXPECT_EQ(std::memcmp(bytes, world.a->buffer.data(), sizeof(bytes)), 0);
  EXPECT_EQ(api::dereg_mr(mr), 0);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  EXPECT_EQ(api::reg_dmabuf_mr(world.b->pd, 0, 4096, 0, ends[0], kAll), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_F(Regions, MayBeEmptyAndMayGiveHints) {
  ibv_mr* empty = api::reg_mr(world.b->pd, world.b->buffer.data(), 0, kAll);
  ASSERT_NE(empty, nullptr);
  EXPECT_EQ(api::dereg_mr(empty), 0);
  ibv_mr* hints = api::reg_mr(world.b->pd, world.b->buffer.data(), 64,
                              kAll | IBV_ACCESS_RELAXED_ORDERING | IBV_ACCESS_HUGETLB | 1 << 29);
  ASSERT_NE(hints, nullptr);
  EXPECT_EQ(api::dereg_mr(hints), 0);
  EXPECT_EQ(api::reg_mr(world.b->pd, world.b->buffer.data(), 64, kAll | 1 << 19), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST(Keys, FitOnlyWhileTheyAreHeld) {
  MrTable table;
  ibv_pd pd{};
  std::vector<std::unique_ptr<Grant>> grants;
  std::set<std::uint32_t> indices;
  for (int i = 0; i < 5000; ++i) {
    auto grant = std::make_unique<Grant>();
    grant->domain = &pd;
    grant->bytes = SIZE_MAX;
    ASSERT_TRUE(table.add(*grant));
    EXPECT_TRUE(indices.insert(grant->key >> 8).second);
    grants.push_back(std::move(grant));
  }
  for (const auto& grant : grants) ASSERT_EQ(table.grant_of(grant->key), grant.get());
  // The others are found as well while some come and go between them.
  for (std::size_t i = 0; i < grants.size(); i += 3) {
    const std::uint32_t stale = grants[i]->key;
    table.remove(*grants[i]);
    EXPECT_EQ(table.grant_of(stale), nullptr);
    grants[i].reset();
  }
  for (const auto& grant : grants) {
    if (!grant) continue;
    ASSERT_EQ(table.grant_of(grant->key), grant.get());
  }
  for (int i = 0; i < 3000; ++i) {
    Grant passing;
    ASSERT_TRUE(table.add(passing));
    ASSERT_EQ(table.grant_of(passing.key), &passing);
    table.remove(passing);
    ASSERT_EQ(table.grant_of(passing.key), nullptr);
  }
  for (const auto& grant : grants) {
    if (!grant) continue;
    ASSERT_EQ(table.grant_of(grant->key), grant.get());
    table.remove(*grant);
  }
}

// What stands for it is as long as the largest packet, whatever the list asks for.
TEST(NullRegion, IsWalkedInPiecesThatThereAre) {
  MrTable table;
  ibv_pd pd{};
  Grant null;
  null.domain = &pd;
  null.bytes = SIZE_MAX;
  null.access = IBV_ACCESS_LOCAL_WRITE | kLocalRead;
  null.null = true;
  ASSERT_TRUE(table.add(null));
  const ibv_sge segment{5, 16384, null.key};
  for (const unsigned access : {0U, unsigned{IBV_ACCESS_LOCAL_WRITE}}) {
    std::vector<std::size_t> pieces;
    EXPECT_TRUE(for_each_piece(table, &pd, {&segment, 1}, 100, 12'000, access, [&](std::byte*, std::size_t length) {
      pieces.push_back(length);
      return true;
    }));
    EXPECT_EQ(pieces, (std::vector<std::size_t>{4096, 4096, 12'000 - 2 * 4096}));
  }
  table.remove(null);
}

// As many others come and go as the documentation promises.
TEST(Keys, RestBeforeTheyMayComeAgain) {
  MrTable table;
  Grant passing;
  std::vector<std::uint32_t> given;
  for (int i = 0; i < 10'000; ++i) {
    ASSERT_TRUE(table.add(passing));
    const std::size_t first = given.size() > 1024 ? given.size() - 1024 : 0;
    ASSERT_EQ(std::find(given.begin() + static_cast<std::ptrdiff_t>(first), given.end(), passing.key >> 8),
              given.end());
    given.push_back(passing.key >> 8);
    table.remove(passing);
  }
}

// Whoever has some keys learns nothing about the rest: from each one to the next, every bit changes as a coin falls.
TEST(Keys, TellNothingOfEachOther) {
  MrTable table;
  constexpr int kCount = 4096;
  std::vector<Grant> grants(kCount);
  std::array<int, 32> changes{};
  std::uint32_t last = 0;
  for (Grant& grant : grants) {
    ASSERT_TRUE(table.add(grant));
    for (unsigned bit = 0; bit < 32; ++bit) changes[bit] += static_cast<int>((grant.key ^ last) >> bit & 1);
    last = grant.key;
  }
  for (const int count : changes) {
    EXPECT_GT(count, kCount / 2 - 320);  // ten standard deviations
    EXPECT_LT(count, kCount / 2 + 320);
  }
  for (const Grant& grant : grants) table.remove(grant);
}

TEST(Keys, OfTwoDevicesDiffer) {
  MrTable one;
  MrTable other;
  Grant a;
  Grant b;
  ASSERT_TRUE(one.add(a));
  ASSERT_TRUE(other.add(b));
  EXPECT_NE(a.key, b.key);
}

}  // namespace
}  // namespace fairlead::soft::test
