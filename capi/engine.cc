#include <chrono>

#include "capi/config.h"
#include "capi/handles.h"
#include "capi/structures.h"

using namespace fairlead;        // NOLINT(google-build-using-namespace): a translation from one API to the other
using namespace fairlead::capi;  // NOLINT(google-build-using-namespace)

namespace fairlead::capi {

Status names_of(const char* const* names, std::size_t count, std::vector<std::string>& to) {
  for (std::size_t i = 0; i < count; ++i) {
    if (names == nullptr || names[i] == nullptr) return missing("a name");
    to.emplace_back(names[i]);
  }
  return {};
}

}  // namespace fairlead::capi

fairlead_code fairlead_engine_create(const fairlead_engine_config* config, fairlead_engine** engine) {
  return outcome([&]() -> Status {
    if (engine == nullptr) return missing("engine");
    *engine = nullptr;
    fairlead_engine_config known = config_of(default_config(), "", "");
    if (config != nullptr) {
      if (Status status = take(*config, known, "fairlead_engine_config"); !status.ok()) return status;
    }
    if (Status status = check_enum(known.choice, FAIRLEAD_CHOICE_MEASURED, "choice"); !status.ok()) return status;
    if (Status status = check_enum(known.progress, FAIRLEAD_PROGRESS_APPLICATION, "progress"); !status.ok())
      return status;
    auto made = Engine::create(config_of(known));
    if (!made) return made.error();
    auto handle = std::make_unique<fairlead_engine>(*std::move(made));
    handle->require = text_of(known.require);
    handle->forbid = text_of(known.forbid);
    *engine = handle.release();
    return {};
  });
}

void fairlead_engine_shutdown(fairlead_engine* engine) {
  (void)outcome([&]() -> Status {
    if (engine != nullptr) engine->engine->shutdown();
    return {};
  });
}

void fairlead_engine_destroy(fairlead_engine* engine) {
  (void)outcome([&]() -> Status {
    if (engine != nullptr && !engine->own) return {Code::kInvalidArgument, "this engine is a service's: destroy that"};
    delete engine;
    return {};
  });
}

fairlead_code fairlead_engine_get_config(const fairlead_engine* engine, fairlead_engine_config* config) {
  return outcome([&]() -> Status {
    if (engine == nullptr) return missing("engine");
    return give(config_of(engine->engine->config(), engine->require.c_str(), engine->forbid.c_str()), config,
                "fairlead_engine_config");
  });
}

size_t fairlead_engine_listen_address(const fairlead_engine* engine, char* text, size_t size) {
  return value_of(std::size_t{0}, [&] {
    return put_text(engine != nullptr ? engine->engine->listen_address() : std::string(), text, size);
  });
}

fairlead_code fairlead_engine_reload_keys(fairlead_engine* engine) {
  return outcome([&] { return engine != nullptr ? engine->engine->reload_keys() : missing("engine"); });
}

// ---- publishing

fairlead_code fairlead_engine_publish(fairlead_engine* engine, const char* name, const fairlead_memory* memory,
                                      uint32_t access, const fairlead_tensor* tensor, const char* const* audience,
                                      size_t audience_count) {
  return outcome([&]() -> Status {
    if (engine == nullptr) return missing("engine");
    if (Status status = check_access(access); !status.ok()) return status;
    std::optional<TensorSpec> spec;
    if (tensor != nullptr) {
      if (Status status = tensor_of(tensor, spec.emplace()); !status.ok()) return status;
    }
    std::vector<std::string> to;
    if (Status status = names_of(audience, audience_count, to); !status.ok()) return status;
    return engine->engine->publish(text_of(name), memory_of(memory), static_cast<Access>(access), spec, std::move(to));
  });
}

fairlead_code fairlead_engine_unpublish(fairlead_engine* engine, const char* name) {
  return outcome([&] { return engine != nullptr ? engine->engine->unpublish(text_of(name)) : missing("engine"); });
}

fairlead_code fairlead_engine_export(fairlead_engine* engine, const fairlead_memory* memory, uint32_t access,
                                     const char* const* audience, size_t audience_count, char* capability,
                                     size_t size) {
  return outcome([&]() -> Status {
    if (capability != nullptr && size > 0) *capability = 0;
    if (engine == nullptr) return missing("engine");
    if (capability == nullptr) return missing("capability");
    if (size < FAIRLEAD_CAPABILITY_SIZE) {
      return {Code::kOutOfRange, "there is room for " + std::to_string(size) +
                                     " bytes of a capability: FAIRLEAD_CAPABILITY_SIZE are needed"};
    }
    if (Status status = check_access(access); !status.ok()) return status;
    std::vector<std::string> to;
    if (Status status = names_of(audience, audience_count, to); !status.ok()) return status;
    auto text = engine->engine->export_(memory_of(memory), static_cast<Access>(access), std::move(to));
    if (!text) return text.error();
    put_text(*text, capability, size);
    return {};
  });
}

fairlead_code fairlead_engine_unexport(fairlead_engine* engine, const char* capability) {
  return outcome([&] { return engine != nullptr ? engine->engine->unexport(text_of(capability)) : missing("engine"); });
}

// ---- peers

fairlead_code fairlead_engine_connect(fairlead_engine* engine, const char* host_port, fairlead_peer** peer) {
  return outcome([&]() -> Status {
    clear(peer);
    if (engine == nullptr) return missing("engine");
    if (peer == nullptr) return missing("peer");
    return hand_over([&] { return engine->engine->connect(text_of(host_port)); }, peer);
  });
}

fairlead_code fairlead_engine_accept(fairlead_engine* engine, int64_t timeout_ns, fairlead_peer** peer) {
  return outcome([&]() -> Status {
    clear(peer);
    if (engine == nullptr) return missing("engine");
    if (peer == nullptr) return missing("peer");
    return hand_over(
        [&]() -> Result<Peer> {
          if (auto accepted = engine->engine->accept()) return *std::move(accepted);
          Result<Peer> accepted = engine->engine->accept(std::chrono::nanoseconds(std::max<int64_t>(timeout_ns, 0)));
          const bool polls = timeout_ns <= 0 && !accepted && accepted.error().code() == Code::kDeadlineExceeded;
          return polls ? Status(Code::kDeadlineExceeded, "no peer has connected") : std::move(accepted);
        },
        peer);
  });
}

size_t fairlead_engine_peers(const fairlead_engine* engine, fairlead_peer** peers, size_t room) {
  return value_of(std::size_t{0}, [&]() -> std::size_t {
    if (engine == nullptr) return 0;
    std::vector<Peer> all = engine->engine->peers();
    const std::size_t there = all.size();
    if (peers == nullptr) return there;
    if (all.size() > room) all.resize(room);
    return hand_over_all(Result(std::move(all)), peers).ok() ? there : 0;
  });
}

// ---- progress

int fairlead_engine_event_fd(const fairlead_engine* engine) {
  return value_of(-1, [&] { return engine != nullptr ? engine->engine->event_fd() : -1; });
}

fairlead_transfer* fairlead_engine_next_completed(fairlead_engine* engine) {
  return value_of<fairlead_transfer*>(nullptr, [&]() -> fairlead_transfer* {
    if (engine == nullptr) return nullptr;
    auto done = engine->engine->next_completed();
    return done ? handle_of(*std::move(done)) : nullptr;
  });
}

bool fairlead_engine_poll(fairlead_engine* engine) { return engine != nullptr && engine->engine->poll(); }
