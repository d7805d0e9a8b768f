#include "tests/datapath/frame_oracle.h"

#include <google/protobuf/descriptor.h>

#include "control.pb.h"

namespace fairlead::datapath {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

/// Takes a varint from `bytes`; nothing if they end before it does, or it has more than `longest`.
std::optional<std::uint64_t> take_varint(std::string_view& bytes, std::size_t longest) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < longest && i < bytes.size(); ++i) {
    const auto byte = static_cast<unsigned char>(bytes[i]);
    value |= std::uint64_t{byte & 0x7fU} << (7 * i);
    if (byte < 0x80) {
      bytes.remove_prefix(i + 1);
      return value;
    }
  }
  return std::nullopt;
}

bool is_proto3(std::string_view bytes, const Descriptor* type) {
  while (!bytes.empty()) {
    const std::optional<std::uint64_t> tag = take_varint(bytes, 5);
    if (!tag || *tag > UINT32_MAX) return false;
    const auto number = static_cast<int>(*tag >> 3);
    const unsigned wire = *tag & 7;
    if (wire == 3 || wire == 4 || (number >= 19000 && number <= 19999)) return false;
    if (wire == 0) {
      if (!take_varint(bytes, 10)) return true;  // refused by all
    } else if (wire == 2) {
      const std::optional<std::uint64_t> length = take_varint(bytes, 5);
      if (!length || *length > INT32_MAX) return false;
      if (*length > bytes.size()) return true;
      const FieldDescriptor* field = type->FindFieldByNumber(number);
      const bool is_message = field != nullptr && field->type() == FieldDescriptor::TYPE_MESSAGE;
      if (is_message && !is_proto3(bytes.substr(0, *length), field->message_type())) return false;
      bytes.remove_prefix(*length);
    } else {
      const std::size_t size = wire == 1 ? 8 : 4;
      if (bytes.size() < size) return true;
      bytes.remove_prefix(size);
    }
  }
  return true;
}

}  // namespace

std::optional<std::string> as_protoc_writes(std::string_view bytes) {
  fairlead::control::Frame frame;
  if (!frame.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return std::nullopt;
  frame.DiscardUnknownFields();
  return frame.SerializeAsString();
}

bool is_proto3(std::string_view bytes) { return is_proto3(bytes, fairlead::control::Frame::descriptor()); }

}  // namespace fairlead::datapath
