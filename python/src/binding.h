// What the parts of the module share: errors as exceptions, times as seconds, waits that Ctrl-C ends.
//
// Python's lock (the GIL) is held where nothing else is said. Nothing waits with it.
#pragma once

#include <cxxabi.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "fairlead/status.h"

namespace fairlead::python {

namespace py = pybind11;
using std::chrono::nanoseconds;

/// Throws the exception of fairlead._errors that belongs to the code.
[[noreturn]] void raise(const Status& status);

inline void check(const Status& status) {
  if (!status.ok()) raise(status);
}
template <typename T>
T value_of(Result<T> result) {
  if (!result) raise(result.error());
  return *std::move(result);
}

/// Seconds as Python has them; nothing, and what is beyond 292 years, is for ever. Errors: ValueError (nan).
[[nodiscard]] inline nanoseconds duration_of(std::optional<double> seconds) {
  constexpr double kMost = 9.2e9;
  if (seconds && std::isnan(*seconds)) throw py::value_error("a time is nan: give seconds, such as 1.5");
  if (!seconds || !(*seconds < kMost)) return nanoseconds::max();
  return nanoseconds(static_cast<std::int64_t>(std::max(*seconds, -kMost) * 1e9));
}

/// A text of the library's as Python has it. What a peer has put into it need not be UTF-8: other bytes are shown as
/// \xff.
[[nodiscard]] inline py::str text_of(std::string_view text) {
  PyObject* const made = PyUnicode_DecodeUTF8(text.data(), static_cast<py::ssize_t>(text.size()), "backslashreplace");
  if (made == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(made);
}

/// How a value looks, in short.
[[nodiscard]] inline std::string brief_of(const py::handle& value) {
  return py::str(py::repr(value)[py::slice(0, 60, 1)]);
}

/// What something is published as: bytes, or a str in whose place \udcff stands for a byte that is not UTF-8, as
/// RemoteMemory.name has it. Errors: TypeError, UnicodeEncodeError.
[[nodiscard]] inline std::string name_of(const py::object& name) {
  if (py::isinstance<py::bytes>(name)) return name.cast<std::string>();
  if (!py::isinstance<py::str>(name)) throw py::type_error("a name is a str or bytes, and not " + brief_of(name));
  auto bytes = py::reinterpret_steal<py::object>(PyUnicode_AsEncodedString(name.ptr(), "utf-8", "surrogateescape"));
  if (!bytes) throw py::error_already_set();
  return bytes.cast<std::string>();
}

/// Whether one element lies behind the other, the last dimension (or the first) the fastest.
[[nodiscard]] inline bool lies_in_order(const py::buffer_info& info, bool last_is_fastest) {
  if (info.size == 0) return true;
  py::ssize_t expected = info.itemsize;
  for (py::ssize_t i = 0; i < info.ndim; ++i) {
    const auto at = static_cast<std::size_t>(last_is_fastest ? info.ndim - 1 - i : i);
    if (info.shape[at] > 1 && info.strides[at] != expected) return false;
    expected *= info.shape[at];
  }
  return true;
}

/// Whether who asks with these flags (PEP 3118) can be given such a buffer: without strides, it takes what lies in
/// order.
[[nodiscard]] inline bool may_be_given(const py::buffer_info& info, int flags) {
  const auto asks = [flags](int what) { return (flags & what) == what; };
  if (asks(PyBUF_ANY_CONTIGUOUS)) return lies_in_order(info, true) || lies_in_order(info, false);
  if (asks(PyBUF_F_CONTIGUOUS)) return lies_in_order(info, false);
  return (asks(PyBUF_STRIDES) && !asks(PyBUF_C_CONTIGUOUS)) || lies_in_order(info, true);
}

/// Has a class with a def_buffer() refuse by an exception. pybind11 2.10 lets what that throws fly through the
/// interpreter, which ends the process; and gives buffers with gaps to who knows of no strides.
inline void refuse_buffers_by_error(const py::object& made) {
  reinterpret_cast<PyHeapTypeObject*>(made.ptr())->as_buffer.bf_getbuffer = [](PyObject* object, Py_buffer* view,
                                                                               int flags) {
    try {
      if (py::detail::pybind11_getbuffer(object, view, flags) != 0) return -1;
      if (may_be_given(*static_cast<const py::buffer_info*>(view->internal), flags)) return 0;
      PyBuffer_Release(view);
      PyErr_SetString(PyExc_BufferError,
                      "its elements do not lie in order, without gaps: take a copy, with numpy.ascontiguousarray()");
      view->obj = nullptr;
      return -1;
    } catch (const py::builtin_exception& error) {
      error.set_error();
    } catch (const std::exception& error) {
      PyErr_SetString(PyExc_BufferError, error.what());
    }
    view->obj = nullptr;
    return -1;
  };
}

/// `take` takes Python's lock. Once Python has begun to end it gives that to no other thread: before 3.14 it ends a
/// thread that asks by unwinding its stack, through what must not throw. As from 3.14 on, such a thread waits here for
/// the process to end.
template <typename Take>
auto locking(Take&& take) {
  try {
    return std::forward<Take>(take)();
  } catch (const abi::__forced_unwind&) {
    for (;;) ::pause();
  }
}

/// While it lives this thread is without Python's lock. As pybind11's gil_scoped_release, but for locking().
class Unlocked {
 public:
  Unlocked() : state_(PyEval_SaveThread()) {}
  ~Unlocked() {
    locking([this] { PyEval_RestoreThread(state_); });
  }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* const state_;
};

/// Runs what may wait without Python's lock.
template <typename Do>
auto unlocked(Do&& act) {
  const Unlocked released;
  return std::forward<Do>(act)();
}

/// Waits in pieces, without Python's lock, so that signals are seen between them: `wait(piece)` gives true when it is
/// over. Gives false if the time was.
template <typename Wait>
bool wait_in_pieces(nanoseconds timeout, Wait&& wait) {
  constexpr nanoseconds kPiece = std::chrono::milliseconds(100);
  using Clock = std::chrono::steady_clock;
  const bool for_ever = timeout == nanoseconds::max();
  const Clock::time_point end =
      for_ever ? Clock::time_point() : Clock::now() + std::min<nanoseconds>(timeout, std::chrono::hours(1 << 20));
  for (;;) {
    const nanoseconds left = for_ever ? kPiece : std::chrono::duration_cast<nanoseconds>(end - Clock::now());
    const nanoseconds piece = std::clamp<nanoseconds>(left, nanoseconds(0), kPiece);
    if (unlocked([&] { return wait(piece); })) return true;
    if (left <= kPiece && !for_ever) return false;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
}

void bind_tensors(py::module_& module);
void bind_memory(py::module_& module);
void bind_transfers(py::module_& module);
void bind_peers(py::module_& module);
void bind_pool_writes(py::module_& module);
void bind_engines(py::module_& module);
void bind_commands(py::module_& module);

}  // namespace fairlead::python
