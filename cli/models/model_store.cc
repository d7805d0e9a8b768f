#include "cli/models/model_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/system/numa.h"
#include "bench/base/sizes.h"
#include "fairlead/log.h"
#include "memreg/limits.h"

namespace fairlead::cli {

using bench::format_bytes;

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

// Its tensors that have bytes, by their number; name_of(i): what tensor i is called.
template <typename NameOf>
Result<Publication> publish(Engine* engine, const Model& model, Access access, const std::string& audience,
                            NameOf&& name_of) {
  Publication names(engine);
  for (std::size_t i = 0; i < model.entries.size(); ++i) {
    const FileTensor& tensor = model.entries[i].tensor;
    if (tensor.bytes == 0) {
      names.skip();
      continue;
    }
    Status status = names.add(name_of(i), model.tensor(i), access, spec_of(tensor), audience);
    if (!status.ok()) return status;
  }
  return names;
}

}  // namespace

Publication& Publication::operator=(Publication&& other) noexcept {
  if (this != &other) {
    withdraw();
    engine_ = other.engine_;
    names_ = std::exchange(other.names_, {});
  }
  return *this;
}

Status Publication::add(std::string name, const Memory& memory, Access access, const std::optional<TensorSpec>& tensor,
                        const std::string& audience) {
  std::vector<std::string> principals;
  if (!audience.empty()) principals.push_back(audience);
  Status status = engine_->publish(name, memory, access, tensor, std::move(principals));
  if (status.ok()) names_.push_back(std::move(name));
  return status;
}

void Publication::withdraw() noexcept {
  for (std::string& name : names_) withdraw(name);
  names_.clear();
}

void Publication::withdraw(std::string& name) noexcept {
  if (name.empty()) return;
  if (const Status status = engine_->unpublish(name); !status.ok()) log(LogLevel::kError, status.to_string());
  name.clear();
}

Memory Model::tensor(std::size_t index) const { return memory.slice(offsets[index], entries[index].tensor.bytes); }

Model::~Model() {
  memory = {};  // no device has it any more
  if (spare == nullptr) return;
  arena.shrink(populated);
  spare->give(std::move(arena));
}

Status Model::allocate(Engine& engine) {
  if (size == 0) return {};
  if (arena.bytes().empty()) {
    if (Status fits = memreg::check_fits(size); !fits.ok()) return fits;  // the push fills all of it
    Result<memreg::Arena> mapped = memreg::Arena::map(size);
    if (!mapped) return mapped.error();
    arena = *std::move(mapped);
    // Where the engine has its pool: a model is as near to the NICs. Refused, it is where the system puts it.
    if (const auto node = engine.placement().pool_node) (void)bind_to_node(arena.bytes(), static_cast<int>(*node));
  }
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

Status ModelStore::reserve(Reservation& reservation, std::uint64_t bytes, const std::string& name,
                           const std::string& pusher, bool* own_pushes) {
  const Quota quota = quotas_.of(pusher);
  const std::uint64_t limit = std::min({max_push_, max_bytes_, quota.push, quota.bytes});
  const bool own = limit < std::min(max_push_, max_bytes_);  // the quota's
  const std::string_view remedy = own                      ? ", or raise its quota (--quotas)"
                                  : max_push_ < max_bytes_ ? ", or raise it with --max-push"
                                                           : "";
  std::uint64_t* const of_pusher = pusher.empty() ? nullptr : &pushing_of_[pusher];
  if (of_pusher != nullptr && *of_pusher > reservation.bytes_ && (bytes > limit || *of_pusher > limit - bytes)) {
    if (own_pushes != nullptr) *own_pushes = true;
    return {Code::kUnavailable,
            fmt::format("no room for model {} of {}: '{}' is pushing {} already, of {} at once; try again later{}",
                        name, format_bytes(reservation.bytes_ + bytes), pusher, format_bytes(*of_pusher),
                        format_bytes(limit), remedy)};
  }
  if (bytes > limit || reservation.bytes_ > limit - bytes) {
    if (own) {
      return {Code::kResourceExhausted,
              fmt::format("model {} is larger than the quota of '{}', {}: raise that in the file of --quotas", name,
                          pusher, format_bytes(limit))};
    }
    return {Code::kResourceExhausted,
            max_push_ < max_bytes_
                ? fmt::format("model {} is larger than the {} that one client may push here; raise it with --max-push",
                              name, format_bytes(limit))
                : fmt::format("model {} is larger than this server's memory limit of {}; raise it with --max-bytes",
                              name, format_bytes(limit))};
  }
  const std::uint64_t others = pushing_.load(std::memory_order_relaxed) - reservation.bytes_;
  if (others > max_bytes_ - bytes - reservation.bytes_) {
    return {
        Code::kUnavailable,
        fmt::format("no room for model {} of {}: pushes under way hold {} of this server's limit of {}; try again "
                    "later, or raise it with --max-bytes",
                    name, format_bytes(reservation.bytes_ + bytes), format_bytes(others), format_bytes(max_bytes_))};
  }
  reservation.store_ = this;
  reservation.pusher_ = pusher;
  reservation.bytes_ += bytes;
  if (of_pusher != nullptr) *of_pusher += bytes;
  pushing_.fetch_add(bytes, std::memory_order_relaxed);
  return {};
}

void ModelStore::give_back(const Reservation& reservation) noexcept {
  pushing_.fetch_sub(reservation.bytes_, std::memory_order_relaxed);
  const auto of_pusher = pushing_of_.find(reservation.pusher_);
  if (of_pusher == pushing_of_.end()) return;
  of_pusher->second -= reservation.bytes_;
  if (of_pusher->second == 0) pushing_of_.erase(of_pusher);
}

Status ModelStore::allocate(Model& model) {
  if (model.size == 0) return {};
  model.spare = spare_;
  if (std::optional<memreg::Arena> again = spare_->take(model.size)) {
    model.arena = *std::move(again);
    model.populated = model.arena.bytes().size();
  } else {
    spare_->trim(2 * max_bytes_ - std::min(bytes_held(), 2 * max_bytes_));
  }
  return model.allocate(*engine_);
}

Result<Publication> ModelStore::open_for_writing(const Model& model, const std::string& prefix,
                                                 const std::string& pusher) {
  return publish(engine_, model, Access::kRemoteWrite, pusher,
                 [&](std::size_t i) { return fmt::format("{}{}", prefix, i); });
}

// No name of a principal or of a model has a slash.
std::string ModelStore::read_prefix(const Model& model) {
  return model.owner.empty() ? fmt::format("model/{}/", model.name) : fmt::format("of/{}/{}/", model.owner, model.name);
}

Result<Publication> ModelStore::open_for_reading(const Model& model) {
  const std::string prefix = read_prefix(model);
  return publish(engine_, model, Access::kRemoteRead, model.owner,
                 [&](std::size_t i) { return prefix + model.entries[i].tensor.name; });
}

// From who holds most, the oldest first, until it fits. Among equals the new model's owner gives way.
Result<std::vector<ModelStore::KeptList::iterator>> ModelStore::find_room(const Model& model, std::uint64_t charge,
                                                                          KeptList::iterator same) {
  struct Share {
    std::uint64_t bytes = 0, models = 0;
    std::vector<KeptList::iterator> kept;  // the oldest last
  };
  std::map<std::string_view, Share> shares;
  Share all{.bytes = charge, .models = 1, .kept = {}};
  shares[model.owner] = all;
  for (auto at = kept_.end(); at != kept_.begin();) {
    if (--at == same) continue;
    Share& share = shares[at->model->owner];
    share.kept.push_back(at);
    for (Share* each : {&share, &all}) {
      each->bytes += at->charge;
      ++each->models;
    }
  }
  std::vector<KeptList::iterator> leaving;
  const auto let_go = [&](Share& share) {
    leaving.push_back(share.kept.back());
    share.kept.pop_back();
    for (Share* each : {&share, &all}) {
      each->bytes -= leaving.back()->charge;
      --each->models;
    }
  };
  const Quota quota = quotas_.of(model.owner);
  if (charge > quota.bytes) {
    return Status(
        Code::kResourceExhausted,
        fmt::format("model {} takes {} with what describes it, and the quota of '{}' is {}: raise that in the "
                    "file of --quotas",
                    model.name, format_bytes(charge), model.owner, format_bytes(quota.bytes)));
  }
  Share& own = shares[model.owner];
  while (own.bytes > quota.bytes || own.models > quota.models) let_go(own);
  while (all.bytes > max_bytes_ || all.models > kMaxModels) {
    const auto measure = all.bytes > max_bytes_ ? &Share::bytes : &Share::models;
    Share* most = &shares[model.owner];
    for (auto& [owner, share] : shares) {
      if (share.*measure > most->*measure) most = &share;
    }
    if (most->kept.empty()) {
      return Status(Code::kResourceExhausted,
                    fmt::format("no room for model {} of {}: it would take more of this server's {} than an equal "
                                "share, and the models of others hold {}; raise --max-bytes",
                                model.name, format_bytes(model.size), format_bytes(max_bytes_),
                                format_bytes(all.bytes - most->bytes)));
    }
    let_go(*most);
  }
  return leaving;
}

Result<std::vector<std::shared_ptr<const Model>>> ModelStore::keep(std::shared_ptr<Model> model) {
  std::uint64_t charge = kModelBytes + model->size;
  for (const ModelFile& file : model->files) charge += description_bytes(file);
  for (const TensorEntry& entry : model->entries) charge += description_bytes(entry);
  const auto same = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& k) {
    return k.model->name == model->name && k.model->owner == model->owner;
  });
  const Result<std::vector<KeptList::iterator>> leaving = find_room(*model, charge, same);
  if (!leaving) return leaving.error();
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
  std::vector<std::shared_ptr<const Model>> dropped;
  for (const KeptList::iterator each : *leaving) {
    dropped.push_back(each->model);
    drop(each);
  }
  model->spare = spare_;
  model->populated = model->arena.bytes().size();  // every tensor has been written
  const std::scoped_lock lock(mutex_);
  kept_.push_back({std::move(model), *std::move(names), charge});
  kept_bytes_.fetch_add(charge, std::memory_order_relaxed);
  count_.store(kept_.size(), std::memory_order_relaxed);
  return dropped;
}

void ModelStore::drop(KeptList::iterator kept) {
  kept_bytes_.fetch_sub(kept->charge, std::memory_order_relaxed);
  KeptList gone;  // its names are withdrawn outside of the lock
  {
    const std::scoped_lock lock(mutex_);
    gone.splice(gone.end(), kept_, kept);
  }
  count_.store(kept_.size(), std::memory_order_relaxed);
}

std::shared_ptr<const Model> ModelStore::find(std::string_view name, std::string_view owner) const {
  for (const Kept& kept : kept_) {
    if (kept.model->name == name && kept.model->owner == owner) return kept.model;
  }
  return nullptr;
}

std::vector<ModelSummary> ModelStore::list(std::string_view owner) const {
  std::vector<ModelSummary> models;
  for (const Kept& kept : kept_) {
    if (kept.model->owner == owner) models.push_back(summary(*kept.model));
  }
  return models;
}

std::vector<ModelStore::KeptModel> ModelStore::kept() const {
  const std::scoped_lock lock(mutex_);
  std::vector<KeptModel> all;
  for (const Kept& each : kept_) {
    const Model& model = *each.model;
    all.push_back({model.name, model.owner, model.entries.size(), model.bytes, each.charge});
  }
  return all;
}

}  // namespace fairlead::cli
