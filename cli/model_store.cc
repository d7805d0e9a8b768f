#include "cli/model_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "bench/base/sizes.h"
#include "fairlead/log.h"

namespace fairlead::cli {
namespace {

constexpr std::uint64_t kAlignment = 64;

// Only shapes that the engine's tensors can hold are published as such; the bytes can be read and written in any case.
std::optional<TensorSpec> spec_of(const FileTensor& tensor) {
  const Result<TensorSpec> spec = TensorSpec::contiguous(tensor.dtype, tensor.shape);
  return spec ? std::optional<TensorSpec>(*spec) : std::nullopt;
}

std::string human(std::uint64_t bytes) { return bench::format_bytes(static_cast<double>(bytes)); }

}  // namespace

Publication& Publication::operator=(Publication&& other) noexcept {
  if (this != &other) {
    withdraw();
    engine_ = other.engine_;
    names_ = std::exchange(other.names_, {});
  }
  return *this;
}

Status Publication::add(std::string name, const Memory& memory, Access access,
                        const std::optional<TensorSpec>& tensor) {
  Status status = engine_->publish(name, memory, access, tensor);
  if (status.ok()) names_.push_back(std::move(name));
  return status;
}

void Publication::withdraw() noexcept {
  for (const std::string& name : names_) {
    if (const Status status = engine_->unpublish(name); !status.ok()) log(LogLevel::kError, status.to_string());
  }
  names_.clear();
}

Memory Model::tensor(std::size_t index) const { return memory.slice(offsets[index], entries[index].tensor.bytes); }

Result<std::shared_ptr<Model>> ModelStore::create(std::string name, Metadata metadata,
                                                  std::vector<TensorEntry> entries) {
  std::unordered_set<std::string_view> names;
  std::vector<std::uint64_t> offsets;
  std::uint64_t size = 0;
  std::uint64_t bytes = 0;
  for (const TensorEntry& entry : entries) {
    if (!names.insert(entry.tensor.name).second) {
      return Status(Code::kInvalidArgument, fmt::format("model {} has two tensors named {}", name, entry.tensor.name));
    }
    // Each term is below 2^63 and the sum is checked before the next, so nothing wraps.
    if (entry.tensor.bytes > max_bytes_ || size + entry.tensor.bytes > max_bytes_) {
      return Status(Code::kResourceExhausted,
                    fmt::format("model {} is larger than this server's memory limit of {}; raise it with --max-bytes",
                                name, human(max_bytes_)));
    }
    offsets.push_back(size);
    size = (size + entry.tensor.bytes + kAlignment - 1) / kAlignment * kAlignment;
    bytes += entry.tensor.bytes;
  }
  Memory memory;
  if (size > 0) {
    if (Status status = make_room(size, name); !status.ok()) return status;
    Result<Memory> allocated = engine_->allocate(size);
    if (!allocated) return allocated.error();
    memory = *std::move(allocated);
  }
  held_->fetch_add(size, std::memory_order_relaxed);
  auto* model =
      new Model{std::move(name), std::move(metadata), std::move(entries), std::move(offsets), std::move(memory), bytes};
  return std::shared_ptr<Model>(model, [held = held_, size](Model* dead) {
    delete dead;
    held->fetch_sub(size, std::memory_order_relaxed);
  });
}

Status ModelStore::make_room(std::uint64_t bytes, const std::string& model) {
  // Nothing is dropped for a model that would not fit even then.
  std::uint64_t evictable = 0;
  for (const Kept& kept : kept_) evictable += kept.model->memory.size();
  const bool fits = bytes_held() - std::min(evictable, bytes_held()) + bytes <= max_bytes_;
  while (fits && bytes_held() + bytes > max_bytes_ && !kept_.empty()) {
    log(LogLevel::kInfo, fmt::format("model {} makes room for {}", kept_.front().model->name, model));
    drop(kept_.begin());
  }
  if (bytes_held() + bytes <= max_bytes_) return {};
  return {Code::kResourceExhausted,
          fmt::format(
              "no room for model {} of {}: pushes under way hold {} of this server's limit of {}; try again later, or "
              "raise it with --max-bytes",
              model, human(bytes), human(bytes_held() - std::min(evictable, bytes_held())), human(max_bytes_))};
}

Result<Publication> ModelStore::open_for_writing(const Model& model, const std::string& prefix) {
  Publication names(engine_);
  for (std::size_t i = 0; i < model.entries.size(); ++i) {
    const FileTensor& tensor = model.entries[i].tensor;
    if (tensor.bytes == 0) continue;
    Status status = names.add(fmt::format("{}{}", prefix, i), model.tensor(i), Access::kRemoteWrite, spec_of(tensor));
    if (!status.ok()) return status;
  }
  return names;
}

std::string ModelStore::read_prefix(std::string_view model) { return fmt::format("model/{}/", model); }

Result<Publication> ModelStore::open_for_reading(const Model& model) {
  const std::string prefix = read_prefix(model.name);
  Publication names(engine_);
  for (std::size_t i = 0; i < model.entries.size(); ++i) {
    const FileTensor& tensor = model.entries[i].tensor;
    if (tensor.bytes == 0) continue;
    Status status = names.add(prefix + tensor.name, model.tensor(i), Access::kRemoteRead, spec_of(tensor));
    if (!status.ok()) return status;
  }
  return names;
}

Status ModelStore::keep(std::shared_ptr<Model> model) {
  const auto same =
      std::find_if(kept_.begin(), kept_.end(), [&](const Kept& k) { return k.model->name == model->name; });
  if (same != kept_.end()) same->names.withdraw();  // the new one's are the same
  Result<Publication> names = open_for_reading(*model);
  if (!names) {
    if (same == kept_.end()) return names.error();
    Result<Publication> again = open_for_reading(*same->model);
    if (again) {
      same->names = *std::move(again);
    } else {
      drop(same);
    }
    return names.error();
  }
  if (same != kept_.end()) drop(same);
  kept_.push_back({std::move(model), *std::move(names)});
  count_.store(kept_.size(), std::memory_order_relaxed);
  return {};
}

void ModelStore::drop(std::list<Kept>::iterator kept) {
  kept_.erase(kept);
  count_.store(kept_.size(), std::memory_order_relaxed);
}

std::shared_ptr<const Model> ModelStore::find(std::string_view name) const {
  for (const Kept& kept : kept_) {
    if (kept.model->name == name) return kept.model;
  }
  return nullptr;
}

std::vector<ModelSummary> ModelStore::list() const {
  std::vector<ModelSummary> models;
  for (const Kept& kept : kept_) models.push_back({kept.model->name, kept.model->entries.size(), kept.model->bytes});
  return models;
}

}  // namespace fairlead::cli
