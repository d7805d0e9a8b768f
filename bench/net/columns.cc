#include "bench/net/columns.h"

#include <fmt/format.h>

#include "bench/net/measured.h"

namespace fairlead::bench {

std::string perftest_head(const Plan& plan) {
  return plan.kind == Kind::kBandwidth ? " #bytes     #iterations    BW peak[GB/s]    BW average[GB/s]   MsgRate[Mpps]"
                                       : " #bytes     #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    "
                                         "t_avg[usec]    t_stdev[usec]   "
                                         "99% percentile[usec]   99.9% percentile[usec]";
}

std::string perftest_line(const Plan& plan, const Sample& sample) {
  const std::string_view mark = mark_of(sample);
  if (plan.kind == Kind::kBandwidth) {
    const double rate = sample.seconds > 0 ? static_cast<double>(sample.iterations) / sample.seconds : 0;
    return fmt::format(" {:<10} {:<14} {:<16} {:<18.6f} {:.6f}{}", sample.size, sample.iterations, "-",
                       bytes_per_second(sample) / 1e9, rate / 1e6, mark);
  }
  const auto us = [](auto ns) { return static_cast<double>(ns) / 1e3; };
  const Histogram& latency = sample.latency;
  return fmt::format(" {:<10} {:<14} {:<14.2f} {:<12.2f} {:<16.2f} {:<14.2f} {:<15.2f} {:<22.2f} {:.2f}{}", sample.size,
                     sample.iterations, us(latency.min()), us(latency.max()), us(latency.percentile(50)),
                     us(latency.mean()), us(latency.deviation()), us(latency.percentile(99)),
                     us(latency.percentile(99.9)), mark);
}

}  // namespace fairlead::bench
