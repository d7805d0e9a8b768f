// Tensors of frameworks, where the library was built with DLPack.
#include "capi/handles.h"
#include "capi/structures.h"
#if FAIRLEAD_WITH_DLPACK
#include "fairlead/dlpack.h"
#endif

using namespace fairlead;        // NOLINT(google-build-using-namespace): a translation from one API to the other
using namespace fairlead::capi;  // NOLINT(google-build-using-namespace)

#if FAIRLEAD_WITH_DLPACK

fairlead_code fairlead_engine_adopt_dlpack(fairlead_engine* engine, struct DLManagedTensor* managed, uint32_t access,
                                           fairlead_memory** memory, fairlead_tensor* tensor) {
  return outcome([&]() -> Status {
    clear(memory);
    if (engine == nullptr) return missing("engine");
    if (memory == nullptr) return missing("memory");
    if (Status status = check_access(access); !status.ok()) return status;
    if (tensor != nullptr) {  // before the tensor is taken, which could not be given back
      if (Status status = give_tensor(TensorSpec(), tensor); !status.ok()) return status;
    }
    auto handle = std::make_unique<fairlead_memory>();
    auto adopted = adopt_dlpack(*engine->engine, managed, static_cast<Access>(access));
    if (!adopted) return adopted.error();
    handle->memory = std::move(adopted->memory);
    *memory = handle.release();
    return tensor != nullptr ? give_tensor(adopted->tensor, tensor) : Status();
  });
}

fairlead_code fairlead_memory_share_dlpack(const fairlead_memory* memory, const fairlead_tensor* tensor,
                                           struct DLManagedTensor** managed) {
  return outcome([&]() -> Status {
    if (managed == nullptr) return missing("managed");
    *managed = nullptr;
    TensorSpec spec;
    if (Status status = tensor_of(tensor, spec); !status.ok()) return status;
    auto shared = share_dlpack(memory_of(memory), spec);
    if (!shared) return shared.error();
    *managed = *shared;
    return {};
  });
}

#else

namespace {
fairlead_code without() {
  return tell(
      {Code::kUnimplemented, "this library was built without DLPack: build it where libdlpack-dev is installed"});
}
}  // namespace

fairlead_code fairlead_engine_adopt_dlpack(fairlead_engine*, struct DLManagedTensor*, uint32_t,
                                           fairlead_memory** memory, fairlead_tensor*) {
  clear(memory);
  return without();
}

fairlead_code fairlead_memory_share_dlpack(const fairlead_memory*, const fairlead_tensor*,
                                           struct DLManagedTensor** managed) {
  clear(managed);
  return without();
}

#endif
