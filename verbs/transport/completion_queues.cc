#include "verbs/transport/completion_queues.h"

#include <algorithm>
#include <cerrno>

namespace fairlead::verbs {
namespace {

constexpr std::uint32_t kUsualEntries = 8192;  // a dozen queue pairs of the default depths

}  // namespace

Result<std::size_t> CompletionQueues::reserve(std::uint32_t entries) {
  for (std::size_t i = 0; i < queues_.size(); ++i) {
    if (queues_[i].capacity - queues_[i].reserved >= entries) {
      queues_[i].reserved += entries;
      return i;
    }
  }
  if (entries > max_cqe_) {
    return Status(Code::kResourceExhausted,
                  fmt::format("a queue pair needs {} completion entries, the device's queues hold at most {}; lower "
                              "send_depth or receive_depth",
                              entries, max_cqe_));
  }
  std::uint32_t wanted = std::min(max_cqe_, std::max(entries, kUsualEntries));
  ibv_cq* cq = api_.create_cq(context_, static_cast<int>(wanted), nullptr, channel_, 0);
  if (cq == nullptr && wanted > entries) {  // less than it says it can, or memory is short: what is needed will do
    wanted = entries;
    cq = api_.create_cq(context_, static_cast<int>(wanted), nullptr, channel_, 0);
  }
  if (cq == nullptr) {
    return Status(Code::kResourceExhausted, fmt::format("cannot create completion queue {} with {} entries: {}",
                                                        queues_.size() + 1, wanted, std::strerror(errno)));
  }
  moderate(cq);
  // A device may give more than was asked for, never less.
  const auto capacity = std::max(wanted, static_cast<std::uint32_t>(std::max(cq->cqe, 0)));
  queues_.push_back({CompletionQueue(api_, cq), capacity, entries, 0});
  return queues_.size() - 1;
}

void CompletionQueues::moderate(ibv_cq* cq) {
  if (config_.cq_moderation_count == 0 && config_.cq_moderation_period == 0) return;
  ibv_modify_cq_attr attr{};
  attr.attr_mask = IBV_CQ_ATTR_MODERATE;
  attr.moderate.cq_count = std::max<std::uint16_t>(config_.cq_moderation_count, 1);
  attr.moderate.cq_period = config_.cq_moderation_period;
  const int error = api_.modify_cq == nullptr ? EOPNOTSUPP : api_.modify_cq(cq, &attr);
  if (error != 0) {
    log(LogLevel::kDebug, fmt::format("completion queue moderation ({} events, {} us) is ignored: {}",
                                      config_.cq_moderation_count, config_.cq_moderation_period, std::strerror(error)));
  }
}

}  // namespace fairlead::verbs
