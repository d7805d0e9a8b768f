// Pages of servers that answer, and of such that do not keep to anything.
#include "cli/tenants/http_get.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <thread>

#include "base/unique_fd.h"
#include "metrics/server.h"

namespace fairlead::cli {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr milliseconds kPatience{20'000};

/// Takes one connection, says `words` again and again up to `most` bytes, then hangs up, or does so at the test's end.
class Server {
 public:
  Server(std::string words, std::size_t most, bool hangs_up = true)
      : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), bytes), 0);
    EXPECT_EQ(::listen(listener_.get(), 1), 0);
    EXPECT_EQ(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &bytes), 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    thread_ = std::thread([this, words = std::move(words), most, hangs_up] {
      UniqueFd peer(::accept(listener_.get(), nullptr, nullptr));
      for (std::size_t said = 0; said < most && !words.empty();) {
        const std::size_t part = std::min(words.size(), most - said);
        const ssize_t sent = ::send(peer.get(), words.data(), part, MSG_NOSIGNAL);
        if (sent <= 0) return;
        said += static_cast<std::size_t>(sent);
      }
      char byte[4096];
      if (hangs_up) ::shutdown(peer.get(), SHUT_WR);
      while (::recv(peer.get(), byte, sizeof byte, 0) > 0) {
      }
    });
  }
  ~Server() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  [[nodiscard]] const std::string& address() const { return address_; }

 private:
  UniqueFd listener_;
  std::string address_;
  std::thread thread_;
};

TEST(HttpGet, AMetricsServer) {
  const auto server = metrics::MetricsServer::start("127.0.0.1:0", [] {
    return std::vector<metrics::Metric>{{"something", "It is.", metrics::Kind::kGauge, {{7, {}}}}};
  });
  ASSERT_TRUE(server) << server.error().to_string();
  const Result<std::string> page = http_get((*server)->address(), "/metrics", kPatience);
  ASSERT_TRUE(page) << page.error().to_string();
  EXPECT_THAT(*page, HasSubstr("\nsomething 7\n"));
  const Result<std::string> none = http_get((*server)->address(), "/nothing", kPatience);
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message(), HasSubstr("has no /nothing: 404"));
}

TEST(HttpGet, NobodyIsThere) {
  const Result<std::string> page = http_get("127.0.0.1:1", "/", kPatience);
  ASSERT_FALSE(page);
  EXPECT_EQ(page.error().code(), Code::kUnavailable);
  EXPECT_THAT(page.error().message(), HasSubstr("cannot reach 127.0.0.1:1: Connection refused"));
}

TEST(HttpGet, WhatIsNoHttpIsSaid) {
  for (const std::string words : {"SSH-2.0-OpenSSH_9.2\r\n", "HTTP/1.1 200 OK\r\nno end", "HTTP/1.1\r\n\r\n", ""}) {
    const Server server(words, words.size());
    EXPECT_FALSE(http_get(server.address(), "/", kPatience)) << words;
  }
}

TEST(HttpGet, APageThatIsCutIsNone) {
  for (const std::string head :
       {"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n", "HTTP/1.0 200 OK\r\ncontent-length:20\r\n\r\n"}) {
    const std::string words = head + "something 123";
    const Server server(words, words.size());
    const Result<std::string> page = http_get(server.address(), "/metrics", kPatience);
    ASSERT_FALSE(page);
    EXPECT_EQ(page.error().code(), Code::kDataLoss);
    EXPECT_THAT(page.error().message(), HasSubstr("after 13 of 20 bytes"));
  }
}

TEST(HttpGet, OneThatSaysNothingIsLeft) {
  const Server server("", 0, false);
  const Result<std::string> page = http_get(server.address(), "/", milliseconds(50));
  ASSERT_FALSE(page);
  EXPECT_EQ(page.error().code(), Code::kDeadlineExceeded);
}

TEST(HttpGet, OneThatNeverEndsIsLeft) {
  const Server server("HTTP/1.1 200 OK\r\n\r\n", std::size_t{1} << 30);
  const Result<std::string> page = http_get(server.address(), "/", kPatience, 100'000);
  ASSERT_FALSE(page);
  EXPECT_EQ(page.error().code(), Code::kResourceExhausted);
}

}  // namespace
}  // namespace fairlead::cli
