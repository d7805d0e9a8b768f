#include "cli/models/push_fields.h"

namespace fairlead::cli {

using bench::Json;

void Fields::wrong(std::string_view name, std::string_view why) {
  if (error_.empty()) error_ = fmt::format("field '{}' {}", name, why);
}

const Json* Fields::field(std::string_view name) {
  if (!error_.empty()) return nullptr;
  const Json* value = object_.find(name);
  if (value == nullptr) wrong(name, "is missing");
  return value;
}

Fields& Fields::text(std::string_view name, std::string& out, std::size_t max_bytes) {
  if (const Json* value = field(name)) {
    if (value->string() == nullptr) {
      wrong(name, "is no string");
    } else if (value->string()->size() > max_bytes) {
      wrong(name, fmt::format("has {} bytes; the limit is {}", value->string()->size(), max_bytes));
    } else {
      out = *value->string();
    }
  }
  return *this;
}

bool Fields::wide_number(std::string_view name, std::uint64_t& out, std::uint64_t max) {
  const Json* value = field(name);
  if (value == nullptr) return false;
  const auto number = value->uint();
  if (!number || *number > max) {
    wrong(name, fmt::format("is {}, not a whole number up to {}", value->brief(), max));
    return false;
  }
  out = *number;
  return true;
}

Fields& Fields::seconds(std::string_view name, double& out) {
  if (const Json* value = field(name)) {
    const auto number = value->number();
    if (number && *number >= 0 && *number <= 1e9) {
      out = *number;
    } else {
      wrong(name, "is no number of seconds");
    }
  }
  return *this;
}

Fields& Fields::pairs(std::string_view name, std::vector<std::pair<std::string, std::string>>& out,
                      std::size_t max_bytes) {
  const Json* value = field(name);
  if (value == nullptr) return *this;
  if (value->array() == nullptr) {
    wrong(name, "is no array");
    return *this;
  }
  std::size_t bytes = 0;
  for (const Json& element : *value->array()) {
    const Json::Array* pair = element.array();
    if (pair == nullptr || pair->size() != 2 || (*pair)[0].string() == nullptr || (*pair)[1].string() == nullptr) {
      wrong(name, "holds something other than pairs of strings");
      return *this;
    }
    bytes += (*pair)[0].string()->size() + (*pair)[1].string()->size();
    if (bytes > max_bytes) {
      wrong(name, fmt::format("has more than {} bytes", max_bytes));
      return *this;
    }
    out.emplace_back(*(*pair)[0].string(), *(*pair)[1].string());
  }
  return *this;
}

Fields& Fields::tensor_type(FileTensor& out) {
  text("dtype", out.dtype, kMaxTensorName).number("bytes", out.bytes, kMaxBytes);
  const Json* shape = field("shape");
  if (shape == nullptr) return *this;
  if (shape->array() == nullptr || shape->array()->size() > kMaxRank) {
    wrong("shape", fmt::format("is no array of at most {} dimensions", kMaxRank));
    return *this;
  }
  for (const Json& dimension : *shape->array()) {
    if (!dimension.uint() || *dimension.uint() > kMaxBytes) {
      wrong("shape", "holds something other than integers from 0 to 2^63 - 1");
      return *this;
    }
    out.shape.push_back(static_cast<std::int64_t>(*dimension.uint()));
  }
  if (const Status type = check_tensor_type(out.dtype, out.shape, out.bytes); !type.ok()) {
    wrong("shape", type.message());
  }
  return *this;
}

Fields& Fields::flag(std::string_view name, bool& out) {
  if (const Json* value = field(name)) {
    if (const auto flag = value->boolean()) {
      out = *flag;
    } else {
      wrong(name, "is neither true nor false");
    }
  }
  return *this;
}

Fields& Fields::number_or_null(std::string_view name, std::optional<std::uint32_t>& out) {
  const Json* value = field(name);
  if (value == nullptr || value->type_name() == "null") return *this;
  return number(name, out.emplace(), std::numeric_limits<std::uint32_t>::max());
}

Fields& Fields::numbers(std::string_view name, std::vector<std::uint32_t>& out, std::size_t max_length) {
  const Json* value = field(name);
  if (value == nullptr) return *this;
  if (value->array() == nullptr || value->array()->size() > max_length) {
    wrong(name, fmt::format("is no array of at most {} numbers", max_length));
    return *this;
  }
  for (const Json& element : *value->array()) {
    if (!element.uint() || *element.uint() > std::numeric_limits<std::uint32_t>::max()) {
      wrong(name, "holds something other than numbers below 2^32");
      return *this;
    }
    out.push_back(static_cast<std::uint32_t>(*element.uint()));
  }
  return *this;
}

Fields& Fields::list(std::string_view name, std::size_t max_length, const std::function<void(Fields&)>& each) {
  const Json* value = field(name);
  if (value == nullptr) return *this;
  if (value->array() == nullptr || value->array()->size() > max_length) {
    wrong(name, fmt::format("is no array of at most {} elements", max_length));
    return *this;
  }
  for (const Json& element : *value->array()) {
    Fields one(what_, element);
    each(one);
    if (!one.error_.empty()) {
      wrong(name, "holds an element whose " + one.error_);
      return *this;
    }
  }
  return *this;
}

Json pairs_to_json(const std::vector<std::pair<std::string, std::string>>& pairs) {
  Json::Array list;
  for (const auto& [first, second] : pairs) list.push_back(Json::Array{first, second});
  return list;
}

}  // namespace fairlead::cli
