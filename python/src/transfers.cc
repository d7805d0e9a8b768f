// Transfers that were posted, and lists of them.
#include <span>
#include <string>

#include "python/src/objects.h"

namespace fairlead::python {

namespace {

/// Waits for one. false: the time was over first.
bool wait_for(const PyTransfer& posted, std::optional<double> timeout) {
  const nanoseconds limit = duration_of(timeout);
  Transfer transfer = posted.transfer;
  return transfer.done() || wait_in_pieces(limit, [&](nanoseconds piece) {
           (void)transfer.wait(piece);
           return transfer.done();
         });
}

/// Who waited for a transfer that a loop is told of keeps the loop from turning: without this, what such transfers name
/// would be kept until it does.
void let_go(std::span<const PyTransfer> all) {
  const EngineState* last = nullptr;
  for (const PyTransfer& each : all) {
    if (!each.reported || each.engine.get() == last) continue;
    last = each.engine.get();
    each.engine->waits.attr("let_go")();
  }
}

[[noreturn]] void too_late() { raise({Code::kDeadlineExceeded, "the transfer was not done in time; it goes on"}); }

}  // namespace

void bind_transfers(py::module_& module) {
  py::class_<PyTransfer>(
      module, "Transfer",
      "A posted operation. Local bytes belong to it until it is done; dropping it does not cancel it.")
      .def_property_readonly(
          "done", [](const PyTransfer& posted) { return posted.transfer.done(); },
          "It has ended, well or not, and local bytes are free again.")
      .def_property_readonly(
          "nbytes", [](const PyTransfer& posted) { return posted.transfer.bytes(); }, "How many bytes it moves.")
      .def_property_readonly(
          "old_value", [](const PyTransfer& posted) { return posted.transfer.old_value(); },
          "Of a fetch_add or compare_swap that ended well: what the word held before.")
      .def_property_readonly("_id", [](const PyTransfer& posted) { return posted.transfer.tag(); })
      .def_property_readonly("_reported", [](const PyTransfer& posted) { return posted.reported; })
      .def_property_readonly("_waits", [](const PyTransfer& posted) { return posted.engine->waits; })
      .def(
          "check", [](const PyTransfer& posted) { check(posted.transfer.status()); },
          "Raises what it failed with, if it is done and has failed.")
      .def(
          "wait",
          [](py::object self, std::optional<double> timeout) {
            const auto& posted = self.cast<const PyTransfer&>();
            const bool in_time = wait_for(posted, timeout);
            let_go({&posted, 1});
            if (!in_time) too_late();
            check(posted.transfer.status());
            return self;
          },
          py::arg("timeout") = py::none(),
          "Waits until it is done, and gives it; raises what it failed with, or DeadlineExceeded after `timeout` "
          "seconds (None: never), and then it goes on.")
      .def(
          "cancel", [](PyTransfer& posted) { posted.transfer.cancel(); },
          "Asks for an early end. It still ends once, and says how.")
      .def("__repr__", [](const PyTransfer& posted) {
        return text_of("<fairlead.Transfer, " +
                       (posted.transfer.done() ? posted.transfer.status().to_string() : std::string("under way")) +
                       ">");
      });
  py::class_<Prepared>(module, "Prepared", "A list of pieces that was checked once, to be posted any number of times.")
      .def_property_readonly("nbytes", &Prepared::bytes, "All its pieces together, in bytes.")
      .def("__len__", &Prepared::size);

  module.def(
      "wait_all",
      [](const std::vector<PyTransfer>& all, std::optional<double> timeout) {
        const nanoseconds limit = duration_of(timeout);
        std::vector<Transfer> transfers;
        for (const PyTransfer& each : all) transfers.push_back(each.transfer);
        const auto done = [&] {
          return std::all_of(transfers.begin(), transfers.end(), [](const Transfer& each) { return each.done(); });
        };
        const bool in_time = done() || wait_in_pieces(limit, [&](nanoseconds piece) {
                               (void)wait_all(transfers, piece);
                               return done();
                             });
        let_go(all);
        for (const Transfer& each : transfers) {
          if (each.done()) check(each.status());
        }
        if (!in_time) too_late();
      },
      py::arg("transfers"), py::arg("timeout") = py::none(),
      "Waits until all are done; raises the first failure in their order, or DeadlineExceeded after `timeout` "
      "seconds.");
  module.def(
      "wait_any",
      [](const std::vector<PyTransfer>& all, std::optional<double> timeout) -> std::optional<std::size_t> {
        std::vector<Transfer> transfers;
        for (const PyTransfer& each : all) transfers.push_back(each.transfer);
        std::size_t first = transfers.size();
        wait_in_pieces(duration_of(timeout), [&](nanoseconds piece) {
          first = wait_any(transfers, piece);
          return first < transfers.size() || transfers.empty();
        });
        let_go(all);
        return first < transfers.size() ? std::optional(first) : std::nullopt;
      },
      py::arg("transfers"), py::arg("timeout") = py::none(),
      "Waits until one is done, and gives the lowest index of such; None after `timeout` seconds.");
}

}  // namespace fairlead::python
