// What `fairlead bench bw|lat` and `bench --server` were asked to do.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench/net/options.h"
#include "cli/base/args.h"
#include "cli/measure/cores_option.h"
#include "fairlead/config.h"

namespace fairlead::cli {

struct BenchOptions {
  EngineConfig config;
  bench::Plan plan;
  std::string kind, server, json, csv, metrics, prometheus;
  std::vector<std::string> targets;
  std::string op = "write", arrival = "notification", columns = "fairlead";
  std::vector<std::string> compare;  // transports, in place of --transport
  std::uint64_t sessions = 1;        // of each initiator with each target, for each direction
  std::uint64_t initiators = 1;      // engines of this process
  CoresOption cores;
  double wait = 0;  // seconds, for a target that is not there yet
  bool local = false, once = false, no_verify = false, quiet = false;
};

/// `options` must outlive args.parse(), and is complete after it.
void add_bench_options(Args& args, BenchOptions* options);

}  // namespace fairlead::cli
