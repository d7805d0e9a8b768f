// Sessions with other engines: what is posted to them, and what they tell.
#include <string>

#include "python/src/objects.h"

namespace fairlead::python {

namespace {

/// The options that every posting function takes.
struct Options {
  std::optional<std::uint64_t> notify;
  std::optional<py::bytes> notify_bytes;
  std::optional<double> deadline;
  bool urgent = false;
  std::optional<PyTransfer> after;
};

/// Posts with them. Python's lock is given up meanwhile.
template <typename Post>
PyTransfer post(PyPeer& to, const Options& options, Post&& act) {
  const bool reported = to.engine->attach_running_loop();
  TransferOptions wanted;
  wanted.notify = options.notify;
  if (options.notify_bytes) wanted.notify_bytes = std::as_bytes(std::span(std::string_view(*options.notify_bytes)));
  if (options.deadline) {  // 0 would be none
    const nanoseconds deadline = duration_of(options.deadline);
    wanted.deadline = *options.deadline > 0 ? std::max(deadline, nanoseconds(1)) : nanoseconds(-1);
  }
  wanted.report = reported;
  wanted.traffic = options.urgent ? TrafficClass::kCommands : TrafficClass::kBulk;
  if (options.after) wanted.after = &options.after->transfer;
  wanted.tag = to.engine->posted.fetch_add(1, std::memory_order_relaxed) + 1;
  return {unlocked([&] { return act(to.peer, wanted); }), to.engine, reported};
}

/// Pairs of something local and a RemoteMemory.
std::vector<Descriptor> batch_of(PyPeer& peer, const py::iterable& pairs, bool read) {
  std::vector<Descriptor> batch;
  for (const py::handle each : pairs) {
    try {
      const auto pair = each.cast<std::pair<py::object, RemoteMemory>>();
      batch.push_back({local_of(peer.engine->engine, pair.first, read), pair.second});
    } catch (const py::cast_error&) {
      throw py::type_error("item " + std::to_string(batch.size()) + " of the pairs is " + brief_of(each) +
                           ": something local and a RemoteMemory, (local, remote), are expected");
    }
  }
  return batch;
}

/// Defines a function that posts, with its own arguments and those of Options.
template <typename Class, typename Do, typename... Arguments>
void def_post(Class& peer, const char* name, Do act, const Arguments&... arguments) {
  peer.def(name, act, arguments..., py::kw_only(), py::arg("notify") = py::none(), py::arg("notify_bytes") = py::none(),
           py::arg("deadline") = py::none(), py::arg("urgent") = false, py::arg("after") = py::none());
}

#define FAIRLEAD_OPTIONS                                                                                      \
  std::optional<std::uint64_t> notify, std::optional<py::bytes> notify_bytes, std::optional<double> deadline, \
      bool urgent, std::optional<PyTransfer> after
#define FAIRLEAD_GIVEN \
  Options { notify, std::move(notify_bytes), deadline, urgent, std::move(after) }

const char* name_of(Event::Kind kind) {
  switch (kind) {
    case Event::Kind::kNone:
      return "none";
    case Event::Kind::kConnected:
      return "connected";
    case Event::Kind::kNotification:
      return "notification";
    case Event::Kind::kMessage:
      return "message";
    case Event::Kind::kPathChanged:
      return "path_changed";
    case Event::Kind::kClosed:
      break;
  }
  return "closed";
}

}  // namespace

py::dict dict_of(const PeerStats& stats) {
  py::dict all;
  all["bytes_written"] = stats.bytes_written;
  all["bytes_read"] = stats.bytes_read;
  all["messages_sent"] = stats.messages_sent;
  all["messages_received"] = stats.messages_received;
  all["transfers_completed"] = stats.transfers_completed;
  all["transfers_failed"] = stats.transfers_failed;
  all["replayed_transfers"] = stats.replayed_transfers;
  all["recoveries"] = stats.recoveries;
  all["failovers"] = stats.failovers;
  all["failbacks"] = stats.failbacks;
  all["paths_measured"] = stats.paths_measured;
  all["resumptions"] = stats.resumptions;
  all["duplicate_notifications_dropped"] = stats.duplicate_notifications_dropped;
  all["staged_bytes"] = stats.staged_bytes;
  all["rail_bytes"] = stats.rail_bytes;
  all["atomics"] = stats.atomics;
  all["atomics_served"] = stats.atomics_served;
  all["transfers_under_way"] = stats.transfers_under_way;
  all["events_untaken"] = stats.events_untaken;
  all["awaiting_credit"] = stats.awaiting_credit;
  return all;
}

void bind_peers(py::module_& module) {
  py::class_<Event>(module, "Event", "What a session tells: kind, value, data, text.")
      .def_property_readonly(
          "kind", [](const Event& event) { return name_of(event.kind); },
          "'connected', 'notification', 'message', 'path_changed' or 'closed'.")
      .def_readonly("value", &Event::value, "Of a notification or message: the number that came with it.")
      .def_property_readonly(
          "text", [](const Event& event) { return text_of(event.text); },
          "Of 'connected' and 'path_changed': which path, and why.")
      .def_property_readonly(
          "urgent", [](const Event& event) { return event.traffic == TrafficClass::kCommands; },
          "It came with urgent=True.")
      .def_property_readonly(
          "data",
          [](const Event& event) {
            return py::bytes(reinterpret_cast<const char*>(event.data.data()), event.data.size());
          },
          "Of a notification or message: its bytes.")
      .def(
          "check", [](const Event& event) { check(event.status); },
          "Of 'closed': raises what ended the session, if it was not in order.")
      .def("__repr__", [](const Event& event) {
        return std::string("<fairlead.Event ") + name_of(event.kind) + ", value " + std::to_string(event.value) + ", " +
               std::to_string(event.data.size()) + " bytes>";
      });

  py::class_<PyPeer> peer(module, "Peer", "A session with another engine.");
  py::class_<HeldPeer>(module, "HeldPeer", "A peer that fairlead._waits holds: equal to the Peer, without the engine.")
      .def("__eq__", [](const HeldPeer& one, const HeldPeer& other) { return one.peer == other.peer; })
      .def("__eq__", [](const HeldPeer& one, const PyPeer& other) { return one.peer == other.peer; })
      .def("__eq__", [](const HeldPeer&, const py::object&) { return false; })
      .def("__hash__", [](const HeldPeer& self) { return self.peer.hash(); })
      .def_property_readonly("state", [](const HeldPeer& self) { return to_string(self.peer.state()); })
      .def("peer", [](const HeldPeer& self) {
        EngineRef engine = self.engine.lock();
        if (engine == nullptr) raise({Code::kUnavailable, "the engine has gone"});
        return PyPeer{self.peer, std::move(engine)};
      });
  peer.def("__eq__", [](const PyPeer& one, const PyPeer& other) { return one.peer == other.peer; })
      .def("__eq__", [](const PyPeer& one, const HeldPeer& other) { return one.peer == other.peer; })
      .def("__eq__", [](const PyPeer&, const py::object&) { return false; })
      .def("__hash__", [](const PyPeer& self) { return self.peer.hash(); })
      .def_property_readonly("_waits", [](const PyPeer& self) { return self.engine->waits; })
      .def("_attach", [](PyPeer& self) { self.engine->attach_running_loop(); })
      .def_property_readonly(
          "state", [](const PyPeer& self) { return to_string(self.peer.state()); },
          "'connecting', 'ready', 'recovering' or 'closed'.")
      .def_property_readonly(
          "name", [](const PyPeer& self) { return text_of(self.peer.name()); }, "What the peer calls itself.")
      .def_property_readonly(
          "principal", [](const PyPeer& self) { return text_of(self.peer.principal()); },
          "Whose session it is, by the key that was shown; '' for an anonymous one.")
      .def_property_readonly(
          "lane", [](const PyPeer& self) { return self.peer.lane(); },
          "Which of the engine's lanes carries it, from 0.")
      .def_property_readonly(
          "address", [](const PyPeer& self) { return text_of(self.peer.address()); },
          "HOST:PORT of its control connection.")
      .def_property_readonly(
          "transport", [](const PyPeer& self) { return text_of(self.peer.transport()); },
          "What carries it: 'tcp', 'shm', 'verbs:mlx5_0'; '' while it connects.")
      .def(
          "explain", [](const PyPeer& self) { return text_of(self.peer.explain()); },
          "One line: which path carries this session, and why not another.")
      .def(
          "stats", [](const PyPeer& self) { return dict_of(self.peer.stats()); }, "Counters since the session began.")
      .def(
          "wait_ready",
          [](PyPeer& self, std::optional<double> timeout) {
            Status status;
            const bool over = wait_in_pieces(duration_of(timeout), [&](nanoseconds piece) {
              status = self.peer.wait_ready(piece);
              return status.code() != Code::kDeadlineExceeded || self.peer.state() == PeerState::kClosed;
            });
            if (!over || !status.ok()) raise(status);
          },
          py::arg("timeout") = 10.0,
          "Waits until transfers can begin; raises why the session ended, or DeadlineExceeded after `timeout` seconds.")
      .def(
          "lookup",
          [](PyPeer& self, const py::object& name, std::optional<double> timeout) {
            const std::string called = name_of(name);
            return value_of(unlocked([&] { return self.peer.lookup(called, duration_of(timeout)); }));
          },
          py::arg("name"), py::arg("timeout") = 10.0,
          "What the peer published as `name`. Waits for at most `timeout` seconds.")
      .def(
          "list",
          [](PyPeer& self, const py::object& prefix, std::optional<double> timeout) {
            const std::string begins = name_of(prefix);
            return value_of(unlocked([&] { return self.peer.list(begins, duration_of(timeout)); }));
          },
          py::arg("prefix") = "", py::arg("timeout") = 10.0,
          "All that the peer published whose name begins with `prefix`, in order of name.")
      .def(
          "import_",
          [](PyPeer& self, const std::string& capability, std::optional<double> timeout) {
            return value_of(unlocked([&] { return self.peer.import_(capability, duration_of(timeout)); }));
          },
          py::arg("capability"), py::arg("timeout") = 10.0, "What the peer gave away as `capability` (Engine.export).")
      .def(
          "_next_event",
          [](PyPeer& self, std::optional<double> timeout) -> py::object {
            Event event;
            wait_in_pieces(duration_of(timeout), [&](nanoseconds piece) {
              event = self.peer.next_event(piece);
              return event.kind != Event::Kind::kNone || !event.status.ok();
            });
            if (event.kind != Event::Kind::kNone) return py::cast(std::move(event));
            check(event.status);
            return py::none();
          },
          py::arg("timeout") = 0.0)
      .def(
          "close", [](PyPeer& self, std::optional<double> grace) { self.peer.close(duration_of(grace)); },
          py::arg("grace") = 5.0,
          "Lets posted transfers finish for up to `grace` seconds (None: however long it takes), then ends the "
          "session. "
          "Does not wait.")
      .def("__repr__", [](const PyPeer& self) {
        return text_of("<fairlead.Peer " + self.peer.address() + ", " + std::string(to_string(self.peer.state())) +
                       ">");
      });

  def_post(
      peer, "write",
      [](PyPeer& self, const py::object& local, const RemoteMemory& remote, FAIRLEAD_OPTIONS) {
        const Memory from = local_of(self.engine->engine, local, false);
        return post(self, FAIRLEAD_GIVEN, [&](Peer& to, auto& wanted) { return to.write(from, remote, wanted); });
      },
      py::arg("local"), py::arg("remote"),
      "Writes local bytes into remote memory of the same size. local: a Memory, a Tensor, or an array without gaps, "
      "which is registered for this once. All posting functions return at once, and take: notify, a number that the "
      "peer gets as an event when all is placed; notify_bytes, with it; deadline, seconds after which to give up; "
      "urgent, to overtake what is not; after, a transfer that has to end well first.");
  def_post(
      peer, "read",
      [](PyPeer& self, const py::object& local, const RemoteMemory& remote, FAIRLEAD_OPTIONS) {
        const Memory into = local_of(self.engine->engine, local, true);
        return post(self, FAIRLEAD_GIVEN, [&](Peer& to, auto& wanted) { return to.read(into, remote, wanted); });
      },
      py::arg("local"), py::arg("remote"), "Reads remote memory into local bytes of the same size; as write().");
  def_post(
      peer, "write_batch",
      [](PyPeer& self, const py::iterable& pairs, FAIRLEAD_OPTIONS) {
        const auto batch = batch_of(self, pairs, false);
        return post(self, FAIRLEAD_GIVEN, [&](Peer& to, auto& wanted) { return to.write(batch, wanted); });
      },
      py::arg("pairs"), "Writes (local, remote) pairs as one transfer; as write().");
  def_post(
      peer, "read_batch",
      [](PyPeer& self, const py::iterable& pairs, FAIRLEAD_OPTIONS) {
        const auto batch = batch_of(self, pairs, true);
        return post(self, FAIRLEAD_GIVEN, [&](Peer& to, auto& wanted) { return to.read(batch, wanted); });
      },
      py::arg("pairs"), "Reads (local, remote) pairs as one transfer; as write().");
  def_post(
      peer, "write_tensor",
      [](PyPeer& self, const py::object& local, const RemoteMemory& remote, std::optional<TensorSpec> spec,
         FAIRLEAD_OPTIONS) {
        const PyTensor from = tensor_of(self.engine->engine, local, false);
        if (!spec) spec = remote.tensor();
        if (!spec) throw py::value_error("'" + remote.name() + "' was published as bytes: say spec=TensorSpec(...)");
        return post(self, FAIRLEAD_GIVEN, [&](Peer& to, auto& wanted) {
          return to.write_tensor(from.memory.memory, from.spec, remote, *spec, wanted);
        });
      },
      py::arg("local"), py::arg("remote"), py::arg("spec") = py::none(),
      "Writes a tensor of any strides into a remote one of equal dtype and shape: that which was published there, or "
      "`spec`.");
  def_post(
      peer, "read_tensor",
      [](PyPeer& self, const py::object& local, const RemoteMemory& remote, std::optional<TensorSpec> spec,
         FAIRLEAD_OPTIONS) {
        const PyTensor into = tensor_of(self.engine->engine, local, true);
        if (!spec) spec = remote.tensor();
        if (!spec) throw py::value_error("'" + remote.name() + "' was published as bytes: say spec=TensorSpec(...)");
        return post(self, FAIRLEAD_GIVEN, [&](Peer& to, auto& wanted) {
          return to.read_tensor(into.memory.memory, into.spec, remote, *spec, wanted);
        });
      },
      py::arg("local"), py::arg("remote"), py::arg("spec") = py::none(),
      "Reads a remote tensor into a local one of equal dtype and shape, of any strides.");
  peer.def(
      "prepare_write",
      [](PyPeer& self, const py::iterable& pairs) {
        const auto batch = batch_of(self, pairs, false);
        return value_of(unlocked([&] { return self.peer.prepare_write(batch); }));
      },
      py::arg("pairs"), "Checks a list of (local, remote) pairs once, for post().");
  peer.def(
      "prepare_read",
      [](PyPeer& self, const py::iterable& pairs) {
        const auto batch = batch_of(self, pairs, true);
        return value_of(unlocked([&] { return self.peer.prepare_read(batch); }));
      },
      py::arg("pairs"), "Checks a list of (local, remote) pairs once, for post().");
  def_post(
      peer, "post",
      [](PyPeer& self, const Prepared& list, const std::optional<std::vector<std::uint32_t>>& selection,
         FAIRLEAD_OPTIONS) {
        return post(self, FAIRLEAD_GIVEN, [&](Peer& to, auto& wanted) {
          return selection ? to.post(list, *selection, wanted) : to.post(list, wanted);
        });
      },
      py::arg("prepared"), py::arg("selection") = py::none(),
      "Posts a prepared list: all of it, or a selection by index, in that order.");
  def_post(
      peer, "send",
      [](PyPeer& self, const py::object& data, std::uint64_t value, FAIRLEAD_OPTIONS) {
        const Described bytes = host_bytes_of(data, "a message");
        return post(self, FAIRLEAD_GIVEN, [&](Peer& to, auto& wanted) { return to.send(bytes.bytes, value, wanted); });
      },
      py::arg("data"), py::arg("value") = 0,
      "Sends a message: bytes, which are copied, and a number. It comes as an event, in order with notifications.");
  def_post(
      peer, "fetch_add",
      [](PyPeer& self, const RemoteMemory& word, std::uint64_t add, FAIRLEAD_OPTIONS) {
        return post(self, FAIRLEAD_GIVEN, [&](Peer& to, auto& wanted) { return to.fetch_add(word, add, wanted); });
      },
      py::arg("word"), py::arg("add"),
      "Adds to a word of 8 bytes that was published with access 'a'; Transfer.old_value is what it held.");
  def_post(
      peer, "compare_swap",
      [](PyPeer& self, const RemoteMemory& word, std::uint64_t expected, std::uint64_t desired, FAIRLEAD_OPTIONS) {
        return post(self, FAIRLEAD_GIVEN,
                    [&](Peer& to, auto& wanted) { return to.compare_swap(word, expected, desired, wanted); });
      },
      py::arg("word"), py::arg("expected"), py::arg("desired"),
      "Puts `desired` into the word if it holds `expected`; Transfer.old_value is what it held.");
}

}  // namespace fairlead::python
