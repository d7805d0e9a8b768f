// What the engine promises, over every way across, unchanged.
#include <arpa/inet.h>
#include <malloc.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstdlib>
#include <fstream>
#include <optional>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "tests/conformance/engine_pair.h"

namespace fairlead {
namespace {

class EngineConformance : public testing::TestWithParam<Way>, public EnginePair {
 protected:
  void SetUp() override {
    EngineConfig server = config_for(GetParam());
    server.transport = "auto";
    start(server, config_for(GetParam()));
  }
};

TransportStats over(const Engine& engine, const std::string& transport) {
  for (TransportStats& stats : engine.stats().transports) {
    if (stats.transport == transport) return stats;
  }
  ADD_FAILURE() << "there is no " << transport;
  return {};
}

TEST_P(EngineConformance, CarriesTheTransportThatWasAskedFor) {
  EXPECT_EQ(peer.transport(), GetParam().transport);
  EXPECT_EQ(server_peer.transport(), GetParam().transport);
  EXPECT_NE(peer.explain().find("asked for"), std::string::npos) << peer.explain();
  EXPECT_EQ(peer.explain().find("staged") != std::string::npos, !GetParam().one_sided) << peer.explain();
}

TEST_P(EngineConformance, WritesAndReadsBackEverySize) {
  const std::size_t largest = std::size_t{5} << 20;
  auto [memory, remote] = target("region", largest);
  Memory source = buffer(*client, largest), back = buffer(*client, largest);
  std::uint32_t seed = 1;
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{8}, std::size_t{4095}, std::size_t{4097},
                                 std::size_t{1} << 20, largest}) {
    const std::size_t offset = size < largest ? 13 : 0;
    fill_pattern(source.bytes(), ++seed);
    Transfer written = peer.write(source.slice(0, size), remote.slice(offset, size), {.notify = size});
    ASSERT_TRUE(written.wait(kPatience).ok()) << size << " " << written.status().to_string();
    EXPECT_EQ(written.bytes(), size);
    ASSERT_EQ(next_of(server_peer, Event::Kind::kNotification).value, size);
    EXPECT_EQ(std::memcmp(memory.data() + offset, source.data(), size), 0) << size;
    std::memset(back.data(), 0, size);
    Transfer read = peer.read(back.slice(0, size), remote.slice(offset, size));
    ASSERT_TRUE(read.wait(kPatience).ok()) << size << " " << read.status().to_string();
    EXPECT_EQ(std::memcmp(back.data(), source.data(), size), 0) << size;
  }
}

// Data is read only after its notification. The slots are reused as the reader says so by message.
TEST_P(EngineConformance, NotifiedDataIsVisible) {
  constexpr std::uint64_t kSlots = 1024;
  const char* rounds = std::getenv("FAIRLEAD_VISIBILITY_ROUNDS");
  const std::uint64_t total = rounds != nullptr ? std::stoull(rounds) : 50'000;
  struct Slot {
    std::uint64_t words[4];
  };
  auto [memory, remote] = target("slots", kSlots * sizeof(Slot));
  Memory source = buffer(*client, kSlots * sizeof(Slot));
  std::thread reader([&, memory = memory] {
    for (std::uint64_t expected = 0; expected < total; ++expected) {
      const Event event = next_of(server_peer, Event::Kind::kNotification);
      if (event.kind != Event::Kind::kNotification) return;
      ASSERT_EQ(event.value, expected);
      Slot slot;
      std::memcpy(&slot, memory.data() + (expected % kSlots) * sizeof(Slot), sizeof slot);
      for (const std::uint64_t word : slot.words) ASSERT_EQ(word, expected);
      if (expected % 256 == 255) server_peer.send({}, expected + 1);
    }
  });
  std::uint64_t reusable = kSlots;
  std::vector<Transfer> in_flight(kSlots);
  for (std::uint64_t i = 0; i < total; ++i) {
    while (i >= reusable) {
      const Event event = next_of(peer, Event::Kind::kMessage);
      if (event.kind != Event::Kind::kMessage) break;
      reusable = event.value + kSlots;
    }
    Transfer& transfer = in_flight[i % kSlots];
    if (transfer.valid()) {
      ASSERT_TRUE(transfer.wait(kPatience).ok()) << transfer.status().to_string();
    }
    const Slot slot{{i, i, i, i}};
    const std::size_t at = (i % kSlots) * sizeof(Slot);
    std::memcpy(source.data() + at, &slot, sizeof slot);
    transfer = peer.write(source.slice(at, sizeof slot), remote.slice(at, sizeof slot), {.notify = i});
  }
  for (Transfer& transfer : in_flight) {
    if (transfer.valid()) {
      EXPECT_TRUE(transfer.wait(kPatience).ok()) << transfer.status().to_string();
    }
  }
  reader.join();
}

TEST_P(EngineConformance, NotificationsAndMessagesKeepTheOrderOfPosting) {
  auto [memory, remote] = target("region", 65536);
  Memory source = buffer(*client, 65536, 7), back = buffer(*client, 65536);
  std::vector<Transfer> transfers;
  // Of more than 32 bits every other time: a write of some transports takes the smaller ones along.
  const auto value = [](std::uint64_t i) { return i % 2 == 0 ? i : ~i; };
  for (std::uint64_t i = 0; i < 300; ++i) {
    if (i % 3 == 0) {
      transfers.push_back(peer.send(source.bytes().first(i * 31), value(i)));
    } else if (i % 3 == 1) {
      transfers.push_back(
          peer.write(source.slice(0, (i * 37) % 65536), remote.slice(0, (i * 37) % 65536), {.notify = value(i)}));
    } else {
      transfers.push_back(peer.read(back.slice(0, i), remote.slice(0, i), {.notify = value(i)}));
    }
  }
  for (std::uint64_t i = 0; i < 300; ++i) {
    const Event event = next_of(server_peer, i % 3 == 0 ? Event::Kind::kMessage : Event::Kind::kNotification);
    ASSERT_EQ(event.value, value(i));
    if (i % 3 == 0) {
      ASSERT_EQ(event.data.size(), i * 31);
    }
  }
  for (Transfer& transfer : transfers) EXPECT_TRUE(transfer.wait(kPatience).ok());
}

TEST_P(EngineConformance, MessagesOfEverySize) {
  std::vector<std::byte> bytes(std::size_t{3} << 20);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 >> 3);
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{4000}, std::size_t{4096},
                                 std::size_t{4097}, std::size_t{100'000}, bytes.size()}) {
    Transfer sent = peer.send(std::span(bytes).first(size), size);
    const Event event = next_of(server_peer, Event::Kind::kMessage);
    EXPECT_EQ(event.value, size);
    ASSERT_EQ(event.data.size(), size);
    EXPECT_TRUE(std::equal(event.data.begin(), event.data.end(), bytes.begin()));
    EXPECT_TRUE(sent.wait(kPatience).ok());
  }
}

TEST_P(EngineConformance, ProtectionErrorFailsOnlyItsOwnTransfer) {
  auto [good, remote_good] = target("good", 65536);
  Memory source = buffer(*client, 65536, 9);
  for (int round = 0; round < 3; ++round) {
    auto [withdrawn, remote_withdrawn] = target("withdrawn", 65536);
    std::memset(good.data(), 0, good.size());
    std::vector<Transfer> innocents;
    Transfer culprit;
    for (std::uint64_t i = 0; i < 40; ++i) {
      if (i == 20) {  // refused on its way, or the client has just been told
        ASSERT_TRUE(server->unpublish("withdrawn").ok());
        culprit = peer.write(source, remote_withdrawn, {.notify = 999});
      }
      innocents.push_back(peer.write(source.slice(i * 1024, 1024), remote_good.slice(i * 1024, 1024), {.notify = i}));
    }
    expect_failure(culprit, Code::kProtectionError, "region 'withdrawn'");
    for (Transfer& transfer : innocents) {
      EXPECT_TRUE(transfer.wait(kPatience).ok()) << transfer.status().to_string();
    }
    for (std::uint64_t i = 0; i < 40; ++i) {
      ASSERT_EQ(next_of(server_peer, Event::Kind::kNotification).value, i);
    }
    for (std::size_t i = 0; i < 40 * 1024; ++i) ASSERT_EQ(good.data()[i], std::byte{9}) << i;
    for (std::size_t i = 0; i < withdrawn.size(); ++i) ASSERT_EQ(withdrawn.data()[i], std::byte{0}) << i;
    expect_failure(peer.read(source.slice(0, 512), remote_withdrawn.slice(0, 512)), Code::kProtectionError,
                   "region 'withdrawn'");
  }
  EXPECT_EQ(peer.state(), PeerState::kReady);
  EXPECT_EQ(peer.transport(), GetParam().transport);
}

TEST_P(EngineConformance, WhatIsNotGrantedIsRefusedBeforeItIsSent) {
  auto [memory, remote] = target("readable", 4096, Access::kRemoteRead);
  Memory source = buffer(*client, 8192);
  expect_failure(peer.write(source.slice(0, 4096), remote), Code::kPermissionDenied, "does not grant writing");
  expect_failure(peer.read(source, remote), Code::kOutOfRange, "8192 local bytes for 4096 remote bytes");
  expect_failure(peer.read(source.slice(0, 10), remote.slice(4090, 10)), Code::kInvalidArgument, "remote memory");
  EXPECT_FALSE(remote.slice(4096, 1).valid());
  EXPECT_FALSE(remote.slice(UINT64_MAX, 2).valid());
  EXPECT_TRUE(peer.read(source.slice(0, 4096), remote).wait(kPatience).ok());
  EXPECT_EQ(peer.lookup("nothing", kPatience).error().code(), Code::kNotFound);
}

TEST_P(EngineConformance, BatchesAndPreparedListsCanBePostedAgain) {
  auto [memory, remote] = target("region", 256 * 128);
  Memory source = buffer(*client, 256 * 128);
  fill_pattern(source.bytes(), 5);
  std::vector<Descriptor> scattered;  // every second piece, back to front
  for (std::size_t i = 256; i-- > 0;) {
    if (i % 2 == 0) scattered.push_back({source.slice(i * 128, 128), remote.slice((255 - i) * 128, 128)});
  }
  Result<Prepared> prepared = peer.prepare_write(scattered);
  ASSERT_TRUE(prepared) << prepared.error().to_string();
  EXPECT_EQ(prepared->bytes(), 128u * 128u);
  for (int round = 0; round < 3; ++round) {
    std::memset(memory.data(), 0, memory.size());
    Transfer first = peer.post(*prepared), second = peer.post(*prepared, {.notify = 77});
    EXPECT_EQ(next_of(server_peer, Event::Kind::kNotification).value, 77u);
    EXPECT_TRUE(first.wait(kPatience).ok());
    EXPECT_TRUE(second.wait(kPatience).ok());
    for (std::size_t i = 0; i < 256; i += 2) {
      ASSERT_EQ(std::memcmp(memory.data() + (255 - i) * 128, source.data() + i * 128, 128), 0) << i;
    }
  }
  EXPECT_FALSE(peer.prepare_write(std::vector<Descriptor>{{source, remote.slice(0, 1)}}));
}

TEST_P(EngineConformance, StridedTensors) {
  const std::int64_t shape[] = {6, 10};
  TensorSpec rows = *TensorSpec::contiguous(DType::kF32, shape);
  TensorSpec columns = rows;  // the same elements, stored column by column, after 64 bytes
  columns.strides = {1, 6};
  columns.offset = 64;
  auto [memory, remote] = target("tensor", 64 + columns.byte_count());
  Memory source = buffer(*client, rows.byte_count());
  for (int i = 0; i < 60; ++i) reinterpret_cast<float*>(source.data())[i] = static_cast<float>(i);
  Transfer written = peer.write_tensor(source, rows, remote, columns, {.notify = 1});
  ASSERT_TRUE(written.wait(kPatience).ok()) << written.status().to_string();
  ASSERT_EQ(next_of(server_peer, Event::Kind::kNotification).value, 1u);
  for (int r = 0; r < 6; ++r) {
    for (int c = 0; c < 10; ++c) {
      EXPECT_EQ(reinterpret_cast<float*>(memory.data() + 64)[c * 6 + r], static_cast<float>(r * 10 + c));
    }
  }
  Memory back = buffer(*client, rows.byte_count());
  ASSERT_TRUE(peer.read_tensor(back, rows, remote, columns).wait(kPatience).ok());
  EXPECT_EQ(std::memcmp(back.data(), source.data(), source.size()), 0);
  TensorSpec other = rows;
  other.dtype = DType::kI32;
  expect_failure(peer.write_tensor(source, rows, remote, other), Code::kInvalidArgument, "I32");
}

TEST_P(EngineConformance, ThousandsInFlightCompleteOnce) {
  constexpr std::size_t kCount = 5000;
  auto [memory, remote] = target("region", kCount * 8);
  Memory source = buffer(*client, kCount * 8);
  fill_pattern(source.bytes(), 3);
  for (std::size_t i = 0; i < kCount; ++i) {
    peer.write(source.slice(i * 8, 8), remote.slice(i * 8, 8), {.report = true, .tag = i});
  }
  std::vector<int> seen(kCount, 0);
  std::size_t completed = 0;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (completed < kCount && std::chrono::steady_clock::now() < deadline) {
    while (std::optional<Transfer> transfer = client->next_completed()) {
      ASSERT_TRUE(transfer->status().ok()) << transfer->status().to_string();
      ASSERT_EQ(++seen[transfer->tag()], 1);
      ++completed;
    }
  }
  EXPECT_EQ(completed, kCount);
  peer.send({}, 1);
  next_of(server_peer, Event::Kind::kMessage);
  EXPECT_EQ(std::memcmp(memory.data(), source.data(), source.size()), 0);
  EXPECT_FALSE(client->next_completed());
}

TEST_P(EngineConformance, CancelAndDeadlineEndATransferOnce) {
  const std::size_t size = std::size_t{8} << 20;
  auto [memory, remote] = target("region", size);
  Memory source = buffer(*client, size, 4);
  for (int round = 0; round < 5; ++round) {
    Transfer ahead = peer.write(source, remote);
    Transfer cancelled = peer.write(source, remote, {.notify = 1});
    Transfer late = peer.write(source, remote, {.deadline = std::chrono::microseconds(1)});
    cancelled.cancel();
    EXPECT_TRUE(ahead.wait(kPatience).ok()) << ahead.status().to_string();
    const Code code = cancelled.wait(kPatience).code();
    EXPECT_TRUE(code == Code::kCancelled || code == Code::kOk) << to_string(code);
    if (code == Code::kCancelled) {
      EXPECT_EQ(cancelled.status().message(), "cancelled");
    }
    const Code late_code = late.wait(kPatience).code();
    EXPECT_TRUE(late_code == Code::kDeadlineExceeded || late_code == Code::kOk) << to_string(late_code);
    if (late_code == Code::kDeadlineExceeded) {
      EXPECT_NE(late.status().message().find("the deadline passed with "), std::string::npos)
          << late.status().message();
    }
    if (code == Code::kOk) {
      EXPECT_EQ(next_of(server_peer, Event::Kind::kNotification).value, 1u);
    }
    // Free now: what is written to it cannot reach the target any more.
    std::memset(source.data(), 5, size);
    EXPECT_TRUE(peer.write(source.slice(0, 4096), remote.slice(0, 4096), {.notify = 2}).wait(kPatience).ok());
    EXPECT_EQ(next_of(server_peer, Event::Kind::kNotification).value, 2u);
    std::memset(source.data(), 4, size);
  }
  EXPECT_EQ(peer.transport(), GetParam().transport);
}

TEST_P(EngineConformance, BothEndsWriteAtOnce) {
  const std::size_t size = std::size_t{1} << 20;
  auto [memory, remote] = target("here", size);
  Memory there = buffer(*client, size);
  ASSERT_TRUE(client->publish("there", there, Access::kRemoteReadWrite).ok());
  Result<RemoteMemory> remote_there = server_peer.lookup("there", kPatience);
  ASSERT_TRUE(remote_there);
  Memory a = buffer(*client, size), b = buffer(*server, size);
  fill_pattern(a.bytes(), 11);
  fill_pattern(b.bytes(), 12);
  std::vector<Transfer> transfers;
  for (int i = 0; i < 20; ++i) {
    transfers.push_back(peer.write(a, remote));
    transfers.push_back(server_peer.write(b, *remote_there));
  }
  for (Transfer& transfer : transfers) ASSERT_TRUE(transfer.wait(kPatience).ok()) << transfer.status().to_string();
  peer.send({}, 1);
  server_peer.send({}, 2);
  next_of(server_peer, Event::Kind::kMessage);
  next_of(peer, Event::Kind::kMessage);
  EXPECT_EQ(std::memcmp(memory.data(), a.data(), size), 0);
  EXPECT_EQ(std::memcmp(there.data(), b.data(), size), 0);
}

TEST_P(EngineConformance, ThousandsOfNamesAreListedInOrder) {
  Memory memory = buffer(*server, 4096);
  const std::string padding(200, 'x');
  for (int i = 0; i < 2000; ++i) {
    const std::string number = std::to_string(10000 + i);
    ASSERT_TRUE(server->publish("many/" + number + padding, memory.slice(0, 64), Access::kRemoteRead).ok());
  }
  ASSERT_TRUE(server->publish("other", memory, Access::kRemoteRead).ok());
  Result<std::vector<RemoteMemory>> list = peer.list("many/", kPatience);
  ASSERT_TRUE(list) << list.error().to_string();
  ASSERT_EQ(list->size(), 2000u);
  for (std::size_t i = 0; i < 2000; ++i) EXPECT_EQ((*list)[i].name(), "many/" + std::to_string(10000 + i) + padding);
  EXPECT_EQ(server->publish("other", memory, Access::kRemoteRead).code(), Code::kAlreadyExists);
}

TEST_P(EngineConformance, ANameIsBytesInNoParticularEncoding) {
  const std::string name("\xff\xfe\0w", 4);
  ASSERT_TRUE(server->publish(name, buffer(*server, 64), Access::kRemoteRead).ok());
  const Result<RemoteMemory> found = peer.lookup(name, kPatience);
  ASSERT_TRUE(found) << found.error().to_string();
  EXPECT_EQ(found->name(), name);
}

TEST_P(EngineConformance, WritesFromAFileMappedReadOnly) {
  const std::string path = testing::TempDir() + "/fairlead_map_" + std::to_string(::getpid()) + GetParam().name;
  {
    std::ofstream file(path, std::ios::binary);
    for (int i = 0; i < 100'000; ++i) file.put(static_cast<char>(i % 251));
  }
  Result<Memory> file = client->map_file(path);
  ASSERT_TRUE(file) << file.error().to_string();
  auto [memory, remote] = target("region", file->size());
  EXPECT_TRUE(peer.write(*file, remote, {.notify = 1}).wait(kPatience).ok());
  EXPECT_EQ(next_of(server_peer, Event::Kind::kNotification).value, 1u);
  EXPECT_EQ(std::memcmp(memory.data(), file->data(), file->size()), 0);
  expect_failure(peer.read(*file, remote), Code::kPermissionDenied, "mapped read-only");
  ::unlink(path.c_str());
}

TEST_P(EngineConformance, AnOrderlyCloseIsSeenAsOne) {
  auto [memory, remote] = target("region", 65536);
  Memory source = buffer(*client, 65536, 3);
  Transfer last = peer.write(source, remote, {.notify = 5});
  peer.close();
  EXPECT_EQ(next_of(server_peer, Event::Kind::kNotification).value, 5u);
  Event end;
  while ((end = server_peer.next_event(kPatience)).kind != Event::Kind::kClosed) {
  }
  EXPECT_TRUE(end.status.ok()) << end.status.to_string();
  EXPECT_TRUE(last.wait(kPatience).ok()) << last.status().to_string();
  expect_failure(peer.write(source, remote), Code::kUnavailable, "is closed");
  for (const Engine* engine : {&*client, &*server}) {
    const TransportStats stats = over(*engine, GetParam().transport);
    EXPECT_EQ(stats.paths_opened, 1U);
    EXPECT_EQ(stats.paths_lost, 0U) << "nothing died: the peer left";
  }
  connect();  // the server goes on serving
  EXPECT_TRUE(peer.lookup("region", kPatience));
}

TEST_P(EngineConformance, CountsWhatGoesOverATransport) {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  const std::string& transport = GetParam().transport;
  const auto comes = [](const std::function<bool()>& condition) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!condition() && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return condition();
  };
  auto [memory, remote] = target("region", kBytes);
  Memory source = buffer(*client, kBytes, 3), back = buffer(*client, kBytes);
  const TransportStats before = over(*client, transport);
  EXPECT_EQ(before.paths, 1U);
  EXPECT_EQ(before.paths_opened, 1U);
  EXPECT_EQ(over(*server, transport).paths, 1U);

  ASSERT_TRUE(peer.write(source, remote).wait(kPatience).ok());
  const TransportStats written = over(*client, transport);
  EXPECT_GE(written.bytes_sent - before.bytes_sent, kBytes);
  EXPECT_LT(written.bytes_received - before.bytes_received, kBytes / 2);
  EXPECT_GT(written.requests, before.requests);
  ASSERT_TRUE(peer.read(back, remote).wait(kPatience).ok());
  const TransportStats read = over(*client, transport);
  EXPECT_GE(read.bytes_received - written.bytes_received, kBytes);
  EXPECT_LT(read.bytes_sent - written.bytes_sent, kBytes / 2);
  EXPECT_TRUE(comes([&] { return over(*client, transport).requests_in_flight == 0; }));
  EXPECT_EQ(read.retransmissions.has_value(), transport == "tcp");

  // What arrives is seen where it arrives: over tcp all of it, over verbs what somebody receives.
  const std::vector<std::byte> text(4096);
  const std::uint64_t heard = over(*server, transport).bytes_received;
  ASSERT_TRUE(peer.send(text).wait(kPatience).ok());
  next_of(server_peer, Event::Kind::kMessage);
  EXPECT_GE(over(*server, transport).bytes_received - heard, text.size());
  if (transport == "tcp") {
    EXPECT_GE(heard, kBytes);
  }

  peer.close();
  EXPECT_TRUE(comes([&] { return over(*client, transport).paths == 0 && over(*server, transport).paths == 0; }));
  const TransportStats last = over(*client, transport);
  EXPECT_EQ(last.requests_in_flight, 0U);
  EXPECT_GE(last.bytes_sent, read.bytes_sent);
  client->shutdown();
  EXPECT_EQ(over(*client, transport).bytes_sent, last.bytes_sent);
}

// What a session took is given back with it, at both ends.
TEST_P(EngineConformance, ClosedSessionsLeaveNothing) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer's allocator keeps what is freed";
#endif
  const auto pairs = [&](int count) {
    for (int i = 0; i < count; ++i) {
      peer.close();
      while (peer.next_event(kPatience).kind != Event::Kind::kClosed) {
      }
      while (server_peer.next_event(kPatience).kind != Event::Kind::kClosed) {
      }
      connect();
    }
    return ::mallinfo2().uordblks;
  };
  (void)pairs(20);
  const std::size_t before = pairs(20);
  const std::size_t after = pairs(100);
  EXPECT_LT(after, before + 100 * 1024) << (after - before) / 100 << " bytes a pair";
}

TEST_P(EngineConformance, DestroyingAnEngineEndsEveryTransfer) {
  const std::size_t size = std::size_t{8} << 20;
  auto [memory, remote] = target("region", size);
  Memory source = buffer(*client, size, 1);
  std::vector<Transfer> transfers;
  for (int i = 0; i < 20; ++i) transfers.push_back(peer.write(source, remote));
  client.reset();
  for (Transfer& transfer : transfers) EXPECT_TRUE(transfer.done());
  expect_failure(transfers.back(), Code::kCancelled, "the engine was shut down");
  Event end;
  while ((end = server_peer.next_event(kPatience)).kind != Event::Kind::kClosed) {
  }
  expect_failure(peer.write(source, remote), Code::kCancelled, "the engine was shut down");  // the handles stay good
}

/// It stops waking up: in some fifth of a second hardly at all (without sessions it sleeps twice a second).
bool sleeps_soundly(const Engine& engine) {
  constexpr std::uint64_t kFew = 40;
  const auto deadline = std::chrono::steady_clock::now() + kPatience / 4;
  while (std::chrono::steady_clock::now() < deadline) {
    const std::uint64_t before = engine.stats().sleeps;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    if (engine.stats().sleeps - before <= kFew) return true;
  }
  return false;
}

TEST(EngineAlone, SleepsThoughAStrangerConnectsToItsDataPort) {
  EngineConfig config;
  config.transport = "tcp";
  std::optional<Engine> engine;
  sockaddr_in address{};
  while (!engine) {  // a port that is free, unless somebody is quicker
    UniqueFd holder(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = 0;
    socklen_t length = sizeof address;
    ASSERT_EQ(::bind(holder.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(::getsockname(holder.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
    config.tcp.port = ntohs(address.sin_port);
    holder.reset();
    Result<Engine> created = Engine::create(config);
    if (created) engine.emplace(*std::move(created));
  }
  const UniqueFd stranger(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::connect(stranger.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_TRUE(sleeps_soundly(*engine));
}

// What a session leaves behind on a transport that no session uses any more must wake nobody, above all not for ever.
TEST_P(EngineConformance, SleepsOnceItsSessionsHaveEnded) {
  for (int round = 0; round < 3; ++round) {
    for (std::uint64_t i = 1; i <= 50; ++i) {
      ASSERT_TRUE(peer.send(std::as_bytes(std::span("to"))).wait(kPatience).ok());
      next_of(server_peer, Event::Kind::kMessage);
      ASSERT_TRUE(server_peer.send(std::as_bytes(std::span("fro"))).wait(kPatience).ok());
      next_of(peer, Event::Kind::kMessage);
    }
    // Both sleep when the end comes, and only their own threads deal with it.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    peer.close();
    while (server_peer.state() != PeerState::kClosed) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_TRUE(sleeps_soundly(*server)) << "round " << round;
    EXPECT_TRUE(sleeps_soundly(*client)) << "round " << round;
    ASSERT_NO_FATAL_FAILURE(connect());
  }
}

TEST_P(EngineConformance, EventDescriptorIsReadableWhileSomethingWaits) {
  pollfd fd{.fd = server->event_fd(), .events = POLLIN, .revents = 0};
  while (server->next_event().second.kind != Event::Kind::kNone) {
  }
  EXPECT_EQ(::poll(&fd, 1, 0), 0);
  peer.send({}, 1);
  ASSERT_EQ(::poll(&fd, 1, 60'000), 1);
  EXPECT_EQ(server->next_event().second.value, 1u);
  EXPECT_EQ(server->next_event().second.kind, Event::Kind::kNone);
  EXPECT_EQ(::poll(&fd, 1, 0), 0);
}

TEST_P(EngineConformance, EventDescriptorTellsOfWhatCameBeforeItWasAskedFor) {
  peer.send({}, 1);
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (server_peer.stats().messages_received == 0 && std::chrono::steady_clock::now() < deadline) server->poll();
  pollfd fd{.fd = server->event_fd(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&fd, 1, 1'000), 1);
  while (server->next_event().second.kind != Event::Kind::kNone) {
  }
  EXPECT_EQ(::poll(&fd, 1, 0), 0);
}

// The writer signals while the reader empties the queue: the descriptor never stays silent about what waits.
TEST_P(EngineConformance, EventDescriptorMissesNoEventOfAnotherThread) {
  constexpr std::uint64_t kMessages = 200;
  std::thread sender([&] {
    for (std::uint64_t i = 1; i <= kMessages; ++i) static_cast<void>(peer.send({}, i).wait(kPatience));
  });
  std::uint64_t received = 0;
  while (received < kMessages) {
    pollfd fd{.fd = server->event_fd(), .events = POLLIN, .revents = 0};
    if (::poll(&fd, 1, 60'000) != 1) break;
    for (Event event = server->next_event().second; event.kind != Event::Kind::kNone;
         event = server->next_event().second) {
      if (event.kind == Event::Kind::kMessage) {
        EXPECT_EQ(event.value, ++received);
      }
    }
  }
  EXPECT_EQ(received, kMessages);
  sender.join();
}

INSTANTIATE_TEST_SUITE_P(Ways, EngineConformance, testing::ValuesIn(ways()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fairlead
