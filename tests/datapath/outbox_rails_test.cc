// The outbox of a flow that has several paths.
#include <gmock/gmock.h>

#include "tests/datapath/outbox_fixture.h"

namespace fairlead::datapath {
namespace {

using testing::ElementsAre;

/// The same, with a second path for data, in stripes of 1000 bytes.
class SpreadTest : public OutboxTest {
 protected:
  SpreadTest() {
    way.stripe = 1000;
    way.share = 2000;
    second = way;
    second.rail = 1;
  }
  std::size_t post_second(std::size_t takes = 1000) {
    const auto requests = outbox.build(second, other.room(can.max_outstanding), other.next_id());
    const std::size_t accepted = std::min(takes, requests.size());
    carried += outbox.commit(accepted, other);
    return accepted;
  }
  void end_second(std::uint64_t id, Code code = Code::kOk) {
    const auto request = other.end(id);
    ASSERT_TRUE(request) << id;
    outbox.completed(*request, code);
  }

  Outbox::Way second;
  InFlight other;
  std::uint64_t carried = 0;
};

TEST_F(SpreadTest, ALargeTransferGoesOverBothAndItsNotificationWaitsForAllOfIt) {
  add(transfer(OpKind::kWrite, {4500}, true));
  EXPECT_EQ(post().size(), 2u) << "its share";
  EXPECT_EQ(post_second(), 2u);
  EXPECT_EQ(carried, 2000u);
  EXPECT_THAT(post(), ElementsAre(Posted{OpKind::kWrite, 3, 500}))
      << "the rest, without the notification: the other path may be slower";
  for (std::uint64_t id : {1u, 2u, 3u}) complete(id);
  EXPECT_TRUE(post().empty());
  end_second(2);
  EXPECT_TRUE(post().empty());
  end_second(1);
  EXPECT_THAT(post(), ElementsAre(Posted{OpKind::kMessage, 4, 0}));
  complete(4);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].code, Code::kOk);
}

TEST_F(SpreadTest, WhatIsSmallStaysOnTheFirstPathWithItsNotification) {
  add(transfer(OpKind::kWrite, {1500}, true), message(10));
  EXPECT_EQ(post_second(), 0u);
  EXPECT_EQ(post().size(), 4u);
}

TEST_F(SpreadTest, ALargeOneBehindSmallOnesIsFound) {
  add(transfer(OpKind::kWrite, {100}), transfer(OpKind::kRead, {3000}));
  EXPECT_EQ(post_second(), 2u);
  EXPECT_EQ(carried, 2000u);
  EXPECT_THAT(post(), ElementsAre(Posted{OpKind::kWrite, 1, 100}, Posted{OpKind::kRead, 2, 1000}));
}

TEST_F(SpreadTest, WhatAPathDidNotTakeGoesBackToAll) {
  add(transfer(OpKind::kWrite, {3000}));
  EXPECT_EQ(post_second(1), 1u);
  EXPECT_EQ(post().size(), 2u);
  EXPECT_FALSE(outbox.has_backlog());
}

TEST_F(SpreadTest, WhatAPathLostIsPostedAgainAfterItsFenceOverAny) {
  TransferImpl& t = transfer(OpKind::kWrite, {5000}, true);
  add(t);
  ASSERT_EQ(post_second(), 2u);  // bytes 0 to 1999
  ASSERT_EQ(post().size(), 2u);  // 2000 to 3999
  end_second(1);
  end_second(2, Code::kAborted);
  EXPECT_EQ(post().size(), 1u) << "the last; what is lost may still land";
  complete(1);
  complete(2);
  complete(3);
  EXPECT_TRUE(post().empty());
  outbox.fenced(1);
  EXPECT_EQ(outbox.replayed.get(), 1u);
  EXPECT_THAT(post(), ElementsAre(Posted{OpKind::kWrite, 4, 1000}, Posted{OpKind::kMessage, 5, 0}))
      << "all that is under way is on the first path";
  EXPECT_EQ(last.kind, OpKind::kMessage);
  complete(4);
  complete(5);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(t.done_bytes, 5000u);
}

TEST_F(SpreadTest, TheFirstPathsDeathLeavesTheOthersWorkAlone) {
  TransferImpl& t = transfer(OpKind::kWrite, {4000}, true);
  add(t);
  ASSERT_EQ(post().size(), 2u);
  ASSERT_EQ(post_second(), 2u);
  abort_all();
  end_second(1);
  ASSERT_TRUE(outbox.apply_received(0, why)) << why;
  EXPECT_THAT(post(), ElementsAre(Posted{OpKind::kWrite, 3, 1000}, Posted{OpKind::kWrite, 4, 1000}));
  end_second(2);
  complete(3);
  EXPECT_TRUE(ended.empty());
  complete(4);
  EXPECT_THAT(post(), ElementsAre(Posted{OpKind::kMessage, 5, 0}));
  complete(5);
  EXPECT_EQ(ended.size(), 1u);
}

TEST_F(SpreadTest, ACancelledWriteEndsWithTheFenceAndAReadAtOnce) {
  TransferImpl &w = transfer(OpKind::kWrite, {3000}), &r = transfer(OpKind::kRead, {3000});
  second.share = 10'000;
  add(w, r);
  ASSERT_EQ(post_second(), 6u);
  outbox.end_early(w, {});
  outbox.end_early(r, {});
  for (std::uint64_t id = 1; id <= 6; ++id) end_second(id, Code::kAborted);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].transfer, &r);
  outbox.fenced(2);
  EXPECT_EQ(ended.size(), 1u) << "another path's fence";
  outbox.fenced(1);
  ASSERT_EQ(ended.size(), 2u);
  EXPECT_EQ(ended[1].code, Code::kCancelled);
  EXPECT_TRUE(post().empty());
}

TEST_F(SpreadTest, ARefusalOnOneEndsTheTransferAndNothingElse) {
  TransferImpl& t = transfer(OpKind::kWrite, {3000});
  add(t, message(10));
  ASSERT_EQ(post_second(), 2u);
  ASSERT_EQ(post().size(), 2u);
  end_second(1, Code::kProtectionError);
  end_second(2);
  EXPECT_FALSE(outbox.requeue()) << "no message of the first path was turned away";
  complete(1);
  complete(2);
  ASSERT_EQ(ended.size(), 2u);
  for (const Ended& one : ended) EXPECT_EQ(one.code, one.transfer == &t ? Code::kProtectionError : Code::kOk);
}

}  // namespace
}  // namespace fairlead::datapath
