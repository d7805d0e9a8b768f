// Any bytes as a control frame: what protoc's code reads we read, to the same values, and what it refuses we refuse, as
// far as proto3 says; what we write it reads.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "datapath/protocol/frames.h"
#include "tests/datapath/frame_oracle.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead::datapath;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto ours = control::parse(bytes);
  const auto theirs = as_protoc_writes(bytes);
  if (ours.has_value() != theirs.has_value() && is_proto3(bytes)) std::abort();
  if (!ours) return 0;
  std::string written;
  control::append_to(written, *ours);
  if (theirs && *theirs != written) std::abort();
  if (as_protoc_writes(written) != written) std::abort();
  const auto again = control::parse(written);
  if (!again) std::abort();
  std::string twice;
  control::append_to(twice, *again);
  if (twice != written) std::abort();
  return 0;
}
