#include "tcp_fallback/endpoint.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>

#include "base/system/no_watch.h"

namespace fairlead::tcp_fallback {
namespace {

constexpr std::size_t kDirectPaths = 4;      // up to so many are read without asking epoll
constexpr std::uint32_t kPollsPerLook = 64;  // then how often the rest is looked at
constexpr int kMaxEvents = 64;
constexpr Nanos kCountEvery = kSecond;  // retransmissions: a system call for each path

/// Of the endpoint of that number: where the port is set, each takes the next.
Result<Listener> open_listener(const TcpDevice& device, std::size_t number) {
  TcpConfig config = device.config();
  if (config.port != 0 && config.port + number > UINT16_MAX) {
    return {Code::kInvalidArgument,
            fmt::format("tcp.port is {}, and each lane takes the next; behind {} there is none for lane {}",
                        config.port, UINT16_MAX, number)};
  }
  if (config.port != 0) config.port = static_cast<std::uint16_t>(config.port + number);
  return Listener::open(config, device.clock());
}

}  // namespace

Result<std::unique_ptr<TcpEndpoint>> TcpEndpoint::open(TcpDevice& device) {
  const std::size_t number = device.endpoint_opened();
  auto listener = open_listener(device, number);
  if (!listener) {
    device.endpoint_closed(number);
    return listener.error();
  }
  std::unique_ptr<TcpEndpoint> endpoint(new TcpEndpoint(device, std::move(*listener)));
  endpoint->number_ = number;
  endpoint->shared_.epoll = PrivateFd(UniqueFd(::epoll_create1(EPOLL_CLOEXEC)));
  epoll_event event{};
  event.events = EPOLLIN;
  if (!endpoint->shared_.epoll ||
      ::epoll_ctl(endpoint->shared_.epoll.get(), EPOLL_CTL_ADD, endpoint->listener_.wait_fd(), &event) != 0) {
    return no_watch("tcp sockets", errno);
  }
  return endpoint;
}

TcpEndpoint::TcpEndpoint(TcpDevice& device, Listener listener)
    : device_(device),
      grants_(device.grants()),
      shared_{.config = device.config(),
              .clock = device.clock(),
              .grants = grants_,
              .traffic = traffic_,
              .port = listener.port()},
      listener_(std::move(listener)) {}

TcpEndpoint::~TcpEndpoint() {
  assert(shared_.paths.empty() && "a path outlives its endpoint");
  device_.endpoint_closed(number_);
}

Result<std::unique_ptr<datapath::Path>> TcpEndpoint::open_path(const datapath::PathConfig& config) {
  if (config.role == datapath::PathRole::kActive) {
    if (auto address = parse_address(config.peer_host, 0); !address) return address.error();
  }
  return std::unique_ptr<datapath::Path>(std::make_unique<TcpPath>(shared_, config));
}

bool TcpEndpoint::poll() noexcept {
  shared_.polling = true;
  if (shared_.urgent != 0 || shared_.turn != kLongTurn) shared_.choose_turn(shared_.clock.now());
  bool happened = look_around();
  const bool direct = ready_paths_ <= kDirectPaths;
  // What came over an urgent path its user is to go on with at once: then others have the next turn.
  const bool urgent = shared_.urgent != 0 && advance_paths(true, direct);
  others_wait_ = urgent && !others_wait_;
  happened |= urgent;
  if (!others_wait_) happened |= advance_paths(false, direct);
  ready_paths_ = 0;
  for (TcpPath* path : shared_.paths) {
    if (path == nullptr) continue;
    if (path->urgent() || !others_wait_) happened |= path->end_turn();
    ready_paths_ += path->ready() ? 1 : 0;
  }
  shared_.polling = false;
  std::erase(shared_.paths, nullptr);
  return happened;
}

bool TcpEndpoint::advance_paths(bool urgent, bool look) noexcept {
  bool happened = false;
  // By index: paths may be opened, and others destroyed, from inside the calls.
  for (std::size_t i = 0; i < shared_.paths.size(); ++i) {
    TcpPath* const path = shared_.paths[i];
    if (path != nullptr && path->urgent() == urgent) happened |= path->advance(look);
  }
  return happened;
}

// Learns which sockets have something, and lets the listener work.
bool TcpEndpoint::look_around() noexcept {
  const bool all_direct = ready_paths_ > 0 && ready_paths_ <= kDirectPaths && ready_paths_ == shared_.paths.size();
  if (all_direct && !armed_ && ++polls_ % kPollsPerLook != 0) return false;
  armed_ = false;
  count_retransmissions();
  std::array<epoll_event, kMaxEvents> ready;
  const int count = ::epoll_wait(shared_.epoll.get(), ready.data(), kMaxEvents, 0);
  bool listener = listener_.deadline().has_value();
  for (int i = 0; i < count; ++i) {
    auto* path = static_cast<TcpPath*>(ready[static_cast<std::size_t>(i)].data.ptr);
    if (path == nullptr) {
      listener = true;
    } else {
      path->mark_readable();
    }
  }
  if (!listener) return false;
  return listener_.advance([this](const Greeting& greeting, PrivateFd& connection) {
    return std::any_of(shared_.paths.begin(), shared_.paths.end(),
                       [&](TcpPath* path) { return path != nullptr && path->adopt(greeting, connection); });
  });
}

void TcpEndpoint::count_retransmissions() noexcept {
  const Nanos now = shared_.clock.now();
  if (now - counted_at_ < kCountEvery) return;
  counted_at_ = now;
  for (TcpPath* path : shared_.paths) {
    if (path != nullptr) path->count_retransmissions();
  }
}

bool TcpEndpoint::arm() noexcept {
  armed_ = true;
  bool quiet = true;
  for (TcpPath* path : shared_.paths) quiet &= path->arm();
  return quiet;
}

// Whoever sends to a socket that is in a set that is in a set tells both of each packet, with the socket held: a tenth
// of the way of a small message.
void TcpEndpoint::disarm() noexcept {
  if (ready_paths_ > kDirectPaths) return;
  for (TcpPath* path : shared_.paths) path->disarm();
}

int TcpEndpoint::wait_timeout_us() const noexcept {
  std::optional<Nanos> first = listener_.deadline();
  for (const TcpPath* path : shared_.paths) {
    const auto deadline = path->deadline();
    if (deadline && (!first || *deadline < *first)) first = deadline;
  }
  return microseconds_until(first, shared_.clock.now());
}

}  // namespace fairlead::tcp_fallback
