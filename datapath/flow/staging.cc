#include "datapath/flow/staging.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/guarded.h"

namespace fairlead::datapath::staging {
namespace {

// Reads are begun a few at a time, so that one is copied while another is sent; a slot each.
constexpr std::size_t kAhead = 4;

/// A target places, or says that it may not. Other codes would make an operation neither done nor failed.
bool is_verdict(const PathMessage& message, std::string& why) {
  if (message.code == Code::kOk || message.code == Code::kProtectionError) return true;
  why = fmt::format("answered staged operation {} with '{}', which is no answer to it", message.sequence,
                    to_string(message.code));
  return false;
}

void copy_read_data(Initiator::Operation& operation, std::span<const std::byte> bytes) {
  const std::vector<Op>& ops = operation.transfer->list->ops;
  Cursor& to = operation.cursor;
  operation.received += bytes.size();
  while (!bytes.empty() && to.op < ops.size()) {
    const Op& op = ops[to.op];
    const std::size_t size = std::min<std::size_t>(bytes.size(), op.length - to.offset);
    std::byte* const target = op.data + to.offset;
    if (size != 0 && !guarded_copy(target, bytes.data(), size, target)) operation.code = Code::kDataLoss;
    bytes = bytes.subspan(size);
    to.offset += size;
    if (to.offset == op.length) to = {to.op + 1, 0};
  }
}

}  // namespace

bool Target::on_write(const PathMessage& message, const RegionTable::View& regions, std::string& why) {
  if (message.sequence != handled_ + 1) {
    why = fmt::format("sent staged operation {} where {} was due", message.sequence, handled_ + 1);
    return false;
  }
  if (refused_.size() == kWindow) {
    why = fmt::format("sent staged operation {} with {} refusals not taken", message.sequence, kWindow);
    return false;
  }
  // Reads that were answered before a write is refused are over with it, and acknowledged later.
  if (message.sequence > acknowledged_ + kWindow + kReads) {
    why = fmt::format("sent staged operation {} where {} are acknowledged, and {} may be under way", message.sequence,
                      acknowledged_, kWindow);
    return false;
  }
  handled_ = message.sequence;
  bool is_device = false;
  const Code code =
      regions.with_memory(message.value, message.offset, message.data.size(), Access::kRemoteWrite,
                          [&](std::span<std::byte> target, const MemoryKind& kind) {
                            is_device = std::holds_alternative<CudaMemory>(kind);
                            if (is_device) return device_ != nullptr && device_->has_staging();
                            return guarded_copy(target.data(), message.data.data(), target.size(), target.data());
                          });
  if (code != Code::kOk) {
    refuse(message.sequence, code);
  } else if (is_device) {
    device_->write(message.sequence, message.value, message.offset, message.data);
  }
  return true;
}

/// A copy may fail after what came later was refused.
void Target::refuse(std::uint64_t sequence, Code code) {
  refused_.push_back(std::pair{sequence, code});
  for (std::size_t i = refused_.size() - 1; i > 0 && refused_[i - 1].first > refused_[i].first; --i) {
    std::swap(refused_[i - 1], refused_[i]);
  }
}

bool Target::on_read(const PathMessage& message, std::string& why) {
  if (message.sequence != handled_ + 1 || replies_.size() >= kReads || message.length > kReadBytes) {
    why = fmt::format("sent staged read {} of {} bytes out of turn", message.sequence, message.length);
    return false;
  }
  handled_ = message.sequence;
  Reply reply;
  reply.sequence = message.sequence;
  reply.region = message.value;
  reply.offset = message.offset;
  reply.length = message.length;
  replies_.push_back(std::move(reply));
  return true;
}

void Target::pump(const RegionTable::View& regions, std::size_t max_message, const Send& send) {
  if (device_ != nullptr) {
    device_->pump(regions, [this](std::uint64_t sequence) { refuse(sequence, Code::kProtectionError); });
    begin_reads(regions);
  }
  const std::size_t room = max_message - kPathHeaderBytes;
  buffer_.resize(room);
  if (acknowledge(send)) {
    while (!replies_.empty() && send_data(replies_.front(), regions, room, send)) replies_.drop_front();
  }
  // What is left may wait as long as the peer pleases.
  for (std::size_t i = 0; i < std::min(replies_.size(), kAhead); ++i) {
    if (replies_[i].copy != nullptr) replies_[i].copy->spare_slot(replies_[i].length);
  }
}

bool Target::acknowledge(const Send& send) {
  PathMessage message;
  message.type = MessageType::kStagedAck;
  while (!refused_.empty() && refused_.front().first <= placed()) {
    message.sequence = refused_.front().first;
    message.code = refused_.front().second;
    if (!send(message)) return false;
    acknowledged_ = std::max(acknowledged_, message.sequence);
    refused_.pop_front();
  }
  if (acknowledged_ >= placed()) return true;
  message.sequence = placed();
  message.code = Code::kOk;
  if (!send(message)) return false;
  acknowledged_ = message.sequence;
  return true;
}

void Target::begin_reads(const RegionTable::View& regions) {
  for (std::size_t i = 0; i < std::min(replies_.size(), kAhead); ++i) {
    Reply& reply = replies_[i];
    if (reply.is_begun) continue;
    auto copy = device_->read(reply.region, reply.offset, reply.length, regions);
    if (copy && *copy == nullptr) return;  // the next ones have no slot either
    reply.is_begun = true;
    if (copy) reply.copy = std::move(*copy);
  }
}

bool Target::send_data(Reply& reply, const RegionTable::View& regions, std::size_t room, const Send& send) {
  if (device_ != nullptr && !reply.is_begun) return false;
  if (reply.copy != nullptr && reply.copy->state() == SlotCopy::State::kCopying) return false;
  const bool refused = reply.copy != nullptr && reply.copy->state() == SlotCopy::State::kFailed;
  PathMessage message;
  message.type = MessageType::kStagedReadData;
  message.sequence = reply.sequence;
  do {
    const std::size_t size = std::min<std::size_t>(room, reply.length - reply.sent);
    message.offset = reply.sent;
    if (reply.copy != nullptr) {
      message.code = refused ? Code::kProtectionError : Code::kOk;
      message.data = {reply.copy->data() + reply.sent, refused ? 0 : size};
    } else {
      message.code = regions.with_bytes(
          reply.region, reply.offset + reply.sent, size, Access::kRemoteRead, [&](std::span<std::byte> source) {
            return guarded_copy(buffer_.data(), source.data(), source.size(), source.data());
          });
      message.data = std::span<const std::byte>(buffer_.data(), message.code == Code::kOk ? size : 0);
    }
    if (!send(message)) return false;
    reply.sent += static_cast<std::uint32_t>(size);
  } while (message.code == Code::kOk && reply.sent != reply.length);
  reply.copy.reset();
  return true;
}

bool Target::copies() const noexcept {
  for (std::size_t i = 0; i < replies_.size(); ++i) {
    const SlotCopy* const copy = replies_[i].copy.get();
    if (copy != nullptr && copy->state() == SlotCopy::State::kCopying) return true;
  }
  return device_ != nullptr && device_->copies();
}

void Target::reset() {
  handled_ = acknowledged_ = 0;
  refused_.clear();
  while (!replies_.empty()) {
    Reply gone = replies_.pop_front();
    if (gone.copy != nullptr) device_->let_go(std::move(gone.copy));
  }
  if (device_ != nullptr) device_->reset();
}

void Initiator::push(const Operation& operation) {
  operations_.push_back(operation);
  reads_ += operation.is_read ? 1 : 0;
}

bool Initiator::on_ack(const PathMessage& message, std::string& why) {
  if (!is_verdict(message, why)) return false;
  if (message.sequence >= next_) {
    why = fmt::format("answered staged operation {}, which was never sent", message.sequence);
    return false;
  }
  for (std::size_t i = 0; i < operations_.size(); ++i) {
    Operation& operation = operations_[i];
    if (operation.sequence > message.sequence) break;
    if (operation.is_read || operation.done) continue;
    // A refusal speaks of its own operation; what came before it is done.
    if (operation.sequence == message.sequence && operation.code == Code::kOk) operation.code = message.code;
    operation.done = has_news_ = true;
  }
  return true;
}

bool Initiator::on_data(const PathMessage& message, std::string& why) {
  if (!is_verdict(message, why)) return false;
  for (std::size_t i = 0; i < operations_.size(); ++i) {
    Operation& operation = operations_[i];
    if (operation.sequence != message.sequence) continue;
    if (!operation.is_read || operation.done || message.offset != operation.received ||
        message.data.size() > operation.bytes - operation.received) {
      break;
    }
    if (message.code != Code::kOk) {
      operation.code = message.code;
      operation.done = true;
    } else {
      copy_read_data(operation, message.data);
      operation.done = operation.received == operation.bytes;
    }
    has_news_ |= operation.done || !message.data.empty();
    return true;
  }
  why = fmt::format("answered staged read {} with {} bytes at {} that were not asked for", message.sequence,
                    message.data.size(), message.offset);
  return false;
}

void Initiator::retire(const Ended& ended) {
  while (!operations_.empty() && operations_.front().done) {
    const Operation operation = operations_.pop_front();
    reads_ -= operation.is_read ? 1 : 0;
    ended(operation);
  }
}

void Initiator::reset(const Ended& ended) {
  reads_ = 0;
  next_ = 1;
  while (!operations_.empty()) {
    Operation operation = operations_.pop_front();
    if (!operation.done) operation.code = Code::kAborted;
    ended(operation);
  }
}

}  // namespace fairlead::datapath::staging
