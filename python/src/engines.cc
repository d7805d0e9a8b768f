// Engines, and how event loops are told of what they have.
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <type_traits>

#include "base/words.h"
#include "fairlead/log.h"
#include "fairlead/version.h"
#include "python/src/objects.h"
#include "python/src/owner.h"

namespace fairlead::python {

EngineState::~EngineState() {
  try {
    if (waits) waits.attr("end")();
  } catch (py::error_already_set& error) {
    error.discard_as_unraisable("fairlead.Engine");
  }
  shut_down();
}

void EngineState::shut_down() {
  unlocked([this] {
    metrics.reset();
    engine.shutdown();
  });
}

bool EngineState::attach_running_loop() {
  static const py::handle running = py::object(py::module_::import("asyncio").attr("_get_running_loop")).release();
  const py::object loop = running();
  if (loop.is_none()) return false;
  if (loop.ptr() != last_loop_) {
    waits.attr("attach")(loop);
    last_loop_ = loop.ptr();
  }
  return true;
}

namespace {

struct Setting {
  std::function<void(EngineConfig&, const py::handle&)> set;
  std::string takes;  // in words
};

template <typename Value>
Value value_as(const py::handle& value) {
  if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
    if (py::isinstance<py::str>(value)) return fairlead::words_of(value.cast<std::string>());
  }
  return value.cast<Value>();
}

template <typename Value>
std::string what_it_takes() {
  if constexpr (std::is_same_v<Value, bool>) {
    return "a bool";
  } else if constexpr (std::is_same_v<Value, std::string>) {
    return "a str";
  } else if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
    return "a list of str, such as ['hardware']";
  } else {
    using Limits = std::numeric_limits<Value>;
    const std::string from = "a whole number from " + std::to_string(Limits::min());
    return from + (sizeof(Value) == 8 ? " on" : " to " + std::to_string(Limits::max()));
  }
}

template <typename Value>
Setting set(Value EngineConfig::* member) {
  return {[member](EngineConfig& config, const py::handle& value) { config.*member = value_as<Value>(value); },
          what_it_takes<Value>()};
}
template <typename Part, typename Value>
Setting set(Part EngineConfig::* part, Value Part::* member) {
  return {
      [part, member](EngineConfig& config, const py::handle& value) { config.*part.*member = value_as<Value>(value); },
      what_it_takes<Value>()};
}
template <typename Duration>
Setting set_seconds(Duration EngineConfig::* member) {
  return {[member](EngineConfig& config, const py::handle& value) {
            config.*member = std::chrono::duration_cast<Duration>(duration_of(value.cast<double>()));
          },
          "seconds, such as 1.5"};
}
template <typename Enum>
Setting set_word(Enum EngineConfig::* member, const std::map<std::string, Enum>& words) {
  std::string legal;
  for (const auto& [word, _] : words) legal += (legal.empty() ? "one of '" : ", '") + word + "'";
  return {[member, words, legal](EngineConfig& config, const py::handle& value) {
            const auto given = value.cast<std::string>();
            const auto found = words.find(given);
            if (found == words.end()) throw py::value_error("'" + given + "': " + legal + " is expected");
            config.*member = found->second;
          },
          legal};
}

/// EngineConfig by name, durations in seconds.
const std::map<std::string, Setting>& settings() {
  using C = EngineConfig;
  static const std::map<std::string, Setting> all = {
      {"name", set(&C::name)},
      {"listen", set(&C::listen)},
      {"keys_file", set(&C::keys_file)},
      {"principal", set(&C::principal)},
      {"allow_anonymous", set(&C::allow_anonymous)},
      {"transport", set(&C::transport)},
      {"failover", set(&C::failover)},
      {"require", set(&C::require)},
      {"forbid", set(&C::forbid)},
      {"choice", set_word(&C::choice, {{"ranked", PathChoice::kRanked}, {"measured", PathChoice::kMeasured}})},
      {"progress",
       set_word(&C::progress,
                {{"auto", Progress::kAuto}, {"thread", Progress::kThread}, {"application", Progress::kApplication}})},
      {"spin", set_seconds(&C::spin)},
      {"connect_timeout", set_seconds(&C::connect_timeout)},
      {"path_timeout", set_seconds(&C::path_timeout)},
      {"peer_timeout", set_seconds(&C::peer_timeout)},
      {"pool_arena_bytes", set(&C::pool_arena_bytes)},
      {"pool_max_bytes", set(&C::pool_max_bytes)},
      {"pool_idle", set_seconds(&C::pool_idle)},
      {"cached_bytes", set(&C::cached_bytes)},
      {"cuda_staging_bytes", set(&C::cuda_staging_bytes)},
      {"max_message_bytes", set(&C::max_message_bytes)},
      {"max_pending_events", set(&C::max_pending_events)},
      {"max_pending_bytes", set(&C::max_pending_bytes)},
      {"max_posted", set(&C::max_posted)},
      {"max_posted_bytes", set(&C::max_posted_bytes)},
      {"max_sessions", set(&C::max_sessions)},
      {"max_principal_sessions", set(&C::max_principal_sessions)},
      {"max_handshakes", set(&C::max_handshakes)},
      {"max_cut_sessions", set(&C::max_cut_sessions)},
      {"max_principal_pending_events", set(&C::max_principal_pending_events)},
      {"max_principal_pending_bytes", set(&C::max_principal_pending_bytes)},
      {"chunk_bytes", set(&C::chunk_bytes)},
      {"paths", set(&C::paths)},
      {"lanes", set(&C::lanes)},
      {"placement", set(&C::placement)},
      {"verbs_packet_io", set(&C::verbs, &VerbsConfig::packet_io)},
      {"verbs_profile", set(&C::verbs, &VerbsConfig::profile)},
      {"verbs_soft_address", set(&C::verbs, &VerbsConfig::soft_address)},
      {"verbs_gid_index", set(&C::verbs, &VerbsConfig::gid_index)},
      {"verbs_port", set(&C::verbs, &VerbsConfig::port)},
      {"verbs_mtu", set(&C::verbs, &VerbsConfig::mtu)},
      {"verbs_send_depth", set(&C::verbs, &VerbsConfig::send_depth)},
      {"verbs_receive_depth", set(&C::verbs, &VerbsConfig::receive_depth)},
      {"verbs_message_bytes", set(&C::verbs, &VerbsConfig::message_bytes)},
      {"verbs_traffic_class", set(&C::verbs, &VerbsConfig::traffic_class)},
      {"verbs_hop_limit", set(&C::verbs, &VerbsConfig::hop_limit)},
      {"verbs_ack_timeout", set(&C::verbs, &VerbsConfig::ack_timeout)},
      {"verbs_retry_count", set(&C::verbs, &VerbsConfig::retry_count)},
      {"verbs_rnr_retry", set(&C::verbs, &VerbsConfig::rnr_retry)},
      {"verbs_min_rnr_timer", set(&C::verbs, &VerbsConfig::min_rnr_timer)},
      {"verbs_cq_moderation_count", set(&C::verbs, &VerbsConfig::cq_moderation_count)},
      {"verbs_cq_moderation_period", set(&C::verbs, &VerbsConfig::cq_moderation_period)},
      {"verbs_one_sided", set(&C::verbs, &VerbsConfig::one_sided)},
      {"tcp_host", set(&C::tcp, &TcpConfig::host)},
      {"tcp_port", set(&C::tcp, &TcpConfig::port)},
      {"tcp_send_depth", set(&C::tcp, &TcpConfig::send_depth)},
      {"tcp_socket_buffer", set(&C::tcp, &TcpConfig::socket_buffer)},
      {"tcp_congestion_control", set(&C::tcp, &TcpConfig::congestion_control)},
      {"shm_directory", set(&C::shm, &ShmConfig::directory)},
      {"shm_pull", set(&C::shm, &ShmConfig::pull)},
      {"shm_arenas", set(&C::shm, &ShmConfig::arenas)},
  };
  return all;
}

EngineConfig config_of(const py::kwargs& given) {
  EngineConfig config;
  for (const auto& [key, value] : given) {
    const auto name = key.cast<std::string>();
    const auto found = settings().find(name);
    if (found == settings().end()) {
      std::string legal;
      for (const auto& [word, _] : settings()) legal += (legal.empty() ? "" : ", ") + word;
      throw py::type_error("an engine has no setting '" + name + "'; there are " + legal);
    }
    try {
      found->second.set(config, value);
    } catch (const py::cast_error&) {
      throw py::type_error("setting " + name + " takes " + found->second.takes + ", and " + brief_of(value) +
                           " was given");
    } catch (const py::value_error& error) {
      throw py::value_error("setting " + name + ": " + error.what());
    }
  }
  return config;
}

/// What event loops take from an engine, which they do not keep.
struct Queues {
  std::weak_ptr<EngineState> engine;
  [[nodiscard]] EngineRef lock() const {
    EngineRef state = engine.lock();
    if (!state) raise({Code::kUnavailable, "the engine is gone"});
    return state;
  }
};

py::dict dict_of(const EngineStats& stats) {
  py::dict all = python::dict_of(stats.total);
  all["peers_connected"] = stats.peers_connected;
  all["peers_lost"] = stats.peers_lost;
  all["peers_failed"] = stats.peers_failed;
  all["handshakes_refused"] = stats.handshakes_refused;
  all["registered_bytes"] = stats.registered_bytes;
  all["pool_bytes"] = stats.pool.bytes;
  all["pool_blocks"] = stats.pool.blocks;
  all["pool_used_bytes"] = stats.pool.used_bytes;
  all["pool_cached_bytes"] = stats.pool.cached_bytes;
  all["pool_given_back"] = stats.pool.given_back;
  all["pool_given_back_bytes"] = stats.pool.given_back_bytes;
  all["cache_hits"] = stats.cache.hits;
  all["cache_misses"] = stats.cache.misses;
  all["cache_evicted"] = stats.cache.evicted;
  all["cache_invalidated"] = stats.cache.invalidated;
  all["cache_registrations"] = stats.cache.registrations;
  all["cache_bytes"] = stats.cache.bytes;
  all["cuda_registered_bytes"] = stats.cuda_registered_bytes;
  all["cuda_staging_bytes"] = stats.cuda_staging_bytes;
  all["cuda_bytes_in"] = stats.cuda_bytes_in;
  all["cuda_bytes_out"] = stats.cuda_bytes_out;
  all["sleeps"] = stats.sleeps;
  py::list transports;
  for (const TransportStats& each : stats.transports) {
    py::dict one;
    one["transport"] = each.transport;
    one["lane"] = each.lane;
    one["bytes_sent"] = each.bytes_sent;
    one["bytes_received"] = each.bytes_received;
    one["requests"] = each.requests;
    one["requests_in_flight"] = each.requests_in_flight;
    one["paths"] = each.paths;
    one["paths_opened"] = each.paths_opened;
    one["paths_lost"] = each.paths_lost;
    one["retransmissions"] = each.retransmissions;
    if (each.copied) {
      py::dict copied;
      copied["mapped"] = each.copied->mapped;
      copied["streamed"] = each.copied->streamed;
      copied["by_kernel"] = each.copied->by_kernel;
      copied["through_rings"] = each.copied->through_rings;
      one["copied"] = copied;
    }
    transports.append(one);
  }
  all["transports"] = transports;
  return all;
}

/// The memory and the tensor behind what is to be published.
PyTensor published(EngineState& state, const py::object& what, Access access, bool& is_tensor) {
  is_tensor = !py::isinstance<PyMemory>(what);
  if (!is_tensor) return {what.cast<PyMemory>(), {}};
  if (py::isinstance<PyTensor>(what)) return what.cast<PyTensor>();
  return register_object(state.engine, what, access);
}

}  // namespace

void bind_engines(py::module_& module) {
  py::class_<Queues>(module, "Queues", "What an engine has for event loops; fairlead._waits alone uses it.")
      .def_property_readonly("fd", [](const Queues& queues) { return queues.lock()->engine.event_fd(); })
      .def("completed",
           [](const Queues& queues, std::size_t most) {
             const EngineRef state = queues.lock();
             std::vector<std::uint64_t> ids;
             while (ids.size() < most) {
               const auto done = state->engine.next_completed();
               if (!done) break;
               ids.push_back(done->tag());
             }
             return ids;
           })
      .def("accept",
           [](const Queues& queues) -> std::optional<HeldPeer> {
             const EngineRef state = queues.lock();
             auto peer = state->engine.accept();
             return peer ? std::optional(HeldPeer{*std::move(peer), state}) : std::nullopt;
           })
      .def("next_event", [](const Queues& queues) -> py::object {
        const EngineRef state = queues.lock();
        auto [peer, event] = state->engine.next_event();
        if (event.kind == Event::Kind::kNone) return py::none();
        return py::make_tuple(HeldPeer{std::move(peer), state}, std::move(event));
      });

  py::class_<EngineState, EngineRef>(module, "Engine", py::dynamic_attr(),
                                     "An engine: memory pools, sessions and transfers.")
      .def(py::init([](const py::kwargs& given) {
        const EngineConfig config = config_of(given);
        auto state = std::make_shared<EngineState>(value_of(unlocked([&] { return Engine::create(config); })));
        state->waits = py::module_::import("fairlead._waits").attr("Waits")(Queues{state});
        return state;
      }))
      .def_property_readonly("_waits", [](const EngineState& self) { return self.waits; })
      .def("_attach", [](EngineState& self) { self.attach_running_loop(); })
      .def("shutdown", &EngineState::shut_down)
      .def(
          "serve_metrics",
          [](EngineState& self, const std::string& listen, const std::string& discovery, const std::string& service) {
            if (self.metrics) raise({Code::kAlreadyExists, "metrics are served on " + self.metrics->address()});
            self.metrics =
                value_of(unlocked([&] { return Metrics::serve(self.shown(), {listen, discovery, service}); }));
            return self.metrics->address();
          },
          py::arg("listen"), py::arg("discovery") = "", py::arg("service") = "engine",
          "Answers GET /metrics for Prometheus until the engine is shut down, and gives where: HOST:PORT with the real "
          "port. listen: 'HOST:PORT', or 'HOST:PORT-LAST' for the first of these that is free. discovery: a folder for "
          "a file by which Prometheus finds it (file_sd), with `service` as a label.")
      .def(
          "metrics_text", [](EngineState& self) { return unlocked([&] { return metrics_text(self.shown()); }); },
          "What GET /metrics says, for a program that answers it itself.")
      .def_property_readonly(
          "listen_address", [](const EngineState& self) { return self.engine.listen_address(); },
          "Where it listens, HOST:PORT with the real port; '' if it does not.")
      .def(
          "allocate",
          [](EngineState& self, std::size_t nbytes, std::size_t alignment, int node, bool shared,
             std::optional<std::vector<std::string>> audience) {
            drop_released();
            return PyMemory{
                value_of(unlocked([&] {
                  return self.engine.allocate(
                      nbytes,
                      {.alignment = alignment, .audience = std::move(audience), .node = node, .shared = shared});
                })),
                false};
          },
          py::arg("nbytes"), py::kw_only(), py::arg("alignment") = 0, py::arg("node") = -1, py::arg("shared") = false,
          py::arg("audience") = py::none(),
          "`nbytes` bytes from the pool, all 0, registered. alignment in bytes (0: a page from a page on, else 64); "
          "node: a NUMA node; shared: to be mapped by other processes; audience: the principals that may come to see "
          "it.")
      .def(
          "register",
          [](EngineState& self, const py::object& object, const std::string& access) {
            return register_object(self.engine, object, access_of(access));
          },
          py::arg("object"), py::arg("access") = "",
          "Registers an object's bytes in place, and keeps it as long as anything may touch them. object: a NumPy "
          "array or whatever else has the buffer protocol, or DLPack (torch tensors, of the CPU and of CUDA). access: "
          "what peers may be granted (r, w, a).")
      .def(
          "map_file",
          [](EngineState& self, const py::object& path, const std::string& access) {
            const auto text = py::module_::import("os").attr("fspath")(path).cast<std::string>();
            const Access wanted = access_of(access);
            return PyMemory{value_of(unlocked([&] { return self.engine.map_file(text, wanted); })),
                            !allows(wanted, Access::kRemoteWrite)};
          },
          py::arg("path"), py::arg("access") = "r", "A file, mapped and registered; read-only unless access has w.")
      .def(
          "trim_pool", [](EngineState& self) { unlocked([&] { self.engine.trim_pool(); }); },
          "Gives the pool's idle memory back to the system now.")
      .def(
          "publish",
          [](EngineState& self, const py::object& name, const py::object& what, const std::string& access,
             std::optional<TensorSpec> spec, std::vector<std::string> audience) {
            const std::string called = name_of(name);
            const Access wanted = access_of(access);
            bool is_tensor = false;
            const PyTensor tensor = published(self, what, wanted, is_tensor);
            if (is_tensor && !spec) spec = tensor.spec;
            check(unlocked(
                [&] { return self.engine.publish(called, tensor.memory.memory, wanted, spec, std::move(audience)); }));
          },
          py::arg("name"), py::arg("memory"), py::arg("access") = "r", py::kw_only(), py::arg("spec") = py::none(),
          py::arg("audience") = std::vector<std::string>(),
          "Lets peers find memory under `name`, for access r (read), w (write), a (atomics) or several of them. "
          "memory: a Memory, a Tensor, or an array, which is registered and kept; tensors are published with dtype and "
          "shape. audience: the principals that may find it; [] is everybody.")
      .def(
          "unpublish",
          [](EngineState& self, const py::object& name) {
            const std::string called = name_of(name);
            check(unlocked([&] { return self.engine.unpublish(called); }));
          },
          py::arg("name"), "Withdraws it: when this returns no peer's operation touches the memory by that name.")
      .def(
          "export",
          [](EngineState& self, const py::object& what, const std::string& access, std::vector<std::string> audience) {
            bool is_tensor = false;
            const Access wanted = access_of(access);
            const PyTensor tensor = published(self, what, wanted, is_tensor);
            return value_of(
                unlocked([&] { return self.engine.export_(tensor.memory.memory, wanted, std::move(audience)); }));
          },
          py::arg("memory"), py::arg("access") = "r", py::kw_only(), py::arg("audience") = std::vector<std::string>(),
          "Gives memory away without a name: the text that this returns opens it to whoever has it (Peer.import_).")
      .def(
          "unexport",
          [](EngineState& self, const std::string& capability) {
            check(unlocked([&] { return self.engine.unexport(capability); }));
          },
          py::arg("capability"), "Withdraws what was exported.")
      .def(
          "reload_keys", [](EngineState& self) { check(unlocked([&] { return self.engine.reload_keys(); })); },
          "Reads the keys file again; whose key is gone is cut off.")
      .def(
          "connect",
          [](const EngineRef& self, const std::string& address) {
            return PyPeer{value_of(unlocked([&] { return self->engine.connect(address); })), self};
          },
          py::arg("address"),
          "Begins to connect to HOST:PORT, or to the first of several with commas between, and returns at once.")
      .def(
          "_accept",
          [](const EngineRef& self, std::optional<double> timeout) -> std::optional<PyPeer> {
            std::optional<Peer> peer;
            Status end;
            wait_in_pieces(duration_of(timeout), [&](nanoseconds piece) {
              peer = self->engine.accept();
              if (peer) return true;
              auto accepted = self->engine.accept(piece);
              if (accepted)
                peer = *std::move(accepted);
              else if (accepted.error().code() != Code::kDeadlineExceeded)
                end = accepted.error();
              return peer.has_value() || !end.ok();
            });
            check(end);
            return peer ? std::optional(PyPeer{*std::move(peer), self}) : std::nullopt;
          },
          py::arg("timeout") = 0.0)
      .def(
          "_next_event",
          [](const EngineRef& self, std::optional<double> timeout) -> py::object {
            std::pair<Peer, Event> next;
            wait_in_pieces(duration_of(timeout), [&](nanoseconds piece) {
              next = self->engine.next_event(piece);
              return next.second.kind != Event::Kind::kNone || !next.second.status.ok();
            });
            if (next.second.kind == Event::Kind::kNone) {
              check(next.second.status);
              return py::none();
            }
            return py::make_tuple(PyPeer{std::move(next.first), self}, std::move(next.second));
          },
          py::arg("timeout") = 0.0)
      .def(
          "poll", [](EngineState& self) { return unlocked([&] { return self.engine.poll(); }); },
          "Advances the engine once on this thread; whether anything happened.")
      .def(
          "peers",
          [](const EngineRef& self) {
            std::vector<PyPeer> all;
            for (Peer& each : self->engine.peers()) all.push_back({std::move(each), self});
            return all;
          },
          "The peers that there are.")
      .def(
          "stats", [](EngineState& self) { return dict_of(unlocked([&] { return self.shown().stats(); })); },
          "Counters since the engine began, sizes in bytes.")
      .def(
          "placement", [](EngineState& self) { return unlocked([&] { return self.engine.placement().to_string(); }); },
          "One line: where lanes and pool were put, and why.")
      .def(
          "devices",
          [](EngineState& self, const std::string& peer) {
            py::list all;
            for (const DeviceInfo& each : unlocked([&] { return self.engine.devices(peer); })) {
              py::dict one;
              one["transport"] = each.transport;
              one["detail"] = each.detail;
              one["address"] = each.address;
              one["usable"] = each.usable;
              one["reason"] = each.reason;
              all.append(one);
            }
            return all;
          },
          py::arg("peer") = "",
          "What this host could use, and why or why not; with `peer`, a numeric address, for a path to there.");
  module.def(
      "set_log_level",
      [](const std::string& level) {
        const std::map<std::string, LogLevel> words = {{"debug", LogLevel::kDebug},
                                                       {"info", LogLevel::kInfo},
                                                       {"warning", LogLevel::kWarning},
                                                       {"error", LogLevel::kError},
                                                       {"off", LogLevel::kOff}};
        const auto found = words.find(level);
        if (found == words.end())
          throw py::value_error("level '" + level + "': debug, info, warning, error or off is expected");
        set_log_level(found->second);
      },
      py::arg("level"),
      "Lines below this level are dropped: 'debug', 'info', 'warning' (default), 'error' or 'off'. They go to stderr.");
  module.def("version", [] { return std::string(version()); }, "Of the library.");
}

}  // namespace fairlead::python
