// A session's messages: the greeting, batches of commands, payload; and the end of it.
#include "datapath/command/server_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "datapath/command/graph/launch_record.h"

namespace fairlead::datapath::command {

ServerSession::ServerSession(Outlet& outlet, const Terms& terms, MakeExecutor make, SessionMeter* meter,
                             std::shared_ptr<ImageStore> modules)
    : outlet_(outlet),
      terms_(terms),
      make_(std::move(make)),
      meter_(meter),
      modules_(std::move(modules), terms.module_bytes, terms.payload_bytes),
      now_{.all = terms.devices & (~terms.devices + 1)} {}

void ServerSession::end(Code code, std::string why) {
  if (is_over()) return;
  ended_ = Status(code, std::move(why));
  last_channels_ = std::exchange(channels_, {});
  now_ = {.all = now_.all};
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
  if (type == MessageType::kPlaced && bulk) return take_placed(*header, body);
  if (type == MessageType::kImage && bulk) return take_image(*header, body);
  if (type == MessageType::kChannel && !bulk) return take_channel(*header, body);
  if (type == MessageType::kHeard && !bulk && kept_) return take_heard(*header);
  end(Code::kDataLoss, fmt::format("a message of type {} has no place here", header->type));
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
  if (said->device >= devices_.size()) {
    return end(Code::kOutOfRange, fmt::format("channel {} is to be of device {}, and the session has {}",
                                              header.channel, said->device, devices_.size()));
  }
  ServerDevice& device = devices_[said->device];
  const std::int32_t priority = device.limits.priorities.clamp(said->priority);
  const bool is_said_again =  // by a client that lost its peer
      channel->device() == said->device && channels_.order_of(said->device).priority_of(*channel) == priority;
  if (is_said_again) return;
  channels_.place(*channel, said->device, device.late, priority);
  device.executor->prioritize(header.channel, priority);
}

ServerChannel* ServerSession::channel_of(const MessageHeader& header) {
  if (header.channel >= terms_.channels) {
    end(Code::kOutOfRange, fmt::format("channel {} of {}", header.channel, terms_.channels));
    return nullptr;
  }
  ServerChannel& channel = channels_.open(header.channel, devices_.front().late);
  now_.due |= device_of(channel).bit();
  return &channel;
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
    if (!record || !(is_well_formed_launch(*record) || is_well_formed(*record))) {
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
ServerChannel* ServerSession::payload_channel(const MessageHeader& header, std::uint64_t bytes, std::uint64_t most) {
  ServerChannel* const channel = channel_of(header);
  if (channel == nullptr) return nullptr;
  if (bytes > most || channel->payload_bytes() + bytes > terms_.payload_credit) {
    end(Code::kResourceExhausted,
        fmt::format("{} bytes of payload beside {} on channel {}, which may have {} at once and {} in one piece", bytes,
                    channel->payload_bytes(), header.channel, terms_.payload_credit, most));
    return nullptr;
  }
  if (header.sequence <= channel->executed()) return nullptr;  // its command was passed over
  // Bytes alone do not bound what is kept: there may be none in it.
  if (header.sequence - channel->executed() > terms_.credits) {
    end(Code::kResourceExhausted,
        fmt::format("payload for command {} of channel {}, of which {} have run, and {} more may be under way",
                    header.sequence, header.channel, channel->executed(), terms_.credits));
    return nullptr;
  }
  return channel;
}

void ServerSession::refuse_order(const MessageHeader& header) {
  end(Code::kDataLoss, fmt::format("payload for command {} of channel {} behind that for a later one, or twice",
                                   header.sequence, header.channel));
}

void ServerSession::take_payload(const MessageHeader& header, std::vector<std::byte> message) {
  ServerChannel* const channel = payload_channel(header, message.size() - sizeof(MessageHeader), terms_.payload_bytes);
  if (channel == nullptr) return;
  if (!channel->add_payload(Payload::sent(header.sequence, std::move(message), sizeof(MessageHeader))))
    refuse_order(header);
}

void ServerSession::take_window(std::span<std::byte> window, std::string_view capability, bool is_for_reads) {
  window_ = window;
  if (window.empty()) capability = {};
  outlet_.send(TrafficClass::kCommands, window_message(window.size(), capability, is_for_reads));
}

void ServerSession::take_placed(const MessageHeader& header, Bytes body) {
  const auto placed = command::take<PlacedBody>(body);
  if (!placed || placed->bytes == 0 || !lies_within(*placed, window_.size())) {
    return end(Code::kOutOfRange, fmt::format("{} bytes at {} of the session's window, which has {}",
                                              placed ? placed->bytes : 0, placed ? placed->offset : 0, window_.size()));
  }
  ServerChannel* const channel = payload_channel(header, placed->bytes, kMaxPlaced);
  if (channel == nullptr) return;
  if (!channel->add_payload(Payload::placed(header.sequence, window_.subspan(placed->offset, placed->bytes))))
    refuse_order(header);
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
