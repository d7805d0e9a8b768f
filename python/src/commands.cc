// Command channels: a device at another host.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>

#include "fairlead/command.h"
#include "fairlead/command_graph.h"
#include "fairlead/command_service.h"
#include "fairlead/cuda_executor.h"
#include "fairlead/host_executor.h"
#include "python/src/objects.h"

namespace fairlead::python {

namespace {

namespace cmd = fairlead::command;

/// A session, and what its copies out are still to write.
struct SessionState {
  SessionState(cmd::Session made, EngineRef of) : session(std::move(made)), engine(std::move(of)) {}
  ~SessionState() {
    unlocked([this] {
      for (Kept& each : kept) each.channel = {};
      session->close();
      session.reset();  // nothing is written from here on
    });
  }
  SessionState(const SessionState&) = delete;
  SessionState& operator=(const SessionState&) = delete;

  struct Kept {
    cmd::Channel channel;
    std::uint64_t sequence;
    py::object owner;
  };
  /// Lets go of what is written, or will not be.
  void settle() {
    if (kept.empty()) return;
    const bool ended = !session->status().ok();
    const auto finished = std::stable_partition(kept.begin(), kept.end(), [ended](const Kept& each) {
      if (ended || each.channel.reached(cmd::Stage::kComplete) >= each.sequence) return false;
      const auto failure = each.channel.failure();
      if (!failure || failure->sequence > each.sequence) return true;
      // Known early: what pieces before it brought may still be on its way.
      cmd::Channel channel = each.channel;
      return channel.wait(each.sequence, cmd::Stage::kComplete, std::chrono::nanoseconds(0)).code() ==
             Code::kDeadlineExceeded;
    });
    // Owners' destructors are Python's and may come back here: they run when the list is whole again.
    const std::vector<Kept> gone(std::make_move_iterator(finished), std::make_move_iterator(kept.end()));
    kept.erase(finished, kept.end());
  }
  void keep(const cmd::Channel& channel, std::uint64_t sequence, py::object owner) {
    if (kept.size() >= settle_at) {
      settle();
      settle_at = std::max<std::size_t>(64, 2 * kept.size());
    }
    kept.push_back({channel, sequence, std::move(owner)});
  }

  std::optional<cmd::Session> session;
  EngineRef engine;
  std::vector<Kept> kept;
  std::size_t settle_at = 64;
};
using SessionRef = std::shared_ptr<SessionState>;

struct PyChannel {
  cmd::Channel channel;
  SessionRef session;
};

struct PyService {
  explicit PyService(std::shared_ptr<cmd::Service> made) : service(std::move(made)) {}
  PyService(PyService&&) noexcept = default;
  PyService& operator=(PyService&&) = delete;
  ~PyService() {
    if (service == nullptr) return;
    unlocked([this] {  // it waits for what runs
      service->stop();
      service.reset();
    });
  }

  std::shared_ptr<cmd::Service> service;  // shared with the Engine whose engine it took, for its figures
};

cmd::Handle handle(std::uint64_t bits) { return {bits}; }

/// `what` it is of: "grid".
cmd::Extent extent_of(const char* what, const py::object& given) {
  std::vector<std::uint32_t> all;
  try {
    if (py::isinstance<py::int_>(given)) return {given.cast<std::uint32_t>()};
    all = given.cast<std::vector<std::uint32_t>>();
  } catch (const py::cast_error&) {
    throw py::value_error(what + (" is " + brief_of(given)) +
                          ": a whole number from 1 to 4294967295, or up to three (x, y, z), are expected");
  }
  if (all.empty() || all.size() > 3)
    throw py::value_error(what + (" is " + brief_of(given)) + ": it has one to three numbers, x, y, z");
  return {all[0], all.size() > 1 ? all[1] : 1, all.size() > 2 ? all[2] : 1};
}

/// The parameters of a launch one after the other, each at a multiple of its size.
std::vector<std::byte> pack(const py::args& parameters) {
  std::vector<std::byte> packed;
  const auto add = [&](const void* bytes, std::size_t size, std::size_t alignment) {
    packed.resize((packed.size() + alignment - 1) / alignment * alignment);
    packed.insert(packed.end(), static_cast<const std::byte*>(bytes), static_cast<const std::byte*>(bytes) + size);
  };
  for (const py::handle each : parameters) {
    if (py::isinstance<cmd::Pointer>(each)) {
      const auto pointer = each.cast<cmd::Pointer>();
      add(&pointer, sizeof pointer, alignof(cmd::Pointer));
      continue;
    }
    if (PyObject_CheckBuffer(each.ptr()) == 0 || py::isinstance<py::bytes>(each)) {
      throw py::type_error("a parameter is a Pointer, or a number whose width shows, as numpy.uint32(3): a " +
                           std::string(py::str(py::type::of(each).attr("__name__"))) + " is neither");
    }
    const Described number = host_bytes_of(py::reinterpret_borrow<py::object>(each), "a launch");
    const std::size_t size = number.bytes.size();
    if (size == 0 || size > 8 || (size & (size - 1)) != 0) throw py::value_error("a parameter has 1, 2, 4 or 8 bytes");
    add(number.bytes.data(), size, size);
  }
  return packed;
}

cmd::Launch launch_of(std::uint64_t function, const py::object& grid, const py::object& block, std::uint32_t shared) {
  return {handle(function), extent_of("grid", grid), extent_of("block", block), shared};
}

/// What is appended may wait for room.
template <typename Append>
std::uint64_t append(PyChannel& channel, Append&& act) {
  return value_of(unlocked([&] { return act(channel.channel); }));
}

/// Waits for a command. kDeadlineExceeded becomes an exception, as what failed does.
void wait_for(PyChannel& self, std::uint64_t sequence, cmd::Stage stage, std::optional<double> timeout) {
  Status status;
  wait_in_pieces(duration_of(timeout), [&](nanoseconds piece) {
    status = self.channel.wait(sequence, stage, piece);
    return status.code() != Code::kDeadlineExceeded;
  });
  self.session->settle();
  check(status);
}

cmd::Stage stage_of(const std::string& word) {
  if (word == "accepted") return cmd::Stage::kAccepted;
  if (word == "executed") return cmd::Stage::kExecuted;
  if (word == "complete") return cmd::Stage::kComplete;
  if (word == "taken") return cmd::Stage::kTaken;
  throw py::value_error("stage '" + word + "': taken, accepted, executed or complete is expected");
}

const char* name_of(cmd::Scope scope) {
  switch (scope) {
    case cmd::Scope::kCommand:
      return "command";
    case cmd::Scope::kStream:
      return "stream";
    case cmd::Scope::kContext:
      return "context";
    case cmd::Scope::kSession:
      break;
  }
  return "session";
}

/// "host", "cuda" or "cuda:N".
cmd::ExecutorFactory executors_of(const std::string& device, std::uint64_t memory_bytes) {
  if (device == "host") {
    cmd::HostExecutorConfig config;
    config.memory_bytes = memory_bytes;
    return cmd::host_executors(std::move(config));
  }
  if (device == "cuda" || device.rfind("cuda:", 0) == 0) {
    cmd::CudaExecutorConfig config;
    config.memory_bytes = memory_bytes;
    if (device.size() > 5) config.ordinal = py::int_(py::str(device.substr(5))).cast<int>();
    return value_of(unlocked([&] { return cmd::cuda_executors(std::move(config)); }));
  }
  throw py::value_error("device '" + device + "': 'host' or 'cuda:N' is expected");
}

py::dict dict_of(const cmd::Limits& limits) {
  py::dict all;
  all["version"] = limits.version;
  all["channels"] = limits.channels;
  all["credits"] = limits.credits;
  all["parameter_bytes"] = limits.parameter_bytes;
  all["payload_bytes"] = limits.payload_bytes;
  all["payload_credit"] = limits.payload_credit;
  all["memory_bytes"] = limits.memory_bytes;
  all["block_threads"] = limits.block_threads;
  all["shared_bytes"] = limits.shared_bytes;
  all["grid"] = py::make_tuple(limits.grid.x, limits.grid.y, limits.grid.z);
  all["modules"] = limits.modules;
  all["priorities"] = py::make_tuple(limits.least_priority, limits.greatest_priority);
  all["graph_records"] = limits.graph_records;
  all["graph_bytes"] = limits.graph_bytes;
  all["range"] = py::make_tuple(limits.range.base, limits.range.bytes, limits.range.alignment);
  all["kept_for"] = std::chrono::duration<double>(limits.kept_for).count();
  all["device_number"] = limits.device_number;
  all["device_name"] = text_of(limits.device_name);
  return all;
}

}  // namespace

void bind_commands(py::module_& module) {
  py::class_<cmd::Pointer>(module, "Pointer", "A pointer parameter: a byte of an allocation; Pointer() is null.")
      .def(py::init(
               [](std::uint64_t allocation, std::uint64_t offset) { return cmd::Pointer{handle(allocation), offset}; }),
           py::arg("allocation") = 0, py::arg("offset") = 0);
  py::class_<cmd::Mark>(module, "Mark", "A place in a channel that others may wait for.");
  py::class_<cmd::Graph>(module, "Graph", "Commands that cross once, and run as often as wanted.")
      .def(py::init<>())
      .def(
          "launch",
          [](cmd::Graph& self, std::uint64_t function, const py::args& parameters, const py::object& grid,
             const py::object& block, std::uint32_t shared) {
            return value_of(self.launch(launch_of(function, grid, block, shared), pack(parameters)));
          },
          py::arg("function"), py::kw_only(), py::arg("grid") = 1, py::arg("block") = 1, py::arg("shared") = 0,
          "Adds a launch, as Channel.launch; gives its number in the graph.")
      .def(
          "fill",
          [](cmd::Graph& self, std::uint64_t to, std::uint64_t offset, std::uint64_t nbytes, std::uint8_t value) {
            return value_of(self.fill(handle(to), offset, nbytes, value));
          },
          py::arg("to"), py::arg("offset"), py::arg("nbytes"), py::arg("value"), "Adds a fill of `nbytes` bytes.")
      .def(
          "copy_within",
          [](cmd::Graph& self, std::uint64_t to, std::uint64_t to_offset, std::uint64_t from, std::uint64_t from_offset,
             std::uint64_t nbytes) {
            return value_of(self.copy_within(handle(to), to_offset, handle(from), from_offset, nbytes));
          },
          py::arg("to"), py::arg("to_offset"), py::arg("source"), py::arg("source_offset"), py::arg("nbytes"),
          "Adds a copy between two places of the device, which do not overlap.")
      .def("__len__", &cmd::Graph::records);

  py::class_<SessionState, SessionRef>(module, "Session", "A session with a service of a device.")
      .def(py::init([](const EngineRef& engine, const std::string& address, double patience, std::uint32_t flush_bytes,
                       std::uint32_t flush_commands, double flush_after, bool wait_for_room, std::uint64_t range_bytes,
                       bool reserve_range_here, double resume_within,
                       const std::optional<std::vector<std::uint32_t>>& devices) {
             cmd::SessionOptions options;
             options.patience = std::chrono::duration_cast<std::chrono::milliseconds>(duration_of(patience));
             options.flush_bytes = flush_bytes;
             options.flush_commands = flush_commands;
             options.flush_after = std::chrono::duration_cast<std::chrono::microseconds>(duration_of(flush_after));
             options.wait_for_room = wait_for_room;
             options.range_bytes = range_bytes;
             options.reserve_range_here = reserve_range_here;
             options.resume_within = std::chrono::duration_cast<std::chrono::milliseconds>(duration_of(resume_within));
             options.devices = devices.value_or(std::vector{cmd::kAllDevices});
             return std::make_shared<SessionState>(
                 value_of(unlocked([&] { return cmd::Session::connect(engine->engine, address, options); })), engine);
           }),
           py::arg("engine"), py::arg("address"), py::kw_only(), py::arg("patience") = 10.0,
           py::arg("flush_bytes") = cmd::SessionOptions().flush_bytes,
           py::arg("flush_commands") = cmd::SessionOptions().flush_commands, py::arg("flush_after") = 20e-6,
           py::arg("wait_for_room") = true, py::arg("range_bytes") = 0, py::arg("reserve_range_here") = true,
           py::arg("resume_within") = 0.0, py::arg("devices") = std::vector<std::uint32_t>())
      .def(
          "open_channel",
          [](const SessionRef& self, std::int32_t priority, std::uint32_t device) {
            return PyChannel{value_of(unlocked([&] { return self->session->open_channel({priority, device}); })), self};
          },
          py::kw_only(), py::arg("priority") = 0, py::arg("device") = 0,
          "A Channel of its own. priority: a smaller number goes first, as of CUDA's streams. device: of the "
          "session's, "
          "from 0 on.")
      .def(
          "limits_of",
          [](const SessionState& self, std::uint32_t device) {
            if (device >= self.session->device_count()) throw py::index_error("the session has no such device");
            return dict_of(self.session->limits(device));
          },
          py::arg("device"), "As limits, of one of its devices.")
      .def_property_readonly(
          "device_count", [](const SessionState& self) { return self.session->device_count(); },
          "How many of the service's devices it has.")
      .def(
          "new_handle", [](SessionState& self) { return self.session->new_handle().bits; },
          "A number that the session has not given before.")
      .def_property_readonly(
          "limits", [](const SessionState& self) { return dict_of(self.session->limits()); },
          "What the server allows, sizes in bytes.")
      .def(
          "check", [](const SessionState& self) { check(self.session->status()); },
          "Raises what ended the session, if it has ended.")
      .def_property_readonly(
          "peer", [](const SessionState& self) { return PyPeer{self.session->peer(), self.engine}; },
          "The session's own Peer, for its figures.")
      .def(
          "close", [](SessionState& self) { unlocked([&] { self.session->close(); }); },
          "Sends what is buffered, and ends the session.")
      .def("__enter__", [](const SessionRef& self) { return self; })
      .def("__exit__", [](SessionState& self, const py::args&) { unlocked([&] { self.session->close(); }); });

  py::class_<PyChannel>(module, "Channel", "A queue of commands, which run in the order of appending.")
      .def_property_readonly(
          "priority", [](const PyChannel& self) { return self.channel.priority(); }, "That it got of the session's.")
      .def_property_readonly(
          "device", [](const PyChannel& self) { return self.channel.device(); }, "Of the session's devices, from 0 on.")
      .def_property_readonly(
          "number", [](const PyChannel& self) { return self.channel.number(); }, "Its number in the session.")
      .def(
          "allocate",
          [](PyChannel& self, std::uint64_t as, std::uint64_t nbytes) {
            return append(self, [&](auto& to) { return to.allocate(handle(as), nbytes); });
          },
          py::arg("handle"), py::arg("nbytes"), "Memory on the device, all bytes 0.")
      .def(
          "allocate_at",
          [](PyChannel& self, std::uint64_t as, std::uint64_t address, std::uint64_t nbytes) {
            return append(self, [&](auto& to) { return to.allocate_at(handle(as), address, nbytes); });
          },
          py::arg("handle"), py::arg("address"), py::arg("nbytes"), "Memory at an address of the session's range.")
      .def(
          "address_of",
          [](const PyChannel& self, std::uint64_t of, std::uint64_t offset) {
            return value_of(self.channel.address_of(handle(of), offset));
          },
          py::arg("handle"), py::arg("offset") = 0,
          "Where byte `offset` of an allocation is on the device, in a session with a range.")
      .def(
          "release",
          [](PyChannel& self, std::uint64_t of) {
            return append(self, [&](auto& to) { return to.release(handle(of)); });
          },
          py::arg("handle"), "Frees an allocation.")
      .def(
          "fill",
          [](PyChannel& self, std::uint64_t to, std::uint64_t offset, std::uint64_t nbytes, std::uint8_t value) {
            return append(self, [&](auto& at) { return at.fill(handle(to), offset, nbytes, value); });
          },
          py::arg("to"), py::arg("offset"), py::arg("nbytes"), py::arg("value"),
          "Fills `nbytes` bytes from byte `offset` on with `value`.")
      .def(
          "copy_in",
          [](PyChannel& self, std::uint64_t to, const py::object& source, std::uint64_t offset) {
            const Described from = host_bytes_of(source, "a copy");
            return append(self, [&](auto& at) { return at.copy_in(handle(to), offset, from.bytes); });
          },
          py::arg("to"), py::arg("source"), py::arg("offset") = 0,
          "Copies an array without gaps to the device; it is free again when this returns.")
      .def(
          "copy_out",
          [](PyChannel& self, const py::object& into, std::uint64_t from, std::uint64_t offset) {
            const Described to = host_bytes_of(into, "a copy");
            if (to.read_only) throw py::value_error("it is read-only, so nothing can be copied into it");
            Result<std::uint64_t> done =
                unlocked([&] { return self.channel.copy_out(to.bytes, handle(from), offset); });
            self.session->keep(self.channel, self.channel.last(),
                               to.owner);  // also of what was appended of one that failed
            return value_of(std::move(done));
          },
          py::arg("into"), py::arg("source"), py::arg("offset") = 0,
          "Copies from the device into an array without gaps, which is kept, and written until the command is "
          "complete.")
      .def(
          "copy_within",
          [](PyChannel& self, std::uint64_t to, std::uint64_t to_offset, std::uint64_t from, std::uint64_t from_offset,
             std::uint64_t nbytes) {
            return append(self, [&](auto& at) {
              return at.copy_within(handle(to), to_offset, handle(from), from_offset, nbytes);
            });
          },
          py::arg("to"), py::arg("to_offset"), py::arg("source"), py::arg("source_offset"), py::arg("nbytes"),
          "Copies between two places of the device.")
      .def(
          "load",
          [](PyChannel& self, std::uint64_t function, const std::string& name) {
            return append(self, [&](auto& to) { return to.load(handle(function), name); });
          },
          py::arg("function"), py::arg("name"), "Names a function of the server's.")
      .def(
          "load_module",
          [](PyChannel& self, std::uint64_t as, const py::object& image) {
            const Described from = host_bytes_of(image, "an image");
            return append(self, [&](auto& to) { return to.load_module(handle(as), from.bytes); });
          },
          py::arg("module"), py::arg("image"), "Code for the device: PTX, a cubin or a fatbin.")
      .def(
          "load_from",
          [](PyChannel& self, std::uint64_t function, std::uint64_t from, const std::string& name,
             const std::vector<py::object>& layout) {
            std::vector<cmd::Parameter> parameters;
            for (const py::object& each : layout) {
              if (each.is(py::type::of<cmd::Pointer>())) {
                parameters.push_back({sizeof(cmd::Pointer), alignof(cmd::Pointer), true});
              } else {
                const std::uint32_t size = element_size(dtype_of(each));
                parameters.push_back({size, static_cast<std::uint16_t>(size), false});
              }
            }
            return append(self, [&](auto& to) { return to.load(handle(function), handle(from), name, parameters); });
          },
          py::arg("function"), py::arg("module"), py::arg("name"), py::arg("layout"),
          "Names a function of a module; layout: Pointer, or the dtype, of each parameter.")
      .def(
          "launch",
          [](PyChannel& self, std::uint64_t function, const py::args& parameters, const py::object& grid,
             const py::object& block, std::uint32_t shared) {
            const auto packed = pack(parameters);
            const auto wanted = launch_of(function, grid, block, shared);
            return append(self, [&](auto& to) { return to.launch(wanted, packed); });
          },
          py::arg("function"), py::kw_only(), py::arg("grid") = 1, py::arg("block") = 1, py::arg("shared") = 0,
          "Launches a function on a grid of blocks. Parameters: Pointer(...) and numbers whose width shows, as "
          "numpy.uint32(3). shared: bytes of shared memory of a block.")
      .def(
          "upload",
          [](PyChannel& self, std::uint64_t as, const cmd::Graph& graph) {
            const cmd::Graph sent = graph;  // another thread may add to it meanwhile
            return append(self, [&](auto& to) { return to.upload(handle(as), sent); });
          },
          py::arg("handle"), py::arg("graph"), "Sends a graph, which is checked there, under a handle.")
      .def(
          "launch_graph",
          [](PyChannel& self, std::uint64_t graph) {
            return append(self, [&](auto& to) { return to.launch_graph(handle(graph)); });
          },
          py::arg("graph"), "Runs all commands of a graph.")
      .def(
          "release_graph",
          [](PyChannel& self, std::uint64_t graph) {
            return append(self, [&](auto& to) { return to.release_graph(handle(graph)); });
          },
          py::arg("graph"), "Frees a graph.")
      .def(
          "update_graph",
          [](PyChannel& self, std::uint64_t graph, std::uint32_t number, const py::args& parameters,
             const py::object& grid, const py::object& block, std::uint32_t shared) {
            const auto packed = pack(parameters);
            const auto wanted = launch_of(0, grid, block, shared);
            return append(self, [&](auto& to) { return to.update_graph(handle(graph), number, wanted, packed); });
          },
          py::arg("graph"), py::arg("number"), py::kw_only(), py::arg("grid") = 1, py::arg("block") = 1,
          py::arg("shared") = 0,
          "With what command `number` of a graph (as Graph.launch said) is launched in the runs that are appended "
          "after "
          "this; its function stays. A failure leaves the graph as it was.")
      .def(
          "user",
          [](PyChannel& self, std::uint16_t opcode, const py::object& data) {
            const Described bytes = host_bytes_of(data, "a command");
            return append(self, [&](auto& to) { return to.user(opcode, bytes.bytes); });
          },
          py::arg("opcode"), py::arg("data"), "A command of the executor's own making.")
      .def(
          "record", [](PyChannel& self) { return value_of(unlocked([&] { return self.channel.record(); })); },
          "Marks a place behind all that was appended so far.")
      .def(
          "fence",
          [](PyChannel& self, const cmd::Mark& mark) { return append(self, [&](auto& to) { return to.fence(mark); }); },
          py::arg("mark"), "What is appended from here on waits until another channel is past its mark.")
      .def(
          "flush", [](PyChannel& self) { unlocked([&] { self.channel.flush(); }); }, "Sends what is buffered.")
      .def_property_readonly(
          "last", [](const PyChannel& self) { return self.channel.last(); }, "The sequence of the last command.")
      .def(
          "reached",
          [](const PyChannel& self, const std::string& stage) { return self.channel.reached(stage_of(stage)); },
          py::arg("stage") = "complete",
          "Up to which command a stage is reached: 'taken', 'accepted', 'executed' or 'complete'.")
      .def(
          "wait",
          [](PyChannel& self, std::uint64_t sequence, const std::string& stage, std::optional<double> timeout) {
            wait_for(self, sequence, stage_of(stage), timeout);
          },
          py::arg("sequence"), py::arg("stage") = "complete", py::arg("timeout") = py::none(),
          "Waits until a command has reached a stage; raises what it failed with, or DeadlineExceeded after `timeout` "
          "seconds.")
      .def(
          "synchronize",
          [](PyChannel& self, std::optional<double> timeout) {
            wait_for(self, self.channel.last(), cmd::Stage::kComplete, timeout);
          },
          py::arg("timeout") = py::none(), "Waits until all is complete.")
      .def_property_readonly(
          "failure",
          [](const PyChannel& self) -> std::optional<py::dict> {
            const auto failure = self.channel.failure();
            if (!failure) return std::nullopt;
            py::dict all;
            all["sequence"] = failure->sequence;
            all["scope"] = name_of(failure->scope);
            all["result"] = failure->result;
            all["text"] = text_of(failure->text);
            return all;
          },
          "What the channel stands at: {sequence, scope, result, text}, or None.")
      .def(
          "recover", [](PyChannel& self) { check(unlocked([&] { return self.channel.recover(); })); },
          "Goes on after a failure: what was appended before was not run.");

  py::class_<PyService>(module, "Service", "Serves a device to every peer that connects to an engine.")
      .def(py::init([](EngineState& engine, const std::string& device, std::uint64_t memory_bytes,
                       std::size_t max_sessions) {
             if (engine.taken) raise({Code::kInvalidArgument, "this engine is a Service's already: make another"});
             if (engine.metrics) {
               raise({Code::kInvalidArgument, "metrics of this engine are served on " + engine.metrics->address() +
                                                  ", and a Service takes it over: call serve_metrics() after that"});
             }
             cmd::ServiceConfig config;
             config.executors = executors_of(device, memory_bytes);
             config.max_sessions = max_sessions;
             auto made = std::make_shared<cmd::Service>(
                 value_of(unlocked([&] { return cmd::Service::start(std::move(engine.engine), std::move(config)); })));
             engine.taken = std::shared_ptr<Engine>(made, &made->engine());
             return PyService(std::move(made));
           }),
           py::arg("engine"), py::kw_only(), py::arg("device") = "host",
           py::arg("memory_bytes") = std::uint64_t{1} << 30, py::arg("max_sessions") = 64)
      .def_property_readonly(
          "listen_address", [](const PyService& self) { return self.service->listen_address(); },
          "Where it listens, HOST:PORT.")
      .def(
          "stats",
          [](const PyService& self) {
            const cmd::ServiceStats stats = unlocked([&] { return self.service->stats(); });
            py::dict all;
            all["sessions"] = stats.sessions;
            all["leaving"] = stats.leaving;
            all["away"] = stats.away;
            all["resumed"] = stats.resumed;
            all["sessions_begun"] = stats.sessions_begun;
            all["sessions_refused"] = stats.sessions_refused;
            all["sessions_ended_wrong"] = stats.sessions_ended_wrong;
            all["commands"] = stats.commands;
            all["failures"] = stats.failures;
            all["skipped_unknown"] = stats.skipped_unknown;
            all["replies"] = stats.replies;
            all["modules_cached"] = stats.modules_cached;
            all["modules_sent"] = stats.modules_sent;
            all["turn_overruns"] = stats.turn_overruns;
            return all;
          },
          "Counters since it began.")
      .def(
          "drain", [](PyService& self) { self.service->drain(); }, "New sessions are turned away.")
      .def(
          "stop", [](PyService& self) { unlocked([&] { self.service->stop(); }); }, "Ends every session.")
      .def("__enter__", [](py::object self) { return self; })
      .def("__exit__", [](PyService& self, const py::args&) { unlocked([&] { self.service->stop(); }); });
}

}  // namespace fairlead::python
