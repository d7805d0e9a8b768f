// Clients of a push server that want bytes of others, or its memory, or do what the protocol forbids.
#include <fmt/format.h>

#include <functional>
#include <thread>

#include "push_server_fixture.h"

namespace fairlead::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

// Pushes zeros without writing all of them: what others left would be in the way.
void expect_nothing_of_others(Session& thief, const RemoteMemory& first, std::size_t size, std::byte one,
                              std::uint32_t secret, const std::function<Result<RemoteMemory>(std::size_t)>& announce) {
  // Notified without being written.
  Result<Memory> nothing = thief.engine().allocate(1);
  nothing->data()[0] = one;
  EXPECT_TRUE(thief.peer().write(*nothing, first.slice(0, 1), {.notify = 0}).wait().ok());
  ASSERT_TRUE(thief.send(PushFinish{{0}}).ok());
  const Result<PushResult> refused = thief.expect<PushResult>();
  ASSERT_TRUE(refused);
  ASSERT_EQ(refused->failures.size(), 1U);
  EXPECT_THAT(refused->failures[0].second, Not(HasSubstr(fmt::format("{:08x}", secret))));
  // Zeroes are all that is there: their checksum is accepted, and they are read back.
  std::vector<std::byte> zeroes(size);
  zeroes[0] = one;
  const Result<RemoteMemory> again = announce(size);
  ASSERT_TRUE(again);
  EXPECT_TRUE(thief.peer().write(*nothing, again->slice(0, 1), {.notify = 0}).wait().ok());
  ASSERT_TRUE(thief.send(PushFinish{{crc32(zeroes)}}).ok());
  const Result<PushResult> kept = thief.expect<PushResult>();
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->verified, 1U);
  Result<Memory> local = thief.engine().allocate(size);
  std::ranges::fill(local->bytes(), std::byte{0x5A});
  const Result<RemoteMemory> readable = thief.peer().lookup("model/m/weight");
  ASSERT_TRUE(readable && thief.peer().read(*local, *readable).wait().ok());
  EXPECT_TRUE(std::ranges::equal(local->bytes(), zeroes));
}

// What a push that came to nothing left behind must neither be pulled nor guessed by another client.
TEST_F(PushServerTest, BytesOfOthersAreNeitherToldNorKept) {
  const auto secret = some_bytes(300'000);
  for (const bool ends : {true, false}) {  // failed, and abandoned
    Session victim = connect();
    const Result<RemoteMemory> remote = announce(victim, secret);
    ASSERT_TRUE(remote);
    Result<Memory> local = victim.engine().allocate(secret.size());
    std::copy(secret.begin(), secret.end(), local->data());
    EXPECT_TRUE(victim.peer().write(*local, *remote, {.notify = 0}).wait().ok());
    if (ends) {
      ASSERT_TRUE(victim.send(PushFinish{{crc32(secret) + 1}}).ok());
      const Result<PushResult> result = victim.expect<PushResult>();
      ASSERT_TRUE(result);
      ASSERT_EQ(result->failures.size(), 1U);
      EXPECT_THAT(result->failures[0].second, Not(HasSubstr(fmt::format("{:08x}", crc32(secret)))));
    }
    victim.close();
    eventually([&] { return counters_.clients == 0; });

    Session thief = connect();
    const Result<RemoteMemory> same = announce(thief, secret);
    ASSERT_TRUE(same);
    expect_nothing_of_others(thief, *same, secret.size(), secret[0], crc32(secret),
                             [&](std::size_t) { return announce(thief, secret); });
    thief.close();
    eventually([&] { return counters_.clients == 0; });
  }
}

// Its pushes are large enough for their memory to be kept for the next.
struct SpareMemoryTest : PushServerTest {
  SpareMemoryTest() : PushServerTest(std::chrono::minutes(5), std::uint64_t{16} << 20) {}

  static constexpr std::size_t kBytes = 3'000'000;
  const std::vector<std::byte> secret_ = some_bytes(kBytes);

  void write(Session& session, const RemoteMemory& remote) {
    Result<Memory> local = session.engine().allocate(kBytes);
    std::ranges::copy(secret_, local->data());
    EXPECT_TRUE(session.peer().write(*local, remote).wait().ok());
  }
  /// Once what the one before left is there.
  void expect_used_again_without_its_bytes() {
    eventually([&] { return counters_.clients == 0 && store_.spare().bytes >= kBytes; });
    const std::uint64_t taken = store_.spare().taken_bytes;
    Session thief = connect();
    const Result<RemoteMemory> same = announce(thief, secret_);
    ASSERT_TRUE(same);
    EXPECT_GE(store_.spare().taken_bytes, taken + kBytes);
    expect_nothing_of_others(thief, *same, kBytes, secret_[0], crc32(secret_),
                             [&](std::size_t) { return announce(thief, secret_); });
    EXPECT_GE(store_.spare().taken_bytes, taken + 2 * kBytes);
    thief.close();
    eventually([&] { return counters_.clients == 0; });
  }
};

TEST_F(SpareMemoryTest, OfAClientThatDiesInMidPush) {
  {
    Session victim = connect();
    const Result<RemoteMemory> remote = announce(victim, secret_);
    ASSERT_TRUE(remote);
    write(victim, *remote);
  }
  expect_used_again_without_its_bytes();
}

TEST_F(SpareMemoryTest, OfAModelThatWasReplacedOrMadeRoom) {
  Session victim = connect();
  for (const char* model : {"m", "m"}) {
    const Result<RemoteMemory> remote = announce(victim, secret_, model);
    ASSERT_TRUE(remote && push_one(victim, *remote, secret_));
  }
  victim.close();
  expect_used_again_without_its_bytes();
}

TEST_F(SpareMemoryTest, OfAPushThatFailed) {
  Session victim = connect();
  const Result<RemoteMemory> remote = announce(victim, secret_);
  ASSERT_TRUE(remote);
  write(victim, *remote);
  ASSERT_TRUE(victim.send(PushFinish{{crc32(secret_)}}).ok());  // no notification
  const Result<PushResult> result = victim.expect<PushResult>();
  ASSERT_TRUE(result);
  EXPECT_EQ(result->failed, 1U);
  victim.close();
  expect_used_again_without_its_bytes();
}

TEST_F(SpareMemoryTest, GivesWayWhereBothWouldBeMoreThanTwiceTheBound) {
  const auto large = some_bytes(14 << 20);
  for (int i = 0; i < 2; ++i) {
    Session victim = connect();
    const Result<RemoteMemory> remote = announce(victim, large);
    ASSERT_TRUE(remote && push_one(victim, *remote, large));
    victim.close();
    eventually([&] { return counters_.clients == 0; });
  }
  eventually([&] { return store_.spare().bytes >= large.size(); });
  Session other = connect();
  ASSERT_TRUE(announce(other, some_bytes(6 << 20), "other"));
  EXPECT_EQ(store_.spare().taken_bytes, 0U) << "it is far too large for this one";
  EXPECT_LE(store_.spare().bytes + store_.bytes_held(), 2 * store_.max_bytes());
  EXPECT_EQ(store_.spare().bytes, 0U);
  other.close();
}

TEST_F(PushServerTest, APullWithinAPullIsRefused) {
  Session session = connect();
  const auto bytes = some_bytes(100);
  const Result<RemoteMemory> remote = announce(session, bytes);
  ASSERT_TRUE(remote && push_one(session, *remote, bytes));
  ASSERT_TRUE(session.send(PullBegin{"m"}).ok());
  ASSERT_TRUE(session.expect<PullReady>() && session.expect_files(1, 1) && session.expect_tensors(1));
  ASSERT_TRUE(session.send(PullBegin{"m"}).ok());
  EXPECT_THAT(session.expect<PullReady>().error().message(), HasSubstr("a pull within a pull"));
  eventually([&] { return counters_.clients == 0; });
}

// Answers that nobody reads wait in the server's memory.
TEST_F(PushServerTest, AClientThatAsksWithoutReadingIsExpelled) {
  Session session = connect();
  eventually([&] { return counters_.clients == 1; });
  for (int i = 0; i < 30'000 && session.peer().state() == PeerState::kReady; ++i) {
    static_cast<void>(session.peer().send(encode(ListModels{})));
    if (i % 64 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  eventually([&] { return counters_.clients == 0; });
}

TEST_F(PushServerTest, AClientThatIsRefusedAgainAndAgainIsExpelled) {
  Session session = connect();
  eventually([&] { return counters_.clients == 1; });
  for (int i = 0; i < 100; ++i) static_cast<void>(session.send(PullBegin{"none"}));
  eventually([&] { return counters_.clients == 0; });
}

TEST_F(PushServerTest, ExpelsClientsThatBreakTheProtocol) {
  const FileTensor tensor{"t", "U8", {8}, 0, 8};
  const ModelFile file{"f", {}, 2};
  {
    Session session = connect();
    ASSERT_TRUE(session.send(PushFinish{}).ok());
    expect_expelled(session, "the end of no push");
  }
  {
    Session session = connect();
    ASSERT_TRUE(session.send(TensorBatch{{{tensor, {}}}}).ok());
    expect_expelled(session, "tensors without a push");
  }
  {
    Session session = connect();
    ASSERT_TRUE(session.send(PushBegin{"m", 1, 1, 8}).ok());
    ASSERT_TRUE(session.send(TensorBatch{{{tensor, {}}, {tensor, {}}}}).ok());
    expect_expelled(session, "more tensors than announced");
  }
  {
    Session session = connect();
    ASSERT_TRUE(session.send(PushBegin{"m", 1, 2, 8}).ok());
    ASSERT_TRUE(session.send(PushBegin{"m", 1, 2, 8}).ok());
    expect_expelled(session, "a push within a push");
  }
  {
    Session session = connect();
    ASSERT_TRUE(session.send(file).ok());
    expect_expelled(session, "a file without a push");
  }
  {
    Session session = connect();
    ASSERT_TRUE(session.send(PushBegin{"m", 1, 2, 8}).ok() && session.send(file).ok() && session.send(file).ok());
    expect_expelled(session, "more files than announced");
  }
  {
    Session session = connect();
    ASSERT_TRUE(session.send(PushBegin{"m", 2, 4, 8}).ok() && session.send(file).ok() && session.send(file).ok());
    ASSERT_TRUE(session.send(TensorBatch{{{tensor, {}}, {tensor, {}}, {tensor, {}}, {tensor, {}}}}).ok());
    expect_expelled(session, "two files named f");
  }
  {
    Session session = connect();
    ASSERT_TRUE(session.send(PushBegin{"m", 1, 1, 8}).ok() && session.send(file).ok());
    ASSERT_TRUE(session.send(TensorBatch{{{tensor, {}}}}).ok());
    expect_expelled(session, "do not add up");
  }
  {
    Session session = connect();
    ASSERT_TRUE(session.send(PushBegin{"m", 0, 0, 0}).ok());
    expect_expelled(session, "a model without files");
  }
  {
    Session session = connect();
    ASSERT_TRUE(announce(session, some_bytes(8)));
    ASSERT_TRUE(session.send(PushFinish{{1, 2}}).ok());
    expect_expelled(session, "checksums of some tensors only");
  }
  {
    Session session = connect();
    ASSERT_TRUE(session.send(PushReady{"x"}).ok());
    expect_expelled(session, "only a server sends");
  }
  {
    Session session = connect();
    static_cast<void>(session.peer().send(std::as_bytes(std::span("garbage", 7))));
    expect_expelled(session, "JSON");
  }
  {
    Session session = connect();
    const auto bytes = some_bytes(8);
    const Result<RemoteMemory> remote = announce(session, bytes);
    ASSERT_TRUE(remote);
    Result<Memory> local = session.engine().allocate(8);
    static_cast<void>(session.peer().write(*local, *remote, {.notify = 77}));
    expect_expelled(session, "tensor 77");
  }
  EXPECT_EQ(counters_.pushes_verified, 0U);
}

}  // namespace
}  // namespace fairlead::cli
