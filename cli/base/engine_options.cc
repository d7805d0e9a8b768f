#include "cli/base/engine_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/placement_wish.h"
#include "base/words.h"
#include "cli/models/push_protocol.h"

namespace fairlead::cli {
namespace {

Setter set_milliseconds(std::chrono::milliseconds* target, std::int64_t max) {
  return set_number([target](std::int64_t value) { *target = std::chrono::milliseconds(value); }, 1, max);
}

// Words with commas between. Which are legal is known to the engine.
Setter set_words(std::vector<std::string>* target) {
  return [target](std::string_view text) {
    *target = words_of(text);
    return target->empty() ? Status(Code::kInvalidArgument, "no word is given") : Status();
  };
}

Setter set_placement(std::string* target) {
  return [target](std::string_view text) {
    Status legal = parse_placement(text).status();
    if (legal.ok()) *target = text;
    return legal;
  };
}

bool is_of_verbs(std::string_view word) {
  return word == "verbs" || word.starts_with("verbs:") || word == "hardware" || word == "software";
}

// Which flag leaves no device of verbs, and what it says; empty: one may be used.
std::string without_verbs(const EngineConfig& config) {
  const std::vector<std::string> transports = words_of(config.transport);
  const auto forbids = [&](const char* word) { return std::ranges::count(config.forbid, word) != 0; };
  if (config.transport != "auto" && std::ranges::none_of(transports, is_of_verbs))
    return "--transport is " + config.transport;
  if (forbids("verbs") || (forbids("hardware") && forbids("software")))
    return fmt::format("--forbid is {}", fmt::join(config.forbid, ","));
  if (!config.require.empty() && std::ranges::none_of(config.require, is_of_verbs))
    return fmt::format("--require is {}", fmt::join(config.require, ","));
  return "";
}

}  // namespace

// Which words are legal is known to the engine; a word of another form is refused here.
Setter set_transport(std::string* target) {
  return [target](std::string_view text) {
    const std::vector<std::string> words = words_of(text);
    for (const std::string& word : words) {
      const bool device = word.starts_with("verbs:") && word.size() > 6;
      if (device || word == "verbs" || word == "shm" || word == "tcp" || (word == "auto" && words.size() == 1))
        continue;
      return Status(Code::kInvalidArgument,
                    fmt::format("'{}' is not legal here (legal: auto, verbs, verbs:DEVICE, shm, tcp)", word));
    }
    if (words.empty()) return Status(Code::kInvalidArgument, "no transport is given (legal: auto, verbs, ...)");
    *target = text;
    return Status();
  };
}

void add_engine_options(Args& args, EngineConfig* config) {
  VerbsConfig* const verbs = &config->verbs;
  args.option("--transport", "T",
              fmt::format("auto, or verbs, verbs:DEVICE, shm and tcp, several with commas between (default {})",
                          config->transport),
              set_transport(&config->transport));
  constexpr std::string_view kWords = "shm, tcp, verbs, verbs:DEVICE, hardware or software (of verbs), commas between";
  args.option("--require", "WORDS", fmt::format("Use no transports but these: {} (default: all)", kWords),
              set_words(&config->require));
  args.option("--forbid", "WORDS", "Never use these transports; words as of --require (default: none)",
              set_words(&config->forbid));
  args.option(
      "--choice", "C",
      "How a path is chosen: ranked (by what it is), or measured (what carries most takes over; default ranked)",
      [choice = std::string(), config](std::string_view text) mutable {
        const Status status = set_choice(&choice, {"ranked", "measured"})(text);
        if (status.ok()) config->choice = choice == "measured" ? PathChoice::kMeasured : PathChoice::kRanked;
        return status;
      });
  args.option(
      "--packet-io", "PORT",
      fmt::format(
          "Packet port of the software device: udp, with faults udp,drop=0.01,reorder=0.01,seed=7,"
          "silent_after=N,silent_ms=N; memif,role=server|client,socket=NAME; dpdk:DEVICE,OPTION=VALUE,...; for bench "
          "--local memif, dpdk:memif, dpdk:vhost, dpdk:af_packet, dpdk:af_xdp (default {})",
          verbs->packet_io),
      set_text(&verbs->packet_io));
  args.option("--soft-profile,--profile", "P",
              fmt::format("Feature set of the software device: full or pvrdma (default {})", verbs->profile),
              set_choice(&verbs->profile, {"full", "pvrdma"}));
  args.option(
      "--soft-address", "IP",
      "Address of the software device, of soft0,soft1,... with commas between (default: loopback and the host's "
      "own)",
      set_text(&verbs->soft_address));
  args.option("--gid-index", "N", "GID table index, -1 to choose (default -1)", set_number(&verbs->gid_index, -1, 255));
  args.option("--traffic-class", "N", "0 to 255; DSCP is the upper six bits (default 0)",
              set_number(&verbs->traffic_class, 0, 255));
  args.option("--hop-limit", "N", fmt::format("1 to 255 (default {})", verbs->hop_limit),
              set_number(&verbs->hop_limit, 1, 255));
  args.option("--mtu", "BYTES", "Path MTU: 256, 512, 1024, 2048 or 4096; 0 for the largest (default 0)",
              [mtu = std::string(), verbs](std::string_view text) mutable {
                Status status = set_choice(&mtu, {"0", "256", "512", "1024", "2048", "4096"})(text);
                if (status.ok()) verbs->mtu = static_cast<std::uint32_t>(std::stoul(mtu));
                return status;
              });
  args.option("--ack-timeout", "N",
              fmt::format("Retransmission after 4.096 us * 2^N, 0 for never (default {})", verbs->ack_timeout),
              set_number(&verbs->ack_timeout, 0, 31));
  args.option("--retry-count", "N",
              fmt::format("Retransmissions before giving up, 0 to 7 (default {})", verbs->retry_count),
              set_number(&verbs->retry_count, 0, 7));
  args.option("--keys", "FILE",
              "Principals and their keys, lines that `fairlead key NAME` makes; who connects must show one (default: "
              "peers are anonymous)",
              set_text(&config->keys_file));
  args.option("--principal", "NAME", "Of --keys: who this end is when it connects (default: anonymous)",
              set_text(&config->principal));
  args.option("--tcp-port", "N", "Where tcp data connections arrive, 0 for any free port (default 0)",
              set_number(&config->tcp.port, 0, 65535));
  args.option("--shm-directory", "DIR",
              "Where processes of this host that share memory find each other, those of other network namespaces too "
              "(default: a directory of the user's, and only those of the same)",
              set_text(&config->shm.directory));
  args.option("--connect-timeout", "MS", fmt::format("Milliseconds (default {})", config->connect_timeout.count()),
              set_milliseconds(&config->connect_timeout, 3'600'000));
  args.option(
      "--paths", "N",
      fmt::format("Paths for data of large transfers, 1 to 8: over several devices, then further connections over "
                  "the same; the connecting end's word (default {})",
                  config->paths),
      set_number(&config->paths, 1, 8));
  args.option(
      "--lanes", "N",
      fmt::format("Threads that drive, 1 to 64, each with its share of the sessions (default {})", config->lanes),
      set_number(&config->lanes, 1, 64));
  args.option("--placement", "WHERE",
              fmt::format("Where lanes run and the pool lies: auto, off, node=N or cores=LIST, such as cores=0-3,8 "
                          "(default {}); `fairlead devices` shows what comes of it",
                          config->placement),
              set_placement(&config->placement));
  args.option("--path-timeout", "MS",
              fmt::format("Without progress for so long a path is probed, then replaced (default {})",
                          config->path_timeout.count()),
              set_milliseconds(&config->path_timeout, 3'600'000));
  args.option("--peer-timeout", "MS",
              fmt::format("A peer silent for so long is given up (default {})", config->peer_timeout.count()),
              set_milliseconds(&config->peer_timeout, 3'600'000));
  args.rule([&args, config]() -> std::string {
    const std::string why = without_verbs(*config);
    if (why.empty()) return "";
    for (const char* flag : {"--packet-io", "--soft-profile", "--soft-address", "--gid-index", "--traffic-class",
                             "--hop-limit", "--mtu", "--ack-timeout", "--retry-count"}) {
      if (args.given(flag)) return fmt::format("{} is a setting of verbs, and {}", flag, why);
    }
    return "";
  });
}

void set_push_limits(EngineConfig* config) {
  config->max_message_bytes = kMaxPushMessage;
  config->max_pending_events = 256;
}

}  // namespace fairlead::cli
