#include "datapath/session/inbound.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace fairlead::datapath {
namespace {

// For events of our own, and for what crossed the last credit.
constexpr std::size_t kSlack = 64;

}  // namespace

Inbound::Verdict Inbound::take(const PathMessage& message, std::size_t waiting, Event& event, std::string& why) {
  if (message.sequence <= received_) return Verdict::kDuplicate;
  const std::size_t limit = 2 * limits_.events + kSlack;
  if (message.sequence != received_ + 1 || waiting > limit) {
    why = fmt::format("message {} where {} was due (undelivered: {}, limit {})", message.sequence, received_ + 1,
                      waiting, limit);
    return Verdict::kWrong;
  }
  received_ = message.sequence;
  event.value = message.value;
  if (message.type == MessageType::kFragment) return take_fragment(message, event, why);
  event.kind = Event::Kind::kNotification;
  return Verdict::kEvent;
}

Inbound::Verdict Inbound::take_fragment(const PathMessage& message, Event& event, std::string& why) {
  const std::size_t size = message.data.size();
  if (message.offset == 0) assembly_have_ = 0;  // a new message; a cancelled one ends unfinished
  if (message.total > limits_.message_bytes || message.offset != assembly_have_ ||
      size > message.total - message.offset || (size == 0 && message.total != 0)) {
    why = fmt::format("{} bytes at {} of a message of {} bytes (limit {})", size, message.offset, message.total,
                      limits_.message_bytes);
    return Verdict::kWrong;
  }
  event.kind = Event::Kind::kMessage;
  if (size == message.total) {
    event.data.assign(message.data.begin(), message.data.end());
    return Verdict::kEvent;
  }
  if (message.offset == 0) {
    assembly_.clear();
    assembly_.reserve(message.total);
  }
  assembly_.insert(assembly_.end(), message.data.begin(), message.data.end());
  assembly_have_ += size;
  if (assembly_have_ != message.total) return Verdict::kKept;
  event.data = std::exchange(assembly_, {});
  assembly_have_ = 0;
  return Verdict::kEvent;
}

std::optional<std::uint64_t> Inbound::credit_due(std::size_t waiting) const noexcept {
  const std::uint64_t consumed = received_ > waiting ? received_ - waiting : 0;
  const std::uint64_t step = std::max<std::uint64_t>(limits_.events / 4, 1);
  if (consumed < told_ + step) return std::nullopt;
  return consumed;
}

void Inbound::told(std::uint64_t consumed) noexcept { told_ = consumed; }

}  // namespace fairlead::datapath
