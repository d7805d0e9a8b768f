// The server's side of push, against clients that do it right and some that make a mistake.
#include "push_server_fixture.h"
#include "tests/no_threads.h"

namespace fairlead::cli {
namespace {

using testing::HasSubstr;

TEST_F(PushServerTest, KeepsWhatIsRight) {
  Session session = connect();
  const auto bytes = some_bytes(10'000);
  const Result<RemoteMemory> remote = announce(session, bytes);
  ASSERT_TRUE(remote) << remote.error().to_string();
  EXPECT_EQ(remote->access(), Access::kRemoteWrite);
  Result<Memory> local = session.engine().allocate(bytes.size());
  ASSERT_TRUE(local);
  std::copy(bytes.begin(), bytes.end(), local->data());
  EXPECT_TRUE(session.peer().write(*local, *remote, {.notify = 0}).wait().ok());
  ASSERT_TRUE(session.send(PushFinish{{crc32(bytes)}}).ok());
  const Result<PushResult> result = session.expect<PushResult>();
  ASSERT_TRUE(result) << result.error().to_string();
  EXPECT_EQ(result->verified, 1U);
  EXPECT_EQ(result->failed, 0U);
  // The write grant is gone, and the model can be read by its name.
  EXPECT_FALSE(session.peer().write(*local, *remote).wait().ok());
  const Result<RemoteMemory> kept = session.peer().lookup("model/m/weight");
  ASSERT_TRUE(kept) << kept.error().to_string();
  EXPECT_EQ(kept->access(), Access::kRemoteRead);
  ASSERT_TRUE(kept->tensor().has_value());
  EXPECT_EQ(kept->tensor()->to_string(), "U8[10000]");
  std::fill(local->bytes().begin(), local->bytes().end(), std::byte{0});
  EXPECT_TRUE(session.peer().read(*local, *kept).wait().ok());
  EXPECT_EQ(crc32(local->bytes()), crc32(bytes));
  session.close();
}

TEST_F(PushServerTest, NamesATensorWhoseBytesAreWrong) {
  Session session = connect();
  const auto bytes = some_bytes(5000);
  const Result<RemoteMemory> remote = announce(session, bytes);
  ASSERT_TRUE(remote);
  Result<Memory> local = session.engine().allocate(bytes.size());
  std::copy(bytes.begin(), bytes.end(), local->data());
  EXPECT_TRUE(session.peer().write(*local, *remote, {.notify = 0}).wait().ok());
  ASSERT_TRUE(session.send(PushFinish{{crc32(bytes) + 1}}).ok());
  const Result<PushResult> result = session.expect<PushResult>();
  ASSERT_TRUE(result) << result.error().to_string();
  EXPECT_EQ(result->failed, 1U);
  ASSERT_EQ(result->failures.size(), 1U);
  EXPECT_EQ(result->failures[0].first, "weight");
  EXPECT_THAT(result->failures[0].second, HasSubstr("CRC-32"));
  EXPECT_EQ(store_.count(), 0U);
  session.close();
}

TEST_F(PushServerTest, APushWithoutChecksumsIsKeptWithoutThem) {
  Session session = connect();
  const auto bytes = some_bytes(500);
  const Result<RemoteMemory> remote = announce(session, bytes);
  ASSERT_TRUE(remote);
  Result<Memory> local = session.engine().allocate(bytes.size());
  std::copy(bytes.begin(), bytes.end(), local->data());
  EXPECT_TRUE(session.peer().write(*local, *remote, {.notify = 0}).wait().ok());
  ASSERT_TRUE(session.send(PushFinish{}).ok());
  const Result<PushResult> result = session.expect<PushResult>();
  ASSERT_TRUE(result);
  EXPECT_EQ(result->verified, 1U);
  EXPECT_EQ(counters_.pushes_verified, 0U);
  EXPECT_EQ(counters_.pushes_unchecked, 1U);
  ASSERT_TRUE(session.send(PullBegin{"m"}).ok());
  ASSERT_TRUE(session.expect<PullReady>() && session.expect_files(1, 1));
  const auto entries = session.expect_tensors(1);
  ASSERT_TRUE(entries);
  EXPECT_FALSE(entries->front().crc.has_value());
  session.close();
}

TEST_F(PushServerTest, NoticesANotificationThatIsMissingOrComesTwice) {
  for (const int notifications : {0, 2}) {
    Session session = connect();
    const auto bytes = some_bytes(64);
    const Result<RemoteMemory> remote = announce(session, bytes);
    ASSERT_TRUE(remote);
    Result<Memory> local = session.engine().allocate(bytes.size());
    std::copy(bytes.begin(), bytes.end(), local->data());
    EXPECT_TRUE(session.peer().write(*local, *remote).wait().ok());
    for (int i = 0; i < notifications; ++i) {
      EXPECT_TRUE(session.peer().write(*local, *remote, {.notify = 0}).wait().ok());
    }
    ASSERT_TRUE(session.send(PushFinish{{crc32(bytes)}}).ok());
    const Result<PushResult> result = session.expect<PushResult>();
    ASSERT_TRUE(result) << result.error().to_string();
    ASSERT_EQ(result->failures.size(), 1U);
    EXPECT_THAT(result->failures[0].second, HasSubstr(notifications == 0 ? "did not come" : "came twice"));
    session.close();
  }
}

TEST_F(PushServerTest, AModelThatCannotBeKeptIsNotCountedAndLeavesTheOldOne) {
  Session session = connect();
  const auto bytes = some_bytes(100);
  const Result<RemoteMemory> first = announce(session, bytes);
  ASSERT_TRUE(first);
  ASSERT_TRUE(push_one(session, *first, bytes));
  // The second has a tensor whose name is taken.
  const Result<Memory> taken = engine_->allocate(64);
  ASSERT_TRUE(taken && engine_->publish("model/m/other", *taken, Access::kRemoteRead).ok());
  const Result<RemoteMemory> second = announce(session, bytes, "m", "other");
  ASSERT_TRUE(second);
  const Result<PushResult> refused = push_one(session, *second, bytes);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kAlreadyExists);
  EXPECT_EQ(counters_.pushes_verified, 1U);
  EXPECT_EQ(counters_.pushes_refused, 1U);
  EXPECT_EQ(store_.count(), 1U);
  EXPECT_TRUE(session.peer().lookup("model/m/weight"));
  session.close();
}

TEST_F(PushServerTest, DropsNothingForAModelThatWouldNotFitEvenThen) {
  Session keeper = connect();
  const auto small = some_bytes(100'000);
  const Result<RemoteMemory> remote = announce(keeper, small);
  ASSERT_TRUE(remote && push_one(keeper, *remote, small));
  Session pusher = connect();  // under way, and not to be dropped
  const auto half = some_bytes(600'000);
  ASSERT_TRUE(announce(pusher, half));
  Session other = connect();
  const Result<RemoteMemory> refused = announce(other, half);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kUnavailable);
  EXPECT_THAT(refused.error().message(), HasSubstr("pushes under way hold"));
  EXPECT_EQ(store_.count(), 1U);
  EXPECT_TRUE(keeper.peer().lookup("model/m/weight"));
  keeper.close();
  pusher.close();
  other.close();
}

// The kept model is 500,000 of 1,048,576 bytes.
TEST_F(PushServerTest, AnAnnouncementDropsNothingAndAVerifiedModelWhatIsInItsWay) {
  const auto large = some_bytes(900'000);
  const auto small = some_bytes(500'000);
  Session keeper = connect();
  const Result<RemoteMemory> first = announce(keeper, small);
  ASSERT_TRUE(first && push_one(keeper, *first, small));
  Session other = connect();
  const Result<RemoteMemory> second = announce(other, large, "other");
  ASSERT_TRUE(second) << second.error().to_string();
  EXPECT_EQ(store_.count(), 1U);
  EXPECT_TRUE(keeper.peer().lookup("model/m/weight"));
  EXPECT_EQ(counters_.models_evicted, 0U);
  const Result<PushResult> verified = push_one(other, *second, large);
  ASSERT_TRUE(verified) << verified.error().to_string();
  EXPECT_EQ(verified->verified, 1U);
  EXPECT_EQ(counters_.models_evicted, 1U);
  EXPECT_FALSE(keeper.peer().lookup("model/m/weight"));
  EXPECT_TRUE(keeper.peer().lookup("model/other/weight"));
  keeper.close();
  other.close();
}

TEST_F(PushServerTest, OthersAreServedWhileMemoryIsCleared) {
  clearing_lasts_ = true;
  Session slow = connect();
  const auto bytes = some_bytes(400'000);
  const Result<RemoteMemory> remote = announce(slow, bytes, "slow");
  ASSERT_TRUE(remote) << remote.error().to_string();  // it may write already
  Session other = connect();
  const Result<RemoteMemory> second = announce(other, bytes);
  ASSERT_TRUE(second) << second.error().to_string();
  ASSERT_TRUE(push_one(other, *second, bytes));
  EXPECT_EQ(store_.count(), 1U);
  clearing_lasts_ = false;
  ASSERT_TRUE(push_one(slow, *remote, bytes));
  slow.close();
  other.close();
}

TEST_F(PushServerTest, NobodyWaitsForTheThreadOfAClientThatLeft) {
  clearing_cannot_stop_ = true;
  const auto bytes = some_bytes(400'000);
  {
    Session leaving = connect();
    ASSERT_TRUE(announce(leaving, bytes, "left"));
    leaving.close();
  }
  eventually([&] { return counters_.pushes_abandoned == 1; });
  Session other = connect();
  EXPECT_TRUE(announce(other, bytes));
  EXPECT_GT(store_.bytes_held(), 800'000U) << "what the thread works on is not free yet";
  clearing_cannot_stop_ = false;
  other.close();
  eventually([&] { return counters_.clients == 0 && store_.bytes_held() == 0; });
}

TEST_F(PushServerTest, ATensorStandsStillOnceItsNotificationHasCome) {
  Session session = connect();
  const auto bytes = some_bytes(5000);
  const FileTensor tensor{"weight", "U8", {5000}, 0, 5000};
  ASSERT_TRUE(session.send(PushBegin{"m", 1, 2, 5000, true}).ok());
  ASSERT_TRUE(session.send(ModelFile{"m.safetensors", {}, 2}).ok());
  ASSERT_TRUE(session.send(TensorBatch{{{{"empty", "U8", {0}, 0, 0}, {}}, {tensor, {}}}}).ok());
  const Result<PushReady> ready = session.expect<PushReady>();
  ASSERT_TRUE(ready);
  const Result<RemoteMemory> remote = session.peer().lookup(ready->prefix + "1");
  ASSERT_TRUE(remote);
  Result<Memory> local = session.engine().allocate(bytes.size());
  std::ranges::copy(bytes, local->data());
  EXPECT_TRUE(session.peer().write(*local, *remote, {.notify = 1}).wait().ok());
  eventually([&] { return !session.peer().write(*local, *remote).wait().ok(); });
  ASSERT_TRUE(session.send(PushFinish{{0, crc32(bytes)}}).ok());
  const Result<PushResult> result = session.expect<PushResult>();
  ASSERT_TRUE(result) << result.error().to_string();
  EXPECT_EQ(result->verified, 2U);
  session.close();
}

TEST_F(PushServerTest, ASumThatIsWrongIsFoundAlsoWhenItWasComputedOnArrival) {
  Session session = connect();
  const auto bytes = some_bytes(5000);
  ASSERT_TRUE(session.send(PushBegin{"m", 1, 1, 5000, true}).ok());
  ASSERT_TRUE(session.send(ModelFile{"m.safetensors", {}, 1}).ok());
  ASSERT_TRUE(session.send(TensorBatch{{{{"weight", "U8", {5000}, 0, 5000}, {}}}}).ok());
  const Result<PushReady> ready = session.expect<PushReady>();
  ASSERT_TRUE(ready);
  const Result<RemoteMemory> remote = session.peer().lookup(ready->prefix + "0");
  ASSERT_TRUE(remote);
  Result<Memory> local = session.engine().allocate(bytes.size());
  std::ranges::copy(bytes, local->data());
  EXPECT_TRUE(session.peer().write(*local, *remote, {.notify = 0}).wait().ok());
  eventually([&] { return !session.peer().write(*local, *remote).wait().ok(); });  // it is summed now, or soon
  ASSERT_TRUE(session.send(PushFinish{{crc32(bytes) + 1}}).ok());
  const Result<PushResult> result = session.expect<PushResult>();
  ASSERT_TRUE(result) << result.error().to_string();
  EXPECT_EQ(result->failed, 1U);
  EXPECT_EQ(store_.count(), 0U);
  session.close();
}

TEST_F(PushServerTest, SumsThatNoThreadComputesOnArrivalAreComputedAtTheEnd) {
  Session session = connect(), other = connect();
  const auto bytes = some_bytes(5000);
  const test::NoThreads none;
  ASSERT_TRUE(session.send(PushBegin{"m", 1, 1, 5000, true}).ok());
  ASSERT_TRUE(session.send(ModelFile{"m.safetensors", {}, 1}).ok());
  ASSERT_TRUE(session.send(TensorBatch{{{{"weight", "U8", {5000}, 0, 5000}, {}}}}).ok());
  const Result<PushReady> ready = session.expect<PushReady>();
  ASSERT_TRUE(ready) << ready.error().to_string();
  const Result<RemoteMemory> remote = session.peer().lookup(ready->prefix + "0");
  ASSERT_TRUE(remote);
  EXPECT_TRUE(announce(other, bytes, "another")) << "others are served";
  const Result<PushResult> result = push_one(session, *remote, bytes);
  ASSERT_TRUE(result) << result.error().to_string();
  EXPECT_EQ(result->verified, 1U);
  session.close();
  other.close();
}

class StalledPushTest : public PushServerTest {
 protected:
  StalledPushTest() : PushServerTest(std::chrono::milliseconds(0)) {}
};

TEST_F(StalledPushTest, GivesWayToOneThatNeedsItsRoom) {
  Session silent = connect();
  const auto bytes = some_bytes(800'000);
  ASSERT_TRUE(announce(silent, bytes));
  Session other = connect();
  const Result<RemoteMemory> remote = announce(other, bytes);
  ASSERT_TRUE(remote) << remote.error().to_string();
  const Result<PushResult> gone = silent.expect<PushResult>();
  ASSERT_FALSE(gone);
  EXPECT_THAT(gone.error().message(), HasSubstr("another push needs its room"));
  EXPECT_TRUE(push_one(other, *remote, bytes));
  other.close();
  silent.close();
}

TEST_F(StalledPushTest, BytesOfATensorThatIsNotWholeYetAreNoSilence) {
  Session slow = connect();
  const auto bytes = some_bytes(800'000);
  const Result<RemoteMemory> remote = announce(slow, bytes);
  ASSERT_TRUE(remote);
  Result<Memory> source = slow.engine().allocate(bytes.size());
  ASSERT_TRUE(source);
  std::ranges::copy(bytes, source->data());
  Session other = connect();
  // Each look finds a part that was not there at the last.
  for (const std::uint64_t begin : {0U, 300'000U}) {
    ASSERT_TRUE(slow.peer().write(source->slice(begin, 300'000), remote->slice(begin, 300'000)).wait().ok());
    const Result<RemoteMemory> refused = announce(other, bytes, "other");
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message(), HasSubstr("pushes under way hold"));
  }
  ASSERT_TRUE(announce(other, bytes, "other")) << "nothing came since";
  EXPECT_THAT(slow.expect<PushResult>().error().message(), HasSubstr("another push needs its room"));
  other.close();
  slow.close();
}

TEST_F(PushServerTest, OnDrainingFinishesWhatIsUnderWayAndBeginsNothing) {
  Session pusher = connect();
  const auto bytes = some_bytes(1000);
  const Result<RemoteMemory> remote = announce(pusher, bytes);
  ASSERT_TRUE(remote);
  eventually([&] { return busy_.load(); });
  drain_ = true;
  Session late = connect();
  eventually([&] { return drained_.load(); });
  const Result<RemoteMemory> refused = announce(late, bytes, "late");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kUnavailable);
  ASSERT_TRUE(late.send(PullBegin{"m"}).ok());
  EXPECT_EQ(late.expect<PullReady>().error().code(), Code::kUnavailable);
  EXPECT_TRUE(busy_);
  const Result<PushResult> result = push_one(pusher, *remote, bytes);
  ASSERT_TRUE(result) << result.error().to_string();
  EXPECT_EQ(result->verified, 1U);
  eventually([&] { return !busy_; });
  pusher.close();
  late.close();
}

TEST_F(PushServerTest, OnDrainingTellsWhoHasNotBegun) {
  Session idle = connect(), late = connect();
  const auto hears = [](Session& session) {
    const Result<PushResult> heard = session.expect<PushResult>();  // it asked for nothing
    ASSERT_FALSE(heard);
    EXPECT_THAT(heard.error().message(), HasSubstr("this server is draining"));
  };
  eventually([&] { return counters_.clients == 2; });
  EXPECT_FALSE(busy_);
  drain_ = true;
  hears(idle);
  Session newcomer = connect();
  hears(newcomer);
  eventually([&] { return drained_ && !busy_; });  // both were told, and nothing else is waited for
  ASSERT_TRUE(late.send(PushBegin{"m", 1, 1, 10}).ok());
  hears(late);
  EXPECT_TRUE(late.peer().state() == PeerState::kReady);
}

TEST_F(PushServerTest, RefusesAModelThatDoesNotFitAndGoesOn) {
  Session session = connect();
  const auto bytes = some_bytes((1 << 20) + 1);
  const Result<RemoteMemory> remote = announce(session, bytes);
  ASSERT_FALSE(remote);
  EXPECT_EQ(remote.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(remote.error().message(), HasSubstr("--max-push"));
  const auto small = some_bytes(10);
  EXPECT_TRUE(announce(session, small));  // the same session may try again
  session.close();
}

struct GenerousServerTest : PushServerTest {
  GenerousServerTest() : PushServerTest(std::chrono::minutes(5), std::uint64_t{1} << 60) {}
};

TEST_F(GenerousServerTest, SaysWhyThereIsNoMemoryForAModelAndGoesOn) {
  constexpr std::uint64_t kBytes = std::uint64_t{1} << 50;
  Session session = connect();
  const FileTensor tensor{"weight", "U8", {std::int64_t{kBytes}}, 0, kBytes};
  ASSERT_TRUE(session.send(PushBegin{"m", 1, 1, kBytes}).ok());
  ASSERT_TRUE(session.send(ModelFile{"m.safetensors", {}, 1}).ok());
  ASSERT_TRUE(session.send(TensorBatch{{{tensor, {}}}}).ok());
  const Result<PushReady> refused = session.expect<PushReady>();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.error().message(), testing::MatchesRegex("cannot (allocate|map) 1125899906842624 bytes.*"));
  EXPECT_TRUE(announce(session, some_bytes(100)));
  session.close();
}

TEST_F(PushServerTest, RefusesTwoTensorsOfOneNameAndBadModelNames) {
  const FileTensor tensor{"t", "U8", {8}, 0, 8};
  const ModelFile file{"f", {}, 2};
  Session session = connect();
  ASSERT_TRUE(session.send(PushBegin{"m", 1, 2, 16}).ok());
  ASSERT_TRUE(session.send(file).ok());
  ASSERT_TRUE(session.send(TensorBatch{{{tensor, {}}, {tensor, {}}}}).ok());
  EXPECT_THAT(session.expect<PushReady>().error().message(), HasSubstr("two tensors named t"));
  ASSERT_TRUE(session.send(PushBegin{"../m", 1, 0, 0}).ok());
  EXPECT_THAT(session.expect<PushReady>().error().message(), HasSubstr("legal: 1 to 128"));
  session.close();
}

}  // namespace
}  // namespace fairlead::cli
