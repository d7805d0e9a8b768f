// The connection manager fed with MADs that a fuzzer wrote: the codec on any bytes, and connections in every state.
//
// The input is a list of steps: a byte that says what happens, then up to 232 bytes of message. Identifiers that the
// fuzzer cannot guess are put in where a bit asks for it, so that messages reach live connections.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include "verbs/cm/manager.h"

namespace {

using namespace fairlead::cm;

const Gid kOwn = Gid::from_ipv4(0x0a000001);
const Gid kPeer = Gid::from_ipv4(0x0a000002);
constexpr std::uint64_t kService = 0x01060001;
constexpr std::size_t kTransaction = 8;
constexpr std::size_t kHeaderBytes = 24;

void require(bool condition) {
  if (!condition) std::abort();
}

// Answers at once, as a program that takes everyone; counts how each connection ends.
class World final : public Link, public User, public Listener {
 public:
  void send(const Gid&, const Gid&, const MadBytes& mad) noexcept override {
    const auto parsed = parse(mad);
    require(parsed.has_value());
    last_sent = mad;
  }
  [[nodiscard]] fairlead::Nanos now() const noexcept override { return time; }
  void set_deadline(fairlead::Nanos at) noexcept override { require(at >= time); }
  void on_event(Connection& connection, const Event& event) noexcept override {
    const bool ends = event.type == Event::Type::kRejected || event.type == Event::Type::kUnreachable ||
                      event.type == Event::Type::kDisconnected;
    if (ends) require(++ended[&connection] == 1);
  }
  User* on_request(Connection& connection) noexcept override {
    connections.push_back(&connection);
    return this;
  }

  fairlead::Nanos time = fairlead::kSecond;
  MadBytes last_sent{};
  std::vector<Connection*> connections;
  std::map<Connection*, int> ended;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  World world;
  Manager manager(world, 1, 1);
  require(manager.listen(kService, Gid{}, world));
  while (size > 0 && world.connections.size() < 64) {
    const std::uint8_t step = data[0];
    ++data;
    --size;
    switch (step & 7) {
      case 0: {
        Req req;
        req.service_id = kService;
        world.connections.push_back(&manager.open(kOwn, kPeer, world));
        world.connections.back()->connect(req);
        continue;
      }
      case 1:
        world.time += fairlead::kSecond << (step >> 3 & 7);
        manager.run_timers();
        continue;
      case 2:
        if (!world.connections.empty()) {
          Connection& connection = *world.connections[(step >> 3) % world.connections.size()];
          if (!connection.accept({})) {
            if (!connection.establish()) connection.disconnect();
          }
        }
        continue;
      case 3:
        if (!world.connections.empty()) {
          const auto at = world.connections.begin() + (step >> 3) % static_cast<long>(world.connections.size());
          Connection* connection = *at;
          world.connections.erase(at);
          world.ended.erase(connection);
          connection->release();
        }
        continue;
      default:
        break;
    }
    // The header of what was sent last, so that class and version fit; its identifiers and transaction where asked for.
    MadBytes mad = encode({1, Req{}});
    const std::size_t count = std::min(size, mad.size() - kHeaderBytes);
    if (count > 0) std::memcpy(&mad[kHeaderBytes], data, count);
    mad[17] = static_cast<std::byte>(0x10 + (step >> 3) % 12);
    if ((step & 3) != 0) std::memcpy(&mad[kTransaction], &world.last_sent[kTransaction], 8);
    if ((step & 1) != 0) std::memcpy(&mad[kHeaderBytes + 4], &world.last_sent[kHeaderBytes], 4);
    if ((step & 2) != 0) {
      std::memcpy(&mad[kHeaderBytes], &world.last_sent[kHeaderBytes + 4], 4);
      const MadBytes service = encode({1, [] {
                                         Req req;
                                         req.service_id = kService;
                                         return req;
                                       }()});
      if (mad[17] == std::byte{0x10}) std::memcpy(&mad[kHeaderBytes + 8], &service[kHeaderBytes + 8], 8);
    }
    data += count;
    size -= count;
    if (const auto parsed = parse(mad)) {
      const MadBytes once = encode(*parsed);
      require(encode(*parse(once)) == once);
    }
    manager.on_mad(kOwn, kPeer, mad);
  }
  return 0;
}
