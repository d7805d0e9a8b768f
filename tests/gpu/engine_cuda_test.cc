// Memory of GPUs moves between two engines as any other, over every way across.
#include "tests/gpu/engine_cuda.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace fairlead {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::size_t kMiB = std::size_t{1} << 20;

class CudaWays : public test::CudaEngines, public testing::WithParamInterface<Way> {
 protected:
  CudaWays() { start(GetParam()); }
};

// Of 3 MiB and a bit, so that there are many pieces, the last of them small, and more than fit into the staging memory.
TEST_P(CudaWays, WritesFromDeviceToDevice) {
  constexpr std::size_t kBytes = 3 * kMiB + 100;
  auto [remote, there] = remote_device("there", kBytes);
  auto [local, here] = device(*pair->client, kBytes, 1);
  expect_ok(pair->peer.write(local, remote));
  EXPECT_TRUE(holds(there, 1));
}

TEST_P(CudaWays, ReadsFromDeviceToDevice) {
  constexpr std::size_t kBytes = 3 * kMiB + 100;
  auto [remote, there] = remote_device("there", kBytes, 2);
  auto [local, here] = device(*pair->client, kBytes);
  expect_ok(pair->peer.read(local, remote));
  EXPECT_TRUE(holds(here, 2));
}

TEST_P(CudaWays, OneEndMayBeHostMemory) {
  constexpr std::size_t kBytes = kMiB + 1000;
  auto [remote, there] = remote_device("device", kBytes);
  Memory host = pair->buffer(*pair->client, kBytes);
  fill_pattern(host.bytes(), 3);
  expect_ok(pair->peer.write(host, remote));
  EXPECT_TRUE(holds(there, 3));
  std::memset(host.data(), 0, kBytes);
  expect_ok(pair->peer.read(host, remote));
  EXPECT_TRUE(is_filled(host.bytes(), 3));

  auto [memory, host_remote] = pair->target("host", kBytes);
  auto [local, here] = device(*pair->client, kBytes, 4);
  expect_ok(pair->peer.write(local, host_remote));
  EXPECT_TRUE(is_filled(memory.bytes(), 4));
  auto [other, elsewhere] = device(*pair->client, kBytes);
  expect_ok(pair->peer.read(other, host_remote));
  EXPECT_TRUE(holds(elsewhere, 4));
}

TEST_P(CudaWays, NothingIsTooSmall) {
  auto [remote, there] = remote_device("there", 4096);
  auto [local, here] = device(*pair->client, 4096, 5);
  for (const std::size_t size : {1u, 7u, 64u, 4095u}) {
    expect_ok(pair->peer.write(local.slice(0, size), remote.slice(0, size)));
    EXPECT_TRUE(holds(there.first(size), 5)) << size;
  }
  expect_ok(pair->peer.write(local.slice(0, 0), remote.slice(0, 0)));
}

// Nobody is told of bytes that are not there.
TEST_P(CudaWays, ANotificationComesBehindItsBytes) {
  constexpr std::size_t kBytes = 300'000;
  constexpr int kRounds = 20;
  auto [remote, there] = remote_device("there", kBytes);
  std::vector<Memory> sources;
  for (std::uint32_t i = 1; i <= 3; ++i) sources.push_back(device(*pair->client, kBytes, i).first);
  for (std::uint32_t i = 0; i < kRounds; ++i) {
    Transfer sent = pair->peer.write(sources[i % 3], remote, {.notify = i});
    const Event event = next_of(pair->server_peer, Event::Kind::kNotification);
    ASSERT_EQ(event.value, i);
    ASSERT_TRUE(holds(there, i % 3 + 1)) << "round " << i;
    expect_ok(std::move(sent));
  }
}

// Behind one that waits for copies, others' notifications stay in order.
TEST_P(CudaWays, NotificationsKeepTheirOrder) {
  constexpr std::size_t kBytes = 200'000;
  auto [remote, there] = remote_device("device", kBytes);
  auto [host_memory, host_remote] = pair->target("host", 4096);
  auto [local, here] = device(*pair->client, kBytes, 1);
  Memory host = pair->buffer(*pair->client, 4096);
  std::vector<Transfer> sent;
  for (std::uint64_t i = 0; i < 30; ++i) {
    sent.push_back(i % 2 == 0 ? pair->peer.write(local, remote, {.notify = i})
                              : pair->peer.write(host, host_remote, {.notify = i}));
  }
  for (std::uint64_t i = 0; i < 30; ++i) {
    ASSERT_EQ(next_of(pair->server_peer, Event::Kind::kNotification).value, i);
  }
  for (Transfer& each : sent) expect_ok(each);
}

TEST_P(CudaWays, ABatchMixesKinds) {
  constexpr std::size_t kBytes = 100'000;
  auto [remote, there] = remote_device("device", kBytes);
  auto [memory, host_remote] = pair->target("host", kBytes);
  auto [local, here] = device(*pair->client, kBytes, 6);
  Memory host = pair->buffer(*pair->client, kBytes);
  fill_pattern(host.bytes(), 6);
  const std::size_t half = kBytes / 2;
  const std::vector<Descriptor> batch{
      {host.slice(0, half), remote.slice(0, half)},
      {local.slice(half, half), remote.slice(half, half)},
      {local.slice(0, half), host_remote.slice(0, half)},
      {host.slice(half, half), host_remote.slice(half, half)},
  };
  expect_ok(pair->peer.write(batch, {.notify = 1}));
  EXPECT_TRUE(holds(there, 6));
  EXPECT_TRUE(is_filled(memory.bytes(), 6));
  Result<Prepared> prepared = pair->peer.prepare_read(batch);
  ASSERT_TRUE(prepared);
  put(here, 0);
  std::memset(host.data(), 0, kBytes);
  expect_ok(pair->peer.post(*prepared));
  EXPECT_TRUE(holds(here, 6));
  EXPECT_TRUE(is_filled(host.bytes(), 6));
}

TEST_P(CudaWays, ManyTransfersShareTheStagingMemory) {
  constexpr std::size_t kBytes = 256 * 1024, kTransfers = 24;
  auto [remote, there] = remote_device("there", kBytes * kTransfers);
  auto [local, here] = device(*pair->client, kBytes * kTransfers, 7);
  std::vector<Transfer> sent;
  for (std::size_t i = 0; i < kTransfers; ++i) {
    sent.push_back(pair->peer.write(local.slice(i * kBytes, kBytes), remote.slice(i * kBytes, kBytes)));
  }
  for (Transfer& each : sent) expect_ok(each);
  EXPECT_TRUE(holds(there, 7));
  const EngineStats stats = pair->client->stats();
  EXPECT_LE(stats.cuda_staging_bytes, kMiB * pair->client->config().lanes);
  EXPECT_GE(stats.cuda_bytes_out, kBytes * kTransfers);
  EXPECT_EQ(stats.cuda_registered_bytes, kBytes * kTransfers);
  EXPECT_GE(pair->server->stats().cuda_bytes_in, kBytes * kTransfers);
}

// Both ends' own transfers have taken all slots that they may, and still each serves the other.
TEST_P(CudaWays, BothEndsAtOnce) {
  constexpr std::size_t kBytes = 2 * kMiB;
  auto [to_server, at_server] = remote_device("server", kBytes);
  auto [client_target, at_client] = device(*pair->client, kBytes);
  ASSERT_TRUE(pair->client->publish("client", client_target, Access::kRemoteReadWrite).ok());
  Result<RemoteMemory> to_client = pair->server_peer.lookup("client", kPatience);
  ASSERT_TRUE(to_client) << to_client.error().to_string();
  auto [from_client, a] = device(*pair->client, kBytes, 8);
  auto [from_server, b] = device(*pair->server, kBytes, 9);
  Transfer one = pair->peer.write(from_client, to_server);
  Transfer other = pair->server_peer.write(from_server, *to_client);
  expect_ok(one);
  expect_ok(other);
  EXPECT_TRUE(holds(at_server, 8));
  EXPECT_TRUE(holds(at_client, 9));
}

TEST_P(CudaWays, AReadOnlyGrantStaysOne) {
  auto [memory, made] = device(*pair->server, 4096, 1);
  ASSERT_TRUE(pair->server->publish("read", memory, Access::kRemoteRead).ok());
  Result<RemoteMemory> remote = pair->peer.lookup("read", kPatience);
  ASSERT_TRUE(remote);
  auto [local, here] = device(*pair->client, 4096);
  expect_failure(pair->peer.write(local, *remote), Code::kPermissionDenied, "does not grant writing");
  expect_ok(pair->peer.read(local, *remote));
  EXPECT_TRUE(holds(here, 1));
}

TEST_P(CudaWays, WithdrawnMemoryIsRefused) {
  auto [remote, there] = remote_device("there", 4096, 1);
  auto [local, here] = device(*pair->client, 4096, 2);
  ASSERT_TRUE(pair->server->unpublish("there").ok());
  const Status end = pair->peer.write(local, remote).wait(kPatience);
  EXPECT_EQ(end.code(), Code::kProtectionError) << end.to_string();
  EXPECT_TRUE(holds(there, 1));
}

INSTANTIATE_TEST_SUITE_P(, CudaWays,
                         testing::Values(Way{"tcp", "tcp"}, Way{"soft", "verbs:soft0"},
                                         Way{"staged", "verbs:soft0", "pvrdma", false}),
                         [](const auto& way) { return way.param.name; });

// ---- what may be registered

class CudaRegistration : public test::CudaEngines {
 protected:
  CudaRegistration() {
    EngineConfig config;
    config.transport = "tcp";
    config.failover = false;
    pair->server.emplace(*Engine::create(config));
  }
  Engine& engine() { return *pair->server; }
  void expect_refused(std::span<std::byte> bytes, const CudaOptions& options, Code code, std::string_view words) {
    const Result<Memory> refused = engine().register_memory(bytes, options);
    ASSERT_FALSE(refused) << words;
    EXPECT_EQ(refused.error().code(), code);
    EXPECT_THAT(refused.error().message(), HasSubstr(std::string(words)));
  }
};

TEST_F(CudaRegistration, RefusesWithWords) {
  std::byte host[64]{};
  const std::span<std::byte> memory = cuda.allocate(4096);
  expect_refused({}, {}, Code::kInvalidArgument, "0 bytes");
  expect_refused(host, {}, Code::kInvalidArgument, "register host memory without CudaOptions");
  expect_refused(cuda.allocate_managed(4096), {}, Code::kInvalidArgument, "it is managed memory");
  expect_refused(memory, {.device = 3}, Code::kInvalidArgument, "is of CUDA device 0, not of 3");
  expect_refused({memory.data(), 3 * gpu::testing::CudaDouble::kBlock}, {}, Code::kInvalidArgument,
                 "leave the memory there after 4096 bytes");
  expect_refused(memory, {.access = Access::kRemoteAtomic}, Code::kInvalidArgument, "kRemoteAtomic");
  EXPECT_EQ(engine().stats().cuda_registered_bytes, 0u);
}

TEST_F(CudaRegistration, EveryCallMayFail) {
  const std::span<std::byte> memory = cuda.allocate(4096);
  for (const char* call :
       {"pointer_attribute", "address_range", "context_push", "set_pointer_attribute", "host_alloc"}) {
    cuda.fail_next(call, gpu::CuResult::kOutOfMemory);
    expect_refused(memory, {}, Code::kResourceExhausted, "CUDA_ERROR_OUT_OF_MEMORY");
  }
  EXPECT_EQ(engine().stats().cuda_registered_bytes, 0u);
  EXPECT_EQ(engine().stats().cuda_staging_bytes, 0u);
  EXPECT_TRUE(engine().register_memory(memory, CudaOptions{}));
}

TEST_F(CudaRegistration, SaysThatThereIsNoDriver) {
  gpu::replace_process_driver(nullptr);
  if (gpu::process_driver()) GTEST_SKIP() << "this machine has a CUDA device";
  std::byte host[64]{};
  const Result<Memory> refused = engine().register_memory(host, CudaOptions{});
  ASSERT_FALSE(refused);
  EXPECT_FALSE(refused.error().message().empty());
  EXPECT_EQ(refused.error().message(), cuda_devices().error().message());
}

TEST_F(CudaRegistration, ReleasesWhenNothingNeedsIt) {
  int released = 0;
  {
    auto [memory, made] = device(engine(), 4096, 0, {.release = [&released] { ++released; }});
    Memory part = memory.slice(16, 16);
    memory = Memory();
    EXPECT_EQ(released, 0);
    EXPECT_EQ(engine().stats().cuda_registered_bytes, 4096u);
  }
  EXPECT_EQ(released, 1);
  EXPECT_EQ(engine().stats().cuda_registered_bytes, 0u);
}

TEST_F(CudaRegistration, MakesCopiesOfItsMemorySynchronize) {
  const std::span<std::byte> range = cuda.map_handles(3, gpu::testing::CudaDouble::kBlock);
  ASSERT_TRUE(engine().register_memory(range, CudaOptions{}));
  EXPECT_TRUE(cuda.synchronizes(range));
}

// Pinned host memory is host memory: nothing of it is staged.
TEST_F(CudaRegistration, TakesPinnedMemoryAsHostMemory) {
  const std::span<std::byte> pinned = cuda.allocate_pinned(8192);
  {
    Result<Memory> memory = engine().register_memory(pinned, CudaOptions{});
    ASSERT_TRUE(memory) << memory.error().to_string();
    EXPECT_EQ(engine().stats().registered_bytes, 8192u);
    EXPECT_EQ(engine().stats().cuda_registered_bytes, 0u);
    EXPECT_EQ(engine().stats().cuda_staging_bytes, 0u);
  }
  const Result<std::shared_ptr<gpu::Driver>> driver = gpu::process_driver();
  const gpu::ContextScope scope(gpu::testing::CudaDouble::api(), *(*driver)->primary(0));
  gpu::testing::CudaDouble::api().host_free(pinned.data());
}

TEST_F(CudaRegistration, AtomicsAreNotPublished) {
  auto [memory, made] = device(engine(), 4096);
  const Status refused = engine().publish("words", memory, Access::kRemoteReadWrite | Access::kRemoteAtomic);
  EXPECT_EQ(refused.code(), Code::kPermissionDenied) << refused.to_string();
}

TEST_F(CudaRegistration, LeavesTheThreadsContextAlone) {
  const gpu::DriverApi& api = gpu::testing::CudaDouble::api();
  ASSERT_EQ(api.context_push(cuda.foreign_context()), gpu::CuResult::kSuccess);
  {
    auto [memory, made] = device(engine(), 4096);
  }
  EXPECT_EQ(gpu::testing::CudaDouble::context_stack(), std::vector<gpu::CuContext>{cuda.foreign_context()});
  gpu::CuContext last = nullptr;
  ASSERT_EQ(api.context_pop(&last), gpu::CuResult::kSuccess);
}

TEST_F(CudaRegistration, DescribesDevices) {
  const Result<std::vector<CudaDeviceInfo>> devices = cuda_devices();
  ASSERT_TRUE(devices);
  ASSERT_EQ(devices->size(), 1u);
  EXPECT_EQ(devices->front().name, "cuda:0");
  EXPECT_EQ(devices->front().detail, "Double 0, CUDA 12.4");
  EXPECT_THAT(devices->front().how, HasSubstr("by dma-buf"));
  EXPECT_THAT(devices->front().how, HasSubstr("else through pinned host memory"));
}

}  // namespace
}  // namespace fairlead
