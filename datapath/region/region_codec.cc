#include "datapath/region/region_codec.h"

#include <algorithm>

namespace fairlead::datapath {
namespace {

constexpr std::uint32_t kByMessage = 1;  // how atomics are carried out

std::optional<TensorSpec> decode_tensor(const control::Tensor& tensor, std::uint64_t region_bytes) {
  if (tensor.shape.size() > kMaxTensorRank || tensor.shape.size() != tensor.strides.size() || tensor.dtype > 255) {
    return std::nullopt;
  }
  TensorSpec spec;
  spec.dtype = static_cast<DType>(tensor.dtype);
  spec.rank = static_cast<std::uint8_t>(tensor.shape.size());
  std::copy(tensor.shape.begin(), tensor.shape.end(), spec.shape.begin());
  std::copy(tensor.strides.begin(), tensor.strides.end(), spec.strides.begin());
  spec.offset = tensor.offset;
  if (element_size(spec.dtype) == 0 || !spec.check(region_bytes).ok()) return std::nullopt;
  return spec;
}

}  // namespace

control::Region encode_region(const Publication& publication, std::span<const Grant> keys) {
  control::Region region{.name = publication.name,
                         .id = publication.id,
                         .size = publication.memory.bytes.size(),
                         .access = static_cast<std::uint32_t>(publication.memory.access) &
                                   static_cast<std::uint32_t>(Access::kRemoteReadWrite),
                         .tensor = {},
                         .keys = {},
                         .atomics = allows(publication.memory.access, Access::kRemoteAtomic) ? kByMessage : 0};
  region.keys.reserve(keys.size());
  for (const Grant& grant : keys) region.keys.push_back({.address = grant.address, .key = grant.key});
  if (const auto& spec = publication.tensor) {
    region.tensor = control::Tensor{.dtype = static_cast<std::uint32_t>(spec->dtype),
                                    .shape = {spec->shape.begin(), spec->shape.begin() + spec->rank},
                                    .strides = {spec->strides.begin(), spec->strides.begin() + spec->rank},
                                    .offset = spec->offset};
  }
  return region;
}

std::shared_ptr<RemoteRegionImpl> decode_region(const control::Region& region, std::uint64_t session) {
  if (region.name.empty() || region.name.size() > kMaxRegionName ||
      region.access > static_cast<std::uint32_t>(Access::kRemoteReadWrite) || region.keys.size() > kMaxOffers) {
    return nullptr;
  }
  auto decoded = std::make_shared<RemoteRegionImpl>();
  decoded->name = region.name;
  decoded->id = region.id;
  decoded->session = session;
  decoded->size = region.size;
  decoded->access = static_cast<Access>(region.access);
  if (region.atomics == kByMessage) decoded->access = decoded->access | Access::kRemoteAtomic;
  decoded->keys.reserve(region.keys.size());
  for (const control::Key& key : region.keys) decoded->keys.push_back({key.address, key.key});
  if (region.tensor) {
    decoded->tensor = decode_tensor(*region.tensor, region.size);
    if (!decoded->tensor) return nullptr;
  }
  return decoded;
}

}  // namespace fairlead::datapath
