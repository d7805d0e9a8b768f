// DLPack <-> TensorSpec. Needs DLPack's header (Debian: libdlpack-dev); nothing else in Fairlead does.
#pragma once

#include <dlpack/dlpack.h>

#include "fairlead/tensor.h"

namespace fairlead::inline v0 {

/// Describes `tensor` relative to `base`, the first byte of the region that holds it.
/// Errors: a dtype without an equivalent, lanes != 1, rank > 8, device other than CPU, data below `base`.
FAIRLEAD_EXPORT Result<TensorSpec> from_dlpack(const DLTensor& tensor, const void* base);

/// Fills a borrowed view: shape and strides point into `spec`, data into `base`; all must outlive it. No deleter.
FAIRLEAD_EXPORT Result<DLTensor> to_dlpack(TensorSpec& spec, void* base);

}  // namespace fairlead::inline v0
