#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "bench/base/sizes.h"
#include "cli/base/args.h"
#include "fairlead/config.h"

namespace fairlead::cli {
namespace {

Status illegal(std::string_view text, std::string_view legal) {
  return {Code::kInvalidArgument, fmt::format("'{}' is not legal here (legal: {})", text, legal)};
}

// from_chars of the whole text, or nothing.
template <typename T>
bool read_whole(std::string_view text, T& value) {
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const auto [rest, error] = std::from_chars(begin, end, value);
  return error == std::errc() && rest == end;
}

}  // namespace

Setter set_text(std::string* target) {
  return [target](std::string_view text) {
    *target = text;
    return Status();
  };
}

Setter unless_empty(Setter setter) {
  return [setter = std::move(setter)](std::string_view text) {
    if (text.empty()) return Status(Code::kInvalidArgument, "it is empty: name one, or leave it out");
    return setter(text);
  };
}

Setter set_choice(std::string* target, std::vector<std::string> legal) {
  return [target, legal = std::move(legal)](std::string_view text) {
    if (std::find(legal.begin(), legal.end(), text) == legal.end()) {
      return illegal(text, fmt::format("{}", fmt::join(legal, ", ")));
    }
    *target = text;
    return Status();
  };
}

Setter set_switch(bool* target) {
  return [target](std::string_view text) {
    constexpr std::string_view kOn[] = {"1", "true", "yes", "on"};
    constexpr std::string_view kOff[] = {"0", "false", "no", "off"};
    const bool on = std::find(std::begin(kOn), std::end(kOn), text) != std::end(kOn);
    if (!on && std::find(std::begin(kOff), std::end(kOff), text) == std::end(kOff)) {
      return illegal(text, fmt::format("{}, {}", fmt::join(kOn, ", "), fmt::join(kOff, ", ")));
    }
    *target = on;
    return Status();
  };
}

Setter set_number(std::function<void(std::int64_t)> store, std::int64_t min, std::int64_t max) {
  return [store = std::move(store), min, max](std::string_view text) {
    std::int64_t value = 0;
    if (!read_whole(text, value) || value < min || value > max) {
      return illegal(text, fmt::format("a whole number from {} to {}", min, max));
    }
    store(value);
    return Status();
  };
}

Setter set_decimal(double* target, std::string what, double min, double max) {
  return [target, what = std::move(what), min, max](std::string_view text) {
    double value = 0;
    if (!read_whole(text, value) || !(value >= min && value <= max)) {
      return illegal(text, fmt::format("{}, from {} to {}", what, min, max));
    }
    *target = value;
    return Status();
  };
}

Setter set_seconds(double* target, double min, double max) { return set_decimal(target, "seconds", min, max); }

Setter set_size(std::uint64_t* target, std::uint64_t min, std::uint64_t max) {
  return [target, min, max](std::string_view text) {
    const Result<std::uint64_t> size = bench::parse_size(text);
    if (!size) return size.error();
    if (*size < min || *size > max) {
      return illegal(text, fmt::format("a size from {} to {}", bench::format_size(min), bench::format_size(max)));
    }
    *target = *size;
    return Status();
  };
}

Setter set_host_port(std::string* target, bool need_host) {
  return [target, need_host](std::string_view text) {
    const Result<HostPort> parsed = parse_host_port(text);
    if (!parsed) return parsed.error();
    if (need_host && (parsed->host.empty() || parsed->port == 0)) {
      return illegal(text, "HOST:PORT with a port from 1 to 65535, for example gpu7:7471");
    }
    *target = text;
    return Status();
  };
}

Setter set_places(std::string* target) {
  return [target](std::string_view text) {
    std::string_view rest = text;
    for (bool more = true; more;) {  // each as an address by itself, for its words
      const std::size_t comma = rest.find(',');
      std::string one;
      if (Status status = set_host_port(&one, true)(rest.substr(0, comma)); !status.ok()) return status;
      more = comma != std::string_view::npos;
      if (more) rest.remove_prefix(comma + 1);
    }
    if (const auto places = parse_places(text); !places) return places.error();
    *target = text;
    return Status();
  };
}

}  // namespace fairlead::cli
