#include "cli/models/model_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <set>
#include <unordered_set>

#include "bench/base/file_output.h"
#include "bench/base/json.h"

namespace fairlead::cli {
namespace {

using bench::Json;
namespace fs = std::filesystem;

constexpr std::string_view kIndex = ".index.json";

Status bad_index(const std::string& index, std::string_view why) {
  return {Code::kDataLoss, fmt::format("{} is no index of safetensors files: {}", index, why)};
}

// A name that would lead elsewhere, or that the other end may not create, is refused here already.
Status check_file_name(const fs::path& file) {
  const Status legal = check_model_name(file.filename().string());
  return legal.ok() ? legal : Status(legal.code(), fmt::format("{}: the file's {}", file.string(), legal.message()));
}

Status add_shard(ModelFiles& model, const fs::path& path) {
  InputFile input{path.string(), {}, {}, 0};
  Result<SafetensorsHeader> header = read_safetensors(input.path, &input.fd);
  if (!header) return header.error();
  input.file = {path.filename().string(), std::move(header->metadata), header->tensors.size(), false};
  input.size = header->data_begin + header->data_bytes;
  for (FileTensor& tensor : header->tensors) {
    tensor.offset += header->data_begin;
    model.bytes += tensor.bytes;
    model.entries.push_back({std::move(tensor), std::nullopt});
  }
  model.files.push_back(std::move(input));
  return {};
}

// Gives the text too.
Result<std::string> add_index(ModelFiles& model, const fs::path& path) {
  InputFile input{path.string(), {}, {}, 0};
  input.fd.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat info{};
  if (!input.fd || ::fstat(input.fd.get(), &info) != 0) return bench::file_error("open", input.path, errno);
  input.size = static_cast<std::uint64_t>(info.st_size);
  if (!S_ISREG(info.st_mode) || input.size > kMaxSafetensorsHeader) {
    return bad_index(input.path, fmt::format("no regular file of at most {} bytes", kMaxSafetensorsHeader));
  }
  std::string text(input.size, '\0');
  const ssize_t got = ::pread(input.fd.get(), text.data(), text.size(), 0);
  if (got != static_cast<ssize_t>(text.size())) return bench::file_error("read", input.path, got < 0 ? errno : EIO);
  input.file = {path.filename().string(), {}, 1, true};
  model.bytes += input.size;
  model.entries.push_back(
      {{input.file.name, "U8", {static_cast<std::int64_t>(input.size)}, 0, input.size}, std::nullopt});
  model.files.push_back(std::move(input));
  return text;
}

// Shards in the order of their names. Every tensor of the index must be where it says.
Result<ModelFiles> open_index(const fs::path& path) {
  ModelFiles model;
  const Result<std::string> text = add_index(model, path);
  if (!text) return text.error();
  const Result<Json> index = Json::parse(*text);
  if (!index) return bad_index(path.string(), "it is " + index.error().message());
  const Json* map = index->find("weight_map");
  if (map == nullptr || map->object() == nullptr) return bad_index(path.string(), "it has no object 'weight_map'");
  std::map<std::string_view, std::vector<std::string_view>> shards;
  for (const auto& [tensor, file] : *map->object()) {
    if (file.string() == nullptr) return bad_index(path.string(), fmt::format("tensor '{:.80}' names no file", tensor));
    shards[*file.string()].push_back(tensor);
  }
  if (shards.size() >= kMaxFiles) return bad_index(path.string(), fmt::format("it names {} files", shards.size()));
  for (const auto& [file, tensors] : shards) {
    if (file.find('/') != std::string_view::npos) {
      return bad_index(path.string(), fmt::format("file '{:.80}' is not in its own folder", file));
    }
    const std::size_t before = model.entries.size();
    if (Status status = add_shard(model, path.parent_path() / file); !status.ok()) return status;
    std::unordered_set<std::string_view> there;
    for (std::size_t i = before; i < model.entries.size(); ++i) there.insert(model.entries[i].tensor.name);
    const auto missing =
        std::find_if(tensors.begin(), tensors.end(), [&](std::string_view name) { return !there.contains(name); });
    if (missing != tensors.end()) {
      return Status(Code::kDataLoss, fmt::format("{} says that tensor '{:.80}' is in {}, which does not have it",
                                                 path.string(), *missing, file));
    }
  }
  return model;
}

Result<ModelFiles> open_folder(const fs::path& folder) {
  std::set<fs::path> indices, shards;
  std::error_code error;
  for (auto at = fs::directory_iterator(folder, error); !error && at != fs::directory_iterator(); at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.ends_with(".safetensors.index.json")) indices.insert(at->path());
    if (name.ends_with(".safetensors")) shards.insert(at->path());
  }
  if (error) return bench::file_error("list", folder.string(), error.value());
  if (indices.size() == 1) return open_index(*indices.begin());
  if (indices.size() > 1) {
    return Status(Code::kInvalidArgument, fmt::format("{} holds {} models; name the index of one, such as {}",
                                                      folder.string(), indices.size(), indices.begin()->string()));
  }
  if (shards.empty()) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{} holds no *.safetensors and no *.safetensors.index.json", folder.string()));
  }
  ModelFiles model;
  for (const fs::path& shard : shards) {
    if (Status status = add_shard(model, shard); !status.ok()) return status;
  }
  return model;
}

Result<ModelFiles> open_any(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return open_folder(path);
  if (path.ends_with(kIndex)) return open_index(path);
  ModelFiles model;
  if (Status status = add_shard(model, path); !status.ok()) return status;
  return model;
}

}  // namespace

Result<ModelFiles> open_model(const std::string& path) {
  Result<ModelFiles> model = open_any(path);
  if (!model) return model.error();
  // The one file of a model is named by who pulls it.
  if (ModelFile& first = model->files.front().file; model->files.size() == 1 && !first.raw) {
    first.name = "model.safetensors";
  }
  std::vector<ModelFile> files;
  for (const InputFile& input : model->files) {
    files.push_back(input.file);
    if (model->files.size() == 1 && !input.file.raw) break;
    if (Status legal = check_file_name(input.path); !legal.ok()) return legal;
  }
  if (Status limits = check_limits(path, files, model->entries); !limits.ok()) return limits;
  std::unordered_set<std::string_view> names;
  for (const TensorEntry& entry : model->entries) {
    if (names.insert(entry.tensor.name).second) continue;
    return Status(Code::kDataLoss, fmt::format("{} holds two tensors named '{:.80}'; push its files one by one", path,
                                               entry.tensor.name));
  }
  return model;
}

}  // namespace fairlead::cli
