// The models that a server holds in memory: bounded, and published by name. On disk they are model_disk.h's.
//
// A model's tensors share one mapping of their own, each at a multiple of 64 bytes. It is all 0 at first, so that no
// client finds what another left: new from the kernel, or of a model that is gone, cleared (spare_arenas.h). While it
// is pushed its tensors are published for writing under a prefix of the push; once verified, for reading as
// "model/NAME/TENSOR". Two equal bounds: one for the verified models, of which the oldest make room for a new one when
// that is verified, and one for the pushes under way. Nothing that a client merely announces drops a model. A model is
// its owner's, the principal who pushed it: names are the owner's own, and who holds no more than an equal share loses
// no model to others. The owner without a name is everybody: peers without a key, or all of them where models are
// shared. Threads: one, but for allocate(), open_for_writing() and the counters.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/models/push_protocol.h"
#include "cli/models/quota.h"
#include "fairlead/engine.h"
#include "memreg/arena.h"
#include "memreg/spare_arenas.h"

namespace fairlead::cli {

inline constexpr std::uint64_t kTensorAlignment = 64;

/// Names published with an engine, withdrawn with this object. Move-only. The engine must outlive it.
class Publication {
 public:
  Publication() noexcept = default;
  explicit Publication(Engine* engine) noexcept : engine_(engine) {}
  Publication(Publication&& other) noexcept : engine_(other.engine_), names_(std::exchange(other.names_, {})) {}
  Publication& operator=(Publication&& other) noexcept;
  ~Publication() { withdraw(); }

  /// `audience`: the principal who alone may know of it; empty: everybody.
  Status add(std::string name, const Memory& memory, Access access, const std::optional<TensorSpec>& tensor,
             const std::string& audience);
  /// So that the next add() is the number behind it.
  void skip() { names_.emplace_back(); }
  /// When it returns, no peer touches the memory through these names, or the one that was added as number `which`.
  void withdraw() noexcept;
  void withdraw(std::size_t which) noexcept { withdraw(names_[which]); }

 private:
  void withdraw(std::string& name) noexcept;

  Engine* engine_ = nullptr;
  std::vector<std::string> names_;  // "": none
};

struct Model {
  std::string name;
  std::string owner;
  std::vector<ModelFile> files;
  std::vector<TensorEntry> entries;    // of all files, in order
  std::vector<std::uint64_t> offsets;  // of each entry in `memory`
  std::uint64_t bytes = 0;             // of all tensors, without the gaps
  std::uint64_t size = 0;              // of `memory`
  memreg::Arena arena;
  std::size_t populated = 0;                   // bytes of `arena` from the front that surely have pages
  std::shared_ptr<memreg::SpareArenas> spare;  // where they go; null: back to the system
  Memory memory;                               // all of `arena`; invalid when every tensor has 0 bytes

  Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  ~Model();

  /// Maps `arena`, unless it is there, and registers it as `memory`. Takes long where devices pin it; touches nothing
  /// but this model.
  Status allocate(Engine& engine);
  [[nodiscard]] Memory tensor(std::size_t index) const;
};

class ModelStore {
 public:
  struct Limits {
    std::uint64_t bytes = 0;              // of the verified models, and of the pushes under way as well
    std::uint64_t push = 0;               // of what one client may push, or all clients of one principal
    memreg::SpareArenas::Settings spare;  // memory of models that are gone
  };
  /// What describes a model counts too.
  ModelStore(Engine* engine, const Limits& limits)
      : engine_(engine),
        max_bytes_(limits.bytes),
        max_push_(limits.push),
        spare_(std::make_shared<memreg::SpareArenas>(limits.spare)) {}
  ModelStore(Engine* engine, std::uint64_t max_bytes, std::uint64_t max_push)
      : ModelStore(engine, {.bytes = max_bytes, .push = max_push, .spare = {.most = max_bytes}}) {}
  ModelStore(Engine* engine, std::uint64_t max_bytes) : ModelStore(engine, max_bytes, max_bytes) {}

  /// A push's part of the bound, given back with this object. Move-only; the store must outlive it.
  class Reservation {
   public:
    Reservation() noexcept = default;
    Reservation(Reservation&& other) noexcept
        : store_(std::exchange(other.store_, nullptr)),
          bytes_(std::exchange(other.bytes_, 0)),
          pusher_(std::move(other.pusher_)) {}
    Reservation& operator=(Reservation&& other) noexcept {
      std::swap(store_, other.store_);
      std::swap(bytes_, other.bytes_);
      std::swap(pusher_, other.pusher_);
      return *this;
    }
    ~Reservation() {
      if (store_ != nullptr) store_->give_back(*this);
    }
    [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

   private:
    friend class ModelStore;
    ModelStore* store_ = nullptr;
    std::uint64_t bytes_ = 0;
    std::string pusher_;
  };
  /// Adds `bytes` of model `name` to the reservation. `pusher`: the client's principal; empty: none. Errors (of a
  /// quota's the message names it): kResourceExhausted if so much may not be pushed, with the limit; kUnavailable if
  /// other pushes hold the room, and then `own_pushes` becomes true if they are the same pusher's.
  Status reserve(Reservation& reservation, std::uint64_t bytes, const std::string& name, const std::string& pusher = {},
                 bool* own_pushes = nullptr);

  /// Lays the tensors out; allocate() is the next step. Error: kInvalidArgument for a tensor name that stands twice.
  static Result<std::shared_ptr<Model>> lay_out(std::string name, std::vector<ModelFile> files,
                                                std::vector<TensorEntry> entries);
  /// Memory for a model that has its reservation: spare, or new; for that spare memory goes, so that both together stay
  /// within twice the bound. From any thread. Errors: Model::allocate's.
  Status allocate(Model& model);
  /// Publishes tensor i as prefix + i for writing, by this principal or by everybody. From any thread.
  Result<Publication> open_for_writing(const Model& model, const std::string& prefix, const std::string& pusher = {});
  /// Publishes a verified model for reading by its owner; replaces the owner's of the same name, which stays if that
  /// fails. Gives what was dropped to make room: the owner's oldest beyond its quota, then the oldest of who holds
  /// most. Error: kResourceExhausted if it is beyond its owner's quota, or only models of owners who hold less could
  /// go.
  Result<std::vector<std::shared_ptr<const Model>>> keep(std::shared_ptr<Model> model);
  /// From here on; what is kept stays until its owner's next.
  void set_quotas(Quotas quotas) { quotas_ = std::move(quotas); }
  [[nodiscard]] const Quotas& quotas() const noexcept { return quotas_; }
  [[nodiscard]] std::uint64_t max_bytes() const noexcept { return max_bytes_; }

  [[nodiscard]] Engine& engine() noexcept { return *engine_; }
  [[nodiscard]] std::shared_ptr<const Model> find(std::string_view name, std::string_view owner = {}) const;
  [[nodiscard]] std::vector<ModelSummary> list(std::string_view owner = {}) const;
  /// All models and pushes. From any thread.
  [[nodiscard]] std::uint64_t bytes_held() const noexcept {
    return kept_bytes_.load(std::memory_order_relaxed) + pushing_.load(std::memory_order_relaxed);
  }
  /// Memory of models that are gone. From any thread.
  [[nodiscard]] memreg::SpareArenas::Stats spare() const { return spare_->stats(); }
  /// Verified models. From any thread.
  [[nodiscard]] std::uint64_t count() const noexcept { return count_.load(std::memory_order_relaxed); }

  struct KeptModel {
    std::string name, owner;
    std::uint64_t tensors = 0, bytes = 0;  // of its tensors,
    std::uint64_t charge = 0;              // and what it counts as
  };
  /// All verified models, the oldest first. From any thread.
  [[nodiscard]] std::vector<KeptModel> kept() const;

  /// Of the names by which its tensors are read.
  [[nodiscard]] static std::string read_prefix(const Model& model);

 private:
  struct Kept {
    std::shared_ptr<Model> model;
    Publication names;
    std::uint64_t charge = 0;
  };
  using KeptList = std::list<Kept>;
  Result<Publication> open_for_reading(const Model& model);
  /// What has to go for it, if `same` goes anyway.
  Result<std::vector<KeptList::iterator>> find_room(const Model& model, std::uint64_t charge, KeptList::iterator same);
  void drop(KeptList::iterator kept);
  void give_back(const Reservation& reservation) noexcept;

  Engine* engine_;
  std::uint64_t max_bytes_;
  std::uint64_t max_push_;
  std::shared_ptr<memreg::SpareArenas> spare_;
  Quotas quotas_;
  mutable std::mutex mutex_;                         // who changes kept_, or reads it on another thread, holds it
  KeptList kept_;                                    // oldest first
  std::map<std::string, std::uint64_t> pushing_of_;  // what each principal pushes now
  std::atomic<std::uint64_t> kept_bytes_{0}, pushing_{0}, count_{0};
};

/// What the server keeps to describe a tensor or a file.
[[nodiscard]] std::uint64_t description_bytes(const TensorEntry& entry) noexcept;
[[nodiscard]] std::uint64_t description_bytes(const ModelFile& file) noexcept;

}  // namespace fairlead::cli
