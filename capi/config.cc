// EngineConfig and C's structure of the same members.
#include "capi/config.h"

#include <chrono>
#include <string>
#include <vector>

#include "capi/structures.h"

namespace fairlead::capi {

namespace {

std::vector<std::string> words_of(std::string_view list) {
  std::vector<std::string> words;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(','), list.size());
    words.emplace_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return words;
}

template <typename Duration>
Duration duration_of(std::int64_t nanoseconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::nanoseconds(nanoseconds));
}
template <typename Duration>
std::int64_t nanoseconds_of(Duration duration) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
}

/// What has the same name and kind in C and C++, either way.
template <typename To, typename From>
void copy_numbers(To& to, const From& from) {
  to.allow_anonymous = from.allow_anonymous;
  to.failover = from.failover;
  to.pool_arena_bytes = from.pool_arena_bytes;
  to.pool_max_bytes = from.pool_max_bytes;
  to.cached_bytes = from.cached_bytes;
  to.cuda_staging_bytes = from.cuda_staging_bytes;
  to.max_message_bytes = from.max_message_bytes;
  to.max_pending_events = from.max_pending_events;
  to.max_pending_bytes = from.max_pending_bytes;
  to.max_posted = from.max_posted;
  to.max_posted_bytes = from.max_posted_bytes;
  to.max_sessions = from.max_sessions;
  to.max_principal_sessions = from.max_principal_sessions;
  to.max_handshakes = from.max_handshakes;
  to.max_cut_sessions = from.max_cut_sessions;
  to.max_principal_pending_events = from.max_principal_pending_events;
  to.max_principal_pending_bytes = from.max_principal_pending_bytes;
  to.chunk_bytes = from.chunk_bytes;
  to.paths = from.paths;
  to.lanes = from.lanes;
}

}  // namespace

fairlead_engine_config config_of(const EngineConfig& from, const char* require, const char* forbid) {
  fairlead_engine_config to = FAIRLEAD_INIT(fairlead_engine_config);
  copy_numbers(to, from);
  to.name = from.name.c_str();
  to.listen = from.listen.c_str();
  to.keys_file = from.keys_file.c_str();
  to.principal = from.principal.c_str();
  to.transport = from.transport.c_str();
  to.require = require;
  to.forbid = forbid;
  to.choice = static_cast<fairlead_path_choice>(from.choice);
  to.progress = static_cast<fairlead_progress>(from.progress);
  to.spin_ns = nanoseconds_of(from.spin);
  to.connect_timeout_ns = nanoseconds_of(from.connect_timeout);
  to.path_timeout_ns = nanoseconds_of(from.path_timeout);
  to.peer_timeout_ns = nanoseconds_of(from.peer_timeout);
  to.pool_idle_ns = nanoseconds_of(from.pool_idle);
  to.placement = from.placement.c_str();
  to.verbs_packet_io = from.verbs.packet_io.c_str();
  to.verbs_profile = from.verbs.profile.c_str();
  to.verbs_soft_address = from.verbs.soft_address.c_str();
  to.verbs_gid_index = from.verbs.gid_index;
  to.verbs_port = from.verbs.port;
  to.verbs_mtu = from.verbs.mtu;
  to.verbs_send_depth = from.verbs.send_depth;
  to.verbs_receive_depth = from.verbs.receive_depth;
  to.verbs_message_bytes = from.verbs.message_bytes;
  to.verbs_cq_moderation_count = from.verbs.cq_moderation_count;
  to.verbs_cq_moderation_period = from.verbs.cq_moderation_period;
  to.verbs_traffic_class = from.verbs.traffic_class;
  to.verbs_hop_limit = from.verbs.hop_limit;
  to.verbs_ack_timeout = from.verbs.ack_timeout;
  to.verbs_retry_count = from.verbs.retry_count;
  to.verbs_rnr_retry = from.verbs.rnr_retry;
  to.verbs_min_rnr_timer = from.verbs.min_rnr_timer;
  to.verbs_one_sided = from.verbs.one_sided;
  to.shm_pull = from.shm.pull;
  to.shm_arenas = from.shm.arenas;
  to.shm_directory = from.shm.directory.c_str();
  to.tcp_host = from.tcp.host.c_str();
  to.tcp_send_depth = from.tcp.send_depth;
  to.tcp_socket_buffer = from.tcp.socket_buffer;
  to.tcp_port = from.tcp.port;
  to.tcp_congestion_control = from.tcp.congestion_control.c_str();
  return to;
}

EngineConfig config_of(const fairlead_engine_config& from) {
  EngineConfig to;
  copy_numbers(to, from);
  to.name = text_of(from.name);
  to.listen = text_of(from.listen);
  to.keys_file = text_of(from.keys_file);
  to.principal = text_of(from.principal);
  to.transport = text_of(from.transport);
  to.require = words_of(text_of(from.require));
  to.forbid = words_of(text_of(from.forbid));
  to.choice = static_cast<PathChoice>(from.choice);
  to.progress = static_cast<Progress>(from.progress);
  to.spin = duration_of<std::chrono::microseconds>(from.spin_ns);
  to.connect_timeout = duration_of<std::chrono::milliseconds>(from.connect_timeout_ns);
  to.path_timeout = duration_of<std::chrono::milliseconds>(from.path_timeout_ns);
  to.peer_timeout = duration_of<std::chrono::milliseconds>(from.peer_timeout_ns);
  to.pool_idle = duration_of<std::chrono::milliseconds>(from.pool_idle_ns);
  to.placement = text_of(from.placement);
  to.verbs.packet_io = text_of(from.verbs_packet_io);
  to.verbs.profile = text_of(from.verbs_profile);
  to.verbs.soft_address = text_of(from.verbs_soft_address);
  to.verbs.gid_index = from.verbs_gid_index;
  to.verbs.port = from.verbs_port;
  to.verbs.mtu = from.verbs_mtu;
  to.verbs.send_depth = from.verbs_send_depth;
  to.verbs.receive_depth = from.verbs_receive_depth;
  to.verbs.message_bytes = from.verbs_message_bytes;
  to.verbs.cq_moderation_count = from.verbs_cq_moderation_count;
  to.verbs.cq_moderation_period = from.verbs_cq_moderation_period;
  to.verbs.traffic_class = from.verbs_traffic_class;
  to.verbs.hop_limit = from.verbs_hop_limit;
  to.verbs.ack_timeout = from.verbs_ack_timeout;
  to.verbs.retry_count = from.verbs_retry_count;
  to.verbs.rnr_retry = from.verbs_rnr_retry;
  to.verbs.min_rnr_timer = from.verbs_min_rnr_timer;
  to.verbs.one_sided = from.verbs_one_sided;
  to.shm.pull = from.shm_pull;
  to.shm.arenas = from.shm_arenas;
  to.shm.directory = text_of(from.shm_directory);
  to.tcp.host = text_of(from.tcp_host);
  to.tcp.send_depth = from.tcp_send_depth;
  to.tcp.socket_buffer = from.tcp_socket_buffer;
  to.tcp.port = from.tcp_port;
  to.tcp.congestion_control = text_of(from.tcp_congestion_control);
  return to;
}

const EngineConfig& default_config() {
  static const EngineConfig defaults;
  return defaults;
}

}  // namespace fairlead::capi

void fairlead_engine_config_init(fairlead_engine_config* config, size_t struct_size) {
  using namespace fairlead::capi;
  if (config == nullptr) return;
  config->struct_size = struct_size;
  (void)outcome([&] { return give(config_of(default_config(), "", ""), config, "fairlead_engine_config"); });
}
