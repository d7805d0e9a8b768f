// A service of commands with two tenants: one that works with it truly, and one that greets it truly and then says what
// the input says: batches of its own, mutated ones, raw messages, payload, at any moment and of either class. Either's
// connection may end without a word: the true one goes on with its session over another, and who lies tries to, with
// its own session or the other's, shown truly or not, and says to have heard what it likes. Engines' sessions carry it,
// on the simulator's ground. The liar's session may be ended, with words; it learns nothing of the other's, which goes
// on; and when it has gone, nothing is left of it.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "datapath/command/client_session.h"
#include "datapath/command/codec.h"
#include "datapath/command/resume/points.h"
#include "fairlead/log.h"
#include "tests/fuzz/command_stage.h"
#include "tests/fuzz/input.h"

namespace {

using namespace fairlead;                     // NOLINT(google-build-using-namespace): a program of one file
using namespace fairlead::datapath::command;  // NOLINT(google-build-using-namespace)
using fuzz::Input;
using fuzz::must;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using Stage = fuzz::CommandStage;

constexpr std::uint64_t kMemory = Stage::kMemory;
constexpr std::size_t kSecretBytes = 64;
constexpr std::size_t kConnections = 8;  // of who lies

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
    case 5: {
      const CopyBody body{number(), number(), number()};
      if (input.byte() % 2 == 0) return put_record(to, Opcode::kCopyOut, 0, body);
      return put_record(to, Opcode::kCopyOut, kPlaced, CopyToWindowBody{body, number()});
    }
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

/// The tenant that is true: it keeps a secret on the device.
class True {
 public:
  explicit True(Stage& stage) : stage_(stage) {
    static std::mt19937_64 random(std::random_device{}());  // no input knows it
    for (std::byte& byte : secret_) byte = static_cast<std::byte>(random());
    Peer peer = stage.connect(Stage::kTrue);
    must(stage.run([&] { return peer.state() == PeerState::kReady; }));
    session_ = std::make_shared<ClientSession>(
        peer, fairlead::command::SessionOptions{
                  .flush_after = microseconds(0), .wait_for_room = false, .resume_within = milliseconds(10'000)});
    session_->seek_by([&stage] { return Result<Peer>(stage.connect(Stage::kTrue)); }, &fuzz::CommandGround::now);
    session_->greet(fuzz::CommandGround::kMaxMessage);
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
    begin_look(seen);
    end_look(seen);
  }
  /// The same, and its connection is lost meanwhile.
  void lose(Input& input) {
    std::array<std::byte, kSecretBytes> seen{};
    begin_look(seen);
    const std::uint8_t how = input.byte();
    if ((how & 4) != 0) channel_.flush();
    stage_.run([this] { return session_->drain(), false; }, how / 8);
    stage_.lose(Stage::kTrue, how % 4 != 0, how % 4 != 1);
    ++lost_;
    end_look(seen);
    look();
    must(session_->resumptions() == lost_);
  }
  [[nodiscard]] std::uint64_t lost() const noexcept { return lost_; }
  [[nodiscard]] bool is_in(Bytes bytes) const {
    constexpr std::size_t kPart = 16;
    return std::search(bytes.begin(), bytes.end(), secret_.begin(), secret_.begin() + kPart) != bytes.end();
  }

 private:
  void begin_look(std::span<std::byte> seen) { must(static_cast<bool>(channel_.copy_out(seen, {1}, 0))); }
  void end_look(std::span<const std::byte> seen) {
    must(stage_.run([this] {
      session_->drain();
      return channel_.synchronize(std::chrono::nanoseconds(0)).code() != Code::kDeadlineExceeded;
    }));
    must(channel_.synchronize(std::chrono::nanoseconds(0)).ok());
    must(std::ranges::equal(seen, secret_));
  }

  Stage& stage_;
  std::array<std::byte, kSecretBytes> secret_{};
  std::shared_ptr<ClientSession> session_;
  fairlead::command::Channel channel_;
  std::uint64_t lost_ = 0;
};

/// The one that lies.
class Liar {
 public:
  Liar(Stage& stage, True& other, std::uint8_t wishes) : stage_(stage), other_(other) {
    connect();
    const HelloMore more{(wishes & 1) != 0 ? kMemory / 2 : 0, 0};
    say(hello_message({.payload_bytes = 30'000}, more, HelloLast{.keep = (wishes & 2) != 0 ? 1u : 0u}),
        TrafficClass::kCommands);
    must(stage.run([this] {
      hear();
      return welcome_;
    }));
    must(is_kept_ == ((wishes & 2) != 0));
  }
  void act(Input& input) {
    const std::uint8_t kind = input.byte();
    const TrafficClass traffic = (kind & 0x80) != 0 ? TrafficClass::kBulk : TrafficClass::kCommands;
    switch (kind & 0x0f) {
      case 0:
      case 1:
        if (batch_.size() > kMaxBatch) batch_.clear();
        if (batch_.empty()) batch_ = make_message({}), count_ = 0;
        append_record(input, range_, batch_);
        ++count_;
        return;
      case 2:
        return say_batch(input);
      case 3:
        for (int i = input.byte() % 4; i >= 0 && !batch_.empty(); --i) {
          batch_[input.number() % batch_.size()] ^= static_cast<std::byte>(input.byte());
        }
        return say_batch(input);
      case 4:
        return say(input.bytes(3000), traffic);
      case 5: {
        const auto channel = static_cast<std::uint16_t>(input.byte() % 5);
        const auto type = (kind & 0x80) != 0 ? MessageType::kImage : MessageType::kPayload;
        std::vector<std::byte> message =
            make_message({static_cast<std::uint8_t>(type), 0, channel, 1, next_[channel] + input.number() - 4});
        message.resize(message.size() + input.number() % 50'000);
        return say(std::move(message), TrafficClass::kBulk);
      }
      case 6:
        if (!last_.empty()) say(last_, traffic);
        return;
      case 7: {  // there is no window
        const bool asks = (kind & 0x80) != 0;
        std::vector<std::byte> message =
            make_message({.type = static_cast<std::uint8_t>(asks ? MessageType::kOpenWindow : MessageType::kPlaced),
                          .count = 1,
                          .sequence = input.number()});
        put(message, PlacedBody{input.number(), input.number()});
        return say(std::move(message), asks ? TrafficClass::kCommands : TrafficClass::kBulk);
      }
      case 8:
        return say(channel_message(static_cast<std::uint16_t>(input.byte() % 5),
                                   {.priority = static_cast<std::int32_t>(input.byte()) - 200}),
                   traffic);
      case 9:
        return connect_anew(input.byte());
      case 10:
        return ask(input);
      case 11:
        return prove(input, (kind & 0x80) != 0);
      case 12:
        return say(make_message({.type = static_cast<std::uint8_t>(MessageType::kHeard),
                                 .channel = static_cast<std::uint16_t>(input.byte() % 5),
                                 .sequence = input.number()}),
                   traffic);
      case 13:
        return other_.lose(input);
      default:
        reads_ = (kind & 0x80) == 0;
        stage_.run([this] { return hear(), false; }, 1 + input.byte());
    }
  }
  /// The service answers, or has said why it does not.
  void end() {
    must(stage_.stats().resumed <= other_.lost() + shown_);
    reads_ = true;
    stage_.run([this] { return hear(), false; }, 80);
    if (peers_.size() == 1 && stage_.stats().sessions_ended_wrong != 0) {  // it hears all that there is to hear
      must(stage_.run([this] {
        hear();
        return !why_.empty() || is_closed(0);
      }));
      must(!why_.empty());
    }
    for (Heard& each : peers_) each.peer.close(milliseconds(10));
    must(stage_.run([this] {
      hear();
      return std::ranges::all_of(peers_, &Heard::closed);
    }));
  }

 private:
  struct Heard {
    Peer peer;
    bool closed = false;
  };
  [[nodiscard]] bool is_closed(std::size_t i) const { return peers_[i].closed; }

  void say(std::vector<std::byte> message, TrafficClass traffic) {
    (void)peers_.back().peer.send(message, kMessageValue, {.traffic = traffic});
    last_ = std::move(message);
  }
  void say_batch(Input& input) {
    if (batch_.empty()) return;
    const auto channel = static_cast<std::uint16_t>(input.byte() % 5);
    const MessageHeader header{static_cast<std::uint8_t>(MessageType::kCommands), 0, channel, count_, next_[channel]};
    std::memcpy(batch_.data(), &header, std::min(sizeof header, batch_.size()));
    next_[channel] += count_;
    say(std::exchange(batch_, {}), TrafficClass::kCommands);
  }

  // ---- another connection, and what is shown over it

  void connect() {
    peers_.push_back({stage_.connect(Stage::kLiar)});
    must(stage_.run([this] {
      hear();
      return peers_.back().peer.state() == PeerState::kReady;
    }));
  }
  /// Which end notices that the last one is lost, if it is.
  void connect_anew(std::uint8_t lost) {
    if (peers_.size() == kConnections) return;
    if (lost % 4 != 0) stage_.lose(Stage::kLiar, (lost & 1) != 0, (lost & 2) != 0);
    connect();
  }
  void ask(Input& input) {
    attempt_.client = make_nonce();
    ResumeBody body{key_.id, attempt_.client};
    if (const std::uint8_t wrong = input.byte(); wrong != 0) body.id[wrong % body.id.size()] ^= std::byte{wrong};
    auto message = make_message({.type = static_cast<std::uint8_t>(MessageType::kResume)});
    put(message, body);
    say(std::move(message), TrafficClass::kCommands);
    stage_.run([this] { return hear(), false; }, 30);
  }
  void prove(Input& input, bool truly) {
    std::vector<HeardBody> points(input.byte() % 6);
    for (HeardBody& point : points) point = {input.number(), input.number(), input.number(), input.number()};
    attempts_.push_back(attempt_);
    std::vector<std::byte> message = points_message(key_, attempt_, points);
    const std::vector<std::byte> truth = message;
    if (!truly) {
      for (int i = input.byte() % 3; i >= 0; --i) {
        message[input.number() % message.size()] ^= static_cast<std::byte>(input.byte());
      }
      message.resize(message.size() - std::min<std::size_t>(message.size(), input.byte() % 8));
    }
    // Its header is no part of what is shown.
    shown_ += std::ranges::equal(Bytes(message).subspan(std::min(message.size(), sizeof(MessageHeader))),
                                 Bytes(truth).subspan(sizeof(MessageHeader)))
                  ? 1
                  : 0;
    say(std::move(message), TrafficClass::kCommands);
  }

  // ---- what the service says

  void hear() {
    for (Heard& each : peers_) {
      while (reads_ && !each.closed) {
        const Event event = each.peer.next_event();
        if (event.kind == Event::Kind::kClosed || (event.kind == Event::Kind::kNone && !event.status.ok())) {
          each.closed = true;
        }
        if (event.kind == Event::Kind::kNone) break;
        if (event.kind == Event::Kind::kMessage) hear(event.data);
      }
    }
  }
  void hear(Bytes message) {
    must(!other_.is_in(message));
    Bytes body = message;
    const auto header = take<MessageHeader>(body);
    must(header.has_value());
    if (is_message(*header, MessageType::kWelcome)) {
      welcome_ = true;
      (void)take<Welcome>(body);
      range_ = take<WelcomeMore>(body).value_or(WelcomeMore()).range_base;
      (void)take<WelcomeLast>(body);
      const auto kept = take<WelcomeKept>(body);
      is_kept_ = kept && kept->keep_ms != 0;
      if (is_kept_) key_ = {kept->id, kept->secret};
    }
    if (is_message(*header, MessageType::kChallenge)) attempt_.service = take<ChallengeBody>(body)->nonce;
    if (is_message(*header, MessageType::kResumed)) {
      must(std::ranges::any_of(attempts_, [&](const Attempt& each) {
        return read_points<KeptBody>(key_, each, header->count, body).has_value();
      }));
    }
    if (is_message(*header, MessageType::kRefused)) why_ = refusal_in(body).message();
    if (is_message(*header, MessageType::kReply)) must(read_reply(*header, body).has_value());
  }

  Stage& stage_;
  True& other_;
  std::vector<Heard> peers_;  // the last is what it says something over
  std::vector<std::byte> batch_, last_;
  std::uint32_t count_ = 0;
  std::uint64_t range_ = 0;
  std::array<std::uint64_t, 5> next_{1, 1, 1, 1, 1};
  bool welcome_ = false, is_kept_ = false, reads_ = true;
  SessionKey key_;
  Attempt attempt_;
  std::vector<Attempt> attempts_;  // that it has shown something in
  std::uint64_t shown_ = 0;        // how often that the session is its own
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
      Liar liar(stage, other, input.byte());
      for (int actions = 0; !input.empty() && actions < 300; ++actions) liar.act(input);
      must(stage.tenant("liar").memory_bytes <= kMemory);
      other.look();
      liar.end();
    }
    must(stage.run([&] { return stage.stats().sessions == 1 && stage.live() == 1; }));
    const fairlead::command::TenantStats gone = stage.tenant("liar"), there = stage.tenant("true");
    must(gone.sessions == 0 && gone.memory_bytes == 0 && gone.waiting == 0);
    must(there.sessions == 1 && there.memory_bytes == kSecretBytes && there.waiting == 0);
    must(there.failures == decltype(there.failures){} && there.rejections == 0);
    other.look();
  }
  return 0;
}
