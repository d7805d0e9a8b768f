#include "bench/net/target.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <optional>

#include "base/crc.h"
#include "bench/base/cpu_time.h"
#include "bench/base/host_load.h"
#include "bench/memory/arrival.h"
#include "bench/memory/end_memory.h"
#include "bench/net/end_facts.h"
#include "bench/net/link.h"
#include "bench/net/options.h"
#include "bench/net/retransmissions.h"
#include "fairlead/log.h"

namespace fairlead::bench {

// One initiator and the memory that its current size uses.
struct Target::Client {
  Peer peer;
  Engine* engine;
  EndMemory memory;
  std::string region;   // the name under which it is published; empty: none
  Prepared echo;        // the write by which notified writes go back, if they do
  ArrivalByte arrival;  // of `memory`, if writes go back once it is seen to have changed
  std::uint8_t arrived = 0;
  Transfer echoed, before;  // the last write back, and the one before it
  bool spin = false;
  std::uint64_t received = 0;  // messages
  std::vector<std::uint32_t> crcs;
  CpuStopwatch watch;
  std::optional<CpuTicks> asked;            // when it last asked for facts
  std::optional<std::uint64_t> sent_again;  // by its transport, when `watch` began

  ~Client() { forget(); }
  void forget() {
    if (!region.empty()) static_cast<void>(engine->unpublish(region));
    region.clear();
    memory = {};
    arrival = {};
    spin = false;
  }
};

Target::Target(Engine* engine, Place memory) : engine_(engine), memory_(memory) {}
Target::~Target() = default;

Target::Client* Target::client_of(const Peer& peer) {
  for (const auto& client : clients_) {
    if (client->peer == peer) return client.get();
  }
  clients_.push_back(std::make_unique<Client>());
  clients_.back()->peer = peer;
  clients_.back()->engine = engine_;
  return clients_.back().get();
}

Status Target::serve(bool once) {
  while (!once || gone_ == 0 || !clients_.empty()) {
    while (engine_->accept()) {
    }
    const bool came = turn([this](auto patience) { return engine_->next_event(patience); });
    const bool none_came = clients_.empty() && gone_ == 0;
    if (!came && once && none_came && engine_->stats().peers_failed != 0) {
      return {Code::kUnavailable, "the initiator came, but no session with it; the warning before says why"};
    }
  }
  return {};
}

Status Target::serve(const Peer& initiator) {
  Peer peer = initiator;
  gone_ = 0;
  for (ended_ = false; !ended_;) {
    if (gone_ != 0) return {Code::kPeerDied, "the initiator went in the middle of a measurement"};
    turn([&](auto patience) {
      Event event = peer.next_event(patience);
      if (event.kind == Event::Kind::kNone && !event.status.ok()) ++gone_;  // which was told before
      return std::pair(peer, std::move(event));
    });
  }
  std::erase_if(clients_, [&peer](const auto& client) { return client->peer == peer; });
  return {};
}

bool Target::turn(const std::function<std::pair<Peer, Event>(std::chrono::nanoseconds)>& next) {
  const bool spin = std::any_of(clients_.begin(), clients_.end(), [](const auto& client) { return client->spin; });
  const bool watched =
      std::any_of(clients_.begin(), clients_.end(), [](const auto& client) { return client->arrival.valid(); });
  if (watched) echo_arrivals();
  const auto patience = watched ? std::chrono::nanoseconds(0)
                        : spin  ? std::chrono::nanoseconds(kSpinning)
                                : std::chrono::seconds(1);
  const auto [peer, event] = next(patience);
  if (event.kind != Event::Kind::kNone) {
    on_event(peer, event);
  } else if (spin) {
    ::sched_yield();
  } else {
    return false;
  }
  return true;
}

// Until nothing has come for a while.
void Target::echo_arrivals() {
  for (unsigned idle = 0; idle < kPollsInVain; ++idle) {
    static_cast<void>(engine_->poll());
    for (const auto& client : clients_) {
      if (client->arrival.valid() && echo_arrival(*client)) idle = 0;
    }
  }
}

bool Target::echo_arrival(Client& client) {
  const std::uint8_t value = client.arrival.look();
  if (value == client.arrived || !client.before.done()) return false;
  client.arrived = value;
  client.before = std::exchange(client.echoed, client.peer.post(client.echo));
  return true;
}

void Target::on_event(const Peer& peer, const Event& event) {
  Client& client = *client_of(peer);
  switch (event.kind) {
    case Event::Kind::kNotification:
      if (client.echo.valid()) {
        static_cast<void>(client.peer.post(client.echo, {.notify = event.value}));
      }
      return;
    case Event::Kind::kMessage:
      if (event.value == kEchoed) {
        static_cast<void>(client.peer.send(event.data, kEchoed));
      } else if (event.value == kCounted || event.value == kChecked) {
        ++client.received;
        if (event.value == kChecked && client.crcs.size() < kMaxDepth) client.crcs.push_back(crc32(event.data));
      } else {
        on_control(client, event);
      }
      return;
    case Event::Kind::kClosed:
      std::erase_if(clients_, [&peer](const auto& other) { return other->peer == peer; });
      ++gone_;
      return;
    default:
      return;
  }
}

void Target::on_control(Client& client, const Event& event) {
  const Result<Json> request = Json::parse({reinterpret_cast<const char*>(event.data.data()), event.data.size()});
  const Json* type = request ? request->find("type") : nullptr;
  const Json* version = request ? request->find("v") : nullptr;
  Result<Json::Object> out = Status(Code::kInvalidArgument, "not a request");
  if (type != nullptr && type->string() != nullptr && version != nullptr && version->uint()) {
    out = *version->uint() == kProtocolVersion
              ? answer(client, *type->string(), *request)
              : Status(Code::kVersionMismatch,
                       fmt::format("this target speaks version {} of the bench protocol", kProtocolVersion));
  }
  const std::string text = Json(out ? *std::move(out) : Json::Object{{"error", out.error().message()}}).dump();
  static_cast<void>(client.peer.send(std::as_bytes(std::span(text)), kControl));
}

Result<Json::Object> Target::answer(Client& client, const std::string& type, const Json& request) {
  if (type == "prepare") return prepare(client, request);
  if (type == "facts") return facts(client);
  if (type == "start") {
    client.received = 0;
    client.crcs.clear();
    client.sent_again = retransmissions(*engine_, client.peer.transport());
    client.watch.restart();
    return Json::Object{};
  }
  if (type == "stop") {
    const CpuUse cpu = client.watch.cpu();
    const std::optional<std::uint64_t> sent_again = retransmissions(*engine_, client.peer.transport());
    return Json::Object{
        {"cpu_seconds", cpu.total()},
        {"cpu_user", cpu.user},
        {"cpu_system", cpu.system},
        {"cpu_softirq", cpu.softirq},
        {"received", client.received},
        {"retransmissions", sent_again && client.sent_again ? Json(*sent_again - *client.sent_again) : Json()}};
  }
  if (type == "fill") {
    const Json* seed = request.find("seed");
    if (seed == nullptr || !seed->uint()) return Status(Code::kInvalidArgument, "fill without a seed");
    if (Status filled = client.memory.fill(*seed->uint()); !filled.ok()) return filled;
    return Json::Object{};
  }
  if (type == "checksums") {
    const Result<std::vector<std::uint32_t>> sums = client.memory.checksums();
    if (!sums) return sums.error();
    return Json::Object{{"slots", Json::Array(sums->begin(), sums->end())},
                        {"messages", Json::Array(client.crcs.begin(), client.crcs.end())}};
  }
  if (type == "end") {
    ended_ = true;
    return Json::Object{};
  }
  return Status(Code::kInvalidArgument, fmt::format("unknown request '{}'", type.substr(0, 40)));
}

// How busy this host is shows between two readings of its clocks. Nobody may be kept waiting for the second, so it is
// taken when the same initiator asks again.
Json::Object Target::facts(Client& client) const {
  EndFacts facts = own_facts(engine_->config(), memory_);
  const SystemFiles files;
  const std::optional<CpuTicks> now = cpu_ticks(files);
  if (now && client.asked) facts.warnings = busy_warnings(*client.asked, *now, files);
  client.asked = now;
  return to_json(facts);
}

Result<Json::Object> Target::prepare(Client& client, const Json& request) {
  const auto number = [&request](std::string_view name, std::uint64_t max) -> std::uint64_t {
    const Json* field = request.find(name);
    return field != nullptr && field->uint() && *field->uint() <= max ? *field->uint() : 0;
  };
  client.forget();
  client.echo = {};
  const std::uint64_t size = number("size", kMaxSize), slots = number("slots", kMaxDepth);
  if (size == 0 || slots == 0 || size * slots > kMaxBuffer) {
    return Status(Code::kInvalidArgument,
                  fmt::format("size must be 1 to {}, slots 1 to {}, and their product at most {}", kMaxSize, kMaxDepth,
                              kMaxBuffer));
  }
  const Json* arrival = request.find("arrival");
  const bool looks =
      arrival != nullptr && arrival->string() != nullptr && *arrival->string() == to_string(Arrival::kMemory);
  if (looks && !memory_.on_host()) {
    return Status(Code::kInvalidArgument,
                  fmt::format("the target's memory is {}, where no processor sees a write arrive: take --arrival "
                              "notification, or start the target with --memory host",
                              to_string(memory_)));
  }
  Result<EndMemory> memory = EndMemory::allocate(*engine_, size, slots, memory_);
  if (!memory) return memory.error();
  client.memory = *std::move(memory);
  const std::string name = fmt::format("bench/{}", next_region_++);
  if (Status status = engine_->publish(name, client.memory.all(), Access::kRemoteReadWrite); !status.ok())
    return status;
  client.region = name;
  if (const Json* echo = request.find("echo"); echo != nullptr && echo->string() != nullptr) {
    Result<RemoteMemory> remote = client.peer.lookup(*echo->string());
    if (!remote) return remote.error();
    if (remote->size() != size) return Status(Code::kInvalidArgument, "the echo region has another size");
    const Descriptor descriptor{client.memory.slot(0), *std::move(remote)};
    Result<Prepared> back = client.peer.prepare_write({&descriptor, 1});
    if (!back) return back.error();
    client.echo = *std::move(back);
    if (looks) {
      client.arrival = ArrivalByte(client.memory.all().bytes());
      client.arrived = 0;
    }
  }
  const Json* spin = request.find("spin");
  client.spin = spin != nullptr && spin->boolean().value_or(false);
  return Json::Object{{"region", name}};
}

}  // namespace fairlead::bench
