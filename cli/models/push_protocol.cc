#include "cli/models/push_protocol.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "bench/base/json.h"
#include "cli/models/push_fields.h"

namespace fairlead::cli {
namespace {

using bench::Json;

constexpr std::string_view kTypes[] = {"push_begin",  "file",       "tensors",    "push_ready",  "push_finish",
                                       "push_result", "pull_begin", "pull_ready", "pull_finish", "pull_result",
                                       "list_models", "models",     "refusal"};
static_assert(std::size(kTypes) == std::variant_size_v<PushMessage>);

// One overload pair per message: put() fills the fields, take() reads and checks them.

void put(const PushBegin& m, Json::Object& out) {
  out.emplace_back("model", m.model);
  out.emplace_back("files", m.files);
  out.emplace_back("tensors", m.tensors);
  out.emplace_back("bytes", m.bytes);
  out.emplace_back("sums", m.sums);
}
Result<PushMessage> take(Fields& in, PushBegin m) {
  in.text("model", m.model, kMaxModelName).number("files", m.files, kMaxFiles);
  in.number("tensors", m.tensors, kMaxTensors).number("bytes", m.bytes, kMaxBytes);
  if (in.has("sums")) in.flag("sums", m.sums);  // a hint, which older clients do not give
  return in.finish(std::move(m));
}

void put(const ModelFile& m, Json::Object& out) {
  out.emplace_back("name", m.name);
  out.emplace_back("metadata", pairs_to_json(m.metadata));
  out.emplace_back("tensors", m.tensors);
  out.emplace_back("raw", m.raw);
}
Result<PushMessage> take(Fields& in, ModelFile m) {
  in.text("name", m.name, kMaxModelName).pairs("metadata", m.metadata, kMaxMetadata);
  in.number("tensors", m.tensors, kMaxTensors).flag("raw", m.raw);
  if (const Status legal = check_model_name(m.name); !legal.ok()) in.wrong("name", legal.message());
  if (m.raw && m.tensors != 1) in.wrong("tensors", "is not 1, as a raw file's must be");
  return in.finish(std::move(m));
}

void put(const TensorBatch& m, Json::Object& out) {
  Json::Array list;
  for (const TensorEntry& entry : m.entries) {
    list.push_back(Json::Object{{"name", entry.tensor.name},
                                {"dtype", entry.tensor.dtype},
                                {"shape", Json::Array(entry.tensor.shape.begin(), entry.tensor.shape.end())},
                                {"bytes", entry.tensor.bytes},
                                {"crc32", entry.crc ? Json(*entry.crc) : Json()}});
  }
  out.emplace_back("tensors", std::move(list));
}
Result<PushMessage> take(Fields& in, TensorBatch m) {
  in.list("tensors", kMaxTensorsPerBatch, [&m](Fields& one) {
    TensorEntry entry;
    one.text("name", entry.tensor.name, kMaxTensorName).tensor_type(entry.tensor);
    if (entry.tensor.name == kMetadataName) one.wrong("name", "is what the file's metadata has");
    one.number_or_null("crc32", entry.crc);
    m.entries.push_back(std::move(entry));
  });
  return in.finish(std::move(m));
}

void put(const PushReady& m, Json::Object& out) { out.emplace_back("prefix", m.prefix); }
Result<PushMessage> take(Fields& in, PushReady m) {
  in.text("prefix", m.prefix, kMaxModelName * 2);
  return in.finish(std::move(m));
}

void put(const PushFinish& m, Json::Object& out) {
  out.emplace_back("crc32", Json::Array(m.crcs.begin(), m.crcs.end()));
}
Result<PushMessage> take(Fields& in, PushFinish m) {
  in.numbers("crc32", m.crcs, kMaxTensors);
  return in.finish(std::move(m));
}

void put(const PushResult& m, Json::Object& out) {
  out.emplace_back("verified", m.verified);
  out.emplace_back("failed", m.failed);
  out.emplace_back("failures", pairs_to_json(m.failures));
  out.emplace_back("cpu_seconds", m.cpu_seconds);
}
Result<PushMessage> take(Fields& in, PushResult m) {
  in.number("verified", m.verified, kMaxTensors).number("failed", m.failed, kMaxTensors);
  in.pairs("failures", m.failures, kMaxPushMessage).seconds("cpu_seconds", m.cpu_seconds);
  return in.finish(std::move(m));
}

void put(const PullBegin& m, Json::Object& out) { out.emplace_back("model", m.model); }
Result<PushMessage> take(Fields& in, PullBegin m) {
  in.text("model", m.model, kMaxModelName);
  return in.finish(std::move(m));
}

void put(const PullReady& m, Json::Object& out) {
  out.emplace_back("prefix", m.prefix);
  out.emplace_back("files", m.files);
  out.emplace_back("tensors", m.tensors);
  out.emplace_back("bytes", m.bytes);
}
Result<PushMessage> take(Fields& in, PullReady m) {
  in.text("prefix", m.prefix, kMaxModelName * 2).number("files", m.files, kMaxFiles);
  in.number("tensors", m.tensors, kMaxTensors).number("bytes", m.bytes, kMaxBytes);
  return in.finish(std::move(m));
}

void put(const PullResult& m, Json::Object& out) { out.emplace_back("cpu_seconds", m.cpu_seconds); }
Result<PushMessage> take(Fields& in, PullResult m) {
  in.seconds("cpu_seconds", m.cpu_seconds);
  return in.finish(m);
}

void put(const Models& m, Json::Object& out) {
  Json::Array list;
  for (const ModelSummary& model : m.models) {
    list.push_back(Json::Object{{"name", model.name}, {"tensors", model.tensors}, {"bytes", model.bytes}});
  }
  out.emplace_back("models", std::move(list));
}
Result<PushMessage> take(Fields& in, Models m) {
  in.list("models", kMaxTensors, [&m](Fields& one) {
    ModelSummary model;
    one.text("name", model.name, kMaxModelName).number("tensors", model.tensors, kMaxTensors);
    one.number("bytes", model.bytes, kMaxBytes);
    m.models.push_back(std::move(model));
  });
  return in.finish(std::move(m));
}

void put(const Refusal& m, Json::Object& out) {
  out.emplace_back("code", static_cast<std::uint32_t>(m.status.code()));
  out.emplace_back("message", m.status.message());
}
Result<PushMessage> take(Fields& in, Refusal m) {
  std::uint32_t code = 0;
  std::string message;
  in.number("code", code, static_cast<std::uint32_t>(Code::kInternal)).text("message", message, 4096);
  // A refusal that says "ok" is none of ours; it still refuses.
  m.status = Status(code == 0 ? Code::kInternal : static_cast<Code>(code), std::move(message));
  return in.finish(std::move(m));
}

// Messages without fields.
template <typename T>
void put(const T&, Json::Object&) {}
template <typename T>
Result<PushMessage> take(Fields& in, T m) {
  return in.finish(std::move(m));
}

template <std::size_t I = 0>
Result<PushMessage> take_type(std::string_view type, Fields& in) {
  if constexpr (I == std::variant_size_v<PushMessage>) {
    return Status(Code::kDataLoss, fmt::format("message of unknown type '{}'", type.substr(0, 40)));
  } else {
    if (type == kTypes[I]) return take(in, std::variant_alternative_t<I, PushMessage>{});
    return take_type<I + 1>(type, in);
  }
}

/// Whether it is what the ends of command channels say first (MessageHeader in datapath/command/wire.h: hello, welcome
/// or refused, and no flags).
bool is_of_commands(std::span<const std::byte> bytes) noexcept {
  constexpr std::size_t kHeader = 16;
  return bytes.size() >= kHeader && bytes[0] >= std::byte{1} && bytes[0] <= std::byte{3} && bytes[1] == std::byte{0};
}

}  // namespace

std::string_view type_name(const PushMessage& message) noexcept { return kTypes[message.index()]; }

std::vector<std::byte> encode(const PushMessage& message) {
  Json::Object out{{"v", kPushVersion}, {"type", type_name(message)}};
  std::visit([&out](const auto& m) { put(m, out); }, message);
  const std::string text = Json(std::move(out)).dump();
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

Result<PushMessage> decode(std::span<const std::byte> bytes) {
  if (bytes.size() > kMaxPushMessage) {
    return Status(Code::kDataLoss, fmt::format("message of {} bytes; the limit is {}", bytes.size(), kMaxPushMessage));
  }
  if (is_of_commands(bytes)) {
    return Status(
        Code::kDataLoss,
        "the other end does not speak the push protocol but that of commands: `fairlead push` and `pull` need "
        "a `fairlead serve` without --gpu");
  }
  Result<Json> json = Json::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!json) return Status(Code::kDataLoss, "message is " + json.error().message());
  const Json* version = json->find("v");
  const Json* type = json->find("type");
  if (version == nullptr || !version->uint() || type == nullptr || type->string() == nullptr) {
    return Status(Code::kDataLoss,
                  "the other end does not speak the push protocol: `fairlead push` and `pull` need a `fairlead serve`, "
                  "which a `fairlead bench --server` is not");
  }
  if (*version->uint() != kPushVersion) {
    return Status(Code::kVersionMismatch,
                  fmt::format("the peer speaks version {} of the push protocol, this program {}", *version->uint(),
                              kPushVersion));
  }
  Fields fields(*type->string(), *json);
  return take_type(*type->string(), fields);
}

std::vector<TensorBatch> make_batches(std::span<const TensorEntry> entries) {
  std::vector<TensorBatch> batches;
  std::size_t text = 0;
  for (const TensorEntry& entry : entries) {
    constexpr std::size_t kPerDimension = 20;
    const std::size_t size =
        entry.tensor.name.size() + entry.tensor.dtype.size() + kPerDimension * (entry.tensor.shape.size() + 1);
    if (batches.empty() || batches.back().entries.size() == kMaxTensorsPerBatch || text + size > kMaxBatchText) {
      batches.emplace_back();
      text = 0;
    }
    batches.back().entries.push_back(entry);
    text += size;
  }
  return batches;
}

namespace {
bool legal_in_model_name(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '_' || c == '-';
}
}  // namespace

Status check_model_name(std::string_view name) {
  if (!name.empty() && name.size() <= kMaxModelName && std::all_of(name.begin(), name.end(), legal_in_model_name) &&
      name != "." && name != "..") {
    return {};
  }
  return {Code::kInvalidArgument, fmt::format("name '{}' is not legal (legal: 1 to {} of A-Z a-z 0-9 . _ -)",
                                              name.substr(0, kMaxModelName), kMaxModelName)};
}

Status check_limits(std::string_view what, std::span<const ModelFile> files, std::span<const TensorEntry> entries) {
  const auto above = [what](std::string_view part, std::size_t have, std::size_t limit) {
    return Status(Code::kOutOfRange, fmt::format("{} has {} {}; the limit is {}", what, have, part, limit));
  };
  if (files.size() > kMaxFiles) return above("files", files.size(), kMaxFiles);
  if (entries.size() > kMaxTensors) return above("tensors", entries.size(), kMaxTensors);
  for (const TensorEntry& entry : entries) {
    const FileTensor& tensor = entry.tensor;
    if (tensor.name.size() > kMaxTensorName || tensor.shape.size() > kMaxRank) {
      return {Code::kOutOfRange,
              fmt::format("{}: tensor '{:.80}' has a name of {} bytes and {} dimensions; the limits are {} and {}",
                          what, tensor.name, tensor.name.size(), tensor.shape.size(), kMaxTensorName, kMaxRank)};
    }
  }
  std::size_t metadata = 0;
  for (const ModelFile& file : files) {
    for (const auto& [key, value] : file.metadata) metadata += key.size() + value.size();
    // Escapes can make it longer than a message may be.
    if (metadata <= kMaxMetadata && encode(file).size() <= kMaxPushMessage) continue;
    return above("bytes of metadata, with what must be escaped", std::max(metadata, encode(file).size()), kMaxMetadata);
  }
  return {};
}

std::string model_name_of(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  if (const std::size_t slash = path.rfind('/'); slash != std::string_view::npos) path.remove_prefix(slash + 1);
  for (const std::string_view suffix : {".index.json", ".safetensors"}) {
    if (path.ends_with(suffix) && path.size() > suffix.size()) path.remove_suffix(suffix.size());
  }
  std::string name(path.substr(0, kMaxModelName));
  for (char& c : name) {
    if (!legal_in_model_name(c)) c = '_';
  }
  return check_model_name(name).ok() ? name : "model";
}

}  // namespace fairlead::cli
