// A channel at the client: how far it got, and what the service says of that.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "datapath/command/client_channel.h"
#include "datapath/command/client_session.h"

namespace fairlead::datapath::command {

using fairlead::command::Failure;
using fairlead::command::Scope;
using fairlead::command::Stage;

std::string describe(const Failure& failure, std::uint16_t channel) {
  return fmt::format("command {} of channel {} failed with CUresult {}: {}", failure.sequence, channel, failure.result,
                     failure.text);
}

// ---- how far it got ------------------------------------------------------------------------------------------------

std::uint64_t ClientChannel::reached(Stage stage) const noexcept {
  switch (stage) {
    case Stage::kTaken:
      return last();
    case Stage::kAccepted:
      return accepted_.load(std::memory_order_acquire);
    case Stage::kExecuted:
      return executed_.load(std::memory_order_acquire);
    case Stage::kComplete:
      break;
  }
  const std::uint64_t complete = complete_.load(std::memory_order_acquire);
  const std::uint64_t output = output_.load(std::memory_order_acquire);
  return output == kNone ? complete : std::min(complete, output - 1);
}

bool ClientChannel::is_settled(std::uint64_t sequence, Stage stage) const noexcept {
  const std::uint64_t failed = failed_.load(std::memory_order_acquire);
  if (failed > sequence) return reached(stage) >= sequence;
  return output_.load(std::memory_order_acquire) >= failed;  // pieces of that copy before it are still on their way
}

std::optional<Failure> ClientChannel::failure() const {
  const std::lock_guard lock(lock_);
  return failure_;
}

const Failure* ClientChannel::passed_over(std::uint64_t sequence) const noexcept {
  const Failure* why = failure_ && failure_->sequence <= sequence ? &*failure_ : nullptr;
  for (const Gap& gap : gaps_) {
    if (gap.why.sequence <= sequence && sequence < gap.end) why = &gap.why;
  }
  return why;
}

Status ClientChannel::verdict(std::uint64_t sequence) const {
  const std::lock_guard lock(lock_);
  const Failure* const why = passed_over(sequence);
  if (why == nullptr) return {};
  const std::string passed = why->sequence == sequence ? "" : fmt::format("command {} was not run, for ", sequence);
  return {Code::kAborted, passed + describe(*why, number_)};
}

// ---- what the server says ------------------------------------------------------------------------------------------

bool ClientChannel::on_reply(const Reply& reply) {
  const std::lock_guard lock(lock_);
  const std::uint64_t before = executed_.load(std::memory_order_relaxed);
  const bool in_order = before <= reply.executed && reply.executed <= reply.accepted &&
                        reply.accepted <= last_.load(std::memory_order_relaxed) - buffered_ &&
                        complete_.load(std::memory_order_relaxed) <= reply.complete && reply.complete <= reply.executed;
  if (!in_order) return false;
  Bytes data = reply.data;
  for (std::uint32_t i = 0; i < reply.items; ++i) {
    const std::optional<ReplyData> item = take_data(data);
    if (!item || !place(item->sequence, item->bytes)) return false;
  }
  if (reply.failure) {
    const std::uint64_t sequence = reply.failure->sequence;
    // What was executed may yet fail until it is complete; and a context that is lost is news behind any failure.
    const bool is_late = session_.limits().version >= kLateVersion;
    const bool is_news =
        !failure_ || (is_late && failure_->scope < Scope::kContext && reply.failure->scope >= Scope::kContext);
    const std::uint64_t settled = is_late ? complete_.load(std::memory_order_relaxed) : before;
    if (!is_news || sequence <= settled || sequence > reply.executed) return false;
    failure_ = reply.failure;
    told_of_ = {sequence, failure_->scope};
    failed_.store(sequence, std::memory_order_release);
    for (; !outputs_.empty() && outputs_.back().sequence >= sequence; outputs_.pop_back()) {
      session_.window().give(outputs_.back().slots);
    }
    let_go_of_outputs();
  }
  for (; !inputs_.empty() && inputs_.front().sequence <= reply.executed; inputs_.pop_front()) {
    input_bytes_.store(input_bytes_.load(std::memory_order_relaxed) - inputs_.front().bytes, std::memory_order_relaxed);
  }
  while (!images_.empty() && images_.front().sequence <= reply.executed) images_.pop_front();
  kept_.accepted(reply.accepted);
  accepted_.store(reply.accepted, std::memory_order_release);
  executed_.store(reply.executed, std::memory_order_release);
  const std::uint64_t told = complete_.load(std::memory_order_relaxed);
  complete_.store(reply.complete, std::memory_order_release);
  for (const Output& output : outputs_) {
    if (output.sequence > reply.complete) break;
    if (output.sequence > told && output.slots.count != 0) session_.window().is_there(output.slots);
  }
  return true;
}

bool ClientChannel::on_result(std::uint64_t sequence, Bytes bytes) {
  const std::lock_guard lock(lock_);
  return place(sequence, bytes);
}

bool ClientChannel::on_wanted(std::uint64_t sequence, const WantedBody& wanted) {
  const std::lock_guard lock(lock_);
  const auto found = std::ranges::find(images_, sequence, &ModuleImage::sequence);
  if (found == images_.end() || wanted.offset > found->bytes.size() ||
      wanted.bytes > found->bytes.size() - wanted.offset) {
    return false;
  }
  const std::size_t most = session_.limits().payload_bytes - sizeof(ImageBody);
  for (Bytes rest = Bytes(found->bytes).subspan(wanted.offset, wanted.bytes); !rest.empty();) {
    const std::size_t piece = std::min(rest.size(), most);
    std::vector<std::byte> message = make_message(
        {.type = static_cast<std::uint8_t>(MessageType::kImage), .channel = number_, .count = 1, .sequence = sequence});
    put(message, ImageBody{static_cast<std::uint64_t>(rest.data() - found->bytes.data())});
    message.insert(message.end(), rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(piece));
    session_.send(to_, TrafficClass::kBulk, message);
    rest = rest.subspan(piece);
  }
  return true;
}

bool ClientChannel::place(std::uint64_t sequence, Bytes bytes) {
  if (sequence <= heard_) return said_again_;
  const auto found = std::lower_bound(outputs_.begin(), outputs_.end(), sequence,
                                      [](const Output& output, std::uint64_t s) { return output.sequence < s; });
  if (found == outputs_.end() || found->sequence != sequence || found->to.size() != bytes.size()) return false;
  if (found->done) return said_again_;
  const bool is_there = !bytes.empty() && bytes.data() == found->to.data();  // as it was read
  if (is_there != (found->slots.count != 0)) return false;
  if (!is_there && !bytes.empty()) std::memcpy(found->to.data(), bytes.data(), bytes.size());
  found->done = true;
  let_go_of_outputs();
  return true;
}

void ClientChannel::let_go_of_outputs() noexcept {
  for (; !outputs_.empty() && outputs_.front().done; outputs_.pop_front()) {
    heard_ = outputs_.front().sequence;
    session_.came(outputs_.front().to.size());
  }
  output_.store(outputs_.empty() ? kNone : outputs_.front().sequence, std::memory_order_release);
}

}  // namespace fairlead::datapath::command
