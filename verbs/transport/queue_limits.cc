#include "verbs/transport/queue_limits.h"

#include <fmt/format.h>

#include <algorithm>

#include "fairlead/log.h"
#include "verbs/transport/path_description.h"

namespace fairlead::verbs {
namespace {

constexpr std::uint32_t kMaxSegments = 16;              // more per request would only make the queues larger
constexpr std::uint32_t kMaxReceiveDepth = 0xffff;      // what a message header can return at once
constexpr std::uint32_t kUnknownMaxMessage = 1U << 30;  // for a device that reports 0

std::uint32_t cut(std::string_view device, std::string_view what, std::uint32_t wanted, std::uint32_t limit) {
  if (wanted <= limit) return wanted;
  log(LogLevel::kInfo, fmt::format("{}: {} is cut from {} to the device's limit of {}", device, what, wanted, limit));
  return limit;
}

}  // namespace

Result<QueueLimits> queue_limits_for(std::string_view device, const VerbsConfig& config, const ibv_device_attr& attr,
                                     const PortFacts& port) {
  const auto max_wr = static_cast<std::uint32_t>(std::max(attr.max_qp_wr, 0));
  if (max_wr <= kControlDepth || attr.max_sge < 1) {
    return Status(Code::kUnavailable,
                  fmt::format("{} has {} work requests and {} segments per queue pair; more than {} and at least 1 are "
                              "needed",
                              device, attr.max_qp_wr, attr.max_sge, kControlDepth));
  }
  if (config.send_depth == 0 || config.receive_depth == 0) {
    return Status(Code::kInvalidArgument, fmt::format("send_depth is {} and receive_depth {}; each must be at least 1",
                                                      config.send_depth, config.receive_depth));
  }
  QueueLimits limits;
  limits.max_wr_bytes = port.max_message_bytes != 0 ? port.max_message_bytes : kUnknownMaxMessage;
  const auto largest_message =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(limits.max_wr_bytes, kMaxMessageBytes));
  if (largest_message < kMinMessageBytes) {
    return Status(Code::kUnavailable, fmt::format("{} has messages of at most {} bytes; at least {} are needed", device,
                                                  largest_message, kMinMessageBytes));
  }
  if (config.message_bytes < kMinMessageBytes || config.message_bytes > kMaxMessageBytes) {
    return Status(Code::kInvalidArgument, fmt::format("message_bytes is {}; legal are {}..{}", config.message_bytes,
                                                      kMinMessageBytes, kMaxMessageBytes));
  }
  limits.send_depth = cut(device, "send_depth", config.send_depth, max_wr - kControlDepth);
  limits.receive_depth =
      cut(device, "receive_depth", config.receive_depth, std::min(max_wr - kControlDepth, kMaxReceiveDepth));
  limits.message_bytes = cut(device, "message_bytes", config.message_bytes, largest_message);
  limits.max_segments = std::min(static_cast<std::uint32_t>(attr.max_sge), kMaxSegments);
  if (attr.max_sge_rd > 0) {  // 0: the device makes no difference
    limits.max_segments = std::min(limits.max_segments, static_cast<std::uint32_t>(attr.max_sge_rd));
  }
  limits.one_sided = config.one_sided;
  return limits;
}

}  // namespace fairlead::verbs
