// The driven half of VerbsEndpoint: completions, asynchronous events, sleeping.
#include <algorithm>
#include <utility>

#include "verbs/transport/endpoint.h"
#include "verbs/transport/wr_id.h"

namespace fairlead::verbs {
namespace {

constexpr std::uint32_t kPollsPerAsyncCheck = 4096;  // a system call, for those who never sleep
constexpr int kMaxBatchesPerPoll = 8;
constexpr Nanos kLinger = 500 * kMicrosecond;

}  // namespace

void VerbsEndpoint::dispatch(const ibv_wc& completion) noexcept {
  const std::uint32_t slot = slot_of(completion.wr_id);
  if (slot >= slots_.size()) return;
  Connection* connection = slots_[slot].connection.get();
  if (connection == nullptr || path_of(connection->wr_id()) != path_of(completion.wr_id))
    return;  // of a destroyed path
  if (is_receive(completion.wr_id)) {
    connection->receive_completed(completion);
  } else {
    connection->send_completed(completion);
  }
}

bool VerbsEndpoint::poll_queue(CompletionQueues::Queue& queue) noexcept {
  bool happened = false;
  ibv_wc batch[kBatch];
  for (int i = 0; i < kMaxBatchesPerPoll; ++i) {
    const int count = ibv_poll_cq(queue.cq.get(), kBatch, batch);
    // What a peer has just placed in memory, the program sees before the ends of its own requests are dealt with.
    const bool later = count > 0 && count < kBatch && stash_.empty() && device_did().placed != 0;
    for (int j = 0; j < count; ++j) {
      if (later && !is_receive(batch[j].wr_id)) {
        stash_.push_back(batch[j]);
      } else {
        dispatch(batch[j]);
      }
    }
    happened |= count > 0;
    if (count < kBatch) {
      CompletionQueues::seen_empty(queue);
      break;
    }
  }
  return happened;
}

bool VerbsEndpoint::attend() noexcept {
  shared_.urgent = false;
  if (shared_.attention.empty()) return false;
  // What asks for attention from now on is attended to by the next poll.
  std::swap(attending_, shared_.attention);
  // By index: a callback may open a path, which makes room in this list.
  for (std::size_t i = 0; i < attending_.size(); ++i) {
    Connection* connection = attending_[i];
    if (!connection->released() && connection->wants_reason()) take_async_events();
    if (!connection->released()) connection->advance();
  }
  attending_.clear();
  return true;
}

/// Who has been told that it is over, and what has not come back.
bool VerbsEndpoint::see_off() noexcept {
  std::erase_if(shared_.leaving, [](const Connection* connection) { return connection->has_left(); });
  const Nanos now = shared_.clock.now();
  bool happened = false;
  for (Connection* connection : shared_.leaving) {
    if (!connection->is_stuck(now)) continue;
    connection->give_up();
    happened = true;
  }
  return happened;
}

/// Since it was asked last.
DeviceActivity VerbsEndpoint::device_did() noexcept {
  const DeviceActivity now = device_.api().activity(device_.source.context.get());
  const DeviceActivity before = std::exchange(activity_, now);
  return {now.moves - before.moves, now.placed - before.placed};
}

/// Between two datagrams more time may pass than an idle thread polls for. Who sleeps then, with work under way, leaves
/// what comes to the device's own thread.
bool VerbsEndpoint::lingers() noexcept {
  if (!device_.source.software) return false;
  const Nanos now = shared_.clock.now();
  if (std::exchange(moved_, false)) moved_at_ = now;
  if (now - moved_at_ > kLinger) return false;
  return std::any_of(slots_.begin(), slots_.end(),
                     [](const Slot& slot) { return slot.connection && slot.connection->waits(); });
}

bool VerbsEndpoint::poll() noexcept {
  polling_ = true;
  // Buffers to be posted again and credits to be returned can wait for the poll after: what came is reported first.
  bool happened = attend();
  if (!stash_.empty()) {
    happened = true;
    for (const ibv_wc& completion : stash_) dispatch(completion);
    stash_.clear();
  }
  // By index: a callback may open a path, and with it another queue, whose turn comes with the next poll.
  const std::size_t queues = queues_->all().size();
  for (std::size_t i = 0; i < queues; ++i) happened |= poll_queue(queues_->all()[i]);
  if (++polls_since_async_ >= kPollsPerAsyncCheck) {
    polls_since_async_ = 0;
    take_async_events();
  }
  if (!happened && !shared_.leaving.empty()) happened = see_off();
  if (shared_.urgent) happened |= attend();
  // A large operation completes long after its first packet: whoever slept meanwhile would leave each packet to the
  // device's own thread.
  happened = happened || device_did().moves != 0;
  moved_ |= happened;
  polling_ = false;
  bury();
  return happened;
}

bool VerbsEndpoint::arm() noexcept {
  drain_channel();
  if (!shared_.attention.empty() || !stash_.empty() || take_async_events() || lingers()) return false;
  for (CompletionQueues::Queue& queue : queues_->all()) {
    if (ibv_req_notify_cq(queue.cq.get(), 0) != 0) return false;
    // A completion that came before the request makes no event: look again.
    stash_.resize(kBatch);
    const int count = ibv_poll_cq(queue.cq.get(), kBatch, stash_.data());
    stash_.resize(static_cast<std::size_t>(std::max(count, 0)));
    if (count > 0) return false;
  }
  return true;
}

void VerbsEndpoint::drain_channel() noexcept {
  ibv_cq* cq = nullptr;
  void* user = nullptr;
  while (device_.api().get_cq_event(channel_.get(), &cq, &user) == 0) device_.api().ack_cq_events(cq, 1);
}

bool VerbsEndpoint::take_async_events() noexcept {
  const std::vector<AsyncEvents::Event> events = events_.take();
  for (const auto& [type, qp] : events) {
    const bool fatal = type == IBV_EVENT_DEVICE_FATAL;
    for (Slot& slot : slots_) {
      if (!slot.connection || !(fatal || (qp != nullptr && slot.connection->qp() == qp))) continue;
      slot.connection->on_async_event(type, fatal);
    }
  }
  return !events.empty();
}

}  // namespace fairlead::verbs
