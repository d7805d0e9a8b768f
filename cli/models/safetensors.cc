#include "cli/models/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>
#include <unordered_set>

#include "bench/base/json.h"

namespace fairlead::cli {
namespace {

using bench::Json;

constexpr std::uint64_t kPrefixBytes = 8;
constexpr std::size_t kMaxValues = 4'000'000;  // 64 for each of the most tensors of a model; 300 MB as they are read

// A name in a message: quoted, not endless.
std::string quoted(std::string_view name) {
  constexpr std::size_t kShown = 80;
  return name.size() <= kShown ? fmt::format("'{}'", name) : fmt::format("'{}...'", name.substr(0, kShown));
}

// Collects what every message begins with.
class Complaint {
 public:
  explicit Complaint(std::string_view file) : file_(file) {}
  [[nodiscard]] Status about_file(std::string_view why) const {
    return {Code::kDataLoss, fmt::format("{} is not a valid safetensors file: {}", file_, why)};
  }
  [[nodiscard]] Status about(std::string_view tensor, std::string_view why) const {
    return about_file(fmt::format("tensor {}: {}", quoted(tensor), why));
  }

 private:
  std::string_view file_;
};

Result<std::string> read_dtype(const Json& entry) {
  const Json* field = entry.find("dtype");
  if (field == nullptr || field->string() == nullptr) return Status(Code::kDataLoss, "dtype is missing or no string");
  return *field->string();
}

bool is_dtype_word(std::string_view dtype) {
  constexpr std::size_t kLongest = 32;
  return !dtype.empty() && dtype.size() <= kLongest && std::all_of(dtype.begin(), dtype.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
  });
}

Result<std::vector<std::int64_t>> read_shape(const Json& entry) {
  const Json* field = entry.find("shape");
  if (field == nullptr || field->array() == nullptr) return Status(Code::kDataLoss, "shape is missing or no array");
  std::vector<std::int64_t> shape;
  for (const Json& dimension : *field->array()) {
    const auto value = dimension.uint();
    if (!value || *value > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) {
      return Status(Code::kDataLoss, fmt::format("dimension {} of the shape is {}, not an integer from 0 to 2^63 - 1",
                                                 shape.size(), dimension.brief()));
    }
    shape.push_back(static_cast<std::int64_t>(*value));
  }
  return shape;
}

Result<std::pair<std::uint64_t, std::uint64_t>> read_offsets(const Json& entry) {
  const Json* field = entry.find("data_offsets");
  const Json::Array* pair = field != nullptr ? field->array() : nullptr;
  if (pair == nullptr || pair->size() != 2 || !(*pair)[0].uint() || !(*pair)[1].uint()) {
    return Status(Code::kDataLoss, "data_offsets is not an array of two non-negative integers");
  }
  return std::pair{*(*pair)[0].uint(), *(*pair)[1].uint()};
}

// One member of the header, all but where it lies among the others.
Result<FileTensor> read_tensor(const std::string& name, const Json& entry, std::uint64_t data_bytes) {
  if (entry.object() == nullptr) return Status(Code::kDataLoss, "its entry is no object");
  for (const std::string_view field : {"dtype", "shape", "data_offsets"}) {
    const auto is_it = [field](const auto& member) { return member.first == field; };
    if (std::ranges::count_if(*entry.object(), is_it) > 1) {  // others take the last
      return Status(Code::kDataLoss, fmt::format("{} stands twice in its entry", field));
    }
  }
  Result<std::string> dtype = read_dtype(entry);
  if (!dtype) return dtype.error();
  Result<std::vector<std::int64_t>> shape = read_shape(entry);
  if (!shape) return shape.error();
  auto offsets = read_offsets(entry);
  if (!offsets) return offsets.error();
  const auto [begin, end] = *offsets;
  if (end < begin)
    return Status(Code::kDataLoss, fmt::format("data_offsets [{}, {}] end before they begin", begin, end));
  if (end > data_bytes) {
    return Status(Code::kDataLoss, fmt::format("data_offsets [{}, {}] pass the end of the data, which has {} bytes",
                                               begin, end, data_bytes));
  }
  if (Status type = check_tensor_type(*dtype, *shape, end - begin); !type.ok()) return type;
  return FileTensor{name, *std::move(dtype), *std::move(shape), begin, end - begin};
}

Status read_metadata(const Json& entry, const Complaint& complaint, SafetensorsHeader& header) {
  if (entry.object() == nullptr) return complaint.about_file("__metadata__ is no object");
  std::unordered_set<std::string_view> keys;
  for (const auto& [key, value] : *entry.object()) {
    if (!keys.insert(key).second) {
      return complaint.about_file(fmt::format("__metadata__ {} stands there twice", quoted(key)));
    }
    if (value.string() == nullptr) {
      return complaint.about_file(fmt::format("__metadata__ {} is a {}, not a string", quoted(key), value.type_name()));
    }
    header.metadata.emplace_back(key, *value.string());
  }
  return {};
}

// The tensors must cover the data in order: whoever writes a file with holes or overlaps hides something in it.
Status check_cover(SafetensorsHeader& header, const Complaint& complaint) {
  // What has no bytes keeps the header's order: so what is pulled is byte for byte what was pushed.
  std::stable_sort(header.tensors.begin(), header.tensors.end(), [](const FileTensor& a, const FileTensor& b) {
    return std::tie(a.offset, a.bytes) < std::tie(b.offset, b.bytes);
  });
  std::uint64_t covered = 0;
  for (const FileTensor& tensor : header.tensors) {
    if (tensor.offset != covered) {
      return complaint.about(
          tensor.name, fmt::format("begins at {}, but the tensor before it ends at {} ({})", tensor.offset, covered,
                                   tensor.offset < covered ? "overlap" : "hole"));
    }
    covered += tensor.bytes;
  }
  if (covered == header.data_bytes) return {};
  return complaint.about_file(
      fmt::format("its tensors end at byte {} of the data, which has {} bytes", covered, header.data_bytes));
}

}  // namespace

Result<std::uint64_t> tensor_bytes(DType dtype, std::span<const std::int64_t> shape) {
  constexpr auto kMax = std::uint64_t{std::numeric_limits<std::int64_t>::max()};
  const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
  std::uint64_t bytes = element_size(dtype);
  for (const std::int64_t dimension : shape) {
    if (dimension < 0) return Status(Code::kOutOfRange, fmt::format("dimension {} is negative", dimension));
    if (!empty && __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(dimension), &bytes)) bytes = kMax + 1;
    if (bytes > kMax) {
      return Status(Code::kOutOfRange, fmt::format("shape [{}] of {} is larger than 2^63 - 1 bytes",
                                                   fmt::join(shape, ", "), to_string(dtype)));
    }
  }
  return empty ? 0 : bytes;
}

Status check_tensor_type(std::string_view dtype, std::span<const std::int64_t> shape, std::uint64_t bytes) {
  if (!is_dtype_word(dtype)) {
    return {Code::kDataLoss, fmt::format("dtype {} is no word of 1 to 32 of A-Z a-z 0-9 _", quoted(dtype))};
  }
  const auto known = dtype_from_string(dtype);
  if (!known) return {};
  const Result<std::uint64_t> need = tensor_bytes(*known, shape);
  if (!need) return need.error();
  if (*need == bytes) return {};
  return {Code::kDataLoss, fmt::format("{} bytes do not fit its shape and dtype, which need {}", bytes, *need)};
}

Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> head, std::uint64_t file_bytes,
                                            std::string_view file) {
  const Complaint complaint(file);
  if (head.size() < kPrefixBytes || file_bytes < kPrefixBytes) {
    return complaint.about_file(fmt::format("{} bytes, too short for the 8 bytes of header length", file_bytes));
  }
  std::uint64_t length = 0;
  for (std::size_t i = kPrefixBytes; i-- > 0;) length = length << 8 | std::to_integer<std::uint64_t>(head[i]);
  if (length > kMaxSafetensorsHeader) {
    return complaint.about_file(
        fmt::format("header length {} is above the limit of {}", length, kMaxSafetensorsHeader));
  }
  if (length > file_bytes - kPrefixBytes || length > head.size() - kPrefixBytes) {
    return complaint.about_file(
        fmt::format("header length {} passes the end of the file, which has {} bytes", length, file_bytes));
  }
  const std::string_view text(reinterpret_cast<const char*>(head.data()) + kPrefixBytes, length);
  if (!text.starts_with('{')) return complaint.about_file("the header does not begin with '{'");
  Result<Json> document = Json::parse(text, kMaxValues);
  if (!document) return complaint.about_file("the header is " + document.error().message());

  SafetensorsHeader header;
  header.data_begin = kPrefixBytes + length;
  header.data_bytes = file_bytes - header.data_begin;
  std::unordered_set<std::string_view> names;
  for (const auto& [name, entry] : *document->object()) {
    if (!names.insert(name).second) return complaint.about(name, "the name stands twice in the header");
    if (name == kMetadataName) {
      if (Status status = read_metadata(entry, complaint, header); !status.ok()) return status;
      continue;
    }
    Result<FileTensor> tensor = read_tensor(name, entry, header.data_bytes);
    if (!tensor) return complaint.about(name, tensor.error().message());
    header.tensors.push_back(*std::move(tensor));
  }
  if (Status status = check_cover(header, complaint); !status.ok()) return status;
  return header;
}

std::string safetensors_prefix(std::span<const FileTensor> tensors,
                               std::span<const std::pair<std::string, std::string>> metadata) {
  Json::Object document;
  if (!metadata.empty()) {
    Json::Object pairs;
    for (const auto& [key, value] : metadata) pairs.emplace_back(key, value);
    document.emplace_back(kMetadataName, std::move(pairs));
  }
  std::uint64_t offset = 0;
  for (const FileTensor& tensor : tensors) {
    Json::Array shape(tensor.shape.begin(), tensor.shape.end());
    document.emplace_back(tensor.name, Json::Object{{"dtype", tensor.dtype},
                                                    {"shape", std::move(shape)},
                                                    {"data_offsets", Json::Array{offset, offset + tensor.bytes}}});
    offset += tensor.bytes;
  }
  std::string text = Json(std::move(document)).dump();
  constexpr std::size_t kAlignment = 8;
  text.append((kAlignment - (text.size() + kPrefixBytes) % kAlignment) % kAlignment, ' ');
  std::string prefix;
  for (unsigned shift = 0; shift < 64; shift += 8) prefix.push_back(static_cast<char>(text.size() >> shift & 0xff));
  return prefix + text;
}

}  // namespace fairlead::cli
