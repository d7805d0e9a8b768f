#include "verbs/transport/path_description.h"

#include <fmt/format.h>

#include <algorithm>

namespace fairlead::verbs {
namespace {

constexpr std::uint8_t kVersion = 2;  // 2: writes may carry notifications
constexpr std::uint8_t kFlagOneSided = 1;

template <typename T>
void put(std::string& out, T value) {
  for (int shift = static_cast<int>(sizeof(T) * 8) - 8; shift >= 0; shift -= 8) {
    out.push_back(static_cast<char>((value >> shift) & 0xff));
  }
}

template <typename T>
T get(std::string_view bytes, std::size_t offset) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) value = value << 8 | static_cast<std::uint8_t>(bytes[offset + i]);
  return static_cast<T>(value);
}

Status bad(std::string_view field, std::uint64_t value, std::string_view range) {
  return {Code::kDataLoss, fmt::format("verbs path description: {} is {}, not {}", field, value, range)};
}

Status check(const PathDescription& d) {
  if (d.gid.is_zero() || d.gid.bytes[0] == 0xff) {
    return {Code::kDataLoss,
            fmt::format("verbs path description: the GID {} is not a unicast address", d.gid.to_string())};
  }
  if (d.qpn < 2 || d.qpn > kMaxQpn) return bad("qpn", d.qpn, "2..16777215");
  if (d.psn > kMaxPsn) return bad("psn", d.psn, "0..16777215");
  if (d.mtu != 256 && d.mtu != 512 && d.mtu != 1024 && d.mtu != 2048 && d.mtu != 4096) {
    return bad("mtu", d.mtu, "256, 512, 1024, 2048 or 4096");
  }
  if (d.message_credits == 0) return bad("message credits", d.message_credits, "1..65535");
  if (d.control_credits < kMinControlCredits) return bad("control credits", d.control_credits, "4..255");
  if (d.message_bytes < kMinMessageBytes || d.message_bytes > kMaxMessageBytes) {
    return bad("message_bytes", d.message_bytes, "64..1073741824");
  }
  return {};
}

}  // namespace

std::string serialize(const PathDescription& description) {
  std::string out("FV");
  out.reserve(kPathDescriptionBytes);
  put<std::uint8_t>(out, kVersion);
  put<std::uint8_t>(out, description.one_sided ? kFlagOneSided : 0);
  out.append(reinterpret_cast<const char*>(description.gid.bytes.data()), description.gid.bytes.size());
  put<std::uint32_t>(out, description.qpn);
  put<std::uint32_t>(out, description.psn);
  put<std::uint16_t>(out, static_cast<std::uint16_t>(description.mtu));
  put<std::uint16_t>(out, static_cast<std::uint16_t>(description.message_credits));
  put<std::uint32_t>(out, description.message_bytes);
  put<std::uint8_t>(out, description.max_rd_atomic);
  put<std::uint8_t>(out, description.max_dest_rd_atomic);
  put<std::uint8_t>(out, static_cast<std::uint8_t>(description.control_credits));
  put<std::uint8_t>(out, 0);
  return out;
}

Result<PathDescription> parse_path_description(std::string_view bytes) {
  if (bytes.size() < 3 || bytes[0] != 'F' || bytes[1] != 'V') {
    return Status(Code::kDataLoss, fmt::format("{} bytes that are not a verbs path description", bytes.size()));
  }
  const auto version = get<std::uint8_t>(bytes, 2);
  if (version != kVersion) {
    return Status(Code::kVersionMismatch,
                  fmt::format("the peer's verbs path description has version {}, ours {}", version, kVersion));
  }
  if (bytes.size() != kPathDescriptionBytes) return bad("its length", bytes.size(), "40");
  const auto flags = get<std::uint8_t>(bytes, 3);
  if (flags > kFlagOneSided) return bad("flags", flags, "0 or 1");
  if (bytes[39] != 0) return bad("byte 39", get<std::uint8_t>(bytes, 39), "0");

  PathDescription description;
  description.one_sided = flags == kFlagOneSided;
  std::copy_n(bytes.begin() + 4, description.gid.bytes.size(), description.gid.bytes.begin());
  description.qpn = get<std::uint32_t>(bytes, 20);
  description.psn = get<std::uint32_t>(bytes, 24);
  description.mtu = get<std::uint16_t>(bytes, 28);
  description.message_credits = get<std::uint16_t>(bytes, 30);
  description.message_bytes = get<std::uint32_t>(bytes, 32);
  description.max_rd_atomic = get<std::uint8_t>(bytes, 36);
  description.max_dest_rd_atomic = get<std::uint8_t>(bytes, 37);
  description.control_credits = get<std::uint8_t>(bytes, 38);
  Status status = check(description);
  if (!status.ok()) return status;
  return description;
}

}  // namespace fairlead::verbs
