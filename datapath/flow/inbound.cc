#include "datapath/flow/inbound.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/system/large_bytes.h"

namespace fairlead::datapath {
namespace {

// For what crossed the last credit.
constexpr std::size_t kSlack = 64;
// Of a message, before its bytes are there: what a peer announces costs it nothing.
constexpr std::size_t kMostAtOnce = std::size_t{1} << 20;
constexpr std::size_t kGrowth = 8;  // and then, of what has come

}  // namespace

Inbound::Verdict Inbound::take(const PathMessage& message, std::size_t waiting, Event& event, std::string& why) {
  if (message.sequence <= received_) return Verdict::kDuplicate;
  const std::size_t limit = 2 * limits_.events + kSlack;
  if (message.sequence != received_ + 1 || waiting > limit) {
    why = fmt::format("message {} where {} was due (undelivered: {}, limit {})", message.sequence, received_ + 1,
                      waiting, limit);
    return Verdict::kWrong;
  }
  const std::uint64_t held = received_bytes_ - consumed(waiting).bytes;
  if (held > limits_.bytes + 2 * limits_.message_bytes) {
    why = fmt::format("message {} though {} bytes are undelivered (limit {})", message.sequence, held, limits_.bytes);
    return Verdict::kWrong;
  }
  const Consumed before{received_, received_bytes_};
  received_ = message.sequence;
  if (message.type == MessageType::kAtomic || message.type == MessageType::kOutcome) return Verdict::kOurs;
  event.value = message.value;
  if (message.type != MessageType::kNotify) return take_fragment(message, before, event, why);
  event.kind = Event::Kind::kNotification;
  waiting_.push_back(before);
  return Verdict::kEvent;
}

Inbound::Verdict Inbound::take_fragment(const PathMessage& message, const Consumed& before, Event& event,
                                        std::string& why) {
  const std::size_t size = message.data.size();
  if (message.offset == 0) {  // a new message; a cancelled one ends unfinished
    assembly_type_ = message.type;
    assembly_total_ = message.total;
    assembly_have_ = 0;
  }
  // What its parts say stays as the first said it: so it ends, and what it has is never more than its total.
  const bool goes_on = message.type == assembly_type_ && message.total == assembly_total_;
  if (!goes_on || message.total > limits_.message_bytes || message.offset != assembly_have_ ||
      size > message.total - message.offset || (size == 0 && message.total != 0)) {
    why = fmt::format("{} bytes at {} of a message of {} bytes (limit {}), where one of {} bytes has {}", size,
                      message.offset, message.total, limits_.message_bytes, assembly_total_, assembly_have_);
    return Verdict::kWrong;
  }
  event.kind = message.type == MessageType::kFragment ? Event::Kind::kMessage : Event::Kind::kNotification;
  received_bytes_ += size;
  if (message.offset == 0) before_assembly_ = before;
  if (size == message.total) {
    if (size >= kLargeBytes) event.data = take_large(size);
    event.data.assign(message.data.begin(), message.data.end());
    waiting_.push_back(before);
    return Verdict::kEvent;
  }
  if (message.offset == 0) {
    give_large(std::exchange(assembly_, {}));  // of one that was cancelled
    assembly_ = take_large(std::min<std::size_t>(message.total, kMostAtOnce));
  }
  assembly_have_ += size;
  if (assembly_have_ > assembly_.capacity()) {
    assembly_.reserve(std::min<std::size_t>(message.total, kGrowth * assembly_.capacity() + size));
  }
  assembly_.insert(assembly_.end(), message.data.begin(), message.data.end());
  if (assembly_have_ != message.total) return Verdict::kKept;
  event.data = std::exchange(assembly_, {});
  assembly_have_ = 0;
  waiting_.push_back(before_assembly_);
  return Verdict::kEvent;
}

Inbound::Consumed Inbound::consumed(std::size_t waiting) noexcept {
  while (waiting_.size() > waiting) waiting_.drop_front();
  return waiting_.empty() ? Consumed{received_, received_bytes_} : waiting_.front();
}

std::optional<Inbound::Consumed> Inbound::credit_due(std::size_t waiting) noexcept {
  const Consumed now = consumed(waiting);
  const std::uint64_t events = std::max<std::uint64_t>(limits_.events / 4, 1);
  const std::uint64_t bytes = std::max<std::uint64_t>(limits_.bytes / 4, 1);
  if (now.sequence >= told_.sequence + events) return now;
  return now.sequence > told_.sequence && now.bytes >= told_.bytes + bytes ? std::optional(now) : std::nullopt;
}

}  // namespace fairlead::datapath
