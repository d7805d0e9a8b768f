// fairlead._core: the C++ API for Python. What users see is the package around it (fairlead/__init__.py).
#include "python/src/binding.h"

namespace fairlead::python {

void raise(const Status& status) {
  const py::object made = py::module_::import("fairlead._errors")
                              .attr("made_of")(static_cast<int>(status.code()), text_of(status.to_string()));
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
  throw py::error_already_set();
}

}  // namespace fairlead::python

PYBIND11_MODULE(_core, module) {
  using namespace fairlead::python;  // NOLINT(google-build-using-namespace)
  bind_tensors(module);
  bind_memory(module);
  bind_transfers(module);
  bind_peers(module);
  bind_pool_writes(module);
  bind_engines(module);
  pybind11::module_ command = module.def_submodule("command");
  bind_commands(command);
}
