// What `push`, `pull` and `serve` say to each other in messages (Peer::send), beside the one-sided transfers.
//
// One JSON object per message: {"v": 1, "type": "...", ...}; docs/protocol-push.md has the fields and the order.
// Reading is strict: bytes come from the network. Errors: kDataLoss (malformed, above a limit), kVersionMismatch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "cli/safetensors.h"
#include "fairlead/status.h"

namespace fairlead::cli {

inline constexpr std::uint64_t kPushVersion = 1;
inline constexpr std::size_t kMaxPushMessage = std::size_t{1} << 20;  // bytes
inline constexpr std::size_t kMaxTensors = 65'536;                    // per model
inline constexpr std::size_t kMaxTensorsPerBatch = 256;
inline constexpr std::size_t kMaxBatchText = std::size_t{256} << 10;  // bytes of names and shapes per batch
inline constexpr std::size_t kMaxTensorName = 512;                    // bytes
inline constexpr std::size_t kMaxRank = 32;
inline constexpr std::size_t kMaxModelName = 128;
inline constexpr std::size_t kMaxMetadata = std::size_t{256} << 10;  // bytes of keys and values
inline constexpr std::size_t kMaxFailuresNamed = 100;

using Metadata = std::vector<std::pair<std::string, std::string>>;

struct TensorEntry {
  FileTensor tensor;      // offset is not sent
  std::uint32_t crc = 0;  // CRC-32 of its bytes
};

struct PushBegin {
  std::string model;
  Metadata metadata;
  std::uint64_t tensors = 0, bytes = 0;
};
struct TensorBatch {
  std::vector<TensorEntry> entries;
};
struct PushReady {
  std::string prefix;  // tensor i of more than 0 bytes is published as prefix + i in decimal
};
struct PushFinish {};
struct PushResult {
  std::uint64_t verified = 0, failed = 0;
  std::vector<std::pair<std::string, std::string>> failures;  // tensor and reason; at most kMaxFailuresNamed
  double cpu_seconds = 0;                                     // of the whole server, from PushReady to the last tensor
};
struct PullBegin {
  std::string model;
};
struct PullReady {
  std::string prefix;  // a tensor of more than 0 bytes is published, read-only, as prefix + its name
  Metadata metadata;
  std::uint64_t tensors = 0, bytes = 0;
};
struct PullFinish {};
struct PullResult {
  double cpu_seconds = 0;
};
struct ListModels {};
struct ModelSummary {
  std::string name;
  std::uint64_t tensors = 0, bytes = 0;
};
struct Models {
  std::vector<ModelSummary> models;
};
struct Refusal {
  Status status;
};

using PushMessage = std::variant<PushBegin, TensorBatch, PushReady, PushFinish, PushResult, PullBegin, PullReady,
                                 PullFinish, PullResult, ListModels, Models, Refusal>;

[[nodiscard]] std::vector<std::byte> encode(const PushMessage& message);
Result<PushMessage> decode(std::span<const std::byte> bytes);
/// "push_begin", ...
[[nodiscard]] std::string_view type_name(const PushMessage& message) noexcept;

/// Cuts entries into batches that respect the limits.
[[nodiscard]] std::vector<TensorBatch> make_batches(std::span<const TensorEntry> entries);

/// ok, or why a server would refuse the name. Legal: 1 to 128 of A-Z a-z 0-9 . _ -
[[nodiscard]] Status check_model_name(std::string_view name);
/// The file's name without folders and ".safetensors", with '_' for what a model name cannot hold.
[[nodiscard]] std::string model_name_of(std::string_view path);

}  // namespace fairlead::cli
