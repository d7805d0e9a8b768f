// A session's messages: the greeting, batches of commands, payload; and the end of it.
#include "datapath/command/server_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace fairlead::datapath::command {

using fairlead::command::Executor;
using fairlead::command::ExecutorLimits;

ServerSession::ServerSession(Outlet& outlet, const Terms& terms, MakeExecutor make, SessionMeter* meter,
                             std::shared_ptr<ImageStore> modules)
    : outlet_(outlet),
      terms_(terms),
      make_(std::move(make)),
      meter_(meter),
      modules_(std::move(modules), terms.module_bytes, terms.payload_bytes),
      graphs_(terms.graph_records, terms.graph_bytes) {}

void ServerSession::end(Code code, std::string why) {
  if (is_over()) return;
  ended_ = Status(code, std::move(why));
  channels_.clear();
  held_ = pending_ = false;
  outlet_.send(TrafficClass::kCommands, refused_message(ended_));
}

void ServerSession::take(std::vector<std::byte> message, TrafficClass traffic) {
  if (is_over()) return;
  Bytes body = message;
  const auto header = command::take<MessageHeader>(body);
  if (!header) return end(Code::kDataLoss, fmt::format("a message of {} bytes is none of ours", message.size()));
  const bool bulk = traffic == TrafficClass::kBulk;
  const auto type = static_cast<MessageType>(header->type);
  if (type == MessageType::kHello && !is_welcome()) return greet(body);
  if (!is_welcome()) return end(Code::kInvalidArgument, "a session begins with a hello");
  if (type == MessageType::kCommands && !bulk) return take_commands(*header, std::move(message));
  if (type == MessageType::kPayload && bulk) return take_payload(*header, std::move(message));
  if (type == MessageType::kImage && bulk) return take_image(*header, body);
  if (type == MessageType::kChannel && !bulk) return take_channel(*header, body);
  if (type == MessageType::kHeard && !bulk && kept_) return take_heard(*header);
  end(Code::kDataLoss, fmt::format("a message of type {} has no place here", header->type));
}

void ServerSession::greet(Bytes body) {
  const auto hello = command::take<Hello>(body);
  if (!hello) return end(Code::kDataLoss, "the hello is cut short");
  const std::uint16_t version = std::min(hello->newest, kNewestVersion);
  if (version < std::max(hello->oldest, kOldestVersion)) {
    return end(Code::kVersionMismatch,
               fmt::format("the client speaks versions {} to {} of the commands' protocol, the service {} to {}",
                           hello->oldest, hello->newest, kOldestVersion, kNewestVersion));
  }
  Result<std::unique_ptr<Executor>> made = make_();
  if (!made) return end(made.error().code(), made.error().message());
  executor_ = *std::move(made);
  // A session that is refused has not begun, and keeps nothing until its peer has gone.
  const auto refuse = [this](Code code, std::string why) {
    executor_.reset();
    end(code, std::move(why));
  };
  const auto wishes = version >= kGraphVersion ? command::take<HelloMore>(body) : std::nullopt;
  fairlead::command::AddressRange range;
  if (wishes && wishes->range_bytes != 0) {
    const Result<fairlead::command::AddressRange> reserved =
        executor_->reserve(wishes->range_bytes, wishes->range_wish);
    if (!reserved) return refuse(reserved.error().code(), reserved.error().message());
    range = *reserved;
  }
  const ExecutorLimits limits = executor_->limits();
  late_ = executor_->is_asynchronous();
  takes_modules_ = limits.modules != 0;
  priorities_ = limits.priorities;
  if (late_ && version < kLateVersion) {
    return refuse(
        Code::kVersionMismatch,
        fmt::format("the client speaks version {} of the commands' protocol, which knows no device that works by "
                    "itself; version {} does",
                    version, kLateVersion));
  }
  Welcome welcome;
  welcome.version = version;
  welcome.channels = static_cast<std::uint16_t>(terms_.channels);
  welcome.credits = terms_.credits;
  welcome.payload_credit = terms_.payload_credit;
  welcome.memory_bytes = limits.memory_bytes;
  welcome.payload_bytes = std::min(std::max<std::uint32_t>(hello->payload_bytes, kMaxInline), terms_.payload_bytes);
  welcome.parameter_bytes = kMaxParameters;
  welcome.block_threads = limits.block_threads;
  welcome.shared_bytes = limits.shared_bytes;
  welcome.grid[0] = limits.grid.x;
  welcome.grid[1] = limits.grid.y;
  welcome.grid[2] = limits.grid.z;
  welcome.modules = limits.modules;
  if (version < kGraphVersion) return outlet_.send(TrafficClass::kCommands, welcome_message(welcome));
  WelcomeMore more;
  more.range_base = range.base;
  more.range_bytes = range.bytes;
  more.range_alignment = range.alignment;
  if (limits.graphs) {
    more.graph_records = terms_.graph_records;
    more.graph_bytes = terms_.graph_bytes;
  }
  std::optional<WelcomeLast> last;
  if (version >= kChannelVersion) last = {priorities_.least, priorities_.greatest};
  const auto asked = version >= kResumeVersion ? command::take<HelloLast>(body) : std::nullopt;
  std::optional<WelcomeKept> kept;
  kept_ = asked && asked->keep == 1 && terms_.keep_ms != 0;
  if (kept_) kept = {terms_.key.id, terms_.key.secret, terms_.keep_ms, terms_.held_results / 4};
  outlet_.send(TrafficClass::kCommands, welcome_message(welcome, more, last, kept));
}

/// Its payload may have come before.
void ServerSession::take_channel(const MessageHeader& header, Bytes body) {
  ServerChannel* const channel = channel_of(header);
  if (channel == nullptr) return;
  const auto said = command::take<ChannelBody>(body);
  if (!said || channel->accepted() != 0) {
    return end(Code::kDataLoss, fmt::format("channel {} is told of when it has commands already, or in words that are "
                                            "cut short",
                                            header.channel));
  }
  const std::int32_t priority = priorities_.clamp(said->priority);
  if (channels_.priority_of(*channel) == priority) return;  // a client that lost its peer says it again
  channels_.set_priority(*channel, priority);
  executor_->prioritize(header.channel, priority);
}

ServerChannel* ServerSession::channel_of(const MessageHeader& header) {
  if (header.channel >= terms_.channels) {
    end(Code::kOutOfRange, fmt::format("channel {} of {}", header.channel, terms_.channels));
    return nullptr;
  }
  return &channels_.open(header.channel, late_);
}

void ServerSession::take_commands(const MessageHeader& header, std::vector<std::byte> message) {
  ServerChannel* const channel = channel_of(header);
  if (channel == nullptr) return;
  if (header.count == 0 || header.sequence != channel->accepted() + 1) {
    return end(Code::kDataLoss, fmt::format("{} commands from {} on of channel {}, where {} is the last one",
                                            header.count, header.sequence, header.channel, channel->accepted()));
  }
  if (channel->accepted() - channel->executed() + header.count > terms_.credits || message.size() > kMaxBatch) {
    return end(Code::kResourceExhausted,
               fmt::format("{} commands and {} bytes more than the {} credits of channel {} allow", header.count,
                           message.size(), terms_.credits, header.channel));
  }
  Bytes records = Bytes(message).subspan(sizeof(MessageHeader));
  for (std::uint32_t i = 0; i < header.count; ++i) {
    const std::optional<Record> record = take_record(records);
    if (!record || !is_well_formed(*record)) {
      return end(Code::kDataLoss,
                 fmt::format("command {} of channel {} is malformed", header.sequence + i, header.channel));
    }
  }
  if (!records.empty()) {
    return end(Code::kDataLoss, fmt::format("{} bytes behind the last command of a message", records.size()));
  }
  channel->add_batch(std::move(message), sizeof(MessageHeader), header.count);
}

// It may come before its command, and after it.
void ServerSession::take_payload(const MessageHeader& header, std::vector<std::byte> message) {
  ServerChannel* const channel = channel_of(header);
  if (channel == nullptr) return;
  const std::uint64_t bytes = message.size() - sizeof(MessageHeader);
  if (bytes > terms_.payload_bytes || channel->payload_bytes() + bytes > terms_.payload_credit) {
    return end(
        Code::kResourceExhausted,
        fmt::format("{} bytes of payload beside {} on channel {}, which may have {} at once and {} in one piece", bytes,
                    channel->payload_bytes(), header.channel, terms_.payload_credit, terms_.payload_bytes));
  }
  if (header.sequence <= channel->executed()) return;  // its command was passed over
  // Bytes alone do not bound what is kept: there may be none in it.
  if (header.sequence - channel->executed() > terms_.credits) {
    return end(Code::kResourceExhausted,
               fmt::format("payload for command {} of channel {}, of which {} have run, and {} more may be under way",
                           header.sequence, header.channel, channel->executed(), terms_.credits));
  }
  if (!channel->add_payload(header.sequence, std::move(message), sizeof(MessageHeader))) {
    end(Code::kDataLoss, fmt::format("payload for command {} of channel {} behind that for a later one, or twice",
                                     header.sequence, header.channel));
  }
}

void ServerSession::take_image(const MessageHeader& header, Bytes body) {
  ServerChannel* const channel = channel_of(header);
  if (channel == nullptr || header.sequence <= channel->executed()) return;  // or its command was passed over
  const auto image = command::take<ImageBody>(body);
  if (!image || body.size() > terms_.payload_bytes ||
      !modules_.take({header.channel, header.sequence}, image->offset, body)) {
    return end(Code::kDataLoss, fmt::format("{} bytes of an image that was not asked for, for command {} of channel {}",
                                            body.size(), header.sequence, header.channel));
  }
  ask_for_image(*channel);
}

void ServerSession::ask_for_image(const ServerChannel& channel) {
  const std::uint64_t sequence = channel.executed() + 1;
  const std::optional<WantedBody> wanted = modules_.wanted({channel.number(), sequence});
  if (!wanted) return;
  std::vector<std::byte> message = make_message({.type = static_cast<std::uint8_t>(MessageType::kWanted),
                                                 .channel = channel.number(),
                                                 .count = 1,
                                                 .sequence = sequence});
  put(message, *wanted);
  outlet_.send(TrafficClass::kCommands, message);
}

}  // namespace fairlead::datapath::command
