// A client of commands whose service lies: it greets as the input says, answers what was not asked, says to have run
// what it was not given, loses its connections, and shows itself over another truly or not. The client's session may
// end, with words. It touches only what is to be copied out, and nothing of that once it has said that the command is
// settled.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "datapath/command/client_session.h"
#include "datapath/command/codec.h"
#include "datapath/command/device/welcome.h"
#include "datapath/command/resume/points.h"
#include "fairlead/log.h"
#include "tests/fuzz/command_ground.h"
#include "tests/fuzz/input.h"

namespace {

using namespace fairlead;                     // NOLINT(google-build-using-namespace): a program of one file
using namespace fairlead::datapath::command;  // NOLINT(google-build-using-namespace)
using fairlead::command::Channel;
using fairlead::command::Stage;
using fuzz::CommandGround;
using fuzz::Input;
using fuzz::must;
using std::chrono::milliseconds;

constexpr milliseconds kSought{500};
constexpr std::size_t kChannels = 3, kConnections = 12;

/// What it says is the input's.
class Liar {
 public:
  void hear(const Peer& peer, const Event& event) {
    if (event.kind == Event::Kind::kClosed && peer_ && *peer_ == peer) peer_.reset();
    if (event.kind != Event::Kind::kMessage) return;
    peer_ = peer;
    Bytes body = event.data;
    const auto header = take<MessageHeader>(body);
    must(header.has_value());
    if (is_message(*header, MessageType::kCommands) && header->channel < kChannels) {
      given_[header->channel] = header->sequence + header->count - 1;
    }
    if (is_message(*header, MessageType::kResume)) attempt_.client = take<ResumeBody>(body)->nonce;
    if (is_message(*header, MessageType::kProof)) {
      must(std::ranges::any_of(attempts_, [&](const Attempt& each) {
        return read_points<HeardBody>(key_, each, header->count, body).has_value();
      }));
    }
  }
  void act(Input& input) {
    const std::uint8_t kind = input.byte();
    const TrafficClass traffic = (kind & 0x80) != 0 ? TrafficClass::kBulk : TrafficClass::kCommands;
    const auto channel = static_cast<std::uint16_t>(input.byte() % (kChannels + 1));
    switch (kind % 10) {
      case 0:
        return welcome(input);
      case 1:
      case 2:
        return reply(input, channel);
      case 3: {  // of a copy-out, as large as those are or not
        std::vector<std::byte> message = make_message({.type = static_cast<std::uint8_t>(MessageType::kResult),
                                                       .channel = channel,
                                                       .count = 1,
                                                       .sequence = input.number()});
        message.resize(message.size() + 16 * (input.number() % 3000), std::byte{0x77});
        return say(std::move(message), TrafficClass::kBulk);
      }
      case 4: {
        std::vector<std::byte> message = make_message({.type = static_cast<std::uint8_t>(MessageType::kWanted),
                                                       .channel = channel,
                                                       .count = 1,
                                                       .sequence = input.number()});
        put(message, WantedBody{input.number(), input.number()});
        return say(std::move(message), traffic);
      }
      case 5:
        return say(input.bytes(500), traffic);
      case 6:
        attempt_.service = make_nonce();
        attempts_.push_back(attempt_);
        {
          std::vector<std::byte> message = make_message({.type = static_cast<std::uint8_t>(MessageType::kChallenge)});
          put(message, ChallengeBody{attempt_.service});
          return say(std::move(message), traffic);
        }
      case 7:
        return resumed(input, channel % 2 == 0);
      case 8:
        if (!last_.empty()) say(last_, traffic);
        return;
      default:
        if (channel == 0) return say(refused_message({Code::kUnavailable, input.text()}), traffic);
        if (channel == 1) return say(window_message(input.number(), input.text()), traffic);
    }
  }
  [[nodiscard]] bool was_greeted() const noexcept { return peer_.has_value(); }
  void let_go() { peer_.reset(); }

 private:
  void say(std::vector<std::byte> message, TrafficClass traffic) {
    if (peer_) (void)peer_->send(message, kMessageValue, {.traffic = traffic});
    last_ = std::move(message);
  }
  void welcome(Input& input) {
    Welcome welcome{.version = kNewestVersion,
                    .channels = kChannels,
                    .credits = 1u + input.byte(),
                    .payload_credit = 30'000,
                    .memory_bytes = 1 << 20,
                    .payload_bytes = 20'000,
                    .parameter_bytes = 1024,
                    .block_threads = 256,
                    .shared_bytes = 1024,
                    .grid = {64, 64, 64},
                    .modules = 4};
    WelcomeMore more{.graph_records = 10, .range_alignment = 512, .graph_bytes = 10'000};
    WelcomeLast last{2, -2};
    WelcomeKept kept{.keep_ms = 1000, .heard_bytes = input.number()};
    kept.id = key_.id;
    kept.secret = key_.secret;
    const std::uint8_t wrong = input.byte();
    if ((wrong & 1) != 0) welcome.version = static_cast<std::uint16_t>(input.number());
    if ((wrong & 2) != 0) welcome.payload_bytes = static_cast<std::uint32_t>(input.number());
    if ((wrong & 4) != 0) welcome.payload_credit = input.number();
    if ((wrong & 8) != 0) welcome.credits = static_cast<std::uint32_t>(input.number());
    if ((wrong & 16) != 0)
      last = {static_cast<std::int32_t>(input.number()), static_cast<std::int32_t>(input.number())};
    if ((wrong & 32) != 0) kept.keep_ms = input.number();
    if ((wrong & 64) != 0) more = {0, static_cast<std::uint32_t>(input.number()), input.number(), 0, input.number()};
    DeviceFacts device = only_device(welcome, more, last);
    device.name = "host";
    const std::vector<DeviceFacts> devices(1 + (wrong >> 5 & 1), device);  // two have one number
    std::vector<std::byte> message = welcome_message(welcome, more, last, kept, devices);
    if ((wrong & 128) != 0) message.resize(message.size() - std::min<std::size_t>(message.size(), input.number()));
    say(std::move(message), TrafficClass::kCommands);
  }
  /// Of what it was given, mostly.
  void reply(Input& input, std::uint16_t channel) {
    Reply reply;
    const std::uint64_t given = given_[std::min<std::size_t>(channel, kChannels - 1)];
    reply.accepted = given - input.number();
    reply.executed = reply.accepted - input.number();
    reply.complete = reply.executed - input.number();
    if (const std::uint8_t scope = input.byte(); scope % 8 > 4) {
      reply.failure = fairlead::command::Failure{
          reply.executed - input.byte() % 4, static_cast<fairlead::command::Scope>(scope / 8 % 5), 719, "it failed"};
    }
    std::vector<std::byte> items;
    for (reply.items = input.byte() % 4; reply.items != items_of(items);) {
      put_data(items, input.number(), std::vector<std::byte>(16 * (input.byte() % 64), std::byte{0x77}));
    }
    reply.data = items;
    reply.items += input.byte() == 0xff ? 1 : 0;
    say(reply_message(channel, reply), TrafficClass::kCommands);
  }
  static std::uint32_t items_of(Bytes items) {
    std::uint32_t count = 0;
    while (take_data(items)) ++count;
    return count;
  }
  void resumed(Input& input, bool truly) {
    std::vector<KeptBody> points;
    for (std::uint64_t i = 0; i < kChannels; ++i) {
      if (given_[i] != 0) points.push_back({i, given_[i], given_[i]});
    }
    for (int i = input.byte() % 4; i > 0; --i) {
      if (input.byte() % 2 == 0 || points.empty()) points.emplace_back();
      points[input.byte() % points.size()] = {input.byte() % 4u, given_[input.byte() % kChannels] - input.number(),
                                              input.number()};
    }
    std::vector<std::byte> message = points_message(key_, attempt_, points);
    if (!truly) message[input.number() % message.size()] ^= static_cast<std::byte>(input.byte());
    say(std::move(message), TrafficClass::kCommands);
  }

  std::optional<Peer> peer_;  // who said something last
  std::vector<std::byte> last_;
  std::array<std::uint64_t, kChannels> given_{};
  SessionKey key_ = make_session_key();
  Attempt attempt_;
  std::vector<Attempt> attempts_;  // that it has challenged
};

/// The client, and what it has copied out.
class Client {
 public:
  Client(CommandGround& ground, const Peer& peer, bool seeks) {
    session_ = std::make_shared<ClientSession>(
        peer, fairlead::command::SessionOptions{.flush_after = std::chrono::microseconds(0),
                                                .wait_for_room = false,
                                                .resume_within = seeks ? kSought : milliseconds(0)});
    if (seeks) {
      session_->seek_by(
          [this, &ground]() -> Result<Peer> {
            if (++dials_ > kConnections) return Status(Code::kNotFound, "connection refused");
            return ground.connect(1);
          },
          &CommandGround::now);
    }
    session_->greet(CommandGround::kMaxMessage);
  }
  void act(Input& input) {
    const std::uint8_t kind = input.byte();
    if (channels_.empty() || (kind % 8 == 0 && channels_.size() < kChannels)) {
      if (!session_->is_welcome()) return;
      ClientChannel* const made = session_->open_channel({.priority = kind / 8 - 2});
      if (made == nullptr) return;
      channels_.emplace_back(std::shared_ptr<fairlead::command::ChannelBody>(session_, made));
    }
    const std::size_t which = input.byte() % channels_.size();
    Channel& channel = channels_[which];
    switch (kind % 8) {
      case 1:
        return (void)channel.allocate({input.number()}, input.number());
      case 2: {
        const std::vector<std::byte> bytes(input.number() % 25'000, std::byte{1});
        return (void)channel.copy_in({1}, 0, bytes);
      }
      case 3:
      case 4: {
        Output& output =
            outputs_.emplace_back(Output{which, 0, std::vector<std::byte>(16 * input.byte() + 2 * kGuard), {}});
        const auto appended =
            channel.copy_out(std::span(output.bytes).subspan(kGuard, output.bytes.size() - 2 * kGuard), {1}, 0);
        if (appended) {
          output.sequence = *appended;
        } else {
          output.sequence = channel.last();
        }
        return;
      }
      case 5: {
        const std::vector<std::byte> image(1 + input.number() % 5000, std::byte{2});
        return (void)channel.load_module({input.number()}, image);
      }
      case 6:
        return (void)channel.recover();
      default:
        return channel.flush();
    }
  }
  void drain() {
    session_->drain();
    look();
  }
  /// What is settled is its application's.
  void look() {
    const bool ended = session_->has_ended();
    if (ended) must(!session_->status().ok() && !session_->status().message().empty());
    for (Output& each : outputs_) {
      for (std::size_t i = 0; i < kGuard; ++i) {
        must(each.bytes[i] == std::byte{} && each.bytes[each.bytes.size() - 1 - i] == std::byte{});
      }
      if (!each.settled.empty()) must(each.settled == each.bytes);
      if (!each.settled.empty()) continue;
      const std::optional<fairlead::command::Failure> failure = channels_[each.channel].failure();
      if (ended || channels_[each.channel].reached(Stage::kComplete) >= each.sequence ||
          (failure && failure->sequence <= each.sequence)) {
        each.settled = each.bytes;
      }
    }
  }
  void close() {
    session_->close();
    must(session_->has_ended());
    look();
  }
  [[nodiscard]] bool has_ended() const { return session_->has_ended(); }

 private:
  static constexpr std::size_t kGuard = 16;
  struct Output {
    std::size_t channel = 0;
    std::uint64_t sequence = 0;
    std::vector<std::byte> bytes;
    std::vector<std::byte> settled;  // as it was then
  };

  std::size_t dials_ = 0;
  std::shared_ptr<ClientSession> session_;
  std::vector<Channel> channels_;
  std::list<Output> outputs_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  set_log_level(LogLevel::kOff);
  Input input(data, size);
  CommandGround ground({"client"});
  Liar liar;
  const auto run = [&](auto done, int rounds) {
    return ground.run(done, [&](const Peer& peer, const Event& event) { liar.hear(peer, event); }, [] {}, rounds);
  };
  {
    Peer peer = ground.connect(1);
    must(run([&] { return peer.state() == PeerState::kReady; }, 100'000));
    Client client(ground, peer, (input.byte() & 1) != 0);
    const auto go_on = [&](int rounds) { (void)run([&] { return client.drain(), false; }, rounds); };
    must(run([&] { return client.drain(), liar.was_greeted(); }, 100'000));
    for (int actions = 0; !input.empty() && actions < 200; ++actions) {
      const std::uint8_t who = input.byte();
      switch (who % 8) {
        case 0:
        case 1:
        case 2:
          liar.act(input);
          break;
        case 3:
        case 4:
          client.act(input);
          break;
        case 5:
          ground.lose(1, (who & 8) != 0 || (who & 16) == 0, (who & 16) != 0);
          break;
        default:
          go_on(1 + who);
      }
    }
    // Nobody says anything any more: a client that seeks gives up.
    ground.lose(1, true, true);
    must(run([&] { return client.drain(), client.has_ended(); }, 100'000));
    client.close();
    liar.let_go();
  }
  return 0;
}
