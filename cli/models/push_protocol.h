// What `push`, `pull` and `serve` say to each other in messages (Peer::send), beside the one-sided transfers.
//
// One JSON object per message: {"v": 2, "type": "...", ...}; docs/protocol-push.md has the fields and the order.
// Reading is strict: bytes come from the network. Errors: kDataLoss (malformed, above a limit), kVersionMismatch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "cli/models/safetensors.h"
#include "fairlead/status.h"

namespace fairlead::cli {

inline constexpr std::uint64_t kPushVersion = 2;
inline constexpr std::size_t kMaxPushMessage = std::size_t{1} << 20;  // bytes
inline constexpr std::size_t kMaxTensors = 65'536;                    // per model
inline constexpr std::size_t kMaxTensorsPerBatch = 256;
inline constexpr std::size_t kMaxBatchText = std::size_t{256} << 10;  // bytes of names and shapes per batch
inline constexpr std::size_t kMaxTensorName = 512;                    // bytes
inline constexpr std::size_t kMaxRank = 32;
inline constexpr std::size_t kMaxModelName = 128;
inline constexpr std::size_t kMaxFiles = 1024;                       // per model
inline constexpr std::size_t kMaxMetadata = std::size_t{768} << 10;  // bytes of keys and values, per model
inline constexpr std::size_t kMaxFailuresNamed = 100;

using Metadata = std::vector<std::pair<std::string, std::string>>;

struct TensorEntry {
  FileTensor tensor;                 // offset is not sent
  std::optional<std::uint32_t> crc;  // CRC-32 of its bytes, where it was computed
};

/// A file of a model: `tensors` of the model's tensors, after those of the files before it. A file that is not
/// safetensors (the index of shards) is one tensor of U8, its bytes.
struct ModelFile {
  std::string name;  // see check_model_name
  Metadata metadata;
  std::uint64_t tensors = 0;
  bool raw = false;
};

struct PushBegin {
  std::string model;
  std::uint64_t files = 0, tensors = 0, bytes = 0;
  bool sums = false;  // its end comes with CRC-32s: they may be computed as the tensors arrive
};
struct TensorBatch {
  std::vector<TensorEntry> entries;
};
struct PushReady {
  std::string prefix;  // tensor i of more than 0 bytes is published as prefix + i in decimal
};
struct PushFinish {
  std::vector<std::uint32_t> crcs;  // one per tensor; none: the client computed none
};
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
  std::uint64_t files = 0, tensors = 0, bytes = 0;
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

using PushMessage = std::variant<PushBegin, ModelFile, TensorBatch, PushReady, PushFinish, PushResult, PullBegin,
                                 PullReady, PullFinish, PullResult, ListModels, Models, Refusal>;

[[nodiscard]] std::vector<std::byte> encode(const PushMessage& message);
Result<PushMessage> decode(std::span<const std::byte> bytes);
/// "push_begin", ...
[[nodiscard]] std::string_view type_name(const PushMessage& message) noexcept;

/// Cuts entries into batches that respect the limits.
[[nodiscard]] std::vector<TensorBatch> make_batches(std::span<const TensorEntry> entries);

/// ok, or why a server would refuse the name of a model or of a file in it, which a client would create.
/// Legal: 1 to 128 of A-Z a-z 0-9 . _ -, but neither "." nor ".."
[[nodiscard]] Status check_model_name(std::string_view name);
/// ok, or which limit of the protocol a model exceeds. `what` is for messages. Error: kOutOfRange.
[[nodiscard]] Status check_limits(std::string_view what, std::span<const ModelFile> files,
                                  std::span<const TensorEntry> entries);
/// The file's name without folders, ".index.json" and ".safetensors", with '_' for what a model name cannot hold.
[[nodiscard]] std::string model_name_of(std::string_view path);

}  // namespace fairlead::cli
