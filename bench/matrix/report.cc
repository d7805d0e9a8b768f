#include "bench/matrix/report.h"

#include <fmt/format.h>

#include <map>
#include <string_view>
#include <utility>

#include "bench/base/host.h"
#include "bench/base/report_head.h"

namespace fairlead::bench {
namespace {

struct Figure {
  std::string_view name, unit;
  Better better;
  double divisor;  // from bytes a second, or nanoseconds
};
constexpr Figure kBandwidth{"bandwidth", "MB/s", Better::kHigher, 1e6}, kLatency{"latency", "us", Better::kLower, 1e3};

double times_worse(const Figure& figure, double value, double typical) {
  return figure.better == Better::kHigher ? typical / value : value / typical;
}

void add(Json::Array& ranks, Json::Array& pairs, const Figure& figure, const Outliers& outliers) {
  const auto with_figures = [&](Json::Object who, double value, double typical) {
    who.emplace_back("of", figure.name);
    who.emplace_back("value", value);
    who.emplace_back("typical", typical);
    who.emplace_back("times_worse", times_worse(figure, value, typical));
    return who;
  };
  for (const SlowRank& slow : outliers.ranks) {
    ranks.emplace_back(with_figures({{"rank", slow.rank}, {"role", to_string(slow.role)}}, slow.value, slow.typical));
  }
  for (const SlowPair& slow : outliers.pairs) {
    pairs.emplace_back(with_figures({{"from", slow.pair.from}, {"to", slow.pair.to}}, slow.value, slow.typical));
  }
}

void add(std::vector<std::string>& out, const Figure& figure, const Grid& grid) {
  out.push_back(fmt::format("{} in {}, from the rank of a line to that of a column", figure.name, figure.unit));
  std::string line(6, ' ');
  for (std::size_t to = 0; to < grid.ranks(); ++to) line += fmt::format(" {:>9}", to);
  out.push_back(std::move(line));
  for (std::size_t from = 0; from < grid.ranks(); ++from) {
    line = fmt::format("{:>6}", from);
    for (std::size_t to = 0; to < grid.ranks(); ++to) {
      const double value = grid.at({from, to});
      line += value == 0 ? fmt::format(" {:>9}", "-") : fmt::format(" {:>9.2f}", value / figure.divisor);
    }
    out.push_back(std::move(line));
  }
}

void add(std::vector<std::string>& out, const Figure& figure, const Matrix& matrix, const Outliers& outliers) {
  const auto compared = [&](double value, double typical) {
    return fmt::format("{:.2f} {} where {:.2f} is usual, {:.1f} times worse", value / figure.divisor, figure.unit,
                       typical / figure.divisor, times_worse(figure, value, typical));
  };
  const auto role = [](Role role) { return role == Role::kFrom ? "from " : role == Role::kTo ? "to " : ""; };
  for (const SlowRank& slow : outliers.ranks) {
    out.push_back(fmt::format("slow: {}rank {} ({}), median {} of its pairs: {}", role(slow.role), slow.rank,
                              matrix.ranks[slow.rank].address, figure.name, compared(slow.value, slow.typical)));
  }
  for (const SlowPair& slow : outliers.pairs) {
    out.push_back(fmt::format("slow: from rank {} to rank {}, {}: {}", slow.pair.from, slow.pair.to, figure.name,
                              compared(slow.value, slow.typical)));
  }
}

}  // namespace

MatrixOutliers find_outliers(const Matrix& matrix, double factor) {
  return {find_outliers(matrix.bytes_per_second, kBandwidth.better, factor),
          find_outliers(matrix.latency_p50, kLatency.better, factor)};
}

Json report(const Matrix& matrix, const MatrixPlan& plan, const MatrixOutliers& outliers, double factor) {
  Json::Array ranks, pairs, slow_ranks, slow_pairs;
  for (std::size_t rank = 0; rank < matrix.ranks.size(); ++rank) {
    ranks.emplace_back(
        Json::Object{{"rank", rank}, {"host", matrix.ranks[rank].host}, {"address", matrix.ranks[rank].address}});
  }
  for (std::size_t i = 0; const Pair pair : matrix.latency_p50.pairs()) {
    const std::string& transport = matrix.transports[i++];
    if (transport.empty()) continue;  // it was interrupted before their turn
    pairs.emplace_back(Json::Object{
        {"from", pair.from},
        {"to", pair.to},
        {"transport", transport},
        {"bytes_per_second", matrix.bytes_per_second.at(pair)},
        {"latency_ns", Json::Object{{"p50", matrix.latency_p50.at(pair)}, {"p99", matrix.latency_p99.at(pair)}}}});
  }
  add(slow_ranks, slow_pairs, kBandwidth, outliers.bandwidth);
  add(slow_ranks, slow_pairs, kLatency, outliers.latency);
  return report_head("fairlead.bench.matrix/1",
                     {{"host", to_json(host_info())},
                      {"ranks", std::move(ranks)},
                      {"size_bytes", plan.size},
                      {"latency_size_bytes", plan.latency_size},
                      {"depth", plan.depth},
                      {"duration_seconds", plan.duration},
                      {"turns", matrix.turns},
                      {"latency_kind", "half_round_trip"},
                      {"pairs", std::move(pairs)},
                      {"slow_factor", factor},
                      {"slow_ranks", std::move(slow_ranks)},
                      {"slow_pairs", std::move(slow_pairs)},
                      {"verified", true},
                      {"interrupted", matrix.interrupted},
                      {"error", matrix.failed.ok() ? Json() : Json(matrix.failed.to_string())}});
}

std::vector<std::string> lines(const Matrix& matrix, const MatrixOutliers& outliers) {
  std::vector<std::string> out;
  for (std::size_t rank = 0; rank < matrix.ranks.size(); ++rank) {
    out.push_back(fmt::format("rank {}: {}, {}", rank, matrix.ranks[rank].host, matrix.ranks[rank].address));
  }
  std::map<std::string, std::size_t> pairs;
  for (const std::string& transport : matrix.transports) {
    if (!transport.empty()) ++pairs[transport];
  }
  for (const auto& [transport, count] : pairs) {
    out.push_back(fmt::format("{} of {} pairs over {}", count, matrix.transports.size(), transport));
  }
  add(out, kBandwidth, matrix.bytes_per_second);
  add(out, kLatency, matrix.latency_p50);
  if (matrix.interrupted) {
    out.emplace_back("interrupted: what stands above is all that was measured, too little to say who is slow");
    return out;
  }
  const std::size_t before = out.size();
  add(out, kBandwidth, matrix, outliers.bandwidth);
  add(out, kLatency, matrix, outliers.latency);
  if (out.size() == before) out.emplace_back("no rank and no pair is much slower than the others");
  return out;
}

}  // namespace fairlead::bench
