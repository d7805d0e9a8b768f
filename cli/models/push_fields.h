// Reads the fields of one JSON object from the network, strictly: the first thing wrong is remembered and the rest is
// skipped, so that readers are straight lines. For push_protocol.cc.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/base/json.h"
#include "cli/models/push_protocol.h"

namespace fairlead::cli {

inline constexpr auto kMaxBytes = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

class Fields {
 public:
  /// `what` is for messages. `object` must outlive this.
  Fields(std::string_view what, const bench::Json& object) : what_(what), object_(object) {}

  Fields& text(std::string_view name, std::string& out, std::size_t max_bytes);
  [[nodiscard]] bool has(std::string_view name) const { return object_.find(name) != nullptr; }
  Fields& flag(std::string_view name, bool& out);
  template <std::unsigned_integral T>
  Fields& number(std::string_view name, T& out, std::uint64_t max) {
    std::uint64_t value = 0;
    if (wide_number(name, value, max)) out = static_cast<T>(value);
    return *this;
  }
  Fields& number_or_null(std::string_view name, std::optional<std::uint32_t>& out);
  Fields& numbers(std::string_view name, std::vector<std::uint32_t>& out, std::size_t max_length);
  /// Finite, 0 to 10^9.
  Fields& seconds(std::string_view name, double& out);
  /// An array of pairs of strings, `max_bytes` in all.
  Fields& pairs(std::string_view name, std::vector<std::pair<std::string, std::string>>& out, std::size_t max_bytes);
  /// "dtype", "shape" and "bytes", which fit each other.
  Fields& tensor_type(FileTensor& out);
  Fields& list(std::string_view name, std::size_t max_length, const std::function<void(Fields&)>& each);

  /// The message, or what was wrong.
  template <typename Message>
  Result<PushMessage> finish(Message message) {
    if (!error_.empty()) return Status(Code::kDataLoss, fmt::format("message {}: {}", what_, error_));
    return PushMessage(std::move(message));
  }

  /// For what the reader finds wrong itself.
  void wrong(std::string_view name, std::string_view why);

 private:
  const bench::Json* field(std::string_view name);
  bool wide_number(std::string_view name, std::uint64_t& out, std::uint64_t max);

  std::string_view what_;
  const bench::Json& object_;
  std::string error_;
};

/// As Fields::pairs reads them.
[[nodiscard]] bench::Json pairs_to_json(const std::vector<std::pair<std::string, std::string>>& pairs);

}  // namespace fairlead::cli
