// Dtypes, and objects of Python's seen as tensors.
#include <dlpack/dlpack.h>

#include <array>
#include <span>
#include <string>
#include <utility>

#include "fairlead/dlpack.h"
#include "python/src/objects.h"
#include "python/src/owner.h"

namespace fairlead::python {

namespace {

struct Named {
  DType dtype;
  const char* numpy;
  const char* format;  // of the buffer protocol; null: it has none
};
constexpr std::array kNames = {
    Named{DType::kBool, "bool", "?"},
    Named{DType::kU8, "uint8", "B"},
    Named{DType::kI8, "int8", "b"},
    Named{DType::kF8E4M3, "float8_e4m3fn", nullptr},
    Named{DType::kF8E5M2, "float8_e5m2", nullptr},
    Named{DType::kI16, "int16", "h"},
    Named{DType::kU16, "uint16", "H"},
    Named{DType::kF16, "float16", "e"},
    Named{DType::kBF16, "bfloat16", nullptr},
    Named{DType::kI32, "int32", "i"},
    Named{DType::kU32, "uint32", "I"},
    Named{DType::kF32, "float32", "f"},
    Named{DType::kI64, "int64", "q"},
    Named{DType::kU64, "uint64", "Q"},
    Named{DType::kF64, "float64", "d"},
};

/// Of a format with one element; `long` is as wide as the machine has it.
std::optional<DType> dtype_of_format(std::string_view format, std::size_t item) {
  if (!format.empty() && (format.front() == '@' || format.front() == '=' || format.front() == '<'))
    format.remove_prefix(1);
  if (format.empty()) return DType::kU8;
  if (format == "l") format = item == 8 ? "q" : "i";
  if (format == "L") format = item == 8 ? "Q" : "I";
  for (const Named& each : kNames) {
    if (each.format != nullptr && format == each.format && element_size(each.dtype) == item) return each.dtype;
  }
  return std::nullopt;
}

/// Strides in bytes as a TensorSpec, and the bytes that it reaches over.
struct Layout {
  std::ptrdiff_t lowest = 0, end = 0;  // from element 0
  bool contiguous = true;
  bool whole = true;  // strides are multiples of the element
};
Layout layout_of(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides, std::int64_t item) {
  Layout layout{.end = item};
  std::int64_t expected = item;
  bool empty = false;
  for (std::size_t i = shape.size(); i-- > 0;) {
    empty |= shape[i] == 0;
    layout.whole &= strides[i] % item == 0;
    layout.contiguous &= shape[i] <= 1 || strides[i] == expected;
    expected *= shape[i];
    if (shape[i] > 1) (strides[i] < 0 ? layout.lowest : layout.end) += (shape[i] - 1) * strides[i];
  }
  if (empty) {
    layout.lowest = layout.end = 0;
    layout.contiguous = true;
  }
  return layout;
}

/// Fills in bytes and spec.
void place(Described& to, std::byte* first, std::optional<DType> dtype, std::span<const std::int64_t> shape,
           std::span<const std::int64_t> strides, std::size_t item) {
  const Layout layout = layout_of(shape, strides, static_cast<std::int64_t>(item));
  to.bytes = {first + layout.lowest, static_cast<std::size_t>(layout.end - layout.lowest)};
  to.contiguous = layout.contiguous;
  if (!dtype || shape.size() > kMaxTensorRank || !layout.whole) return;
  TensorSpec spec;
  spec.dtype = *dtype;
  spec.rank = static_cast<std::uint8_t>(shape.size());
  for (std::size_t i = 0; i < shape.size(); ++i) {
    spec.shape[i] = shape[i];
    spec.strides[i] = strides[i] / static_cast<std::int64_t>(item);
  }
  spec.offset = static_cast<std::uint64_t>(-layout.lowest);
  to.spec = spec;
}

/// Whether a format of the buffer protocol has objects in it; names of fields, between colons, do not count.
bool has_objects(std::string_view format) {
  bool is_name = false;
  for (const char each : format) {
    if (each == ':') is_name = !is_name;
    if (each == 'O' && !is_name) return true;
  }
  return false;
}

Described by_buffer(const py::object& object) {
  Described found;
  found.owner = py::reinterpret_steal<py::object>(PyMemoryView_FromObject(object.ptr()));
  if (!found.owner) throw py::error_already_set();
  const Py_buffer& view = *PyMemoryView_GET_BUFFER(found.owner.ptr());
  found.read_only = view.readonly != 0;
  const std::string_view format = view.format != nullptr ? view.format : "B";
  // Theirs would be pointers into another process, and whoever writes there could choose what Python follows here.
  if (has_objects(format))
    throw py::type_error("its elements are Python objects, not bytes: make an array of a dtype of them");
  if (view.suboffsets != nullptr) throw py::type_error("an array of pointers to rows has no bytes in one place");
  const auto rank = static_cast<std::size_t>(view.ndim);
  std::vector<std::int64_t> shape(view.shape, view.shape + rank), strides(view.strides, view.strides + rank);
  const auto item = static_cast<std::size_t>(view.itemsize);
  if (item == 0) throw py::value_error("its elements have no bytes");
  place(found, static_cast<std::byte*>(view.buf), dtype_of_format(format, item), shape, strides, item);
  return found;
}

Described by_dlpack(const py::object& object) {
  Described found;
  found.owner = object.attr("__dlpack__")();  // whose destructor calls the deleter
  auto* const managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(found.owner.ptr(), "dltensor"));
  if (managed == nullptr) throw py::error_already_set();
  DLTensor tensor = managed->dl_tensor;
  if (tensor.device.device_type == kDLCUDA) found.cuda_device = tensor.device.device_id;
  if (tensor.device.device_type == kDLCUDA || tensor.device.device_type == kDLCUDAHost) tensor.device = {kDLCPU, 0};
  auto* const first = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  TensorSpec spec = value_of(from_dlpack(tensor, first));
  const std::int64_t item = element_size(spec.dtype);
  std::vector<std::int64_t> shape(spec.shape.begin(), spec.shape.begin() + spec.rank), strides;
  for (std::size_t i = 0; i < spec.rank; ++i) strides.push_back(spec.strides[i] * item);
  place(found, first, spec.dtype, shape, strides, static_cast<std::size_t>(item));
  return found;
}

void free_capsule(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, "dltensor") == 0) return;  // somebody took it over
  auto* const managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor"));
  managed->deleter(managed);
}

py::object to_capsule(const PyTensor& tensor) {
  if (tensor.memory.read_only)
    throw py::buffer_error("DLPack has no read-only tensors, and this memory may not be written");
  tensor.memory.check_host();
  DLManagedTensor* const managed = value_of(share_dlpack(tensor.memory.memory, tensor.spec));
  auto capsule = py::reinterpret_steal<py::object>(PyCapsule_New(managed, "dltensor", free_capsule));
  if (!capsule) {
    managed->deleter(managed);
    throw py::error_already_set();
  }
  return capsule;
}

py::tuple shape_of(const TensorSpec& spec) {
  py::tuple shape(spec.rank);
  for (std::size_t i = 0; i < spec.rank; ++i) shape[i] = spec.shape[i];
  return shape;
}

/// For memoryview() and numpy.asarray().
py::buffer_info buffer_of(const PyTensor& tensor) {
  tensor.memory.check_host();
  const TensorSpec& spec = tensor.spec;
  const char* format = nullptr;
  for (const Named& each : kNames) {
    if (each.dtype == spec.dtype) format = each.format;
  }
  if (format == nullptr) {
    throw py::buffer_error(std::string(numpy_name(spec.dtype)) +
                           " is no type of the buffer protocol or NumPy's: take it with torch.from_dlpack()");
  }
  const auto item = static_cast<py::ssize_t>(element_size(spec.dtype));
  std::vector<py::ssize_t> shape, strides;
  for (std::size_t i = 0; i < spec.rank; ++i) {
    shape.push_back(spec.shape[i]);
    strides.push_back(spec.strides[i] * item);
  }
  return {tensor.memory.memory.data() + spec.offset, item, format, spec.rank, shape, strides, tensor.memory.read_only};
}

}  // namespace

const char* numpy_name(DType dtype) {
  for (const Named& each : kNames) {
    if (each.dtype == dtype) return each.numpy;
  }
  return "?";
}

DType dtype_of(const py::object& dtype) {
  std::string name = py::str(py::hasattr(dtype, "name") ? dtype.attr("name") : dtype);
  if (py::isinstance<py::type>(dtype)) name = py::str(dtype.attr("__name__"));  // numpy.float32
  if (name.rfind("torch.", 0) == 0) name.erase(0, 6);
  if (const auto found = dtype_from_string(name)) return *found;
  for (const Named& each : kNames) {
    if (name == each.numpy) return each.dtype;
  }
  throw py::value_error("'" + name + "' is no dtype of Fairlead's: 'float32', 'bfloat16' or 'F32' are");
}

Described describe(const py::object& object) {
  if (PyObject_CheckBuffer(object.ptr()) != 0) return by_buffer(object);
  if (py::hasattr(object, "__dlpack__")) return by_dlpack(object);
  throw py::type_error("a " + std::string(py::str(py::type::of(object).attr("__name__"))) +
                       " shows its bytes neither by the buffer protocol nor by DLPack");
}

Described host_bytes_of(const py::object& object, std::string_view what) {
  Described found = describe(object);
  const std::string takes = std::string(what) + " takes bytes of the host's, one behind the other: ";
  if (found.cuda_device) {
    throw py::value_error(takes + "these are on CUDA device " + std::to_string(*found.cuda_device));
  }
  if (!found.contiguous) {
    throw py::value_error(takes +
                          "these have gaps, or another order than row by row; numpy.ascontiguousarray() makes a copy");
  }
  return found;
}

PyTensor register_object(Engine& engine, const py::object& object, Access access) {
  drop_released();
  Described found = describe(object);
  if (found.bytes.empty()) throw py::value_error("there are no bytes in it to register");
  if (!found.spec && !found.contiguous) {
    throw py::value_error(
        "it has gaps, or another order than row by row, and elements or dimensions that no dtype of "
        "Fairlead's describes: register a contiguous copy");
  }
  if (found.read_only) {
    if (allows(access, Access::kRemoteWrite) || allows(access, Access::kRemoteAtomic)) {
      throw py::value_error("it is read-only, so nobody may write it: access='r', or access=''");
    }
    access = access | Access::kLocalReadOnly;
  }
  auto release = release_of(found.owner);
  Result<Memory> memory = unlocked([&] {
    return found.cuda_device
               ? engine.register_memory(found.bytes,
                                        CudaOptions{.device = *found.cuda_device, .access = access, .release = release})
               : engine.register_memory(found.bytes, access, release);
  });
  if (!memory) {
    release();  // it was not called
    raise(memory.error());
  }
  TensorSpec bytes;
  bytes.rank = 1;
  bytes.shape[0] = static_cast<std::int64_t>(found.bytes.size());
  bytes.strides[0] = 1;
  return {{*std::move(memory), found.read_only, found.cuda_device}, found.spec.value_or(bytes)};
}

Memory local_of(Engine& engine, const py::object& local, bool written) {
  if (py::isinstance<PyMemory>(local)) return local.cast<const PyMemory&>().memory;
  const PyTensor tensor = tensor_of(engine, local, written);
  if (!tensor.spec.is_contiguous()) {
    throw py::value_error("the array has gaps, or another order than row by row: use write_tensor() or read_tensor()");
  }
  return tensor.memory.memory.slice(tensor.spec.offset, tensor.spec.byte_count());
}

PyTensor tensor_of(Engine& engine, const py::object& local, bool written) {
  PyTensor tensor =
      py::isinstance<PyTensor>(local) ? local.cast<PyTensor>() : register_object(engine, local, Access::kNone);
  if (written && tensor.memory.read_only) throw py::value_error("it is read-only, so nothing can be read into it");
  return tensor;
}

void bind_tensors(py::module_& module) {
  py::class_<TensorSpec>(module, "TensorSpec",
                         "Dtype, shape and strides (in elements), and where element 0 is (bytes).")
      .def(py::init([](const py::object& dtype, const std::vector<std::int64_t>& shape,
                       const std::optional<std::vector<std::int64_t>>& strides, std::uint64_t offset) {
             TensorSpec spec = value_of(TensorSpec::contiguous(dtype_of(dtype), shape, offset));
             if (strides) {
               if (strides->size() != shape.size()) throw py::value_error("shape and strides differ in length");
               std::copy(strides->begin(), strides->end(), spec.strides.begin());
             }
             return spec;
           }),
           py::arg("dtype"), py::arg("shape"), py::arg("strides") = py::none(), py::arg("offset") = 0)
      .def_property_readonly(
          "dtype", [](const TensorSpec& spec) { return numpy_name(spec.dtype); },
          "The element type, as NumPy calls it ('bfloat16' and 'float8_...' too).")
      .def_property_readonly("shape", &shape_of, "Elements in each dimension; () is a scalar.")
      .def_property_readonly(
          "strides",
          [](const TensorSpec& spec) {
            py::tuple strides(spec.rank);
            for (std::size_t i = 0; i < spec.rank; ++i) strides[i] = spec.strides[i];
            return strides;
          },
          "From one element to the next in each dimension, in elements.")
      .def_readonly("offset", &TensorSpec::offset, "Where element 0 is, in bytes from the first of the memory.")
      .def_property_readonly("nbytes", &TensorSpec::byte_count, "All elements together, in bytes.")
      .def("__repr__", &TensorSpec::to_string);
  py::class_<PyTensor> tensor_class(
      module, "Tensor", py::buffer_protocol(),
      "A tensor in registered memory. numpy.asarray(t) and torch.from_dlpack(t) see it without a copy.");
  tensor_class
      .def_property_readonly(
          "memory", [](const PyTensor& tensor) { return tensor.memory; }, "The registered memory that it lies in.")
      .def_property_readonly(
          "spec", [](const PyTensor& tensor) { return tensor.spec; },
          "Dtype, shape, strides, and where it begins in its memory.")
      .def_property_readonly(
          "dtype", [](const PyTensor& tensor) { return numpy_name(tensor.spec.dtype); },
          "The element type, as NumPy calls it.")
      .def_property_readonly(
          "shape", [](const PyTensor& tensor) { return shape_of(tensor.spec); }, "Elements in each dimension.")
      .def_property_readonly(
          "nbytes", [](const PyTensor& tensor) { return tensor.spec.byte_count(); }, "All elements together, in bytes.")
      .def_buffer(&buffer_of)
      .def(
          "__dlpack__", [](const PyTensor& tensor, const py::object& /*stream*/) { return to_capsule(tensor); },
          py::arg("stream") = py::none())
      .def("__dlpack_device__",
           [](const PyTensor& tensor) {
             const std::optional<int> cuda = tensor.memory.cuda_device;
             return py::make_tuple(static_cast<int>(cuda ? kDLCUDA : kDLCPU), cuda.value_or(0));
           })
      .def("__repr__", [](const PyTensor& tensor) { return "<fairlead.Tensor " + tensor.spec.to_string() + ">"; });
  refuse_buffers_by_error(tensor_class);
}

}  // namespace fairlead::python
