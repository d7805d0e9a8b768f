// The frames of the control connection. control.proto describes them, docs/protocol.md says what they mean.
//
// A frame on the wire is a protobuf message of proto3; this is its content as plain structs, in the order of the
// description. Text is bytes: whoever shows it makes it printable. Threads: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace fairlead::datapath::control {

struct TransportOffer {
  std::string name, kind;
  bool software = false;
  std::string describe;
  std::vector<std::string> addresses = {};
};

struct Hello {
  std::uint32_t version_min = 0, version_max = 0;
  std::string engine_name;
  std::uint64_t session_id = 0;
  std::vector<TransportOffer> transports;
  std::uint64_t max_message_bytes = 0;
  std::uint32_t event_window = 0;
  std::uint64_t event_window_bytes = 0;
  std::string principal, nonce, proof;
  std::string resume;
  std::uint64_t engine = 0;
};

struct Refused {
  std::uint32_t code = 0;
  std::string reason;
  std::uint64_t engine = 0;
};

struct Key {
  std::uint64_t address = 0, key = 0;
};

struct PathOffer {
  std::uint64_t epoch = 0;
  std::uint32_t active_transport = 0, passive_transport = 0;
  std::string description;
  std::optional<Key> probe;
  std::uint32_t flow = 0, rail = 0;
  std::uint32_t probe_bytes = 0;
};
struct PathAnswer {
  std::uint64_t epoch = 0;
  std::string description;
  std::optional<Key> probe;
  std::uint32_t flow = 0, rail = 0;
  std::uint32_t probe_bytes = 0;
};
struct PathReady {
  std::uint64_t epoch = 0;
  bool one_sided = false;
  std::uint32_t flow = 0, rail = 0;
};
struct PathDown {
  std::uint64_t epoch = 0;
  std::uint32_t code = 0;
  std::string reason;
  bool stalled = false;
  std::uint32_t flow = 0, rail = 0;
};
struct Fence {
  std::uint64_t epoch = 0, received = 0;
  std::uint32_t flow = 0, rail = 0;
};
struct FenceAck {
  std::uint64_t epoch = 0, received = 0;
  std::uint32_t flow = 0, rail = 0;
};
struct PathWanted {
  std::uint32_t flow = 0;
};

struct Tensor {
  std::uint32_t dtype = 0;
  std::vector<std::int64_t> shape, strides;
  std::uint64_t offset = 0;
};
struct Region {
  std::string name;
  std::uint64_t id = 0, size = 0;
  std::uint32_t access = 0;
  std::optional<Tensor> tensor;
  std::vector<Key> keys;
  std::uint32_t atomics = 0;
};
struct Lookup {
  std::uint64_t request = 0;
  std::string name;
  bool prefix = false;
  std::string after;
  std::string capability = {};
};
struct Regions {
  std::uint64_t request = 0;
  std::uint32_t code = 0;
  std::string reason;
  std::vector<Region> regions;
  bool more = false;
};

struct Ping {
  std::uint64_t nonce = 0;
  bool reply = false;
};
struct Goodbye {
  std::uint32_t code = 0;
  std::string reason;
};
struct Withdrawn {
  std::uint64_t id = 0;
};
struct Challenge {
  std::string nonce;
};
struct Proof {
  std::string digest;
};
struct Resume {
  std::uint64_t session_id = 0, attempt = 0, heard = 0;
  std::string nonce;
};
struct Resumed {
  std::uint64_t heard = 0;
  std::string proof;
};
struct Heard {
  std::uint64_t count = 0;
};

/// index() is the number of the body in the description; 0: none that we know.
using Frame =
    std::variant<std::monostate, Hello, Refused, PathOffer, PathAnswer, PathReady, PathDown, Fence, FenceAck, Lookup,
                 Regions, Ping, Goodbye, Withdrawn, Challenge, Proof, PathWanted, Resume, Resumed, Heard>;

/// The flow whose path the frame speaks of; null: it speaks of none.
template <typename Any>
[[nodiscard]] auto* flow_of(Any& frame) noexcept {
  using Flow = std::conditional_t<std::is_const_v<Any>, const std::uint32_t, std::uint32_t>;
  return std::visit(
      []<typename Body>(Body& body) -> Flow* {
        if constexpr (requires { body.flow; }) return &body.flow;
        return nullptr;
      },
      frame);
}
/// Which of that flow's paths; null: it speaks of none.
template <typename Any>
[[nodiscard]] auto* rail_of(Any& frame) noexcept {
  using Rail = std::conditional_t<std::is_const_v<Any>, const std::uint32_t, std::uint32_t>;
  return std::visit(
      []<typename Body>(Body& body) -> Rail* {
        if constexpr (requires { body.rail; }) return &body.rail;
        return nullptr;
      },
      frame);
}

/// So many of anything that may repeat, in all of a frame: one of 1 MiB takes some 12 MiB at most.
inline constexpr std::size_t kMaxRepeated = std::size_t{1} << 16;

/// Nothing if the bytes are no frame. Fields that we do not know are skipped; groups, which proto3 has not, are
/// refused.
[[nodiscard]] std::optional<Frame> parse(std::string_view bytes);
void append_to(std::string& bytes, const Frame& frame);

/// The most that it takes in a frame.
[[nodiscard]] std::size_t size_limit(const Region& region) noexcept;

}  // namespace fairlead::datapath::control
