// DLPack: tensors of frameworks (PyTorch, NumPy, JAX) described, taken over, and given, without a copy.
// Needs DLPack's header (Debian: libdlpack-dev); nothing else in Fairlead does. Device: CPU. Threads: any.
#pragma once

#include <dlpack/dlpack.h>

#include "fairlead/engine.h"
#include "fairlead/memory.h"
#include "fairlead/tensor.h"

namespace fairlead::inline v0 {

/// Describes `tensor` relative to `base`, the first byte of the region that holds it.
/// Errors: a dtype without an equivalent, lanes != 1, rank > 8, device other than CPU, data below `base`.
FAIRLEAD_EXPORT Result<TensorSpec> from_dlpack(const DLTensor& tensor, const void* base);

/// Fills a borrowed view: shape and strides point into `spec`, data into `base`; all must outlive it. No deleter.
FAIRLEAD_EXPORT Result<DLTensor> to_dlpack(TensorSpec& spec, void* base);

/// A tensor, and the registered memory that it describes.
struct TensorMemory {
  Memory memory;
  TensorSpec tensor;
};

/// Takes a framework's tensor over: its bytes, from the first that it reaches to the last, are registered in place. Its
/// deleter is called once, when nothing touches them any more, as `release` of Engine::register_memory is: on whichever
/// thread, and without Python's lock. If that fails the tensor stays the caller's. Errors: those of from_dlpack and of
/// register_memory, kInvalidArgument (null, no elements).
FAIRLEAD_EXPORT Result<TensorMemory> adopt_dlpack(Engine& engine, DLManagedTensor* tensor,
                                                  Access access = Access::kRemoteReadWrite);

/// Gives a tensor in registered memory to a framework, which calls its deleter when it needs it no more: so long the
/// memory is kept. Errors: a tensor that is not valid, or does not fit the memory.
FAIRLEAD_EXPORT Result<DLManagedTensor*> share_dlpack(const Memory& memory, const TensorSpec& tensor);

}  // namespace fairlead::inline v0
