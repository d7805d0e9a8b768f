// The models that a server holds: bounded memory from the engine's pool, published by name.
//
// A model's tensors share one pool buffer, each at a multiple of 64 bytes. While it is pushed its tensors are published
// for writing under a prefix of the push; once verified, for reading as "model/NAME/TENSOR". The oldest verified models
// make room for new ones; a model being pushed is never evicted.
// Threads: one, but for the counters.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/push_protocol.h"
#include "fairlead/engine.h"

namespace fairlead::cli {

/// Names published with an engine, withdrawn with this object. Move-only. The engine must outlive it.
class Publication {
 public:
  Publication() noexcept = default;
  explicit Publication(Engine* engine) noexcept : engine_(engine) {}
  Publication(Publication&& other) noexcept : engine_(other.engine_), names_(std::exchange(other.names_, {})) {}
  Publication& operator=(Publication&& other) noexcept;
  ~Publication() { withdraw(); }

  Status add(std::string name, const Memory& memory, Access access, const std::optional<TensorSpec>& tensor);
  /// When it returns, no peer touches the memory through these names.
  void withdraw() noexcept;

 private:
  Engine* engine_ = nullptr;
  std::vector<std::string> names_;
};

struct Model {
  std::string name;
  Metadata metadata;
  std::vector<TensorEntry> entries;
  std::vector<std::uint64_t> offsets;  // of each entry in `memory`
  Memory memory;                       // invalid when every tensor has 0 bytes
  std::uint64_t bytes = 0;             // of all tensors, without the gaps

  [[nodiscard]] Memory tensor(std::size_t index) const;
};

class ModelStore {
 public:
  /// `max_bytes` bounds the buffers of all models, those being pushed included.
  ModelStore(Engine* engine, std::uint64_t max_bytes) : engine_(engine), max_bytes_(max_bytes) {}

  /// A buffer for these tensors. Errors: kResourceExhausted with the limit and what holds it; kInvalidArgument for a
  /// tensor name that stands twice.
  Result<std::shared_ptr<Model>> create(std::string name, Metadata metadata, std::vector<TensorEntry> entries);
  /// Publishes tensor i as prefix + i for writing.
  Result<Publication> open_for_writing(const Model& model, const std::string& prefix);
  /// Publishes a verified model for reading; replaces the one of the same name, which stays if that fails.
  Status keep(std::shared_ptr<Model> model);

  [[nodiscard]] std::shared_ptr<const Model> find(std::string_view name) const;
  [[nodiscard]] std::vector<ModelSummary> list() const;
  /// Buffers of all models alive. From any thread.
  [[nodiscard]] std::uint64_t bytes_held() const noexcept { return held_->load(std::memory_order_relaxed); }
  /// Verified models. From any thread.
  [[nodiscard]] std::uint64_t count() const noexcept { return count_.load(std::memory_order_relaxed); }

  [[nodiscard]] static std::string read_prefix(std::string_view model);

 private:
  struct Kept {
    std::shared_ptr<Model> model;
    Publication names;
  };
  Result<Publication> open_for_reading(const Model& model);
  Status make_room(std::uint64_t bytes, const std::string& model);
  void drop(std::list<Kept>::iterator kept);

  Engine* engine_;
  std::uint64_t max_bytes_;
  std::list<Kept> kept_;  // oldest first
  // Shared with the models, which may outlive the store.
  std::shared_ptr<std::atomic<std::uint64_t>> held_ = std::make_shared<std::atomic<std::uint64_t>>(0);
  std::atomic<std::uint64_t> count_{0};
};

}  // namespace fairlead::cli
