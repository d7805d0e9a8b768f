#include "cli/measure/memory_option.h"

#include <fmt/format.h>

namespace fairlead::cli {

void add_memory(Args& args, bench::Place* place) {
  args.option("--memory", "WHERE",
              "Where this end's memory lies: host, or cuda:N, on a CUDA device; with --local both ends' (default host)",
              [place](std::string_view text) {
                const Result<bench::Place> parsed = bench::parse_place(text);
                if (!parsed) return parsed.error();
                *place = *parsed;
                return Status();
              });
}

std::string misplaced_memory(const bench::Plan& plan) {
  if (plan.memory.on_host()) return "";
  const std::string memory = to_string(plan.memory);
  if (plan.op == bench::Op::kSend)
    return fmt::format("--memory {}: a message is sent from host memory; take --op write or read", memory);
  if (plan.is_ping_pong_of_writes() && plan.arrival == bench::Arrival::kMemory) {
    return fmt::format("--memory {}: no processor sees a write arrive there; take --arrival notification", memory);
  }
  return "";
}

}  // namespace fairlead::cli
