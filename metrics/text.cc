#include "metrics/text.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <limits>

namespace fairlead::metrics {
namespace {

using Labels = std::vector<std::pair<std::string, std::string>>;

void escape(std::string& to, std::string_view text, bool quotes) {
  for (const char c : text) {
    if (c == '\\' || (quotes && c == '"')) to += '\\';
    if (c == '\n') {
      to += "\\n";
    } else {
      to += c;
    }
  }
}

std::string number(double value) {
  if (std::isnan(value)) return "Nan";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);  // the shortest that reads back the same
}

// `more`: one label beside the sample's own, of a bucket.
void line(std::string& to, std::string_view name, std::string_view suffix, const Labels& labels, double value,
          const std::string* bucket = nullptr) {
  to.append(name).append(suffix);
  char before = '{';
  const auto add = [&](std::string_view label, std::string_view text) {
    to += std::exchange(before, ',');
    to.append(label).append("=\"");
    escape(to, text, true);
    to += '"';
  };
  for (const auto& [label, text] : labels) add(label, text);
  if (bucket != nullptr) add("le", *bucket);
  if (before != '{') to += '}';
  to.append(" ").append(number(value)).append("\n");
}

void histogram(std::string& to, const Metric& metric, const Sample& sample) {
  const Distribution& observed = sample.distribution;
  const auto count = static_cast<double>(observed.count);
  line(to, metric.name, "_count", sample.labels, count);
  line(to, metric.name, "_sum", sample.labels, observed.sum);
  for (const Distribution::Bucket& bucket : observed.buckets) {
    const std::string most = number(bucket.most);
    line(to, metric.name, "_bucket", sample.labels, static_cast<double>(bucket.count), &most);
  }
  const std::string infinity = number(std::numeric_limits<double>::infinity());
  line(to, metric.name, "_bucket", sample.labels, count, &infinity);
}

}  // namespace

std::string text_of(const std::vector<Metric>& metrics) {
  constexpr const char* kKinds[] = {"counter", "gauge", "histogram"};
  std::string text;
  for (const Metric& metric : metrics) {
    text.append("# HELP ").append(metric.name).append(" ");
    escape(text, metric.help, false);
    fmt::format_to(std::back_inserter(text), "\n# TYPE {} {}\n", metric.name,
                   kKinds[static_cast<std::size_t>(metric.kind)]);
    for (const Sample& sample : metric.samples) {
      if (metric.kind == Kind::kHistogram) {
        histogram(text, metric, sample);
      } else {
        line(text, metric.name, "", sample.labels, sample.value);
      }
    }
  }
  return text;
}

}  // namespace fairlead::metrics
