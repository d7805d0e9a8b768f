// The server's side of push against clients that do it right, and wrong in every way that the protocol has.
#include "cli/push_server.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>
#include <functional>
#include <thread>

#include "base/crc.h"
#include "cli/session.h"

namespace fairlead::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

// A server on a thread of its own, over tcp on loopback.
class PushServerTest : public testing::Test {
 protected:
  explicit PushServerTest(std::chrono::milliseconds stalled = std::chrono::minutes(5), std::uint64_t most = 950'000)
      : stalled_(stalled), console_("test"), engine_(make_engine()), store_(&*engine_, most + 98'576, most) {
    thread_ = std::thread([this] { serve(); });
  }
  ~PushServerTest() override {
    stop_ = true;
    thread_.join();
  }

  static Result<Engine> make_engine() {
    EngineConfig config;
    config.listen = "127.0.0.1:0";
    config.transport = "tcp";
    return Engine::create(config);
  }

  void serve() {
    PushServer server(&store_, &console_, &counters_,
                      {.check = Check::kOnArrival, .stalled = stalled_, .populate = &populate});
    while (!stop_) {
      while (auto peer = engine_->accept()) server.on_connected(*peer);
      const auto [peer, event] = engine_->next_event(std::chrono::milliseconds(20));
      if (event.kind != Event::Kind::kNone) server.on_event(peer, event);
      server.progress();
      if (drain_ && !drained_.exchange(true)) server.drain();
      busy_ = server.busy();
    }
  }

  Session connect() {
    EngineConfig config;
    config.transport = "tcp";
    Result<Engine> engine = Engine::create(config);
    EXPECT_TRUE(engine) << engine.error().to_string();
    Result<Session> session = Session::open(*std::move(engine), engine_->listen_address(), &client_console_);
    EXPECT_TRUE(session) << session.error().to_string();
    return *std::move(session);
  }

  // Announces one tensor of these bytes; gives where to write it.
  Result<RemoteMemory> announce(Session& session, std::span<const std::byte> bytes, const std::string& model = "m",
                                const std::string& name = "weight") {
    const FileTensor tensor{name, "U8", {static_cast<std::int64_t>(bytes.size())}, 0, bytes.size()};
    EXPECT_TRUE(session.send(PushBegin{model, 1, 1, bytes.size()}).ok());
    EXPECT_TRUE(session.send(ModelFile{"m.safetensors", {}, 1}).ok());
    EXPECT_TRUE(session.send(TensorBatch{{{tensor, {}}}}).ok());
    Result<PushReady> ready = session.expect<PushReady>();
    if (!ready) return ready.error();
    return session.peer().lookup(ready->prefix + "0");
  }

  template <typename Condition>
  static void eventually(Condition condition) {
    for (int i = 0; i < 2000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_TRUE(condition());
  }

  // A client that misbehaved is told why, loses its session, and leaves nothing behind.
  void expect_expelled(Session& session, std::string_view why) {
    const Result<PushResult> answer = session.expect<PushResult>();
    ASSERT_FALSE(answer);
    EXPECT_THAT(answer.error().message(), HasSubstr(std::string(why)));
    eventually([&] { return session.peer().state() == PeerState::kClosed; });
    eventually([&] { return counters_.clients == 0 && store_.bytes_held() == 0; });
  }

  // Clearing memory takes for ever while one of these is set.
  static inline std::atomic<bool> clearing_lasts_{false}, clearing_cannot_stop_{false};
  static void populate(std::span<std::byte> bytes, const std::stop_token& stop) noexcept {
    while (clearing_cannot_stop_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    while (clearing_lasts_ && !stop.stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    memreg::populate(bytes, stop);
  }

  const std::chrono::milliseconds stalled_;
  Console console_;  // of the server's thread
  Console client_console_{"test client"};
  Result<Engine> engine_;
  ModelStore store_;
  ServeCounters counters_;
  std::atomic<bool> stop_{false}, drain_{false}, drained_{false}, busy_{false};
  std::thread thread_;
};

std::vector<std::byte> some_bytes(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + 1);
  return bytes;
}

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

// Pushes one tensor as the whole of model "m".
Result<PushResult> push_one(Session& session, const RemoteMemory& remote, std::span<const std::byte> bytes) {
  Result<Memory> local = session.engine().allocate(bytes.size());
  if (!local) return local.error();
  std::copy(bytes.begin(), bytes.end(), local->data());
  EXPECT_TRUE(session.peer().write(*local, remote, {.notify = 0}).wait().ok());
  EXPECT_TRUE(session.send(PushFinish{{crc32(bytes)}}).ok());
  return session.expect<PushResult>();
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
