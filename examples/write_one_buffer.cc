// Six calls across: create, connect, allocate, lookup, write, wait.
//
//   write_one_buffer                receives: publishes 1 MiB as "inbox", prints where, waits for one notification
//   write_one_buffer HOST:PORT      sends: one buffer of 1 MiB into that inbox, with the notification 42
#include <cstdio>
#include <cstring>

#include "fairlead/engine.h"

namespace {

constexpr std::size_t kBytes = 1 << 20;
constexpr std::uint64_t kArrived = 42;

int fail(const fairlead::Status& status) {
  std::fprintf(stderr, "write_one_buffer: %s\n", status.to_string().c_str());
  return 1;
}

int send(const char* address) {
  auto engine = fairlead::Engine::create();
  if (!engine) return fail(engine.error());
  auto peer = engine->connect(address);
  if (!peer) return fail(peer.error());
  auto buffer = engine->allocate(kBytes);
  if (!buffer) return fail(buffer.error());
  std::memset(buffer->data(), 'x', kBytes);
  auto inbox = peer->lookup("inbox");
  if (!inbox) return fail(inbox.error());
  auto transfer = peer->write(*buffer, *inbox, {.notify = kArrived});
  if (auto end = transfer.wait(); !end.ok()) return fail(end);
  std::printf("sent %zu bytes over %s\n", kBytes, peer->transport().c_str());
  return 0;
}

int receive() {
  fairlead::EngineConfig config;
  config.listen = "127.0.0.1:0";
  auto engine = fairlead::Engine::create(config);
  if (!engine) return fail(engine.error());
  auto inbox = engine->allocate(kBytes);
  if (!inbox) return fail(inbox.error());
  if (auto status = engine->publish("inbox", *inbox, fairlead::Access::kRemoteWrite); !status.ok()) return fail(status);
  std::printf("listening on %s\n", engine->listen_address().c_str());
  std::fflush(stdout);
  for (;;) {
    auto [peer, event] = engine->next_event(std::chrono::hours(1));
    if (event.kind != fairlead::Event::Kind::kNotification || event.value != kArrived) continue;
    std::printf("%s wrote %zu bytes of '%c'\n", peer.name().c_str(), kBytes, static_cast<char>(inbox->data()[0]));
    return 0;
  }
}

}  // namespace

int main(int argc, char** argv) { return argc > 1 ? send(argv[1]) : receive(); }
