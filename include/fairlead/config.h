// The one typed configuration. The library takes none of its values from the environment; `fairlead` has flags for
// some, whose names and variables --help has.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fairlead/export.h"
#include "fairlead/status.h"

namespace fairlead::inline v0 {

/// Who advances the engine.
enum class Progress : std::uint8_t {
  kAuto,    // a thread of the engine for each lane, which stands back while the application waits or polls (default)
  kThread,  // only the engine's threads: for an application whose threads wait and work in turn
  kApplication,  // only calls of the application: poll(), wait(), next_event(). No thread is started
};

/// How a path is chosen among those that both ends have, and `transport`, `require` and `forbid` allow.
enum class PathChoice : std::uint8_t {
  kRanked,    // by what they are: memory of one host, RDMA hardware, tcp, software (default)
  kMeasured,  // ranked at first; then, while a session has nothing to do, each is measured, and the best is taken
};

/// Settings of verbs paths. Names and ranges follow ibv_qp_attr (ibv_modify_qp(3)).
struct VerbsConfig {
  std::string packet_io = "udp";   // softroce's packet port: "udp[,drop=P][,...]", "memif,..."; see docs/softroce.md
  std::string profile = "full";    // softroce's feature set: "full" or "pvrdma"
  std::string soft_address;        // softroce's, of "soft0,soft1,..."; empty: loopback and the host's own, per peer
  int gid_index = -1;              // 0..255; -1: choose and explain
  int port = 1;                    // 1..255
  std::uint8_t traffic_class = 0;  // DSCP is the upper six bits
  std::uint8_t hop_limit = 64;     // 1..255
  std::uint32_t mtu = 0;          // path MTU in bytes: 256, 512, 1024, 2048 or 4096; 0: the largest that both ends have
  std::uint8_t ack_timeout = 14;  // 0..31: 4.096 us * 2^n; 0: never
  std::uint8_t retry_count = 7;   // 0..7
  std::uint8_t rnr_retry = 7;     // 0..7; 7: for ever
  std::uint8_t min_rnr_timer = 12;         // 0..31
  std::uint16_t cq_moderation_count = 0;   // 0: leave as it is
  std::uint16_t cq_moderation_period = 0;  // us
  std::uint32_t send_depth = 256;          // 2..32768 work requests per queue pair
  std::uint32_t receive_depth = 256;       // 2..32768 message buffers per queue pair
  std::uint32_t message_bytes = 4096;      // size of a message buffer: 256 bytes to 1 MiB
  bool one_sided = true;                   // false: pretend the device has no RDMA WRITE and READ (staged mode)
};

struct TcpConfig {
  std::string host;                 // numeric address of the data port; empty: that of EngineConfig::listen
  std::uint16_t port = 0;           // where data connections arrive; 0: any free port
  std::uint32_t send_depth = 256;   // operations in flight per path: 1..65536
  std::uint32_t socket_buffer = 0;  // SO_SNDBUF and SO_RCVBUF: 4 KiB to 1 GiB; 0: leave it to the kernel
  /// As the system calls it ("cubic", at most 15 characters); empty: the system's choice, but within a host one that
  /// does not pace (docs/tuning.md).
  std::string congestion_control;
};

/// Settings of memory that processes of one host share (docs/tuning.md).
struct ShmConfig {
  /// Where they find each other, with mode 0700; empty: a directory of the user's (docs/security.md), which
  /// FAIRLEAD_SOFT_DIRECTORY moves, and only processes of the same network namespace. Who names one means all that see
  /// it: containers, other namespaces.
  std::string directory;
  bool pull = true;  // false: as where the kernel does not let one process read another's memory
  /// The engine's pool lies in memory that peers are given to map and read, so that data of it crosses without a system
  /// call (docs/memory.md). With a keys_file it never does: who maps it sees all of it, whoever it is of.
  bool arenas = true;
};

/// Ranges, where a member says no other: times are 1 ms to a day, bytes 1 to 1 TiB, the other max_... 1 to 2^20; 0
/// where it says what that means.
struct FAIRLEAD_EXPORT EngineConfig {
  std::string name;    // shown to peers, at most 255 bytes; empty: "host/pid"
  std::string listen;  // "HOST:PORT" or ":PORT" (0: any free port); empty: connect only
  /// Principals and their keys, lines "NAME KEY" (docs/security.md); empty: peers are anonymous. Read by create().
  std::string keys_file;
  std::string principal;           // of keys_file: who this engine is to peers that it connects to; empty: anonymous
  bool allow_anonymous = false;    // with keys_file: also who shows no key may connect to us
  std::string transport = "auto";  // auto | verbs | verbs:DEVICE | shm | tcp; several of them with commas between
  bool failover = true;            // on a path's death carry on over the next best, or the same again; false: fail
  /// Of this end's transports, those that may carry a session (empty: all), and those that never may. Words: "shm",
  /// "tcp", "verbs", "verbs:DEVICE", "hardware" and "software" (of verbs). `transport` says what comes first of what is
  /// left.
  std::vector<std::string> require, forbid;
  PathChoice choice = PathChoice::kRanked;  // of the end that connects (docs/tuning.md)
  Progress progress = Progress::kAuto;
  std::chrono::microseconds spin{50};  // how long an idle thread polls before it sleeps: 0 to 1 s
  std::chrono::milliseconds connect_timeout{10'000};
  std::chrono::milliseconds path_timeout{300};     // no progress on a path that has work: probe it, then replace it
  std::chrono::milliseconds peer_timeout{30'000};  // silence of a peer, with or without a control connection
  std::size_t pool_arena_bytes = std::size_t{64} << 20;  // 64 KiB to 1 TiB
  std::size_t pool_max_bytes = 0;  // of all arenas of Engine::allocate, at least pool_arena_bytes; 0: no limit
  /// An arena of the pool that nobody used for so long is given back to the system; 0: only by Engine::trim_pool(), as
  /// with Progress::kApplication.
  std::chrono::milliseconds pool_idle{30'000};
  std::size_t cached_bytes = std::size_t{8} << 30;  // that the registration cache keeps pinned, any number; 0: no limit
  /// Pinned host memory that GPU memory goes through where a path does not reach it, for all lanes together: at least
  /// 256 KiB for each, at most 64 GiB. Taken when such memory is first registered.
  std::size_t cuda_staging_bytes = std::size_t{32} << 20;
  std::size_t max_message_bytes = std::size_t{16} << 20;  // 1 to 1 GiB
  std::size_t max_pending_events = 4096;  // notifications and messages that a peer may have undelivered, of each class
  std::size_t max_pending_bytes = std::size_t{64} << 20;  // the bytes of those messages
  std::size_t max_posted = 65536;  // transfers to one peer, of each class, that are posted and not done: 1 to 2^30
  std::size_t max_posted_bytes = std::size_t{256} << 20;  // of messages among them, which are copies
  std::size_t max_sessions = 4096;                        // with peers, whichever end connected
  std::size_t max_principal_sessions = 0;  // of those that peers began, with one principal, or anonymous; 0: no limit
  std::size_t max_handshakes = 256;        // connections whose peer has not said hello: one more ends the oldest
  std::size_t max_cut_sessions = 256;  // of one principal, whose connection broke: one more ends the oldest; 0: none
  /// As max_pending_events and max_pending_bytes, of all sessions together that one principal, or anonymous peers,
  /// began: each session gets its own of the two as far as there is some left, and one that gets none is turned away.
  /// 0: no limit but each session's. At most 2^30 events.
  std::size_t max_principal_pending_events = 0, max_principal_pending_bytes = 0;
  std::size_t chunk_bytes = std::size_t{1} << 20;  // transfers cross in operations of at most this: 4 KiB to 1 GiB
  /// To a peer that we connect to: so many paths (1 to 8) for data of large transfers, over as many devices as there
  /// are of the best kind, then as further connections over the same. What is written with several paths lands in no
  /// order: whoever writes bytes twice, or reads what it wrote, waits for the first transfer to complete.
  std::size_t paths = 1;
  /// So many lanes (1 to 64), each with its share of the sessions and, unless `progress` is kApplication, a thread. A
  /// session stays in the lane that it began in, which is the one with the fewest then (Peer::lane()).
  std::size_t lanes = 1;
  /// Where the lanes' threads run and the pool's memory lies (docs/topology.md); Engine::placement() says what came of
  /// it. "auto": as planned by hwloc for the devices in use, and nothing is pinned where there is nothing to choose.
  /// "node=N": on cores and memory of that NUMA node. "cores=LIST": a lane each on these CPUs ("0-3,8"), in turn.
  /// "off": as the system has it.
  std::string placement = "auto";
  VerbsConfig verbs;
  TcpConfig tcp;
  ShmConfig shm;

  /// ok, or the first bad value with its legal range.
  [[nodiscard]] Status validate() const;
};

/// Splits "host:port", "[v6]:port" or ":port". Errors name the text.
struct HostPort {
  std::string host;
  std::uint16_t port = 0;
};
FAIRLEAD_EXPORT Result<HostPort> parse_host_port(std::string_view text);
/// The places of one peer, "host:port" with commas between: 1 to 8, each with a host and a port. Errors name the text.
FAIRLEAD_EXPORT Result<std::vector<HostPort>> parse_places(std::string_view text);

}  // namespace fairlead::inline v0
