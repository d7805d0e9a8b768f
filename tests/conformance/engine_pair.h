// Two engines in one process, one connected to the other, and what the conformance tests do with them.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "fairlead/engine.h"
#include "tests/bytes.h"
#include "tests/port_under_test.h"

namespace fairlead {

inline constexpr std::chrono::seconds kPatience{60};  // far above any real wait, sanitizers and load included

/// How the connecting engine reaches the other.
struct Way {
  std::string name;
  std::string transport;
  std::string profile = "full";
  bool one_sided = true;
  std::string packet_io = "udp";
};

/// Every way across that this machine has.
inline std::vector<Way> ways() {
  // A device of this machine instead, by its name in ibv_devices.
  if (const char* device = std::getenv("FAIRLEAD_CONFORMANCE_DEVICE")) {
    const std::string transport = std::string("verbs:") + device;
    return {{"device", transport}, {"staged", transport, "full", false}};
  }
  std::vector<Way> all{{"soft", "verbs:soft0"},
                       {"pvrdma", "verbs:soft0", "pvrdma"},
                       {"staged", "verbs:soft0", "pvrdma", false},
                       {"lossy", "verbs:soft0", "full", true, "udp,drop=0.01,reorder=0.01,seed=3"}};
  if (!test::over_memif()) all.insert(all.begin(), {{"tcp", "tcp"}, {"shm", "shm"}});
  return all;
}

/// The same faults over the port under test.
inline void put_on_wire(EngineConfig& config) {
  std::string& port = config.verbs.packet_io;
  if (port.starts_with("udp")) port = test::port_under_test(std::string_view(port).substr(3));
}

/// Of engines whose test does not say: one, or FAIRLEAD_TEST_LANES.
inline std::size_t lanes_under_test() {
  const char* lanes = std::getenv("FAIRLEAD_TEST_LANES");
  return lanes != nullptr ? std::stoul(lanes) : 1;
}

inline EngineConfig config_for(const Way& way) {
  EngineConfig config;
  config.transport = way.transport;
  config.failover = false;
  config.verbs.profile = way.profile;
  config.verbs.one_sided = way.one_sided;
  config.verbs.packet_io = way.packet_io;
  // On a busy machine answers to what was lost take long, and there is no other path.
  if (way.packet_io != "udp") config.verbs.ack_timeout = 15;
  config.pool_arena_bytes = std::size_t{4} << 20;
  return config;
}

/// client -> server, both in this process. `server_peer` is the server's view of the session.
struct EnginePair {
  std::optional<Engine> server, client;
  Peer peer, server_peer;

  void start(EngineConfig server_config, EngineConfig client_config) {
    create(std::move(server_config), std::move(client_config));
    if (client) connect();
  }

  void create(EngineConfig server_config, EngineConfig client_config) {
    server_config.listen = "127.0.0.1:0";
    for (EngineConfig* config : {&server_config, &client_config}) {
      if (config->lanes == 1) config->lanes = lanes_under_test();
    }
    put_on_wire(client_config);  // it opens its device first, the server when it is asked for one
    put_on_wire(server_config);
    Result<Engine> s = Engine::create(server_config);
    ASSERT_TRUE(s) << s.error().to_string();
    server.emplace(std::move(*s));
    Result<Engine> c = Engine::create(client_config);
    ASSERT_TRUE(c) << c.error().to_string();
    client.emplace(std::move(*c));
  }

  /// By the address at which the server listens, if it is not said.
  void connect(const std::string& address = {}) {
    Result<Peer> connected = client->connect(address.empty() ? server->listen_address() : address);
    ASSERT_TRUE(connected) << connected.error().to_string();
    peer = *connected;
    const Status ready = peer.wait_ready(kPatience);
    ASSERT_TRUE(ready.ok()) << ready.to_string();
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    std::optional<Peer> accepted;
    while (!(accepted = server->accept()) && std::chrono::steady_clock::now() < deadline) {
    }
    ASSERT_TRUE(accepted);
    server_peer = *accepted;
  }

  Memory buffer(Engine& engine, std::size_t bytes, std::uint8_t fill = 0) {
    Result<Memory> memory = engine.allocate(bytes);
    EXPECT_TRUE(memory) << memory.error().to_string();
    std::memset(memory->data(), fill, bytes);
    return *memory;
  }

  /// A buffer of the server, published under `name`, and the client's view of it.
  std::pair<Memory, RemoteMemory> target(const std::string& name, std::size_t bytes,
                                         Access access = Access::kRemoteReadWrite) {
    Memory memory = buffer(*server, bytes);
    const Status published = server->publish(name, memory, access);
    EXPECT_TRUE(published.ok()) << published.to_string();
    Result<RemoteMemory> remote = peer.lookup(name, kPatience);
    EXPECT_TRUE(remote) << remote.error().to_string();
    return {memory, remote ? *remote : RemoteMemory()};
  }
};

/// The transfer fails with `code`, and its sentence has `words` in it.
inline void expect_failure(Transfer transfer, Code code, std::string_view words) {
  const Status end = transfer.wait(kPatience);
  EXPECT_EQ(end.code(), code) << end.to_string();
  EXPECT_NE(end.message().find(words), std::string::npos) << '"' << end.message() << "\" says nothing of " << words;
}

/// The next event of that kind; other kinds but kClosed are passed over. Fails the test after kPatience.
inline Event next_of(Peer& peer, Event::Kind kind) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < deadline) {
    Event event = peer.next_event(std::chrono::seconds(1));
    if (event.kind == kind) return event;
    if (event.kind == Event::Kind::kClosed) {
      ADD_FAILURE() << "closed: " << event.status.to_string();
      return event;
    }
  }
  ADD_FAILURE() << "no such event in time";
  return {};
}

}  // namespace fairlead
