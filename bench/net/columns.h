// The table in the columns of perftest (ib_write_bw, ib_write_lat), for whoever reads or parses those.
#pragma once

#include <string>

#include "bench/net/options.h"

namespace fairlead::bench {

/// GB is 10^9 bytes, Mpps 10^6 operations a second.
[[nodiscard]] std::string perftest_head(const Plan& plan);
/// "-" stands for what is not measured: a peak. Of several sessions the sum.
[[nodiscard]] std::string perftest_line(const Plan& plan, const Sample& sample);

}  // namespace fairlead::bench
