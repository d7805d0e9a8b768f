#include "cli/server/service_manager.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "base/printable.h"

namespace fairlead::cli {
namespace {

using std::chrono::steady_clock;

std::string take_variable(const char* name) {
  const char* const value = std::getenv(name);
  std::string text = value == nullptr ? "" : value;
  ::unsetenv(name);
  return text;
}

std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || rest != text.data() + text.size() || value <= 0) return std::nullopt;
  return value;
}

std::int64_t monotonic_us() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000 + now.tv_nsec / 1000;
}

}  // namespace

ServiceManager ServiceManager::from_environment() {
  ServiceManager manager;
  std::string address = take_variable("NOTIFY_SOCKET");
  const auto every = number(take_variable("WATCHDOG_USEC"));
  const std::string whom = take_variable("WATCHDOG_PID");
  const bool legal = (address.starts_with('/') || address.starts_with('@')) && address.size() > 1 &&
                     address.size() < sizeof(sockaddr_un::sun_path);
  if (!legal) return manager;
  if (address.front() == '@') address.front() = '\0';
  manager.socket_.reset(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  manager.address_ = std::move(address);
  if (every && (whom.empty() || number(whom) == ::getpid())) manager.rounds_ = std::chrono::microseconds(*every / 2);
  return manager;
}

void ServiceManager::send(const std::string& lines) const {
  if (!socket_) return;
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  std::memcpy(to.sun_path, address_.data(), address_.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address_.size());
  static_cast<void>(::sendto(socket_.get(), lines.data(), lines.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
                             reinterpret_cast<const sockaddr*>(&to), length));
}

void ServiceManager::say(std::string_view what) { send(fmt::format("STATUS={}", printable(what))); }

void ServiceManager::starting(std::string_view what, std::chrono::seconds longer) {
  send(fmt::format("STATUS={}\nEXTEND_TIMEOUT_USEC={}", printable(what), std::chrono::microseconds(longer).count()));
}

void ServiceManager::ready(std::string_view what) { send(fmt::format("READY=1\nSTATUS={}", printable(what))); }

void ServiceManager::reloading() { send(fmt::format("RELOADING=1\nMONOTONIC_USEC={}", monotonic_us())); }

void ServiceManager::stopping(std::string_view what, std::chrono::seconds most) {
  send(fmt::format("STOPPING=1\nSTATUS={}\nEXTEND_TIMEOUT_USEC={}", printable(what),
                   std::chrono::microseconds(most).count()));
}

void ServiceManager::alive() {
  if (!rounds_ || steady_clock::now() < due_) return;
  due_ = steady_clock::now() + *rounds_;
  send("WATCHDOG=1");
}

int ServiceManager::poll_ms() const {
  if (!rounds_) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(due_ - steady_clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

}  // namespace fairlead::cli
