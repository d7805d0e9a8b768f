#include "cli/base/familiar_flags.h"

#include <algorithm>
#include <cctype>
#include <vector>

namespace fairlead::cli {
namespace {

struct Familiar {
  std::string_view flag;
  std::string_view needs;    // a flag without which the command has nothing for it; empty: every command has
  std::string_view here;     // what is said; empty: `needs`
  std::string_view of = "";  // whose flag it is, where it is another's with another meaning
};

// In the order in which they are said.
constexpr Familiar kFamiliar[] = {
    {"-s", "--size", ""},
    {"-s", "--sizes", ""},
    {"-s", "--server", "--server :PORT", "iperf3"},
    {"-l", "--size", ""},
    {"--length", "--size", ""},
    {"--len", "--size", ""},
    {"-a", "--arrival", "--size 2..8M"},
    {"--all", "--arrival", "--size 2..8M"},
    {"-b", "--bidirectional", "", "perftest"},
    {"-b", "--rate", "", "iperf3"},
    {"-b", "--sizes", "--sizes 8..128M", "nccl-tests"},
    {"-e", "--sizes", "--sizes 8..128M", "nccl-tests"},
    {"--minbytes", "--sizes", "--sizes 8..128M"},
    {"--maxbytes", "--sizes", "--sizes 8..128M"},
    {"-n", "--iterations", ""},
    {"-n", "--steps", ""},
    {"--iters", "--iterations", ""},
    {"-w", "--warmup", ""},
    {"-w", "--warm-up", ""},
    {"-w", "--socket-buffer", "", "iperf3"},
    {"--warmup_iters", "--warm-up", ""},
    {"-D", "--duration", ""},
    {"--time", "--duration", ""},
    {"-t", "--depth", "", "perftest"},
    {"-t", "--duration", "", "iperf3"},
    {"--tx-depth", "--depth", ""},
    {"-O", "--depth", "", "ucx_perftest"},
    {"-q", "--sessions", ""},
    {"--qp", "--sessions", ""},
    {"-P", "--sessions", ""},
    {"--parallel", "--sessions", ""},
    {"-T", "--sessions", "", "ucx_perftest"},
    {"-T", "--traffic-class", "", "perftest"},
    {"--tos", "--traffic-class", ""},
    {"--bidir", "--bidirectional", ""},
    {"--post_list", "--batch", ""},
    {"-Q", "--burst", "--burst or --batch"},
    {"--cq-mod", "--burst", "--burst or --batch"},
    {"-R", "--op", "--op read"},
    {"--reverse", "--op", "--op read"},
    {"-g", "--dtype", "--local"},
    {"-d", "--dtype", "", "nccl-tests"},
    {"-d", "--transport", "--transport verbs:DEVICE"},
    {"--ib-dev", "--transport", "--transport verbs:DEVICE"},
    {"--device", "--transport", "--transport verbs:DEVICE"},
    {"--dev", "--transport", "--transport verbs:DEVICE"},
    {"-x", "--gid-index", "", "perftest"},
    {"-x", "--transport", "", "ucx_perftest"},
    {"--gid", "--gid-index", ""},
    {"-m", "--mtu", ""},
    {"-u", "--ack-timeout", "", "perftest"},
    {"--qp-timeout", "--ack-timeout", ""},
    {"-u", "--transport", "nothing: there is no UDP to measure", "iperf3"},
    {"-S", "--traffic-class", ""},
    {"-p", "HOST:PORT", "the PORT of HOST:PORT"},
    {"--port", "HOST:PORT", "the PORT of HOST:PORT"},
    {"-p", "--server", "of --server :PORT"},
    {"--port", "--server", "of --server :PORT"},
    {"-p", "--listen", "--listen HOST:PORT"},
    {"--port", "--listen", "--listen HOST:PORT"},
    {"-p", "--root", "the PORT of --root HOST:PORT"},
    {"--port", "--root", "the PORT of --root HOST:PORT"},
    {"-B", "--server", "the HOST of --server HOST:PORT"},
    {"--bind", "--server", "the HOST of --server HOST:PORT"},
    {"-B", "--listen", "the HOST of --listen HOST:PORT"},
    {"--bind", "--listen", "the HOST of --listen HOST:PORT"},
    {"-c", "--server", "HOST:PORT alone", "iperf3"},
    {"-c", "--cores", "", "ucx_perftest"},
    {"--client", "--server", "HOST:PORT alone"},
    {"--host", "HOST:PORT", "the HOST of HOST:PORT"},
    {"--one-off", "--once", ""},
    {"-i", "--interval", "", "iperf3"},
    {"-J", "--json", "--json FILE"},
    {"--out_json", "--json", "--json FILE"},
    {"-A", "--cores", ""},
    {"--affinity", "--cores", ""},
    {"--use_cuda", "--memory", "--memory cuda:N, at each end"},
    {"--rate_limit", "--rate", ""},
    {"--bitrate", "--rate", "--rate N, operations a second"},
    {"-F", "--cores", "nothing: the clock does not hang on the CPU's frequency", "perftest"},
    {"-V", "", "`fairlead version`"},
    {"-v", "", "FAIRLEAD_LOG=info in the environment"},
    {"--verbose", "", "FAIRLEAD_LOG=info in the environment"},
};

}  // namespace

std::string familiar_flag(std::string_view flag, const std::function<bool(std::string_view)>& has) {
  const bool has_value = flag.size() > 2 && std::isalpha(static_cast<unsigned char>(flag[1])) != 0;
  if (has_value) flag = flag.substr(0, 2);  // "-s64"
  std::vector<const Familiar*> found;
  for (const Familiar& each : kFamiliar) {
    if (each.flag == flag && (each.needs.empty() || has(each.needs))) found.push_back(&each);
  }
  std::string said;
  for (const Familiar* each : found) {
    if (!said.empty()) said += ", ";
    said += each->here.empty() ? each->needs : each->here;
    if (each->of.empty()) continue;
    said.append(" for ").append(each->of).append(each->of.ends_with('s') ? "'" : "'s");
  }
  return said;
}

}  // namespace fairlead::cli
