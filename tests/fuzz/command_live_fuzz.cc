// A service of commands with two tenants: one that works with it truly, and one that greets it truly and then says what
// the input says: batches of its own, mutated ones, raw messages, payload, at any moment and of either class. Engines'
// sessions carry it, on the simulator's ground. The liar's session may be ended, with words; it learns nothing of the
// other's, which goes on; and when it has gone, nothing is left of it.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "datapath/command/client_session.h"
#include "datapath/command/codec.h"
#include "datapath/command/served_peers.h"
#include "datapath/engine/handles.h"
#include "fairlead/executor_around.h"
#include "fairlead/host_executor.h"
#include "fairlead/log.h"
#include "sim_host.h"
#include "sim_stream.h"
#include "tests/fuzz/input.h"

namespace {

using namespace fairlead;                     // NOLINT(google-build-using-namespace): a program of one file
using namespace fairlead::datapath::command;  // NOLINT(google-build-using-namespace)
using fuzz::Input;
using simulation::SimHost;
using simulation::SimStream;
using simulation::World;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::uint64_t kMemory = 1 << 16;  // of a tenant; so no kernel takes long
constexpr std::size_t kSecretBytes = 64;

void must(bool holds) {
  if (!holds) std::abort();
}

const World* world_there = nullptr;
std::chrono::steady_clock::time_point now_there() { return world_there->now(); }

class Counted final : public fairlead::command::ExecutorAround {
 public:
  Counted(std::unique_ptr<fairlead::command::Executor> host, int& live) : ExecutorAround(std::move(host)), live_(live) {
    ++live_;
  }
  ~Counted() override { --live_; }

 private:
  int& live_;
};

/// A record as a client might write it, but for what its fields say; `range`: where the session's begins, 0: it has
/// none.
void append_record(Input& input, std::uint64_t range, std::vector<std::byte>& to) {
  const auto number = [&] { return input.number(); };
  const auto small = [&] { return static_cast<std::uint32_t>(input.number()); };
  static constexpr std::array<std::string_view, 7> kNames{"vector_add", "saxpy",        "sgemm",  "reduce",
                                                          "softmax",    "image_filter", "nothing"};
  switch (input.byte() % 20) {
    case 0:
      return put_record(to, Opcode::kAllocate, 0, AllocateBody{number(), number()});
    case 1:
      return put_record(to, Opcode::kRelease, 0, ReleaseBody{number()});
    case 2:
      return put_record(to, Opcode::kFill, 0, FillBody{number(), number(), number(), number()});
    case 3: {
      const std::vector<std::byte> bytes = input.bytes(kMaxInline);
      return put_record(to, Opcode::kCopyIn, kInline, CopyBody{number(), number(), bytes.size()}, bytes);
    }
    case 4:
      return put_record(to, Opcode::kCopyIn, 0, CopyBody{number(), number(), number()});
    case 5:
      return put_record(to, Opcode::kCopyOut, 0, CopyBody{number(), number(), number()});
    case 6:
      return put_record(to, Opcode::kCopyWithin, 0, CopyWithinBody{number(), number(), number(), number(), number()});
    case 7: {
      const std::string_view name = kNames[input.byte() % kNames.size()];
      return put_record(to, Opcode::kLoad, 0, LoadBody{number(), name.size()}, std::as_bytes(std::span(name)));
    }
    case 8: {
      const std::vector<std::byte> bytes = input.bytes(kMaxParameters);
      const auto size = static_cast<std::uint32_t>(bytes.size());
      return put_record(to, Opcode::kLaunch, 0, LaunchBody{number(), {1, 1, small()}, {small(), 1, 1}, small(), size},
                        bytes);
    }
    case 9:
      return put(to, RecordHeader{static_cast<std::uint16_t>(Opcode::kMark), 0, sizeof(RecordHeader)});
    case 10:
      return put_record(to, Opcode::kFence, 0, FenceBody{number(), number()});
    case 11:
      return put_record(to, Opcode::kRecover, 0, RecoverBody{number()});
    case 12:
      return put_record(to, Opcode::kModule, kMustKnow, ModuleBody{number(), number(), {}});
    case 13:
      return put_record(to, Opcode::kAllocateAt, kMustKnow, AllocateAtBody{number(), range + number() * 512, number()});
    case 14: {  // of records that are in order, or of anything
      std::vector<std::byte> records = input.bytes(200);
      std::uint64_t count = number();
      if ((input.byte() & 1) == 0) {
        records.clear();
        put_record(records, Opcode::kFill, 0, FillBody{number(), number(), number(), 1});
        put_record(records, Opcode::kLaunch, 0, LaunchBody{number(), {1, 1, 1}, {1, 1, 1}, 0, 0});
        count = 2;
      }
      return put_record(to, Opcode::kGraph, kMustKnow | kInline, GraphBody{number(), records.size(), count}, records);
    }
    case 15:
      return put_record(to, Opcode::kGraph, kMustKnow, GraphBody{number(), number(), number()});
    case 16:
      return put_record(to, Opcode::kLaunchGraph, kMustKnow, GraphHandleBody{number()});
    case 17:
      return put_record(to, Opcode::kReleaseGraph, kMustKnow, GraphHandleBody{number()});
    case 18: {
      const std::vector<std::byte> bytes = input.bytes(100);
      const auto size = static_cast<std::uint32_t>(bytes.size());
      return put_record(to, Opcode::kUpdateGraph, kMustKnow,
                        UpdateGraphBody{number(), small(), size, {1, 1, small()}, {small(), 1, 1}, small(), 0}, bytes);
    }
    default: {
      const std::vector<std::byte> bytes = input.bytes(200);
      return put_record(to, static_cast<Opcode>(small()), static_cast<std::uint16_t>(small()), UserBody{bytes.size()},
                        bytes);
    }
  }
}

class Stage {
 public:
  Stage() : world_(1), wire_(world_) {
    world_there = &world_;
    simulation::Habits habits;
    habits.can.max_message = 8192;
    habits.can.max_segments = 4;
    habits.can.max_outstanding = 32;
    EngineConfig config;
    config.max_message_bytes = 1 << 16;
    const std::string keys = "true " + std::string(64, '1') + "\nliar " + std::string(64, '2') + "\n";
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      config.name = i == 0 ? "server" : i == 1 ? "true" : "liar";
      config.principal = i == 0 ? "" : config.name;
      hosts_[i] = std::make_shared<SimHost>(world_, wire_, config, std::vector<simulation::Habits>{habits}, keys);
    }
    fairlead::command::ServiceConfig terms;
    terms.where = fairlead::command::ServiceConfig::Where::kInTurn;
    terms.channels = 4;
    terms.payload_credit = 40'000;
    terms.held_results = 60'000;
    for (const char* name : {"true", "liar"}) terms.tenants.push_back({.name = name, .memory_bytes = kMemory});
    terms.executors = [this](const Peer& peer) -> Result<std::unique_ptr<fairlead::command::Executor>> {
      static const fairlead::command::ExecutorFactory host = [] {
        fairlead::command::HostExecutorConfig of_host;
        of_host.memory_bytes = 1 << 16;
        return fairlead::command::host_executors(std::move(of_host));
      }();
      return std::unique_ptr<fairlead::command::Executor>(std::make_unique<Counted>(*host(peer), live_));
    };
    service_ = std::make_unique<ServedPeers>(std::move(terms), config.max_message_bytes, &now_there);
    for (std::size_t i : {1u, 2u}) {
      SimStream::Pair streams = SimStream::pair(world_);
      clients_[i] = hosts_[i]->start(std::move(streams.ends[0]), true);
      served_.push_back(hosts_[0]->start(std::move(streams.ends[1]), false));
    }
    must(
        run([this] { return clients_[1]->state() == PeerState::kReady && clients_[2]->state() == PeerState::kReady; }));
  }
  ~Stage() {
    service_.reset();
    must(live_ == 0);
    for (const auto& host : hosts_) host->die();
    for (auto& client : clients_) client.reset();
    served_.clear();
    for (const auto& host : hosts_) host->release();
    for (const auto& host : hosts_) host->regions().shutdown();
    for (const auto& host : hosts_) must(host.use_count() == 1);
  }

  template <typename Done>
  bool run(Done done, int rounds = 100'000) {
    for (; rounds != 0; --rounds) {
      if (done()) return true;
      bool did = false;
      for (const auto& host : hosts_) did |= host->step();
      Event event;
      for (const auto& session : served_) {
        while (session->take_event(event)) {
          service_->handle(datapath::make_peer(session), std::exchange(event, Event()));
        }
      }
      service_->run_all();
      service_->drop_ended();
      world_.advance(microseconds(did ? 5 : 100));
    }
    return false;
  }
  [[nodiscard]] Peer peer(std::size_t client) const { return datapath::make_peer(clients_[client]); }
  [[nodiscard]] fairlead::command::TenantStats tenant(const std::string& name) const {
    for (fairlead::command::TenantStats& each : service_->tenants()) {
      if (each.name == name) return each;
    }
    std::abort();
  }
  [[nodiscard]] ServedPeers& service() noexcept { return *service_; }
  [[nodiscard]] int live() const noexcept { return live_; }

 private:
  World world_;
  simulation::Wire wire_;
  int live_ = 0;
  std::array<std::shared_ptr<SimHost>, 3> hosts_;  // the server, who is true, who lies
  std::array<std::shared_ptr<datapath::SessionImpl>, 3> clients_;
  std::vector<std::shared_ptr<datapath::SessionImpl>> served_;
  std::unique_ptr<ServedPeers> service_;
};

/// The tenant that is true: it keeps a secret on the device.
class True {
 public:
  explicit True(Stage& stage) : stage_(stage) {
    static std::mt19937_64 random(std::random_device{}());  // no input knows it
    for (std::byte& byte : secret_) byte = static_cast<std::byte>(random());
    session_ = std::make_shared<ClientSession>(
        stage.peer(1), fairlead::command::SessionOptions{.flush_after = microseconds(0), .wait_for_room = false});
    session_->greet(1 << 16);
    must(stage.run([this] {
      session_->drain();
      return session_->is_welcome();
    }));
    channel_ =
        fairlead::command::Channel(std::shared_ptr<fairlead::command::ChannelBody>(session_, session_->open_channel()));
    must(static_cast<bool>(channel_.allocate({1}, kSecretBytes)) &&
         static_cast<bool>(channel_.copy_in({1}, 0, secret_)));
    look();
  }
  /// Its own is as it was.
  void look() {
    std::array<std::byte, kSecretBytes> seen{};
    must(static_cast<bool>(channel_.copy_out(seen, {1}, 0)));
    must(stage_.run([this] {
      session_->drain();
      return channel_.synchronize(std::chrono::nanoseconds(0)).code() != Code::kDeadlineExceeded;
    }));
    must(channel_.synchronize(std::chrono::nanoseconds(0)).ok());
    must(seen == secret_);
  }
  [[nodiscard]] bool is_in(Bytes bytes) const {
    constexpr std::size_t kPart = 16;
    return std::search(bytes.begin(), bytes.end(), secret_.begin(), secret_.begin() + kPart) != bytes.end();
  }

 private:
  Stage& stage_;
  std::array<std::byte, kSecretBytes> secret_{};
  std::shared_ptr<ClientSession> session_;
  fairlead::command::Channel channel_;
};

/// The one that lies.
class Liar {
 public:
  Liar(Stage& stage, const True& other, bool has_range) : stage_(stage), other_(other), peer_(stage.peer(2)) {
    const HelloMore more{has_range ? kMemory / 2 : 0, 0};
    say(hello_message({.payload_bytes = 30'000}, more), TrafficClass::kCommands);
    must(stage.run([this] {
      hear();
      return welcome_;
    }));
  }
  void act(Input& input) {
    const std::uint8_t kind = input.byte();
    switch (kind % 9) {
      case 0:
      case 1:
        if (batch_.size() > kMaxBatch) batch_.clear();
        if (batch_.empty()) batch_ = make_message({}), count_ = 0;
        append_record(input, range_, batch_);
        ++count_;
        return;
      case 2:
      case 3: {
        if (batch_.empty()) return;
        const auto channel = static_cast<std::uint16_t>(input.byte() % 5);
        const MessageHeader header{static_cast<std::uint8_t>(MessageType::kCommands), 0, channel, count_,
                                   next_[channel]};
        std::memcpy(batch_.data(), &header, sizeof header);
        next_[channel] += count_;
        if (kind % 9 == 3) {
          for (int i = input.byte() % 4; i >= 0; --i) {
            batch_[input.number() % batch_.size()] ^= static_cast<std::byte>(input.byte());
          }
        }
        say(std::exchange(batch_, {}), TrafficClass::kCommands);
        return;
      }
      case 4:
        say(input.bytes(3000), (kind & 0x80) != 0 ? TrafficClass::kBulk : TrafficClass::kCommands);
        return;
      case 5: {
        const auto channel = static_cast<std::uint16_t>(input.byte() % 5);
        const auto type = (kind & 0x80) != 0 ? MessageType::kImage : MessageType::kPayload;
        std::vector<std::byte> message =
            make_message({static_cast<std::uint8_t>(type), 0, channel, 1, next_[channel] + input.number() - 4});
        message.resize(message.size() + input.number() % 50'000);
        say(std::move(message), TrafficClass::kBulk);
        return;
      }
      case 6:
        if (!last_.empty()) say(last_, (kind & 0x80) != 0 ? TrafficClass::kBulk : TrafficClass::kCommands);
        return;
      case 7: {
        const auto channel = static_cast<std::uint16_t>(input.byte() % 5);
        say(channel_message(channel, {.priority = static_cast<std::int32_t>(input.byte()) - 200}),
            (kind & 0x80) != 0 ? TrafficClass::kBulk : TrafficClass::kCommands);
        return;
      }
      default:
        reads_ = (kind & 0x80) == 0;
        stage_.run([this] { return hear(), false; }, 1 + input.byte());
    }
  }
  /// The service answers, or has said why it does not.
  void end() {
    reads_ = true;
    stage_.run([this] { return hear(), false; }, 80);
    const bool over = stage_.service().stats().sessions_ended_wrong != 0;
    if (over) {
      must(stage_.run([this] {
        hear();
        return !why_.empty() || closed_;
      }));
      must(!why_.empty());
    }
    peer_.close(milliseconds(10));
    must(stage_.run([this] {
      hear();
      return closed_;
    }));
  }

 private:
  void say(std::vector<std::byte> message, TrafficClass traffic) {
    (void)peer_.send(message, kMessageValue, {.traffic = traffic});
    last_ = std::move(message);
  }
  void hear() {
    while (reads_ && !closed_) {
      const Event event = peer_.next_event();
      if (event.kind == Event::Kind::kClosed) closed_ = true;
      if (event.kind == Event::Kind::kNone) return;
      if (event.kind != Event::Kind::kMessage) continue;
      must(!other_.is_in(event.data));
      Bytes body = event.data;
      const auto header = take<MessageHeader>(body);
      must(header.has_value());
      if (header->type == static_cast<std::uint8_t>(MessageType::kWelcome)) {
        welcome_ = true;
        (void)take<Welcome>(body);
        range_ = take<WelcomeMore>(body).value_or(WelcomeMore()).range_base;
      }
      if (header->type == static_cast<std::uint8_t>(MessageType::kRefused)) why_ = refusal_in(body).message();
      if (header->type == static_cast<std::uint8_t>(MessageType::kReply)) must(read_reply(*header, body).has_value());
    }
  }

  Stage& stage_;
  const True& other_;
  Peer peer_;
  std::vector<std::byte> batch_, last_;
  std::uint32_t count_ = 0;
  std::uint64_t range_ = 0;
  std::array<std::uint64_t, 5> next_{1, 1, 1, 1, 1};
  bool welcome_ = false, closed_ = false, reads_ = true;
  std::string why_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  set_log_level(LogLevel::kOff);
  Input input(data, size);
  Stage stage;
  {
    True other(stage);
    {
      Liar liar(stage, other, (input.byte() & 1) != 0);
      for (int actions = 0; !input.empty() && actions < 300; ++actions) liar.act(input);
      must(stage.tenant("liar").memory_bytes <= kMemory);
      other.look();
      liar.end();
    }
    must(stage.run([&] { return stage.service().stats().sessions == 1 && stage.live() == 1; }));
    const fairlead::command::TenantStats gone = stage.tenant("liar"), there = stage.tenant("true");
    must(gone.sessions == 0 && gone.memory_bytes == 0 && gone.waiting == 0);
    must(there.sessions == 1 && there.memory_bytes == kSecretBytes && there.waiting == 0);
    must(there.failures == decltype(there.failures){} && there.rejections == 0);
    other.look();
  }
  return 0;
}
