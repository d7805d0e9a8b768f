// Bytes that are copied into the engine's pool and summed, piece by piece, and written from there: fairlead.models
// pushes so within a host.
#include "fairlead/pool_writes.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>

#include "base/crc.h"
#include "python/src/objects.h"

namespace fairlead::python {
namespace {

constexpr std::size_t kCopy = std::size_t{256} << 10;  // at once: the sum finds it in the cache

class PyPoolWrites {
 public:
  PyPoolWrites(const PyPeer& peer, std::optional<double> timeout)
      : engine_(peer.engine),
        peer_(peer.peer),
        end_(Clock::now() + std::min<nanoseconds>(duration_of(timeout), std::chrono::hours(1 << 20))),
        writes_(engine_->engine, peer_, [this](const Transfer& transfer, std::size_t) { return wait(transfer); }) {}

  /// Gives the bytes' CRC-32, or 0 if it is not wanted.
  std::uint32_t write(const py::object& data, const RemoteMemory& remote, std::uint64_t notify, bool sum) {
    const Described from = describe(data);
    if (!from.contiguous || from.cuda_device)
      throw py::value_error("what goes through the pool are host bytes without gaps");
    if (from.bytes.size() != remote.size()) {
      throw py::value_error(std::to_string(from.bytes.size()) + " bytes for region '" + remote.name() + "' of " +
                            std::to_string(remote.size()));
    }
    std::uint32_t crc = 0;
    const auto fill = [&](std::span<std::byte> to, std::uint64_t at) {
      while (!to.empty()) {
        const auto piece = to.first(std::min(to.size(), kCopy));
        std::memcpy(piece.data(), &from.bytes[at], piece.size());
        if (sum) crc = crc32(piece, crc);
        to = to.subspan(piece.size());
        at += piece.size();
      }
      return Status();
    };
    end_well(unlocked([&] { return writes_.write(remote, fill, notify); }));
    return crc;
  }

  void finish() {
    end_well(unlocked([&] { return writes_.finish(); }));
  }

 private:
  using Clock = std::chrono::steady_clock;

  Status wait(const Transfer& transfer) {
    constexpr nanoseconds kPiece = std::chrono::milliseconds(100);
    Transfer waiting = transfer;
    while (!waiting.done()) {
      const auto left = std::chrono::duration_cast<nanoseconds>(end_ - Clock::now());
      if (left <= nanoseconds(0)) return {Code::kDeadlineExceeded, "the push was not done in time"};
      (void)waiting.wait(std::min(left, kPiece));
      if (const Status status = heed_signals(); !status.ok()) return status;
    }
    return waiting.status();
  }

  // Now and then: Ctrl-C.
  Status heed_signals() {
    const auto now = Clock::now();
    if (now - heeded_ < std::chrono::milliseconds(100)) return {};
    heeded_ = now;
    const PyGILState_STATE before = locking([] { return PyGILState_Ensure(); });
    const bool none = PyErr_CheckSignals() == 0;
    PyGILState_Release(before);
    return none ? Status() : Status(Code::kCancelled, "a signal came");
  }

  static void end_well(const Status& status) {
    if (PyErr_Occurred() != nullptr) throw py::error_already_set();
    check(status);
  }

  const EngineRef engine_;
  Peer peer_;
  const Clock::time_point end_;
  Clock::time_point heeded_ = Clock::now();
  PoolWrites writes_;
};

}  // namespace

void bind_pool_writes(py::module_& module) {
  py::class_<PyPoolWrites>(module, "_PoolWrites")
      .def(py::init<const PyPeer&, std::optional<double>>(), py::arg("peer"), py::arg("timeout"))
      .def("write", &PyPoolWrites::write, py::arg("data"), py::arg("remote"), py::arg("notify"), py::arg("sum") = true)
      .def("finish", &PyPoolWrites::finish);
}

}  // namespace fairlead::python
