#include "bench/net/end_facts.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "base/index_list.h"
#include "base/system/system_files.h"
#include "base/unique_fd.h"
#include "bench/base/cores.h"

namespace fairlead::bench {
namespace {

constexpr std::size_t kMaxWarnings = 8, kMaxWarning = 200;  // of another host
constexpr int kSoftroceAsks = 1 << 20;                      // for its sockets (docs/softroce.md)

// What a socket has that asked for so much, as the kernel counts it; 0: none could be made.
std::uint64_t buffer_granted(int type, int asked) {
  const UniqueFd fd(::socket(AF_INET, type | SOCK_CLOEXEC, 0));
  int bytes = 0;
  socklen_t size = sizeof(bytes);
  if (!fd || ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &asked, sizeof(asked)) != 0 ||
      ::getsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &bytes, &size) != 0 || bytes < 0) {
    return 0;
  }
  return static_cast<std::uint64_t>(bytes);
}

// How far the kernel lets a TCP socket grow that asks for nothing.
std::uint64_t largest_tcp_buffer() {
  const std::vector<std::string> words = split_blanks(SystemFiles().line("/proc/sys/net/ipv4/tcp_rmem").value_or(""));
  return words.size() == 3 ? leading_number(words[2]).value_or(0) : 0;
}

}  // namespace

EndFacts own_facts(const EngineConfig& config, Place memory) {
  const auto asked = static_cast<int>(config.tcp.socket_buffer);
  return {.host = host_info(),
          .process = static_cast<std::uint64_t>(::getpid()),
          .tcp_buffer = asked != 0 ? buffer_granted(SOCK_STREAM, asked) : largest_tcp_buffer(),
          .udp_buffer = buffer_granted(SOCK_DGRAM, kSoftroceAsks),
          .lanes = config.lanes,
          .memory = to_string(memory),
          .cores = to_index_list(own_cores()),
          .warnings = {}};
}

Json::Object to_json(const EndFacts& facts) {
  return {{"host", to_json(facts.host)},    {"process", facts.process},
          {"tcp_buffer", facts.tcp_buffer}, {"udp_buffer", facts.udp_buffer},
          {"lanes", facts.lanes},           {"memory", facts.memory},
          {"cores", facts.cores},           {"warnings", Json::Array(facts.warnings.begin(), facts.warnings.end())}};
}

Result<EndFacts> end_facts(const Json& answer) {
  EndFacts facts;
  std::string missing;
  const auto number = [&](const Json& from, std::string_view name) -> std::uint64_t {
    const Json* field = from.find(name);
    if (field == nullptr || !field->uint()) missing = name;
    return field != nullptr ? field->uint().value_or(0) : 0;
  };
  const auto text = [&](const Json& from, std::string_view name) -> std::string {
    const Json* field = from.find(name);
    if (field == nullptr || field->string() == nullptr) missing = name;
    return field != nullptr && field->string() != nullptr ? *field->string() : std::string();
  };
  const Json* host = answer.find("host");
  if (host == nullptr) return Status(Code::kDataLoss, "the target's answer to 'facts' lacks 'host'");
  facts.host.cpu_model = text(*host, "cpu_model");
  facts.host.kernel = text(*host, "kernel");
  facts.host.name = text(*host, "name");
  facts.host.boot = text(*host, "boot");
  facts.host.cores = static_cast<unsigned>(number(*host, "cores"));
  facts.host.usable = static_cast<unsigned>(number(*host, "usable_cores"));
  const Json* quota = host->find("cpu_quota");
  facts.host.quota = quota != nullptr ? quota->number().value_or(0) : 0;
  facts.process = number(answer, "process");
  facts.tcp_buffer = number(answer, "tcp_buffer");
  facts.udp_buffer = number(answer, "udp_buffer");
  facts.lanes = number(answer, "lanes");
  // Of an older target, which lacks them: nothing.
  for (const auto& [name, into] : {std::pair("memory", &facts.memory), std::pair("cores", &facts.cores)}) {
    if (const Json* field = answer.find(name); field != nullptr && field->string() != nullptr) *into = *field->string();
  }
  if (const Json* warnings = answer.find("warnings"); warnings != nullptr && warnings->array() != nullptr) {
    for (const Json& each : *warnings->array()) {
      if (each.string() != nullptr && facts.warnings.size() < kMaxWarnings)
        facts.warnings.push_back(each.string()->substr(0, kMaxWarning));
    }
  }
  if (!missing.empty()) {
    return Status(Code::kDataLoss, fmt::format("the target's answer to 'facts' lacks '{}'", missing));
  }
  return facts;
}

}  // namespace fairlead::bench
