// Keeps a Python object while the library may touch its bytes.
//
// The library lets go on any thread, and must not be made to wait there for Python's lock: the object goes onto a list,
// and Python's main thread, or the next call that registers memory, lets go of it. No lock is taken, so that a child of
// fork() finds none held.
#pragma once

#include <functional>

#include "python/src/binding.h"

namespace fairlead::python {

/// What Engine::register_memory is to call. Python's lock is held.
[[nodiscard]] std::function<void()> release_of(py::object owner);

/// Lets go of what is on the list. Python's lock is held.
void drop_released() noexcept;

}  // namespace fairlead::python
