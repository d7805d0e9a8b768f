// A failure at every position of random programs of several channels, on the host executor: it is said of the command
// that it is, with its scope; what stands before it ran, what comes behind it did not, and who waited for that hears.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "datapath/command/codec.h"
#include "datapath/command/server_session.h"
#include "fairlead/executor_around.h"
#include "fairlead/host_executor.h"

namespace fairlead::datapath::command {
namespace {

using fairlead::command::Executor;
using fairlead::command::Failure;
using fairlead::command::Handle;
using fairlead::command::Outcome;
using fairlead::command::Scope;

constexpr std::uint16_t kChannels = 3;
constexpr std::uint64_t kBytes = 400;    // of each allocation, of which each channel has two
constexpr std::int32_t kInjected = 333;  // a CUresult

struct Place {
  std::uint16_t channel = 0;
  std::uint64_t sequence = 0;
  auto operator<=>(const Place&) const = default;
};

/// The host, but that one command fails, and with what scope. Where it stands is what the session's meter says.
class Failing final : public fairlead::command::ExecutorAround {
 public:
  struct Orders {
    std::optional<Place> at;
    Scope scope = Scope::kCommand;
    std::vector<Place> ran;  // whatever else came, in order
  };
  Failing(std::unique_ptr<Executor> host, const SessionMeter& meter, Orders& orders)
      : ExecutorAround(std::move(host)), meter_(meter), orders_(orders) {}

  Outcome allocate(Handle h, std::uint64_t n) override {
    return perhaps([&] { return inner().allocate(h, n); });
  }
  Outcome release(Handle h) override {
    return perhaps([&] { return inner().release(h); });
  }
  Outcome fill(Handle h, std::uint64_t at, std::uint64_t n, std::uint8_t value) override {
    return perhaps([&] { return inner().fill(h, at, n, value); });
  }
  Outcome copy_in(Handle h, std::uint64_t at, Bytes from) override {
    return perhaps([&] { return inner().copy_in(h, at, from); });
  }
  Outcome copy_out(std::span<std::byte> to, Handle h, std::uint64_t at) override {
    return perhaps([&] { return inner().copy_out(to, h, at); });
  }
  Outcome copy_within(Handle a, std::uint64_t i, Handle b, std::uint64_t j, std::uint64_t n) override {
    return perhaps([&] { return inner().copy_within(a, i, b, j, n); });
  }
  Outcome load(Handle h, std::string_view name) override {
    return perhaps([&] { return inner().load(h, name); });
  }
  Outcome launch(const fairlead::command::Launch& launch, Bytes parameters) override {
    return perhaps([&] { return inner().launch(launch, parameters); });
  }

 private:
  template <typename Run>
  Outcome perhaps(Run run) {
    const Place place{static_cast<std::uint16_t>(meter_.channel.load()), meter_.sequence.load()};
    if (orders_.at == place) return {kInjected, orders_.scope, "as it was told to"};
    orders_.ran.push_back(place);
    return run();
  }
  const SessionMeter& meter_;
  Orders& orders_;
};

/// What the device holds.
using Model = std::map<std::uint64_t, std::vector<std::byte>>;

struct Command {
  Place place;
  std::vector<std::byte> record;
  std::function<void(Model&)> apply{};  // empty: it does not come to the device
  std::optional<Place> waits_for{};     // of a fence
};

/// Programs whose order of appending is one of those that their fences allow, and where all that these allow come to
/// the same.
class Author {
 public:
  explicit Author(unsigned seed) : random_(seed) {}

  std::vector<Command> write(std::size_t length) {
    for (std::uint16_t channel = 0; channel < kChannels; ++channel) {
      for (std::uint64_t i = 0; i < 2; ++i) allocate(channel, handle(channel, i));
    }
    while (program_.size() < length) next(static_cast<std::uint16_t>(below(kChannels)));
    return std::move(program_);
  }
  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }
  static std::uint64_t handle(std::uint16_t channel, std::uint64_t i) { return channel * 10u + i + 1; }

  template <typename Body>
  static std::vector<std::byte> record(Opcode opcode, const Body& body, Bytes tail = {}, std::uint16_t flags = 0) {
    std::vector<std::byte> bytes;
    put_record(bytes, opcode, flags, body, tail);
    return bytes;
  }

 private:
  Command& add(std::uint16_t channel, std::vector<std::byte> record, std::function<void(Model&)> apply = {}) {
    return program_.emplace_back(Command{{channel, ++last_[channel]}, std::move(record), std::move(apply)});
  }
  Place mark(std::uint16_t channel) {
    std::vector<std::byte> bytes;
    put(bytes, RecordHeader{static_cast<std::uint16_t>(Opcode::kMark), 0, sizeof(RecordHeader)});
    return add(channel, std::move(bytes)).place;
  }
  void fence(std::uint16_t channel, const Place& on) {
    add(channel, record(Opcode::kFence, FenceBody{on.channel, on.sequence})).waits_for = on;
  }
  void allocate(std::uint16_t channel, std::uint64_t h) {
    add(channel, record(Opcode::kAllocate, AllocateBody{h, kBytes}),
        [h](Model& model) { model[h].assign(kBytes, std::byte{0}); });
  }
  void next(std::uint16_t channel) {
    const std::uint64_t to = handle(channel, below(2)), from = handle(channel, below(2));
    const std::uint64_t at = below(kBytes / 2), other = below(kBytes / 2), length = 1 + below(kBytes / 2);
    switch (below(7)) {
      case 0:
        add(channel, record(Opcode::kFill, FillBody{to, at, length, at % 251}),
            [=](Model& model) { std::memset(&model[to][at], static_cast<int>(at % 251), length); });
        return;
      case 1: {
        std::vector<std::byte> bytes(length);
        for (std::byte& byte : bytes) byte = static_cast<std::byte>(below(256));
        add(channel, record(Opcode::kCopyIn, CopyBody{to, at, length}, bytes, kInline),
            [=](Model& model) { std::ranges::copy(bytes, &model[to][at]); });
        return;
      }
      case 2:
        add(channel, record(Opcode::kCopyWithin, CopyWithinBody{to, at, from, other, length}),
            [=](Model& model) { std::memmove(&model[to][at], &model[from][other], length); });
        return;
      case 3:
        add(channel, record(Opcode::kCopyOut, CopyBody{to, at, length}), [](Model&) {});
        return;
      case 4:
        add(channel, record(Opcode::kRelease, ReleaseBody{to}), [=](Model& model) { model.erase(to); });
        return allocate(channel, to);
      default: {
        const auto there = static_cast<std::uint16_t>((channel + 1 + below(kChannels - 1)) % kChannels);
        const std::uint64_t of = handle(there, below(2));
        fence(channel, mark(there));
        add(channel, record(Opcode::kCopyWithin, CopyWithinBody{to, at, of, other, length}),
            [=](Model& model) { std::memmove(&model[to][at], &model[of][other], length); });
        fence(there, mark(channel));
      }
    }
  }

  std::mt19937 random_;
  std::vector<Command> program_;
  std::array<std::uint64_t, kChannels> last_{};
};

class CommandFailures : public testing::Test, private Outlet {
 protected:
  void begin(std::optional<Place> at, Scope scope) {
    orders_ = {at, scope, {}};
    channels_.clear();
    session_ = std::make_unique<ServerSession>(
        static_cast<Outlet&>(*this), ServerSession::Terms(),
        [this](std::uint32_t) -> Result<std::unique_ptr<Executor>> {
          Result<std::unique_ptr<Executor>> host = host_(Peer());
          return std::unique_ptr<Executor>(std::make_unique<Failing>(*std::move(host), meter_, orders_));
        },
        &meter_);
    session_->take(hello_message({.payload_bytes = kMaxPayload}), TrafficClass::kCommands);
    channels_.clear();
  }
  std::uint64_t give(std::uint16_t channel, const std::vector<std::byte>& record) {
    const std::uint64_t sequence = ++channels_[channel].last;
    std::vector<std::byte> message =
        make_message({static_cast<std::uint8_t>(MessageType::kCommands), 0, channel, 1, sequence});
    message.insert(message.end(), record.begin(), record.end());
    session_->take(std::move(message), TrafficClass::kCommands);
    return sequence;
  }
  void run() {
    while (session_->run()) {
    }
  }
  /// What of the program ran, by what was said: all of a channel, or what stands before its failure.
  bool ran(const Command& command) {
    const std::optional<Failure>& failure = channels_[command.place.channel].failure;
    return !failure || command.place.sequence < failure->sequence;
  }
  /// Nothing is lost: what is said agrees with what the device got, and all was answered.
  void judge_log(const std::vector<Command>& program) {
    std::set<Place> got(orders_.ran.begin(), orders_.ran.end()), said;
    EXPECT_EQ(got.size(), orders_.ran.size()) << "twice";
    for (const Command& command : program) {
      if (command.apply && ran(command)) said.insert(command.place);
    }
    EXPECT_TRUE(got == said);
    for (const auto& [number, channel] : channels_) EXPECT_EQ(channel.executed, channel.last) << number;
  }
  /// What fails with `at`, by what the program says.
  std::map<std::uint16_t, Place> failures_of(const std::vector<Command>& program, const Place& at) {
    std::map<std::uint16_t, Place> failed{};
    for (const Command& command : program) {
      if (failed.contains(command.place.channel)) continue;
      const auto other = command.waits_for ? failed.find(command.waits_for->channel) : failed.end();
      const bool waits = other != failed.end() && other->second.sequence <= command.waits_for->sequence;
      if (command.place == at || waits) failed.emplace(command.place.channel, command.place);
    }
    return failed;
  }
  /// Whatever is asked of any channel now fails, and a recovery does, too.
  void judge_lost() {
    for (std::uint16_t i = 0; i < kChannels; ++i) {
      give(i, Author::record(Opcode::kFill, FillBody{Author::handle(i, 0), 0, 1, 1}));
      run();
      ASSERT_TRUE(channels_[i].failure) << i;
      if (channels_[i].failure->scope != Scope::kContext) {
        give(i, Author::record(Opcode::kRecover, RecoverBody{channels_[i].failure->sequence}));
        run();
      }
      EXPECT_EQ(channels_[i].failure->scope, Scope::kContext) << i;
      EXPECT_EQ(channels_[i].executed, channels_[i].last);
    }
  }
  /// What the device holds now.
  Model read(const Model& like) {
    std::map<std::uint64_t, std::pair<std::uint16_t, std::uint64_t>> asked;
    for (const auto& [handle, bytes] : like) {
      const auto channel = static_cast<std::uint16_t>(handle / 10);
      asked[handle] = {channel, give(channel, Author::record(Opcode::kCopyOut, CopyBody{handle, 0, kBytes}))};
    }
    run();
    Model held;
    for (const auto& [handle, place] : asked) held[handle] = channels_[place.first].data[place.second];
    return held;
  }

  struct Said {
    std::uint64_t last = 0, executed = 0;
    std::optional<Failure> failure;
    std::size_t failures = 0;
    std::map<std::uint64_t, std::vector<std::byte>> data;  // of copy-outs
  };
  std::map<std::uint16_t, Said> channels_;

 private:
  void send(TrafficClass, Bytes message) override {
    Bytes body = message;
    const auto header = take<MessageHeader>(body);
    ASSERT_TRUE(header);
    ASSERT_NE(header->type, static_cast<std::uint8_t>(MessageType::kRefused)) << refusal_in(body).message();
    if (header->type != static_cast<std::uint8_t>(MessageType::kReply)) return;
    const std::optional<Reply> reply = read_reply(*header, body);
    ASSERT_TRUE(reply);
    Said& channel = channels_[header->channel];
    channel.executed = reply->executed;
    channel.failures += reply->failure ? 1 : 0;
    if (reply->failure) channel.failure = reply->failure;
    Bytes data = reply->data;
    while (const std::optional<ReplyData> item = take_data(data)) {
      channel.data[item->sequence].assign(item->bytes.begin(), item->bytes.end());
    }
  }
  [[nodiscard]] std::uint64_t untaken() override { return 0; }

  const fairlead::command::ExecutorFactory host_ = fairlead::command::host_executors({});
  Failing::Orders orders_;
  SessionMeter meter_;
  std::unique_ptr<ServerSession> session_;
};

TEST_F(CommandFailures, AtEveryPositionAreNamedWithTheirScopeAndNothingIsLost) {
  std::size_t positions = 0, waited = 0, others = 0;
  for (unsigned seed = 1; seed <= 12; ++seed) {
    const std::vector<Command> program = Author(seed).write(40);
    for (const Scope scope : {Scope::kCommand, Scope::kStream, Scope::kContext}) {
      for (const Command& failing : program) {
        if (!failing.apply) continue;
        SCOPED_TRACE(testing::Message() << "seed " << seed << ", channel " << failing.place.channel << ", command "
                                        << failing.place.sequence << ", scope " << static_cast<int>(scope));
        ++positions;
        begin(failing.place, scope);
        Author chance(seed * 7919 + static_cast<unsigned>(positions));
        for (const Command& command : program) {
          ASSERT_EQ(give(command.place.channel, command.record), command.place.sequence);
          if (chance.below(4) == 0) run();
        }
        run();
        judge_log(program);
        const std::map<std::uint16_t, Place> expected = failures_of(program, failing.place);
        for (auto& [number, channel] : channels_) {
          const bool here = number == failing.place.channel;
          if (scope == Scope::kContext) {  // where others are by then is chance
            if (!channel.failure) continue;
            EXPECT_EQ(channel.failure->result, kInjected);
            if (here) {
              EXPECT_EQ(channel.failure->sequence, failing.place.sequence);
            }
            others += here ? 0 : 1;
            EXPECT_LE(channel.failures, 2u);
            continue;
          }
          const auto found = expected.find(number);
          ASSERT_EQ(channel.failure.has_value(), found != expected.end()) << "channel " << number;
          if (!channel.failure) continue;
          EXPECT_EQ(channel.failures, 1u) << "it is said once";
          EXPECT_EQ(channel.failure->sequence, found->second.sequence) << "channel " << number;
          EXPECT_EQ(channel.failure->scope, here ? scope : Scope::kStream);
          EXPECT_EQ(channel.failure->result, kInjected) << "what waits fails as what it waits for did";
          waited += here ? 0 : 1;
        }
        ASSERT_TRUE(channels_[failing.place.channel].failure);
        if (scope == Scope::kContext) {
          judge_lost();
          continue;
        }
        // After recovery the channels go on with what is there.
        Model model;
        for (const Command& command : program) {
          if (command.apply && ran(command)) command.apply(model);
        }
        for (auto& [number, channel] : channels_) {
          if (!channel.failure) continue;
          give(number, Author::record(Opcode::kRecover, RecoverBody{channel.failure->sequence}));
          channel.failure.reset();
        }
        ASSERT_TRUE(read(model) == model);
        for (const auto& [number, channel] : channels_) EXPECT_FALSE(channel.failure) << number;
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GT(positions, 500u);
  EXPECT_GT(waited, 100u);
  EXPECT_GT(others, 100u);
}

}  // namespace
}  // namespace fairlead::datapath::command
