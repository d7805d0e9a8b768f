#include "bench/matrix/matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "bench/base/host.h"
#include "bench/net/initiator.h"
#include "bench/net/measured.h"
#include "bench/net/target.h"

namespace fairlead::bench {
namespace {

Result<Json> measure_pair(Group& group, std::size_t to, const MatrixPlan& plan) {
  Link link(&group.engine(), group.peer(to));
  Plan bandwidth, latency;
  bandwidth.depth = plan.depth;
  bandwidth.duration = latency.duration = plan.duration;
  latency.kind = Kind::kLatency;
  const Result<Sample> bulk = measure(link, bandwidth, plan.size);
  const Result<Sample> small = bulk ? measure(link, latency, plan.latency_size) : bulk;
  const Result<Json> ended = link.ask("end");  // the other end is not to wait for more, also if it failed
  if (!ended) link.peer().close();
  if (!small) return small.error();
  if (!ended) return ended.error();
  return Json(Json::Object{{"bytes_per_second", bytes_per_second(*bulk)},
                           {"latency_p50", small->latency.percentile(50)},
                           {"latency_p99", small->latency.percentile(99)},
                           {"transport", link.peer().transport()}});
}

/// What this rank has to say of a turn: the figures of its pair if it is the active end of one, else nothing.
Result<std::string> take_part(Group& group, Target& target, const std::vector<Pair>& turn, const MatrixPlan& plan) {
  const auto mine =
      std::ranges::find_if(turn, [&](Pair pair) { return pair.from == group.rank() || pair.to == group.rank(); });
  if (mine == turn.end()) return std::string();
  const bool active = mine->from == group.rank();
  const Result<Json> figures = active ? measure_pair(group, mine->to, plan) : [&]() -> Result<Json> {
    const Status served = target.serve(group.peer(mine->from));
    return served.ok() ? Result(Json()) : served;
  }();
  if (!figures) {
    return Status(figures.error().code(),
                  fmt::format("rank {} to rank {}: {}", mine->from, mine->to, figures.error().message()));
  }
  return active ? figures->dump() : std::string();
}

/// What a rank has to say that failed, for rank 0.
std::string failed(const Status& why) {
  return Json(Json::Object{{"error", why.message()}, {"code", static_cast<std::uint64_t>(why.code())}}).dump();
}

/// Why one of the ranks failed, if it said that it did.
Status failure_of(const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    const Result<Json> said = text.empty() ? Json() : Json::parse(text);
    const Json* error = said ? said->find("error") : nullptr;
    if (error == nullptr || error->string() == nullptr) continue;
    const Json* code = said->find("code");
    const double number = code != nullptr ? code->number().value_or(0) : 0;
    const bool known = number >= 1 && number <= static_cast<double>(Code::kInternal);
    return {known ? static_cast<Code>(number) : Code::kUnavailable, *error->string()};
  }
  return {};
}

/// Of `pair`, as its active end said; false: not so.
bool take_in(Matrix& matrix, Pair pair, const std::string& text) {
  const Result<Json> figures = Json::parse(text);
  const auto number = [&](std::string_view name) -> double {
    const Json* field = figures ? figures->find(name) : nullptr;
    return field != nullptr ? field->number().value_or(0) : 0;
  };
  const double bulk = number("bytes_per_second"), p50 = number("latency_p50"), p99 = number("latency_p99");
  const Json* transport = figures ? figures->find("transport") : nullptr;
  if (!(bulk > 0) || !(p50 > 0) || !(p99 > 0) || transport == nullptr || transport->string() == nullptr) return false;
  matrix.bytes_per_second.set(pair, bulk);
  matrix.latency_p50.set(pair, p50);
  matrix.latency_p99.set(pair, p99);
  const std::vector<Pair> pairs = matrix.latency_p50.pairs();
  matrix.transports[static_cast<std::size_t>(std::ranges::find(pairs, pair) - pairs.begin())] = *transport->string();
  return true;
}

Status play(Group& group, const MatrixPlan& plan, Matrix& matrix,
            const std::function<void(std::size_t, std::size_t)>& tell) {
  const std::size_t ranks = group.size();
  matrix.bytes_per_second = matrix.latency_p50 = matrix.latency_p99 = Grid(ranks);
  matrix.transports.resize(ranks * (ranks - 1));
  const Result<std::vector<std::string>> hosts = group.gather(host_info().name);
  if (!hosts) return hosts.error();
  for (std::size_t rank = 0; rank < hosts->size(); ++rank) {
    const std::string address = rank == group.rank() ? group.engine().listen_address() : group.peer(rank).address();
    matrix.ranks.push_back({(*hosts)[rank], address.substr(0, address.rfind(':'))});
  }
  group.allow_pauses(2 * plan.duration);  // a rank that has no pair waits for a turn
  Target target(&group.engine());
  const std::vector<std::vector<Pair>> turns = tournament(ranks);
  for (const std::vector<Pair>& turn : turns) {
    const Result<std::uint64_t> stopped = group.from_first(plan.stop != nullptr && *plan.stop != 0 ? 1 : 0);
    if (!stopped) return stopped.error();
    matrix.interrupted = *stopped != 0;
    if (matrix.interrupted) break;
    if (const Status all = group.barrier(); !all.ok()) return all;
    const Result<std::string> said = take_part(group, target, turn, plan);
    if (!said && group.rank() == 0) return said.error();
    const Result<std::vector<std::string>> texts = group.gather(said ? *said : failed(said.error()));
    if (!said) return said.error();
    if (!texts) return texts.error();
    if (group.rank() == 0) {
      const Status failure = failure_of(*texts);
      for (const Pair pair : turn) {
        if (take_in(matrix, pair, (*texts)[pair.from]) || !failure.ok()) continue;
        return {Code::kDataLoss, fmt::format("rank {}: its figures of rank {} are none", pair.from, pair.to)};
      }
      if (!failure.ok()) return failure;
    }
    ++matrix.turns;
    if (group.rank() != 0) continue;
    if (tell) tell(matrix.turns, turns.size());
  }
  return group.barrier();
}

}  // namespace

Status measure_matrix(Group& group, const MatrixPlan& plan, Matrix* made,
                      const std::function<void(std::size_t, std::size_t)>& tell) {
  *made = {};
  made->failed = play(group, plan, *made, tell);
  made->interrupted |= !made->failed.ok();
  return made->failed;
}

}  // namespace fairlead::bench
