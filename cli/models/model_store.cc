#include "cli/models/model_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "bench/base/sizes.h"
#include "fairlead/log.h"

namespace fairlead::cli {
namespace {

constexpr std::uint64_t kModelBytes = 4096;  // what a model takes at least
constexpr std::size_t kMaxModels = 4096;     // the list of them must fit into a message

// Only shapes that the engine's tensors can hold are published as such; the bytes can be read and written in any case.
std::optional<TensorSpec> spec_of(const FileTensor& tensor) {
  const auto dtype = dtype_from_string(tensor.dtype);
  if (!dtype) return std::nullopt;
  const Result<TensorSpec> spec = TensorSpec::contiguous(*dtype, tensor.shape);
  return spec ? std::optional<TensorSpec>(*spec) : std::nullopt;
}

ModelSummary summary(const Model& model) { return {model.name, model.entries.size(), model.bytes}; }

// Its tensors that have bytes; name_of(i): what tensor i is called.
template <typename NameOf>
Result<Publication> publish(Engine* engine, const Model& model, Access access, NameOf&& name_of) {
  Publication names(engine);
  for (std::size_t i = 0; i < model.entries.size(); ++i) {
    const FileTensor& tensor = model.entries[i].tensor;
    if (tensor.bytes == 0) continue;
    Status status = names.add(name_of(i), model.tensor(i), access, spec_of(tensor));
    if (!status.ok()) return status;
  }
  return names;
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

Status Model::allocate(Engine& engine) {
  if (size == 0) return {};
  Result<memreg::Arena> mapped = memreg::Arena::map(size);
  if (!mapped) return mapped.error();
  arena = *std::move(mapped);
  Result<Memory> registered = engine.register_memory(arena.bytes().first(size), Access::kRemoteReadWrite);
  if (!registered) return registered.error();
  memory = *std::move(registered);
  return {};
}

// The structures and their parts on the heap, roughly and rather too high.
std::uint64_t description_bytes(const TensorEntry& entry) noexcept {
  constexpr std::uint64_t kEach = 512;  // with what the region table keeps of its name
  return kEach + 4 * entry.tensor.name.size() + sizeof(std::int64_t) * entry.tensor.shape.size();
}

std::uint64_t description_bytes(const ModelFile& file) noexcept {
  std::uint64_t bytes = sizeof file + file.name.size();
  for (const auto& [key, value] : file.metadata) bytes += sizeof file.metadata.front() + key.size() + value.size();
  return bytes;
}

Result<std::shared_ptr<Model>> ModelStore::lay_out(std::string name, std::vector<ModelFile> files,
                                                   std::vector<TensorEntry> entries) {
  auto model = std::make_shared<Model>();
  std::unordered_set<std::string_view> names;
  for (const TensorEntry& entry : entries) {
    if (!names.insert(entry.tensor.name).second) {
      return Status(Code::kInvalidArgument, fmt::format("model {} has two tensors named {}", name, entry.tensor.name));
    }
    model->offsets.push_back(model->size);
    model->size = (model->size + entry.tensor.bytes + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
    model->bytes += entry.tensor.bytes;
  }
  model->name = std::move(name);
  model->files = std::move(files);
  model->entries = std::move(entries);
  return model;
}

Status ModelStore::reserve(Reservation& reservation, std::uint64_t bytes, const std::string& name) {
  const bool flag = max_push_ < max_bytes_;
  const std::uint64_t limit = std::min(max_push_, max_bytes_);
  if (bytes > limit || reservation.bytes_ > limit - bytes) {
    return {Code::kResourceExhausted,
            flag ? fmt::format("model {} is larger than the {} that one client may push here; raise it with --max-push",
                               name, human(limit))
                 : fmt::format("model {} is larger than this server's memory limit of {}; raise it with --max-bytes",
                               name, human(limit))};
  }
  const std::uint64_t others = pushing_.load(std::memory_order_relaxed) - reservation.bytes_;
  if (others > max_bytes_ - bytes - reservation.bytes_) {
    return {Code::kUnavailable,
            fmt::format("no room for model {} of {}: pushes under way hold {} of this server's limit of {}; try again "
                        "later, or raise it with --max-bytes",
                        name, human(reservation.bytes_ + bytes), human(others), human(max_bytes_))};
  }
  reservation.store_ = this;
  reservation.bytes_ += bytes;
  pushing_.fetch_add(bytes, std::memory_order_relaxed);
  return {};
}

Result<Publication> ModelStore::open_for_writing(const Model& model, const std::string& prefix) {
  return publish(engine_, model, Access::kRemoteWrite, [&](std::size_t i) { return fmt::format("{}{}", prefix, i); });
}

std::string ModelStore::read_prefix(std::string_view model) { return fmt::format("model/{}/", model); }

Result<Publication> ModelStore::open_for_reading(const Model& model) {
  const std::string prefix = read_prefix(model.name);
  return publish(engine_, model, Access::kRemoteRead,
                 [&](std::size_t i) { return prefix + model.entries[i].tensor.name; });
}

Result<std::vector<ModelSummary>> ModelStore::keep(std::shared_ptr<Model> model) {
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
  std::uint64_t charge = kModelBytes + model->size;
  for (const ModelFile& file : model->files) charge += description_bytes(file);
  for (const TensorEntry& entry : model->entries) charge += description_bytes(entry);
  std::vector<ModelSummary> dropped;
  while (!kept_.empty() && (kept_bytes_ + charge > max_bytes_ || kept_.size() >= kMaxModels)) {
    dropped.push_back(summary(*kept_.front().model));
    drop(kept_.begin());
  }
  kept_.push_back({std::move(model), *std::move(names), charge});
  kept_bytes_.fetch_add(charge, std::memory_order_relaxed);
  count_.store(kept_.size(), std::memory_order_relaxed);
  return dropped;
}

void ModelStore::drop(std::list<Kept>::iterator kept) {
  kept_bytes_.fetch_sub(kept->charge, std::memory_order_relaxed);
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
  for (const Kept& kept : kept_) models.push_back(summary(*kept.model));
  return models;
}

}  // namespace fairlead::cli
