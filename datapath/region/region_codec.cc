#include "datapath/region/region_codec.h"

namespace fairlead::datapath {
namespace {

std::optional<TensorSpec> decode_tensor(const control::Tensor& tensor, std::uint64_t region_bytes) {
  if (tensor.shape_size() > static_cast<int>(kMaxTensorRank) || tensor.shape_size() != tensor.strides_size() ||
      tensor.dtype() > 255) {
    return std::nullopt;
  }
  TensorSpec spec;
  spec.dtype = static_cast<DType>(tensor.dtype());
  spec.rank = static_cast<std::uint8_t>(tensor.shape_size());
  for (int i = 0; i < tensor.shape_size(); ++i) {
    spec.shape[static_cast<std::size_t>(i)] = tensor.shape(i);
    spec.strides[static_cast<std::size_t>(i)] = tensor.strides(i);
  }
  spec.offset = tensor.offset();
  if (element_size(spec.dtype) == 0 || !spec.check(region_bytes).ok()) return std::nullopt;
  return spec;
}

}  // namespace

void encode_region(const Publication& publication, control::Region& region) {
  region.set_name(publication.name);
  region.set_id(publication.id);
  region.set_size(publication.bytes.size());
  region.set_access(static_cast<std::uint32_t>(publication.access) &
                    static_cast<std::uint32_t>(Access::kRemoteReadWrite));
  for (const Registration& registration : publication.keys) {
    control::Key& key = *region.add_keys();
    key.set_address(registration.remote_address);
    key.set_key(registration.remote);
  }
  if (!publication.tensor) return;
  control::Tensor& tensor = *region.mutable_tensor();
  tensor.set_dtype(static_cast<std::uint32_t>(publication.tensor->dtype));
  for (std::size_t i = 0; i < publication.tensor->rank; ++i) {
    tensor.add_shape(publication.tensor->shape[i]);
    tensor.add_strides(publication.tensor->strides[i]);
  }
  tensor.set_offset(publication.tensor->offset);
}

std::shared_ptr<RemoteRegionImpl> decode_region(const control::Region& region, std::uint64_t session) {
  if (region.name().empty() || region.name().size() > kMaxRegionName ||
      region.access() > static_cast<std::uint32_t>(Access::kRemoteReadWrite) ||
      region.keys_size() > static_cast<int>(kMaxTransports)) {
    return nullptr;
  }
  auto decoded = std::make_shared<RemoteRegionImpl>();
  decoded->name = region.name();
  decoded->id = region.id();
  decoded->session = session;
  decoded->size = region.size();
  decoded->access = static_cast<Access>(region.access());
  for (int i = 0; i < region.keys_size(); ++i) {
    decoded->keys[static_cast<std::size_t>(i)] = {region.keys(i).address(), region.keys(i).key()};
  }
  if (region.has_tensor()) {
    decoded->tensor = decode_tensor(region.tensor(), region.size());
    if (!decoded->tensor) return nullptr;
  }
  return decoded;
}

}  // namespace fairlead::datapath
