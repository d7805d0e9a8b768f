// A name under which an engine publishes memory while this lives. Threads: one. Errors: those of Engine::publish.
#pragma once

#include <string>
#include <utility>

#include "fairlead/engine.h"

namespace fairlead::bench {

class Published {
 public:
  /// The engine must outlive it.
  static Result<Published> create(Engine& engine, std::string name, const Memory& memory, Access access) {
    if (Status status = engine.publish(name, memory, access); !status.ok()) return status;
    return Published(&engine, std::move(name));
  }
  Published(Published&& other) noexcept
      : engine_(std::exchange(other.engine_, nullptr)), name_(std::move(other.name_)) {}
  Published& operator=(Published&& other) noexcept {
    std::swap(engine_, other.engine_);
    std::swap(name_, other.name_);
    return *this;
  }
  ~Published() {
    if (engine_ != nullptr) static_cast<void>(engine_->unpublish(name_));
  }

 private:
  Published(Engine* engine, std::string name) : engine_(engine), name_(std::move(name)) {}
  Engine* engine_;
  std::string name_;
};

}  // namespace fairlead::bench
