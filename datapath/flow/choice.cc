#include "datapath/flow/choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "base/words.h"

namespace fairlead::datapath {
namespace {

enum Rank { kAskedFor, kSameHost, kHardware, kTcp, kSoftware };

std::string_view why(Rank rank) {
  switch (rank) {
    case kAskedFor:
      return "asked for";
    case kSameHost:
      return "the peer is a process of this user on this host";
    case kHardware:
      return "RDMA hardware on both ends";
    case kTcp:
      return "tcp works everywhere";
    case kSoftware:
      return "a software device, ranks below tcp";
  }
  return "";
}

bool asked_for(const std::string& wanted, const Offer& offer) {
  return std::ranges::any_of(words_of(wanted),
                             [&](const std::string& word) { return word == offer.name || word == offer.kind; });
}

Rank rank_of(const Offer& mine, const Offer& theirs) {
  if (mine.kind.find(kPlace) != std::string::npos) return kSameHost;
  if (mine.kind == "tcp") return kTcp;
  return mine.software || theirs.software ? kSoftware : kHardware;
}

std::string_view without_place(const Offer& offer) {
  return std::string_view(offer.kind).substr(0, offer.kind.find(kPlace));
}

/// Where nothing of theirs is of our kind.
std::string why_not_met(const Offer& mine, const std::vector<Offer>& theirs) {
  const auto elsewhere = [&](const Offer& offer) { return without_place(offer) == without_place(mine); };
  if (std::ranges::any_of(theirs, elsewhere)) return "the peer is of another host, user or network namespace";
  return fmt::format("the peer offers no {}", without_place(mine));
}

}  // namespace

std::string why_not(const Policy& policy, const Offer& ours) {
  const auto is = [&](const std::string& word) {
    return asked_for(word, ours) || (ours.kind == "verbs" && word == (ours.software ? "software" : "hardware"));
  };
  const auto forbidden = std::find_if(policy.forbid.begin(), policy.forbid.end(), is);
  if (forbidden != policy.forbid.end()) return fmt::format("forbidden here (forbid: {})", *forbidden);
  if (policy.require.empty() || std::any_of(policy.require.begin(), policy.require.end(), is)) return {};
  return fmt::format("not what is required here (require: {})", fmt::join(policy.require, ","));
}

Choice choose(const std::string& wanted, bool failover, const std::vector<Offer>& ours,
              const std::vector<Offer>& theirs, const Policy& policy) {
  Choice choice;
  std::vector<std::pair<Rank, Candidate>> ranked;
  for (std::size_t l = 0; l < ours.size(); ++l) {
    const Offer& mine = ours[l];
    if (const std::string why = why_not(policy, mine); !why.empty()) {
      choice.rejected.push_back(fmt::format("{}: {}", mine.name, why));
      continue;
    }
    bool met = false;
    for (std::size_t r = 0; r < theirs.size(); ++r) {
      if (theirs[r].kind != mine.kind) continue;
      met = true;
      const Rank rank = asked_for(wanted, mine) ? kAskedFor : rank_of(mine, theirs[r]);
      if (rank != kAskedFor && wanted != "auto" && !failover) continue;
      ranked.emplace_back(rank, Candidate{l, r, std::string(why(rank)), rank, theirs[r].addresses});
    }
    if (!met) choice.rejected.push_back(fmt::format("{}: {}", mine.name, why_not_met(mine, theirs)));
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  if (wanted == "auto" && !failover) {
    // Whether two can meet in memory shows when they try: what comes next stands by for the first path.
    const auto last = std::ranges::find_if(ranked, [](const auto& each) { return each.first != kSameHost; });
    if (last != ranked.end()) ranked.erase(std::next(last), ranked.end());
  }
  for (auto& [rank, candidate] : ranked) choice.candidates.push_back(std::move(candidate));
  return choice;
}

std::vector<Candidate> by_way_of(std::vector<Candidate> candidates, const std::vector<std::string>& other_hosts) {
  if (other_hosts.empty()) return candidates;
  std::vector<Candidate> all;
  for (Candidate& candidate : candidates) {
    const Candidate& itself = all.emplace_back(std::move(candidate));
    const Candidate copy = itself;
    for (const std::string& host : other_hosts) {
      all.push_back(copy);
      all.back().host = host;
    }
  }
  return all;
}

std::vector<std::vector<Candidate>> spread(const std::vector<Candidate>& candidates, std::size_t first,
                                           std::size_t paths) {
  using Remote = std::pair<std::size_t, std::string>;
  const auto remote_of = [](const Candidate& c) { return Remote(c.remote, c.host); };
  std::map<std::size_t, unsigned> local{{candidates[first].local, 1}};
  std::map<Remote, unsigned> remote{{remote_of(candidates[first]), 1}};
  std::vector<std::vector<Candidate>> rails;
  while (rails.size() + 1 < paths) {
    const auto load = [&](const Candidate& c) {
      return std::pair(std::max(local[c.local], remote[remote_of(c)]), local[c.local] + remote[remote_of(c)]);
    };
    const Candidate* best = &candidates[first];
    for (const Candidate& c : candidates) {
      if (c.rank == best->rank && load(c) < load(*best)) best = &c;
    }
    ++local[best->local];
    ++remote[remote_of(*best)];
    std::vector<Candidate>& rail = rails.emplace_back();
    rail.push_back(*best);
    const auto add = [&](bool same_device) {
      for (const Candidate& c : candidates) {
        if (c.rank == best->rank && &c != best && (c.local == best->local) == same_device) rail.push_back(c);
      }
    };
    add(true);   // another there
    add(false);  // what is in use already, as a further stream
  }
  return rails;
}

}  // namespace fairlead::datapath
