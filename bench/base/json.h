// JSON values: what nlohmann-json reads and writes, behind a header that costs nothing to include.
//
// Objects keep the order and the duplicates of their members, so that a strict reader can refuse duplicates.
// Threads: values; no shared state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "fairlead/status.h"

namespace fairlead::bench {

class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;

  Json() noexcept = default;  // null
  // NOLINTBEGIN(google-explicit-constructor): a value is what it is made of.
  Json(bool value) noexcept : value_(value) {}
  Json(std::int64_t value) noexcept : value_(value) {}
  Json(int value) noexcept : value_(std::int64_t{value}) {}
  Json(std::uint64_t value) noexcept : value_(value) {}
  Json(std::uint32_t value) noexcept : value_(std::uint64_t{value}) {}
  Json(double value) noexcept : value_(value) {}
  Json(std::string value) : value_(std::move(value)) {}
  Json(std::string_view value) : value_(std::string(value)) {}
  Json(const char* value) : value_(std::string(value)) {}
  Json(Array value) : value_(std::move(value)) {}
  Json(Object value) : value_(std::move(value)) {}
  // NOLINTEND(google-explicit-constructor)

  /// Reads one document; nothing may follow it. A value takes some 70 bytes, so who takes a text of strangers sets
  /// `most`. Errors: kDataLoss with the byte offset; nesting beyond 64; more than `most` values.
  static Result<Json> parse(std::string_view text, std::size_t most = std::numeric_limits<std::size_t>::max());
  /// `indent` < 0: one line. Bytes that are not UTF-8 are replaced by U+FFFD.
  [[nodiscard]] std::string dump(int indent = -1) const;

  /// For a message: a value as it is written, cut behind 40 bytes, and of what has others in it only that.
  [[nodiscard]] std::string brief() const;

  [[nodiscard]] const std::string* string() const noexcept { return std::get_if<std::string>(&value_); }
  [[nodiscard]] const Array* array() const noexcept { return std::get_if<Array>(&value_); }
  [[nodiscard]] const Object* object() const noexcept { return std::get_if<Object>(&value_); }
  [[nodiscard]] std::optional<bool> boolean() const noexcept;
  /// A non-negative integer that was written as one (no fraction, no exponent).
  [[nodiscard]] std::optional<std::uint64_t> uint() const noexcept;
  /// A negative integer that was written as one.
  [[nodiscard]] std::optional<std::int64_t> sint() const noexcept;
  /// Any number.
  [[nodiscard]] std::optional<double> number() const noexcept;
  /// The first member of that name, or null if there is none or this is no object.
  [[nodiscard]] const Json* find(std::string_view name) const noexcept;
  /// "null", "boolean", "number", "string", "array" or "object".
  [[nodiscard]] std::string_view type_name() const noexcept;

 private:
  std::variant<std::nullptr_t, bool, std::int64_t, std::uint64_t, double, std::string, Array, Object> value_ = nullptr;
};

}  // namespace fairlead::bench
