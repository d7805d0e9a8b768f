// Servers that break the control protocol: what they can make a client hold is bounded.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>

#include "datapath/session/control_channel.h"
#include "datapath/session/control_socket.h"
#include "fairlead/engine.h"

namespace fairlead {
namespace {

using control::Frame;

std::string framed(const Frame& frame) {
  const std::string body = frame.SerializeAsString();
  std::string bytes;
  for (unsigned shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(body.size() >> shift));
  return bytes + body;
}

void send_bytes(const UniqueFd& fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

// Answers every look-up with regions and the promise of more, until the client hangs up.
void serve_without_end(const UniqueFd& listener) {
  const UniqueFd fd(::accept(listener.get(), nullptr, nullptr));
  Frame hello;
  hello.mutable_hello()->set_version_min(1);
  hello.mutable_hello()->set_version_max(1);
  hello.mutable_hello()->set_engine_name("endless");
  hello.mutable_hello()->set_session_id(7);
  hello.mutable_hello()->set_event_window(16);
  hello.mutable_hello()->set_max_message_bytes(4096);
  auto& tcp = *hello.mutable_hello()->add_transports();
  tcp.set_name("tcp");
  tcp.set_kind("tcp");
  send_bytes(fd, "FAIRLEAD" + framed(hello));
  datapath::FrameReader reader;
  std::string page;  // the same every time: the client must not wait for us, its session ends soon without a path
  char bytes[4096];
  for (ssize_t n; (n = ::recv(fd.get(), bytes, sizeof bytes, 0)) > 0;) {
    reader.append(bytes, static_cast<std::size_t>(n));
    Frame asked;
    while (true) {
      const Result<bool> whole = reader.next(asked);
      if (!whole || !*whole) break;
      if (!asked.has_lookup()) continue;
      if (page.empty()) {
        Frame frame;
        frame.mutable_regions()->set_request(asked.lookup().request());
        frame.mutable_regions()->set_more(true);
        for (int r = 0; r < 60'000; ++r) frame.mutable_regions()->add_regions()->set_name("r");
        page = framed(frame);
      }
      send_bytes(fd, page);
    }
  }
}

TEST(HostileServer, AListWithoutEndIsGivenUp) {
  const Result<UniqueFd> listener = datapath::start_listen("127.0.0.1", 0);
  ASSERT_TRUE(listener);
  // It waits for the one connection.
  ::fcntl(listener->get(), F_SETFL, ::fcntl(listener->get(), F_GETFL) & ~O_NONBLOCK);
  std::thread server([&] { serve_without_end(*listener); });
  {
    EngineConfig config;
    config.transport = "tcp";
    Result<Engine> engine = Engine::create(config);
    ASSERT_TRUE(engine);
    Peer peer = *engine->connect(datapath::socket_address(listener->get(), false));
    const Result<std::vector<RemoteMemory>> listed = peer.list("r", std::chrono::seconds(60));
    ASSERT_FALSE(listed);
    EXPECT_EQ(listed.error().code(), Code::kDataLoss) << listed.error().to_string();
  }
  server.join();
}

}  // namespace
}  // namespace fairlead
