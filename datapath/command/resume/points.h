// What the two ends tell each other of a session's channels when its client is back.
//
// Bytes to values and back. Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "datapath/command/codec.h"
#include "datapath/command/resume/proof.h"
#include "datapath/command/wire.h"

namespace fairlead::datapath::command {

/// kProof with HeardBodies, or kResumed with KeptBodies, and the digest over them.
template <typename Point>
[[nodiscard]] std::vector<std::byte> points_message(const SessionKey& key, const Attempt& attempt,
                                                    const std::vector<Point>& points) {
  constexpr bool kFromClient = std::is_same_v<Point, HeardBody>;
  const MessageType type = kFromClient ? MessageType::kProof : MessageType::kResumed;
  const Bytes bytes = std::as_bytes(std::span(points));
  const auto digest = prove(key, attempt, kFromClient ? Says::kClient : Says::kService, bytes);
  std::vector<std::byte> message =
      make_message({.type = static_cast<std::uint8_t>(type), .count = static_cast<std::uint32_t>(points.size())});
  put(message, ProofBody{digest.value_or(ProofDigest())});
  message.insert(message.end(), bytes.begin(), bytes.end());
  return message;
}

/// The points of such a message's body, if it is proved. Nothing: it is not, or is no such thing.
template <typename Point>
[[nodiscard]] std::optional<std::vector<Point>> read_points(const SessionKey& key, const Attempt& attempt,
                                                            std::uint32_t count, Bytes body) {
  constexpr Says kWho = std::is_same_v<Point, HeardBody> ? Says::kClient : Says::kService;
  const auto proof = take<ProofBody>(body);
  if (!proof || body.size() / sizeof(Point) != count || body.size() % sizeof(Point) != 0) return std::nullopt;
  if (!is_proved(key, attempt, kWho, body, proof->digest)) return std::nullopt;
  std::vector<Point> points;
  while (const auto point = take<Point>(body)) points.push_back(*point);
  return points;
}

}  // namespace fairlead::datapath::command
