#include "bench/base/cores.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "base/index_list.h"

namespace fairlead::bench {

std::vector<unsigned> own_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<unsigned> cores;
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return cores;
  for (unsigned core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

Result<std::vector<unsigned>> parse_cores(std::string_view text, std::span<const unsigned> usable) {
  Result<std::vector<unsigned>> cores = parse_index_list(text);
  if (!cores) return cores;
  if (cores->empty()) return Status(Code::kInvalidArgument, "no core is named (legal: a list such as 0-3,8)");
  std::vector<unsigned> missing;
  std::ranges::set_difference(*cores, usable, std::back_inserter(missing));
  if (missing.empty()) return cores;
  return Status(Code::kInvalidArgument, fmt::format("core {} is not there for this process, which may run on {}",
                                                    to_index_list(missing), to_index_list(usable)));
}

Status use_cores(std::span<const unsigned> cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const unsigned core : cores) {
    if (core < CPU_SETSIZE) CPU_SET(core, &set);
  }
  if (::sched_setaffinity(0, sizeof(set), &set) == 0) return {};
  return {Code::kInvalidArgument,
          fmt::format("this process cannot run on cores {}: {}", to_index_list(cores), std::strerror(errno))};
}

}  // namespace fairlead::bench
