#include "bench/base/json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace fairlead::bench {
namespace {

// Destroying a value recurses once per level; this bounds it for any input.
constexpr std::size_t kMaxDepth = 64;
constexpr std::size_t kMaxWords = 200;  // of what the parser says, which holds what it read last
constexpr std::size_t kMaxShown = 40;

// Builds values from nlohmann's events: its own document type would drop duplicate names silently.
class Builder {
 public:
  explicit Builder(std::size_t most) : left_(most), most_(most) {}
  bool null() { return add(Json()); }
  bool boolean(bool value) { return add(Json(value)); }
  bool number_integer(std::int64_t value) { return add(Json(value)); }
  bool number_unsigned(std::uint64_t value) { return add(Json(value)); }
  bool number_float(double value, const std::string&) { return add(Json(value)); }
  bool string(std::string& value) { return add(Json(std::move(value))); }
  bool binary(nlohmann::json::binary_t&) { return false; }
  bool key(std::string& name) {
    open_.back().name = std::move(name);
    return true;
  }
  bool start_object(std::size_t) { return open(true); }
  bool start_array(std::size_t) { return open(false); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) {
    std::string_view what = error.what();
    if (const std::size_t colon = what.find(": "); colon != std::string_view::npos) what.remove_prefix(colon + 2);
    error_ = fmt::format("byte {}: {}", position, what.substr(0, kMaxWords));
    return false;
  }

  Result<Json> take(bool complete) {
    if (complete) return std::move(root_);
    return Status(Code::kDataLoss, "not valid JSON: " + error_);
  }

 private:
  struct Level {
    bool is_object;
    std::string name;  // of the member that comes next
    Json::Object members;
    Json::Array elements;
  };

  bool open(bool is_object) {
    if (open_.size() == kMaxDepth) {
      error_ = fmt::format("nested deeper than {} levels", kMaxDepth);
      return false;
    }
    open_.push_back({is_object, {}, {}, {}});
    return true;
  }

  bool close() {
    Level level = std::move(open_.back());
    open_.pop_back();
    return add(level.is_object ? Json(std::move(level.members)) : Json(std::move(level.elements)));
  }

  bool add(Json value) {
    if (left_-- == 0) {
      error_ = fmt::format("more than {} values", most_);
      return false;
    }
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().is_object) {
      open_.back().members.emplace_back(std::move(open_.back().name), std::move(value));
    } else {
      open_.back().elements.push_back(std::move(value));
    }
    return true;
  }

  std::vector<Level> open_;
  Json root_;
  std::size_t left_;
  const std::size_t most_;
  std::string error_ = "empty";
};

nlohmann::ordered_json to_nlohmann(const Json& value) {
  if (const auto* text = value.string()) return *text;
  if (const auto* elements = value.array()) {
    auto out = nlohmann::ordered_json::array();
    for (const Json& element : *elements) out.push_back(to_nlohmann(element));
    return out;
  }
  if (const auto* members = value.object()) {
    nlohmann::ordered_json::object_t out;
    std::vector<nlohmann::ordered_json::object_t::value_type>& list = out;  // its own insertion looks at all before
    list.reserve(members->size());
    for (const auto& [name, member] : *members) list.emplace_back(name, to_nlohmann(member));
    return out;
  }
  if (const auto flag = value.boolean()) return *flag;
  if (const auto integer = value.uint()) return *integer;
  if (const auto integer = value.sint()) return *integer;
  if (const auto number = value.number()) return *number;
  return nullptr;
}

}  // namespace

Result<Json> Json::parse(std::string_view text, std::size_t most) {
  Builder builder(most);
  const bool complete = nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take(complete);
}

std::string Json::dump(int indent) const {
  return to_nlohmann(*this).dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string Json::brief() const {
  if (object() != nullptr) return "an object";
  if (array() != nullptr) return "an array";
  std::string text = dump();
  if (text.size() > kMaxShown) text.replace(kMaxShown, std::string::npos, "...");
  return text;
}

std::optional<bool> Json::boolean() const noexcept {
  const bool* flag = std::get_if<bool>(&value_);
  return flag != nullptr ? std::optional<bool>(*flag) : std::nullopt;
}

std::optional<std::uint64_t> Json::uint() const noexcept {
  if (const auto* value = std::get_if<std::uint64_t>(&value_)) return *value;
  if (const auto* value = std::get_if<std::int64_t>(&value_); value != nullptr && *value >= 0) {
    return static_cast<std::uint64_t>(*value);
  }
  return std::nullopt;
}

std::optional<std::int64_t> Json::sint() const noexcept {
  if (const auto* value = std::get_if<std::int64_t>(&value_); value != nullptr && *value < 0) return *value;
  return std::nullopt;
}

std::optional<double> Json::number() const noexcept {
  if (const auto* value = std::get_if<double>(&value_)) return *value;
  if (const auto* value = std::get_if<std::int64_t>(&value_)) return static_cast<double>(*value);
  if (const auto* value = std::get_if<std::uint64_t>(&value_)) return static_cast<double>(*value);
  return std::nullopt;
}

const Json* Json::find(std::string_view name) const noexcept {
  if (const Object* members = object()) {
    for (const auto& [key, value] : *members) {
      if (key == name) return &value;
    }
  }
  return nullptr;
}

std::string_view Json::type_name() const noexcept {
  constexpr std::string_view kNames[] = {"null", "boolean", "number", "number", "number", "string", "array", "object"};
  return kNames[value_.index()];
}

}  // namespace fairlead::bench
