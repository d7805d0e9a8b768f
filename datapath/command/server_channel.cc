#include "datapath/command/server_channel.h"

#include <algorithm>
#include <utility>

#include "base/system/large_bytes.h"

namespace fairlead::datapath::command {

using fairlead::command::Failure;
using fairlead::command::Outcome;
using fairlead::command::Scope;

namespace {
constexpr std::size_t kGaps = 64;  // that fences are compared with
}

void ServerChannel::add_batch(std::vector<std::byte> message, std::size_t at, std::uint32_t count) {
  batches_.push_back({std::move(message), {}, count});
  Batch& batch = batches_.back();
  batch.rest = Bytes(batch.message).subspan(at);
  accepted_ += count;
}

bool ServerChannel::add_payload(Payload payload) {
  if (!payload_.empty() && payload_.back().sequence >= payload.sequence) return false;
  results_.unheard.last_payload = payload.sequence;
  payload_bytes_ += payload.bytes.size();
  payload_.push_back(std::move(payload));
  return true;
}

void ServerChannel::advance() noexcept {
  front_.reset();
  passed(1);
}

void ServerChannel::passed(std::uint32_t count) noexcept {
  executed_ += count;
  unreported_ += count;
  news_ = true;
  if (!is_late()) complete_ = executed_;
  if ((batches_.front().left -= count) == 0) batches_.pop_front();
  while (!payload_.empty() && payload_.front().sequence <= executed_) {
    payload_bytes_ -= payload_.front().bytes.size();
    give_large(std::move(payload_.front().message));
    payload_.pop_front();
  }
}

const Payload* ServerChannel::payload() const noexcept {
  return !payload_.empty() && payload_.front().sequence == executed_ + 1 ? &payload_.front() : nullptr;
}

bool ServerChannel::lacks_payload() const noexcept {
  return !payload_.empty() && payload_.front().sequence > executed_ + 1;
}

void ServerChannel::fail(Outcome outcome, std::uint64_t sequence) {
  if (failure_ && (outcome.scope < Scope::kContext || failure_->scope >= Scope::kContext)) return;
  failure_ = Failure{sequence, outcome.scope, outcome.result, std::move(outcome.text)};
  failure_said_ = false;
  news_ = true;
}

bool ServerChannel::reach(std::uint64_t sequence) noexcept {
  // Behind the last that the executor knows of are only such as were passed over.
  const std::uint64_t now = sequence >= begun_ ? executed_ : std::min(sequence, executed_);
  if (now <= complete_) return false;
  complete_ = now;
  return news_ = true;
}

std::optional<PendingResults::Result> PendingResults::take(std::uint64_t complete) {
  if (results_.empty() || results_.front().sequence > complete) return std::nullopt;
  Result result = std::move(results_.front());
  results_.pop_front();
  bytes_ -= UnheardResults::cost(result.message);
  return result;
}

void ServerChannel::recover() {
  if (gaps_.size() == kGaps) gaps_.pop_front();
  gaps_.push_back({*std::move(failure_), executed_ + 1});
  failure_.reset();
}

const Failure* ServerChannel::passed_over(std::uint64_t sequence) const noexcept {
  if (failure_ && failure_->sequence <= sequence) return &*failure_;
  for (const Gap& gap : gaps_) {
    if (gap.why.sequence <= sequence && sequence < gap.end) return &gap.why;
  }
  return nullptr;
}

bool ServerChannel::is_old(Clock::time_point now, Clock::duration most) noexcept {
  if (!oldest_) oldest_ = now;
  return now - *oldest_ >= most;
}

void ServerChannel::say_again(std::uint64_t failed, std::uint64_t scope) noexcept {
  failure_said_ = failure_ && failure_->sequence == failed && static_cast<std::uint64_t>(failure_->scope) == scope;
  data_.clear();
  items_ = 0;
  news_ = true;
}

void ServerChannel::take_reply(std::vector<std::byte>& message) {
  Reply reply{executed_, accepted_, complete_, {}, data_, items_};
  if (failure_ && !failure_said_) {
    reply.failure = failure_;
    failure_said_ = true;
  }
  write_reply(message, number(), reply);
  data_.clear();
  items_ = 0;
  unreported_ = 0;
  news_ = false;
  oldest_.reset();
}

}  // namespace fairlead::datapath::command
