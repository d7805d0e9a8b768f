// Memory here and at peers.
#include <string>

#include "base/crc.h"
#include "python/src/objects.h"

namespace fairlead::python {

Access access_of(const std::string& words) {
  Access access = Access::kNone;
  for (const char word : words) {
    switch (word) {
      case 'r':
        access = access | Access::kRemoteRead;
        break;
      case 'w':
        access = access | Access::kRemoteWrite;
        break;
      case 'a':
        access = access | Access::kRemoteAtomic;
        break;
      default:
        throw py::value_error("access '" + words + "': it is made of r (peers read), w (write) and a (atomics)");
    }
  }
  return access;
}

std::string words_of(Access access) {
  std::string words;
  if (allows(access, Access::kRemoteRead)) words += 'r';
  if (allows(access, Access::kRemoteWrite)) words += 'w';
  if (allows(access, Access::kRemoteAtomic)) words += 'a';
  return words;
}

void bind_memory(py::module_& module) {
  module.def("_crc32", [](const py::object& data, std::uint32_t before) {
    const Described found = host_bytes_of(data, "a checksum");
    return unlocked([&] { return crc32(found.bytes, before); });
  });
  py::class_<PyMemory> memory_class(
      module, "Memory", py::buffer_protocol(),
      "A slice of registered memory: bytes, for as long as this object or a transfer names them.");
  memory_class
      .def_buffer([](const PyMemory& memory) {
        memory.check_host();
        return py::buffer_info(reinterpret_cast<std::uint8_t*>(memory.memory.data()),
                               static_cast<py::ssize_t>(memory.memory.size()), memory.read_only);
      })
      .def_property_readonly(
          "nbytes", [](const PyMemory& memory) { return memory.memory.size(); }, "Its size in bytes.")
      .def_property_readonly(
          "address", [](const PyMemory& memory) { return reinterpret_cast<std::uintptr_t>(memory.memory.data()); },
          "Of its first byte, in this process.")
      .def_property_readonly(
          "read_only", [](const PyMemory& memory) { return memory.read_only; },
          "Nobody may write it, this process included.")
      .def("__len__", [](const PyMemory& memory) { return memory.memory.size(); })
      .def(
          "slice",
          [](const PyMemory& memory, std::size_t offset, std::size_t nbytes) {
            PyMemory part{memory.memory.slice(offset, nbytes), memory.read_only, memory.cuda_device};
            if (!part.memory.valid()) {
              raise({Code::kOutOfRange, "memory of " + std::to_string(memory.memory.size()) + " bytes has no " +
                                            std::to_string(nbytes) + " bytes at " + std::to_string(offset)});
            }
            return part;
          },
          py::arg("offset"), py::arg("nbytes"), "`nbytes` bytes from byte `offset` on, as a Memory of its own.")
      .def(
          "tensor",
          [](const PyMemory& memory, const py::object& dtype, const std::vector<std::int64_t>& shape,
             const std::optional<std::vector<std::int64_t>>& strides, std::uint64_t offset) {
            TensorSpec spec = value_of(TensorSpec::contiguous(dtype_of(dtype), shape, offset));
            if (strides) {
              if (strides->size() != shape.size()) throw py::value_error("shape and strides differ in length");
              std::copy(strides->begin(), strides->end(), spec.strides.begin());
            }
            check(spec.check(memory.memory.size()));
            return PyTensor{memory, spec};
          },
          py::arg("dtype"), py::arg("shape"), py::arg("strides") = py::none(), py::arg("offset") = 0,
          "A tensor in it: dtype, shape and strides in elements (None: row by row), from byte `offset` on.")
      .def_property_readonly(
          "shared_file",
          [](const PyMemory& memory) -> py::object {
            const auto file = memory.memory.shared_file();
            return file ? py::make_tuple(file->fd, file->offset) : py::object(py::none());
          },
          "(descriptor, offset) to map it by in another process, of memory allocated with shared=True; else None.")
      .def("__repr__", [](const PyMemory& memory) {
        return "<fairlead.Memory, " + std::to_string(memory.memory.size()) + " bytes>";
      });
  refuse_buffers_by_error(memory_class);

  py::class_<RemoteMemory>(module, "RemoteMemory", "A slice of a region that a peer published.")
      .def_property_readonly("nbytes", &RemoteMemory::size, "Its size in bytes.")
      .def_property_readonly("offset", &RemoteMemory::offset,
                             "Where it begins in the region that was published, in bytes.")
      .def_property_readonly(
          "name",
          [](const RemoteMemory& memory) {
            return py::bytes(memory.name()).attr("decode")("utf-8", "surrogateescape");
          },
          "What it was published as.")
      .def_property_readonly(
          "access", [](const RemoteMemory& memory) { return words_of(memory.access()); },
          "What we may do with it: r (read), w (write), a (atomics).")
      .def_property_readonly("withdrawn", &RemoteMemory::withdrawn,
                             "Its owner has withdrawn it: operations on it fail.")
      .def_property_readonly(
          "tensor", [](const RemoteMemory& memory) { return memory.tensor(); },
          "The TensorSpec that it was published with, of the whole region; None: it is bytes.")
      .def("__len__", &RemoteMemory::size)
      .def(
          "slice",
          [](const RemoteMemory& memory, std::uint64_t offset, std::uint64_t nbytes) {
            RemoteMemory part = memory.slice(offset, nbytes);
            if (!part.valid()) {
              raise({Code::kOutOfRange, "'" + memory.name() + "', " + std::to_string(memory.size()) +
                                            " bytes, has no " + std::to_string(nbytes) + " bytes at " +
                                            std::to_string(offset)});
            }
            return part;
          },
          py::arg("offset"), py::arg("nbytes"), "`nbytes` bytes from byte `offset` on.")
      .def("__repr__", [](const RemoteMemory& memory) {
        return text_of("<fairlead.RemoteMemory '" + memory.name() + "', " + std::to_string(memory.size()) + " bytes>");
      });
}

}  // namespace fairlead::python
