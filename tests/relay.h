// A machine between two ends of TCP connections, which may fail: it passes bytes on, breaks connections, falls silent,
// sends who comes to another, or is gone.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "fairlead/config.h"

namespace fairlead::test {

class Relay {
 public:
  /// Listens on loopback; who connects gets to `target`, an address of loopback.
  explicit Relay(const std::string& target) : target_(parse_host_port(target)->port) {
    listener_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    sockaddr_in at = loopback(0);
    socklen_t size = sizeof at;
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&at), size), 0);
    EXPECT_EQ(::listen(listener_.get(), 64), 0);
    EXPECT_EQ(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&at), &size), 0);
    port_ = ntohs(at.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~Relay() {
    stopped_ = true;
    thread_.join();
  }

  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  /// Every connection breaks, with a reset at both ends.
  void hang_up() {
    const std::lock_guard lock(mutex_);
    for (Link& link : links_) reset(link);
    links_.clear();
  }
  /// Nothing passes on the connections that there are now, and nobody is told.
  void fall_silent() {
    const std::lock_guard lock(mutex_);
    for (Link& link : links_) link.silent = true;
  }
  /// Who connects from now on gets there.
  void lead_to(const std::string& target) { target_ = parse_host_port(target)->port; }
  /// Nobody listens here any more.
  void leave() {
    gone_ = true;
    while (listens_) std::this_thread::yield();
    hang_up();
  }
  /// Connections that came.
  [[nodiscard]] int came() const { return came_; }

 private:
  struct Link {
    UniqueFd ends[2];
    bool silent = false;
  };

  static sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return at;
  }
  static void reset(Link& link) {
    const linger at_once{1, 0};
    for (UniqueFd& end : link.ends) ::setsockopt(end.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }

  void accept_one() {
    UniqueFd came(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!came) return;
    ++came_;
    UniqueFd there(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in at = loopback(target_);
    if (::connect(there.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0) return;
    Link& link = links_.emplace_back();
    link.ends[0] = std::move(came);
    link.ends[1] = std::move(there);
  }

  /// False: one end ended it.
  static bool pass(Link& link) {
    for (int from : {0, 1}) {
      char bytes[4096];
      const ssize_t n = ::recv(link.ends[from].get(), bytes, sizeof bytes, MSG_DONTWAIT);
      if (n == 0 || (n < 0 && errno != EAGAIN)) return false;
      if (n > 0 && ::send(link.ends[1 - from].get(), bytes, static_cast<std::size_t>(n), MSG_NOSIGNAL) != n)
        return false;
    }
    return true;
  }

  void run() {
    while (!stopped_) {
      std::vector<pollfd> wanted;
      {
        const std::lock_guard lock(mutex_);
        if (gone_) listener_.reset();
        listens_ = static_cast<bool>(listener_);
        if (listener_) accept_one();
        for (auto link = links_.begin(); link != links_.end();) {
          link = link->silent || pass(*link) ? std::next(link) : links_.erase(link);
        }
        if (listener_) wanted.push_back({listener_.get(), POLLIN, 0});
        for (const Link& link : links_) {
          if (link.silent) continue;
          for (const UniqueFd& end : link.ends) wanted.push_back({end.get(), POLLIN, 0});
        }
      }
      ::poll(wanted.data(), wanted.size(), 5);  // one that was closed meanwhile is looked at in the next round
    }
  }

  UniqueFd listener_;
  std::uint16_t port_ = 0;
  std::atomic<std::uint16_t> target_;
  std::atomic<bool> stopped_{false}, gone_{false}, listens_{true};
  std::atomic<int> came_{0};
  std::mutex mutex_;
  std::list<Link> links_;
  std::thread thread_;
};

}  // namespace fairlead::test
