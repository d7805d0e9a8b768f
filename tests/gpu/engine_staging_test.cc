// What becomes of staged transfers when copies take long or fail, when paths die, and when callers change their minds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/engine_cuda.h"

namespace fairlead {
namespace {

using testing::HasSubstr;

constexpr std::size_t kMiB = std::size_t{1} << 20;

class CudaStaging : public test::CudaEngines {};

// The driver's turn does not wait for a copy: what else the session does goes on.
TEST_F(CudaStaging, OthersGoOnWhileCopiesTakeLong) {
  start({"tcp", "tcp"});
  auto [remote, there] = remote_device("there", kMiB);
  auto [local, here] = device(*pair->client, kMiB, 1);
  auto [host_memory, host_remote] = pair->target("host", 4096);
  Memory host = pair->buffer(*pair->client, 4096, 5);
  cuda.hold_copies();
  Transfer slow = pair->peer.write(local, remote);
  EXPECT_TRUE(cuda.wait_for_copies(1));
  expect_ok(pair->peer.write(host, host_remote));
  expect_ok(pair->peer.send({}, 7));
  EXPECT_EQ(next_of(pair->server_peer, Event::Kind::kMessage).value, 7u);
  EXPECT_FALSE(slow.done());
  cuda.let_copies_go();
  expect_ok(slow);
  EXPECT_TRUE(is_filled(cuda.shadow(there), 1));
}

// No more is under way than the staging memory holds, however much is posted.
TEST_F(CudaStaging, CopiesAreBoundedByTheStagingMemory) {
  start({"tcp", "tcp"}, 512 * 1024);
  auto [remote, there] = remote_device("there", 4 * kMiB);
  auto [local, here] = device(*pair->client, 4 * kMiB, 1);
  const std::size_t before = cuda.calls("copy_to_host");
  cuda.hold_copies();
  Transfer sent = pair->peer.write(local, remote);
  EXPECT_TRUE(cuda.wait_for_copies(4));  // 8 slots of 64 KiB, half of them for this end's own
  expect_ok(pair->peer.send({}, 1));
  EXPECT_EQ(cuda.calls("copy_to_host") - before, 4u);
  cuda.let_copies_go();
  expect_ok(sent);
  EXPECT_TRUE(is_filled(cuda.shadow(there), 1));
}

// Its memory is in use until the copies have ended, and so long it does not end.
TEST_F(CudaStaging, ACancelledTransferWaitsForItsCopies) {
  start({"tcp", "tcp"});
  auto [remote, there] = remote_device("there", 4 * kMiB);
  auto [local, here] = device(*pair->client, 4 * kMiB, 1);
  cuda.hold_copies();
  Transfer sent = pair->peer.write(local, remote);
  EXPECT_TRUE(cuda.wait_for_copies(1));
  sent.cancel();
  expect_ok(pair->peer.send({}, 1));  // the session has heard of it
  EXPECT_FALSE(sent.done());
  cuda.let_copies_go();
  EXPECT_EQ(sent.wait(kPatience).code(), Code::kCancelled);
  Transfer again = pair->peer.write(local, remote);  // and its slots are free
  expect_ok(again);
  EXPECT_TRUE(is_filled(cuda.shadow(there), 1));
}

TEST_F(CudaStaging, ALateTransferWaitsForItsCopies) {
  start({"tcp", "tcp"});
  auto [remote, there] = remote_device("there", kMiB, 2);
  auto [local, here] = device(*pair->client, kMiB);
  cuda.hold_copies();
  Transfer sent = pair->peer.read(local, remote, {.deadline = std::chrono::milliseconds(20)});
  std::thread later([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));  // nothing ends before that: then it is late
    cuda.let_copies_go();
  });
  EXPECT_EQ(sent.wait(kPatience).code(), Code::kDeadlineExceeded);
  later.join();
  expect_ok(pair->peer.read(local, remote));
  EXPECT_TRUE(is_filled(cuda.shadow(here), 2));
}

TEST_F(CudaStaging, ACopyThatFailsHereFailsTheTransfer) {
  start({"tcp", "tcp"});
  auto [memory, remote] = pair->target("host", kMiB);
  auto [local, here] = device(*pair->client, kMiB, 1);
  cuda.break_copy(1);
  expect_failure(pair->peer.write(local, remote), Code::kDataLoss, "the GPU failed a copy");
  EXPECT_EQ(pair->peer.state(), PeerState::kReady);
}

TEST_F(CudaStaging, ACopyThatFailsThereIsARefusal) {
  start({"tcp", "tcp"});
  auto [remote, there] = remote_device("there", kMiB);
  Memory host = pair->buffer(*pair->client, kMiB, 1);
  cuda.break_copy(1);
  expect_failure(pair->peer.write(host, remote), Code::kProtectionError, "refused");
  EXPECT_EQ(pair->peer.state(), PeerState::kReady);
}

TEST_F(CudaStaging, ACopyThatCannotBeStartedFailsTheTransfer) {
  start({"tcp", "tcp"});
  auto [remote, there] = remote_device("there", 4096, 1);
  auto [local, here] = device(*pair->client, 4096, 1);
  Memory host = pair->buffer(*pair->client, 4096, 1);
  cuda.fail_next("copy_to_host", gpu::CuResult::kIllegalAddress);
  expect_failure(pair->peer.write(local, remote), Code::kDataLoss, "the GPU failed a copy");
  cuda.fail_next("copy_to_host", gpu::CuResult::kIllegalAddress);
  expect_failure(pair->peer.read(host, remote), Code::kProtectionError, "refused");
  Result<RemoteMemory> anew = pair->peer.lookup("there", kPatience);
  ASSERT_TRUE(anew);
  expect_ok(pair->peer.read(host, *anew));
  EXPECT_TRUE(is_filled(host.bytes(), 1));
}

// When unpublish() returns no copy touches the memory: it may be freed.
TEST_F(CudaStaging, WithdrawingWaitsForCopiesOfPeers) {
  start({"tcp", "tcp"});
  auto [remote, there] = remote_device("there", kMiB);
  Memory host = pair->buffer(*pair->client, kMiB);
  fill_pattern(host.bytes(), 1);
  cuda.hold_copies();
  Transfer sent = pair->peer.write(host, remote);
  EXPECT_TRUE(cuda.wait_for_copies(1));
  std::atomic<bool> withdrawn{false};
  std::thread owner([&] {
    EXPECT_TRUE(pair->server->unpublish("there").ok());
    withdrawn = true;
  });
  expect_ok(pair->peer.send({}, 1));
  EXPECT_FALSE(withdrawn);
  cuda.let_copies_go();
  owner.join();
  const std::size_t copied = cuda.calls("copy_to_device");
  const Status end = sent.wait(kPatience);
  EXPECT_TRUE(end.ok() || end.code() == Code::kProtectionError) << end.to_string();
  EXPECT_EQ(cuda.calls("copy_to_device"), copied);
}

TEST_F(CudaStaging, AClosedSessionLetsGoOfTheMemory) {
  start({"tcp", "tcp"});
  auto [remote, there] = remote_device("there", 2 * kMiB);
  int released = 0;
  Transfer sent;
  {
    auto [local, here] = device(*pair->client, 2 * kMiB, 1, {.release = [&released] { ++released; }});
    cuda.hold_copies();
    sent = pair->peer.write(local, remote);
    EXPECT_TRUE(cuda.wait_for_copies(1));
  }
  pair->peer.close(std::chrono::nanoseconds(0));
  std::thread later([this] { cuda.let_copies_go(); });
  EXPECT_FALSE(sent.wait(kPatience).ok());
  later.join();
  sent = Transfer();
  pair->client->shutdown();
  EXPECT_EQ(released, 1);
}

// Though somebody still has its handle.
TEST_F(CudaStaging, AnEndedSessionKeepsNoSlot) {
  start({"tcp", "tcp"}, 256 * 1024);
  auto [remote, there] = remote_device("there", 2 * kMiB);
  Memory host = pair->buffer(*pair->client, 2 * kMiB);
  fill_pattern(host.bytes(), 1);
  cuda.hold_copies();
  Transfer sent = pair->peer.write(host, remote);
  EXPECT_TRUE(cuda.wait_for_copies(2));
  Peer old = pair->server_peer;
  pair->client->shutdown();  // in the middle
  cuda.let_copies_go();
  next_of(old, Event::Kind::kClosed);
  pair->client.reset();
  pair->client.emplace(*Engine::create(config_for({"tcp", "tcp"})));
  pair->connect();
  Result<RemoteMemory> anew = pair->peer.lookup("there", kPatience);
  ASSERT_TRUE(anew);
  Memory other = pair->buffer(*pair->client, 2 * kMiB);
  fill_pattern(other.bytes(), 2);
  expect_ok(pair->peer.write(other, *anew));
  EXPECT_TRUE(is_filled(cuda.shadow(there), 2));
  pair->server->shutdown();
  EXPECT_EQ(old.state(), PeerState::kClosed);
}

// ---- a path that dies in the middle: fenced, replayed, nothing lost and nothing late

class CudaFailover : public test::CudaEngines {
 protected:
  void begin(const std::string& client_io) {
    EngineConfig server = config_for({"server", "auto"});
    server.failover = true;
    server.cuda_staging_bytes = kMiB * lanes_under_test();
    EngineConfig client = config_for({"client", "verbs:soft0"});
    client.failover = true;
    client.cuda_staging_bytes = kMiB * lanes_under_test();
    client.verbs.packet_io = client_io;
    client.verbs.ack_timeout = server.verbs.ack_timeout = 13;
    pair->start(server, client);
    ASSERT_EQ(pair->peer.transport(), "verbs:soft0") << pair->peer.explain();
  }
};

TEST_F(CudaFailover, WritesAndNotificationsFinishOverTheNextPath) {
  if (test::over_memif()) GTEST_SKIP() << "the port goes silent by an option of udp's";
  begin("udp,silent_after=600");
  if (HasFatalFailure()) return;
  constexpr std::size_t kBytes = 256 * 1024, kTransfers = 32;
  auto [remote, there] = remote_device("there", kBytes * kTransfers);
  auto [local, here] = device(*pair->client, kBytes * kTransfers, 1);
  std::vector<Transfer> sent;
  for (std::size_t i = 0; i < kTransfers; ++i) {
    sent.push_back(pair->peer.write(local.slice(i * kBytes, kBytes), remote.slice(i * kBytes, kBytes), {.notify = i}));
  }
  for (std::size_t i = 0; i < kTransfers; ++i) {
    ASSERT_EQ(next_of(pair->server_peer, Event::Kind::kNotification).value, i);
    EXPECT_EQ(0, std::memcmp(cuda.shadow(there).data() + i * kBytes, cuda.shadow(here).data() + i * kBytes, kBytes));
  }
  for (Transfer& each : sent) expect_ok(each);
  EXPECT_GE(pair->peer.stats().failovers, 1u);
}

TEST_F(CudaFailover, ReadsFinishOverTheNextPath) {
  if (test::over_memif()) GTEST_SKIP() << "the port goes silent by an option of udp's";
  begin("udp,silent_after=300");
  if (HasFatalFailure()) return;
  constexpr std::size_t kBytes = 2 * kMiB;
  auto [remote, there] = remote_device("there", kBytes, 2);
  auto [local, here] = device(*pair->client, kBytes);
  for (int i = 0; i < 100 && pair->peer.stats().failovers == 0; ++i) {
    fill(cuda.shadow(here), 0);
    expect_ok(pair->peer.read(local, remote));
    ASSERT_TRUE(is_filled(cuda.shadow(here), 2)) << "read " << i;
  }
  EXPECT_GE(pair->peer.stats().failovers, 1u);
}

// ---- several paths, several lanes

TEST_F(CudaStaging, SeveralPathsCarryPieces) {
  EngineConfig client = config_for({"tcp", "tcp"}), server = client;
  client.paths = 3;
  pair->start(server, client);
  constexpr std::size_t kBytes = 8 * kMiB;
  auto [memory, remote] = pair->target("host", kBytes);
  auto [local, here] = device(*pair->client, kBytes, 3);
  for (int i = 0; i < 3; ++i) {
    std::memset(memory.data(), 0, kBytes);
    expect_ok(pair->peer.write(local, remote, {.notify = 1}));
    EXPECT_EQ(next_of(pair->server_peer, Event::Kind::kNotification).value, 1u);
    EXPECT_TRUE(is_filled(memory.bytes(), 3));
  }
  auto [other, elsewhere] = device(*pair->client, kBytes);
  expect_ok(pair->peer.read(other, remote));
  EXPECT_TRUE(is_filled(cuda.shadow(elsewhere), 3));
}

TEST_F(CudaStaging, EveryLaneHasItsOwn) {
  EngineConfig client = config_for({"tcp", "tcp"}), server = client;
  client.lanes = server.lanes = 3;
  client.cuda_staging_bytes = server.cuda_staging_bytes = 3 * 512 * 1024;
  pair->start(server, client);
  auto [remote, there] = remote_device("there", kMiB);
  std::vector<Peer> peers;
  std::vector<Transfer> sent;
  auto [local, here] = device(*pair->client, kMiB, 4);
  for (int i = 0; i < 4; ++i) {
    Result<Peer> peer = pair->client->connect(pair->server->listen_address());
    ASSERT_TRUE(peer);
    ASSERT_TRUE(peer->wait_ready(kPatience).ok());
    Result<RemoteMemory> seen = peer->lookup("there", kPatience);
    ASSERT_TRUE(seen);
    sent.push_back(peer->write(local, *seen));
    peers.push_back(*peer);
  }
  for (Transfer& each : sent) expect_ok(each);
  EXPECT_TRUE(is_filled(cuda.shadow(there), 4));
  EXPECT_EQ(pair->client->stats().cuda_staging_bytes, 3u * 512 * 1024);
}

}  // namespace
}  // namespace fairlead
