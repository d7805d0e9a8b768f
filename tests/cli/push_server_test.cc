// The server's side of push against clients that do it right, and wrong in every way that the protocol has.
#include "cli/push_server.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "cli/session.h"
#include "datapath/base/crc.h"

namespace fairlead::cli {
namespace {

using testing::HasSubstr;

// A server on a thread of its own, over tcp on loopback.
class PushServerTest : public testing::Test {
 protected:
  PushServerTest() : console_("test"), engine_(make_engine()), store_(&*engine_, 1 << 20) {
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
    PushServer server(&store_, &console_, &counters_, Check::kOnArrival);
    while (!stop_) {
      while (auto peer = engine_->accept()) server.on_connected(*peer);
      const auto [peer, event] = engine_->next_event(std::chrono::milliseconds(20));
      if (event.kind != Event::Kind::kNone) server.on_event(peer, event);
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
  Result<RemoteMemory> announce(Session& session, std::span<const std::byte> bytes, std::uint32_t crc) {
    const FileTensor tensor{"weight", DType::kU8, {static_cast<std::int64_t>(bytes.size())}, 0, bytes.size()};
    EXPECT_TRUE(session.send(PushBegin{"m", {}, 1, bytes.size()}).ok());
    EXPECT_TRUE(session.send(TensorBatch{{{tensor, crc}}}).ok());
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

  Console console_;  // of the server's thread
  Console client_console_{"test client"};
  Result<Engine> engine_;
  ModelStore store_;
  ServeCounters counters_;
  std::atomic<bool> stop_{false};
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
  const Result<RemoteMemory> remote = announce(session, bytes, crc32(bytes));
  ASSERT_TRUE(remote) << remote.error().to_string();
  EXPECT_EQ(remote->access(), Access::kRemoteWrite);
  Result<Memory> local = session.engine().allocate(bytes.size());
  ASSERT_TRUE(local);
  std::copy(bytes.begin(), bytes.end(), local->data());
  EXPECT_TRUE(session.peer().write(*local, *remote, {.notify = 0}).wait().ok());
  ASSERT_TRUE(session.send(PushFinish{}).ok());
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
  const Result<RemoteMemory> remote = announce(session, bytes, crc32(bytes) + 1);
  ASSERT_TRUE(remote);
  Result<Memory> local = session.engine().allocate(bytes.size());
  std::copy(bytes.begin(), bytes.end(), local->data());
  EXPECT_TRUE(session.peer().write(*local, *remote, {.notify = 0}).wait().ok());
  ASSERT_TRUE(session.send(PushFinish{}).ok());
  const Result<PushResult> result = session.expect<PushResult>();
  ASSERT_TRUE(result) << result.error().to_string();
  EXPECT_EQ(result->failed, 1U);
  ASSERT_EQ(result->failures.size(), 1U);
  EXPECT_EQ(result->failures[0].first, "weight");
  EXPECT_THAT(result->failures[0].second, HasSubstr("CRC-32"));
  EXPECT_EQ(store_.count(), 0U);
  session.close();
}

TEST_F(PushServerTest, NoticesANotificationThatIsMissingOrComesTwice) {
  for (const int notifications : {0, 2}) {
    Session session = connect();
    const auto bytes = some_bytes(64);
    const Result<RemoteMemory> remote = announce(session, bytes, crc32(bytes));
    ASSERT_TRUE(remote);
    Result<Memory> local = session.engine().allocate(bytes.size());
    std::copy(bytes.begin(), bytes.end(), local->data());
    EXPECT_TRUE(session.peer().write(*local, *remote).wait().ok());
    for (int i = 0; i < notifications; ++i) {
      EXPECT_TRUE(session.peer().write(*local, *remote, {.notify = 0}).wait().ok());
    }
    ASSERT_TRUE(session.send(PushFinish{}).ok());
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
  EXPECT_TRUE(session.send(PushFinish{}).ok());
  return session.expect<PushResult>();
}

TEST_F(PushServerTest, AModelThatCannotBeKeptIsNotCountedAndLeavesTheOldOne) {
  Session session = connect();
  const auto bytes = some_bytes(100);
  const Result<RemoteMemory> first = announce(session, bytes, crc32(bytes));
  ASSERT_TRUE(first);
  ASSERT_TRUE(push_one(session, *first, bytes));
  // The second has a tensor whose name is taken.
  const Result<Memory> taken = engine_->allocate(64);
  ASSERT_TRUE(taken && engine_->publish("model/m/other", *taken, Access::kRemoteRead).ok());
  const FileTensor tensor{"other", DType::kU8, {100}, 0, 100};
  ASSERT_TRUE(session.send(PushBegin{"m", {}, 1, 100}).ok());
  ASSERT_TRUE(session.send(TensorBatch{{{tensor, crc32(bytes)}}}).ok());
  const Result<PushReady> ready = session.expect<PushReady>();
  ASSERT_TRUE(ready);
  const Result<RemoteMemory> second = session.peer().lookup(ready->prefix + "0");
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
  const Result<RemoteMemory> remote = announce(keeper, small, crc32(small));
  ASSERT_TRUE(remote && push_one(keeper, *remote, small));
  Session pusher = connect();  // under way, and not to be dropped
  const auto half = some_bytes(600'000);
  ASSERT_TRUE(announce(pusher, half, 0));
  Session other = connect();
  const Result<RemoteMemory> refused = announce(other, half, 0);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kResourceExhausted);
  EXPECT_EQ(store_.count(), 1U);
  EXPECT_TRUE(keeper.peer().lookup("model/m/weight"));
  keeper.close();
  pusher.close();
  other.close();
}

TEST_F(PushServerTest, RefusesAModelThatDoesNotFitAndGoesOn) {
  Session session = connect();
  const auto bytes = some_bytes((1 << 20) + 1);
  const Result<RemoteMemory> remote = announce(session, bytes, 0);
  ASSERT_FALSE(remote);
  EXPECT_EQ(remote.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(remote.error().message(), HasSubstr("--max-bytes"));
  const auto small = some_bytes(10);
  EXPECT_TRUE(announce(session, small, crc32(small)));  // the same session may try again
  session.close();
}

TEST_F(PushServerTest, ExpelsClientsThatBreakTheProtocol) {
  const FileTensor tensor{"t", DType::kU8, {8}, 0, 8};
  {
    Session session = connect();
    ASSERT_TRUE(session.send(PushFinish{}).ok());
    expect_expelled(session, "the end of no push");
  }
  {
    Session session = connect();
    ASSERT_TRUE(session.send(TensorBatch{{{tensor, 0}}}).ok());
    expect_expelled(session, "tensors without a push");
  }
  {
    Session session = connect();
    ASSERT_TRUE(session.send(PushBegin{"m", {}, 1, 8}).ok());
    ASSERT_TRUE(session.send(TensorBatch{{{tensor, 0}, {tensor, 0}}}).ok());
    expect_expelled(session, "more tensors than announced");
  }
  {
    Session session = connect();
    ASSERT_TRUE(session.send(PushBegin{"m", {}, 2, 8}).ok());
    ASSERT_TRUE(session.send(PushBegin{"m", {}, 2, 8}).ok());
    expect_expelled(session, "a push within a push");
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
    const Result<RemoteMemory> remote = announce(session, bytes, 0);
    ASSERT_TRUE(remote);
    Result<Memory> local = session.engine().allocate(8);
    static_cast<void>(session.peer().write(*local, *remote, {.notify = 77}));
    expect_expelled(session, "tensor 77");
  }
  EXPECT_EQ(counters_.pushes_verified, 0U);
}

TEST_F(PushServerTest, RefusesTwoTensorsOfOneNameAndBadModelNames) {
  const FileTensor tensor{"t", DType::kU8, {8}, 0, 8};
  Session session = connect();
  ASSERT_TRUE(session.send(PushBegin{"m", {}, 2, 16}).ok());
  ASSERT_TRUE(session.send(TensorBatch{{{tensor, 0}, {tensor, 0}}}).ok());
  EXPECT_THAT(session.expect<PushReady>().error().message(), HasSubstr("two tensors named t"));
  ASSERT_TRUE(session.send(PushBegin{"../m", {}, 0, 0}).ok());
  EXPECT_THAT(session.expect<PushReady>().error().message(), HasSubstr("legal: 1 to 128"));
  session.close();
}

}  // namespace
}  // namespace fairlead::cli
