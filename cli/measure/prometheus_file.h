// Results for the textfile collector of Prometheus' node_exporter, which serves what lies in a folder of its own beside
// what it knows of the host: a measurement by cron becomes a series.
#pragma once

#include <string>
#include <vector>

#include "cli/base/args.h"
#include "fairlead/status.h"
#include "metrics/metric.h"

namespace fairlead::cli {

/// Adds --prometheus-file. Standard output is no legal value: what must be whole or absent is a file.
void add_prometheus_file(Args& args, std::string* file);

/// Nothing if no file was asked for. Who reads it meanwhile sees the old file or the new one, whole. A metric without
/// samples is left out, and of samples with the same labels the first stays: a reader refuses the whole file otherwise.
[[nodiscard]] Status write_prometheus_file(const std::string& file, std::vector<metrics::Metric> metrics);

}  // namespace fairlead::cli
