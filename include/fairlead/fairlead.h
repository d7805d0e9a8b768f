/* Fairlead for C, and for all that calls C: the engine. Command channels are in fairlead/fairlead_command.h.
 *
 *   fairlead_engine* engine;
 *   if (fairlead_engine_create(NULL, &engine) != FAIRLEAD_OK) return puts(fairlead_last_error());
 *   fairlead_peer* peer;
 *   fairlead_engine_connect(engine, "gpu7:7471", &peer);
 *   fairlead_memory* buffer;
 *   fairlead_engine_allocate(engine, 1 << 20, NULL, &buffer);
 *   fairlead_remote_memory* inbox;
 *   fairlead_peer_lookup(peer, "inbox", FAIRLEAD_FOREVER, &inbox);
 *   fairlead_transfer* sent = fairlead_peer_write(peer, buffer, inbox, NULL);
 *   fairlead_code end = fairlead_transfer_wait(sent, FAIRLEAD_FOREVER);
 *
 * What each thing means is said once, in the C++ header of that name (fairlead/engine.h, memory.h, peer.h, transfer.h,
 * config.h); docs/c.md has what is C's own. In short:
 *
 * Errors. A function that can fail returns a fairlead_code; FAIRLEAD_OK is 0. fairlead_last_error() is then the
 *   sentence, of this thread's last failure. What could not be done was not done: results are set to NULL or 0. No C++
 *   exception leaves a function.
 * Ownership. A handle that a function gives is the caller's, to be given back with the function of its type that ends
 *   in _release (an engine: _destroy). NULL may be released. Handles are counted references to what lies behind:
 *   memory lives until its last handle, its last slice and the last transfer that names it have gone.
 * Threads. Any function from any thread, one handle by several at once, as long as none releases it meanwhile.
 * Structures. The first member is struct_size: sizeof the structure, as the program was compiled. A library that knows
 *   fewer members than are set refuses (FAIRLEAD_VERSION_MISMATCH); what a program does not know has its default.
 *   FAIRLEAD_INIT(type) is such a structure with all else 0. Those without struct_size are as they are for good.
 * Texts. NUL-terminated. Functions that write one into the caller's room give its length without the NUL, as snprintf
 *   does: a result not below `size` says that it was cut; `text` may be NULL if `size` is 0.
 * Durations are in nanoseconds; FAIRLEAD_FOREVER does not end.
 * fork(). An engine is of the process that made it: in a child its functions fail with FAIRLEAD_UNAVAILABLE. */
#ifndef FAIRLEAD_FAIRLEAD_H
#define FAIRLEAD_FAIRLEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fairlead/version.h"

#define FAIRLEAD_C_EXPORT __attribute__((visibility("default")))

#ifdef __cplusplus
#define FAIRLEAD_INIT(type)         \
  ([] {                             \
    type made = {};                 \
    made.struct_size = sizeof made; \
    return made;                    \
  }())
#define FAIRLEAD_ANY_NUMBER : int /* what C lets into an enumeration */
extern "C" {
#else
#define FAIRLEAD_ANY_NUMBER
#define FAIRLEAD_INIT(type) {.struct_size = sizeof(type)}
#endif

#define FAIRLEAD_FOREVER INT64_MAX

typedef struct fairlead_engine fairlead_engine;
typedef struct fairlead_memory fairlead_memory;
typedef struct fairlead_remote_memory fairlead_remote_memory;
typedef struct fairlead_peer fairlead_peer;
typedef struct fairlead_transfer fairlead_transfer;
typedef struct fairlead_prepared fairlead_prepared;
typedef struct fairlead_burst fairlead_burst;

/* ---- errors */

/* As fairlead::Code (fairlead/status.h). */
typedef enum fairlead_code FAIRLEAD_ANY_NUMBER {
  FAIRLEAD_OK = 0,
  FAIRLEAD_INVALID_ARGUMENT = 1,
  FAIRLEAD_NOT_FOUND = 2,
  FAIRLEAD_ALREADY_EXISTS = 3,
  FAIRLEAD_OUT_OF_RANGE = 4,
  FAIRLEAD_PERMISSION_DENIED = 5,
  FAIRLEAD_PROTECTION_ERROR = 6,
  FAIRLEAD_RESOURCE_EXHAUSTED = 7,
  FAIRLEAD_UNAVAILABLE = 8,
  FAIRLEAD_PEER_DIED = 9,
  FAIRLEAD_DEADLINE_EXCEEDED = 10,
  FAIRLEAD_CANCELLED = 11,
  FAIRLEAD_ABORTED = 12,
  FAIRLEAD_DATA_LOSS = 13,
  FAIRLEAD_VERSION_MISMATCH = 14,
  FAIRLEAD_UNIMPLEMENTED = 15,
  FAIRLEAD_OUTCOME_UNKNOWN = 16,
  FAIRLEAD_INTERNAL = 17
} fairlead_code;

/* "protection error" for the code. Never NULL; the library's. */
FAIRLEAD_C_EXPORT const char* fairlead_code_name(fairlead_code code);
/* The sentence of the last failure in this thread; "" if there was none. The thread's until its next call that fails.
 */
FAIRLEAD_C_EXPORT const char* fairlead_last_error(void);
/* The code that belongs to it. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_last_code(void);

/* "0.1.0": of the library that runs. FAIRLEAD_VERSION is what the program was compiled with. */
FAIRLEAD_C_EXPORT const char* fairlead_version(void);

/* ---- log */

typedef enum fairlead_log_level FAIRLEAD_ANY_NUMBER {
  FAIRLEAD_LOG_DEBUG,
  FAIRLEAD_LOG_INFO,
  FAIRLEAD_LOG_WARNING,
  FAIRLEAD_LOG_ERROR,
  FAIRLEAD_LOG_OFF
} fairlead_log_level;

/* Receives `bytes` of one line, without line feed or NUL, on the thread that logs. Must not call Fairlead. */
typedef void (*fairlead_log_sink)(fairlead_log_level level, const char* line, size_t bytes);
/* NULL: stderr again. */
FAIRLEAD_C_EXPORT void fairlead_set_log_sink(fairlead_log_sink sink);
FAIRLEAD_C_EXPORT void fairlead_set_log_level(fairlead_log_level level);

/* ---- tensors */

/* As fairlead::DType. */
typedef enum fairlead_dtype FAIRLEAD_ANY_NUMBER {
  FAIRLEAD_BOOL = 1,
  FAIRLEAD_U8,
  FAIRLEAD_I8,
  FAIRLEAD_F8_E4M3,
  FAIRLEAD_F8_E5M2,
  FAIRLEAD_I16,
  FAIRLEAD_U16,
  FAIRLEAD_F16,
  FAIRLEAD_BF16,
  FAIRLEAD_I32,
  FAIRLEAD_U32,
  FAIRLEAD_F32,
  FAIRLEAD_I64,
  FAIRLEAD_U64,
  FAIRLEAD_F64
} fairlead_dtype;

#define FAIRLEAD_MAX_RANK 8

/* Shape and strides in elements; offset of element 0 from the region's first byte, in bytes. */
typedef struct fairlead_tensor {
  size_t struct_size;
  fairlead_dtype dtype;
  uint32_t rank;
  int64_t shape[FAIRLEAD_MAX_RANK];
  int64_t strides[FAIRLEAD_MAX_RANK];
  uint64_t offset;
} fairlead_tensor;

/* Bytes of an element; 0 for what is no dtype. */
FAIRLEAD_C_EXPORT uint32_t fairlead_dtype_size(fairlead_dtype dtype);
/* "F32", "?" for what is no dtype. The library's. */
FAIRLEAD_C_EXPORT const char* fairlead_dtype_name(fairlead_dtype dtype);
FAIRLEAD_C_EXPORT fairlead_code fairlead_dtype_from_name(const char* name, fairlead_dtype* dtype);
/* Row-major, without gaps. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_tensor_contiguous(fairlead_dtype dtype, const int64_t* shape, uint32_t rank,
                                                           uint64_t offset, fairlead_tensor* tensor);
/* FAIRLEAD_OK if every element lies within so many bytes. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_tensor_check(const fairlead_tensor* tensor, uint64_t region_bytes);
FAIRLEAD_C_EXPORT uint64_t fairlead_tensor_bytes(const fairlead_tensor* tensor); /* 0 for one that is none */

/* ---- engine */

typedef enum fairlead_progress FAIRLEAD_ANY_NUMBER {
  FAIRLEAD_PROGRESS_AUTO,
  FAIRLEAD_PROGRESS_THREAD,
  FAIRLEAD_PROGRESS_APPLICATION
} fairlead_progress;

typedef enum fairlead_path_choice FAIRLEAD_ANY_NUMBER {
  FAIRLEAD_CHOICE_RANKED,
  FAIRLEAD_CHOICE_MEASURED
} fairlead_path_choice;

/* As fairlead::EngineConfig, member by member. Texts are copied; NULL is "". Lists have commas between. */
typedef struct fairlead_engine_config {
  size_t struct_size;
  const char* name;
  const char* listen;
  const char* keys_file;
  const char* principal;
  bool allow_anonymous;
  bool failover;
  const char* transport;
  const char* require; /* "shm,hardware" */
  const char* forbid;
  fairlead_path_choice choice;
  fairlead_progress progress;
  int64_t spin_ns;
  int64_t connect_timeout_ns;
  int64_t path_timeout_ns;
  int64_t peer_timeout_ns;
  size_t pool_arena_bytes;
  size_t pool_max_bytes;
  int64_t pool_idle_ns;
  size_t cached_bytes;
  size_t cuda_staging_bytes;
  size_t max_message_bytes;
  size_t max_pending_events;
  size_t max_pending_bytes;
  size_t max_posted;
  size_t max_posted_bytes;
  size_t max_sessions;
  size_t max_principal_sessions;
  size_t max_handshakes;
  size_t max_cut_sessions;
  size_t max_principal_pending_events;
  size_t max_principal_pending_bytes;
  size_t chunk_bytes;
  size_t paths;
  size_t lanes;
  const char* placement;
  const char* verbs_packet_io;
  const char* verbs_profile;
  const char* verbs_soft_address;
  int32_t verbs_gid_index;
  int32_t verbs_port;
  uint32_t verbs_mtu;
  uint32_t verbs_send_depth;
  uint32_t verbs_receive_depth;
  uint32_t verbs_message_bytes;
  uint16_t verbs_cq_moderation_count;
  uint16_t verbs_cq_moderation_period;
  uint8_t verbs_traffic_class;
  uint8_t verbs_hop_limit;
  uint8_t verbs_ack_timeout;
  uint8_t verbs_retry_count;
  uint8_t verbs_rnr_retry;
  uint8_t verbs_min_rnr_timer;
  bool verbs_one_sided;
  bool shm_pull;
  bool shm_arenas;
  const char* shm_directory;
  const char* tcp_host;
  uint32_t tcp_send_depth;
  uint32_t tcp_socket_buffer;
  uint16_t tcp_port;
  const char* tcp_congestion_control;
} fairlead_engine_config;

/* Fills in the defaults, as far as `struct_size` (sizeof the caller's) reaches. Always call it: most are not 0. */
FAIRLEAD_C_EXPORT void fairlead_engine_config_init(fairlead_engine_config* config, size_t struct_size);
/* NULL: all defaults. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_engine_create(const fairlead_engine_config* config, fairlead_engine** engine);
/* Ends every session and every wait in other threads; the handle stays, and its functions fail from then on. */
FAIRLEAD_C_EXPORT void fairlead_engine_shutdown(fairlead_engine* engine);
/* The same, and the handle goes. Handles of its peers, memory and transfers stay good, and are released as ever. */
FAIRLEAD_C_EXPORT void fairlead_engine_destroy(fairlead_engine* engine);
/* What it was made with, all members. Texts are the engine's. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_engine_get_config(const fairlead_engine* engine,
                                                           fairlead_engine_config* config);
/* "127.0.0.1:7471", "" if it does not listen. */
FAIRLEAD_C_EXPORT size_t fairlead_engine_listen_address(const fairlead_engine* engine, char* text, size_t size);
FAIRLEAD_C_EXPORT fairlead_code fairlead_engine_reload_keys(fairlead_engine* engine);

/* ---- memory */

/* Combine with |. As fairlead::Access. */
typedef enum fairlead_access FAIRLEAD_ANY_NUMBER {
  FAIRLEAD_ACCESS_NONE = 0,
  FAIRLEAD_REMOTE_READ = 1,
  FAIRLEAD_REMOTE_WRITE = 2,
  FAIRLEAD_REMOTE_READ_WRITE = 3,
  FAIRLEAD_LOCAL_READ_ONLY = 4,
  FAIRLEAD_REMOTE_ATOMIC = 8
} fairlead_access;

typedef struct fairlead_allocate_options {
  size_t struct_size;
  size_t alignment;            /* 0: a page for a page and above, else 64 bytes */
  const char* const* audience; /* with has_audience: these principals, none of them is everybody */
  size_t audience_count;
  bool has_audience; /* memory that stays with an audience is not cleared (fairlead/memory.h) */
  bool shared;       /* on a memfd, see fairlead_memory_shared_file */
  bool has_node;
  int32_t node; /* with has_node: the NUMA node that its pages come from */
} fairlead_allocate_options;

typedef struct fairlead_bytes {
  void* data;
  size_t size;
} fairlead_bytes;

/* Called once, when nothing touches registered bytes any more, on whichever thread. Must not block or call Fairlead. */
typedef void (*fairlead_release)(void* context);

/* From the pool; all bytes 0, unless with an audience. `options` may be NULL. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_engine_allocate(fairlead_engine* engine, size_t bytes,
                                                         const fairlead_allocate_options* options,
                                                         fairlead_memory** memory);
FAIRLEAD_C_EXPORT void fairlead_engine_trim_pool(fairlead_engine* engine);
/* The caller's bytes, registered in place; they stay the caller's, and must outlive the last handle and transfer that
 * name them. `release` may be NULL; where this fails it is not called. `access`: of fairlead_access. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_engine_register(fairlead_engine* engine, void* data, size_t bytes,
                                                         uint32_t access, fairlead_release release, void* context,
                                                         fairlead_memory** memory);
/* All of them, or none: `memory` has room for `count` handles. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_engine_register_many(fairlead_engine* engine, const fairlead_bytes* ranges,
                                                              size_t count, uint32_t access, fairlead_memory** memory);
/* The registration cache (docs/registration_cache.md). */
FAIRLEAD_C_EXPORT fairlead_code fairlead_engine_cached_memory(fairlead_engine* engine, const fairlead_bytes* ranges,
                                                              size_t count, fairlead_memory** memory);
FAIRLEAD_C_EXPORT fairlead_code fairlead_engine_declare_memory(fairlead_engine* engine, void* data, size_t bytes,
                                                               bool at_once);
FAIRLEAD_C_EXPORT fairlead_code fairlead_engine_withdraw_memory(fairlead_engine* engine, const void* begin);
/* Memory that CUDA knows, by its pointer. `device`: -1, or the one that it is expected on. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_engine_register_cuda(fairlead_engine* engine, void* data, size_t bytes,
                                                              int device, uint32_t access, fairlead_release release,
                                                              void* context, fairlead_memory** memory);
/* A file, mapped and registered. Without FAIRLEAD_REMOTE_WRITE it is mapped read-only. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_engine_map_file(fairlead_engine* engine, const char* path, uint32_t access,
                                                         fairlead_memory** memory);

FAIRLEAD_C_EXPORT void* fairlead_memory_data(const fairlead_memory* memory);
FAIRLEAD_C_EXPORT size_t fairlead_memory_size(const fairlead_memory* memory);
/* A handle of its own for a part. FAIRLEAD_OUT_OF_RANGE. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_memory_slice(const fairlead_memory* memory, size_t offset, size_t bytes,
                                                      fairlead_memory** slice);
/* Where another process can map it, if it was allocated `shared`: the descriptor is the memory's.
 * FAIRLEAD_NOT_FOUND. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_memory_shared_file(const fairlead_memory* memory, int* fd, size_t* offset);
FAIRLEAD_C_EXPORT void fairlead_memory_release(fairlead_memory* memory);

/* Publishes it under a name of 1 to 1024 bytes. `tensor` may be NULL; no audience: everybody who may connect. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_engine_publish(fairlead_engine* engine, const char* name,
                                                        const fairlead_memory* memory, uint32_t access,
                                                        const fairlead_tensor* tensor, const char* const* audience,
                                                        size_t audience_count);
FAIRLEAD_C_EXPORT fairlead_code fairlead_engine_unpublish(fairlead_engine* engine, const char* name);

#define FAIRLEAD_CAPABILITY_SIZE 128 /* room for the text of an export, and its NUL */
/* Gives it away without a name: who has the text can reach it (fairlead_peer_import). `size` is at least
 * FAIRLEAD_CAPABILITY_SIZE. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_engine_export(fairlead_engine* engine, const fairlead_memory* memory,
                                                       uint32_t access, const char* const* audience,
                                                       size_t audience_count, char* capability, size_t size);
FAIRLEAD_C_EXPORT fairlead_code fairlead_engine_unexport(fairlead_engine* engine, const char* capability);

FAIRLEAD_C_EXPORT uint64_t fairlead_remote_memory_size(const fairlead_remote_memory* memory);
FAIRLEAD_C_EXPORT uint64_t fairlead_remote_memory_offset(const fairlead_remote_memory* memory);
FAIRLEAD_C_EXPORT size_t fairlead_remote_memory_name(const fairlead_remote_memory* memory, char* text, size_t size);
FAIRLEAD_C_EXPORT uint32_t fairlead_remote_memory_access(const fairlead_remote_memory* memory);
FAIRLEAD_C_EXPORT bool fairlead_remote_memory_withdrawn(const fairlead_remote_memory* memory);
/* The tensor that its owner published there. FAIRLEAD_NOT_FOUND. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_remote_memory_tensor(const fairlead_remote_memory* memory,
                                                              fairlead_tensor* tensor);
FAIRLEAD_C_EXPORT fairlead_code fairlead_remote_memory_slice(const fairlead_remote_memory* memory, uint64_t offset,
                                                             uint64_t bytes, fairlead_remote_memory** slice);
FAIRLEAD_C_EXPORT void fairlead_remote_memory_release(fairlead_remote_memory* memory);

/* ---- peers */

typedef enum fairlead_peer_state FAIRLEAD_ANY_NUMBER {
  FAIRLEAD_PEER_CONNECTING,
  FAIRLEAD_PEER_READY,
  FAIRLEAD_PEER_RECOVERING,
  FAIRLEAD_PEER_CLOSED
} fairlead_peer_state;

/* As fairlead::PeerStats. */
typedef struct fairlead_peer_stats {
  size_t struct_size;
  uint64_t bytes_written, bytes_read, messages_sent, messages_received;
  uint64_t transfers_completed, transfers_failed, replayed_transfers;
  uint64_t recoveries, failovers, failbacks, paths_measured, resumptions;
  uint64_t duplicate_notifications_dropped, staged_bytes, rail_bytes, atomics, atomics_served;
  uint64_t transfers_under_way, events_untaken, awaiting_credit; /* now */
} fairlead_peer_stats;

/* Begins to connect, to "HOST:PORT" or several with commas between. Only a bad address fails here. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_engine_connect(fairlead_engine* engine, const char* host_port,
                                                        fairlead_peer** peer);
/* A peer that connected to us. FAIRLEAD_DEADLINE_EXCEEDED if none did in time; a timeout of 0 never blocks. With any
 * timeout FAIRLEAD_INVALID_ARGUMENT: the engine does not listen, FAIRLEAD_UNAVAILABLE: it was shut down. Of those
 * that ended before anybody took them, 1,024 a lane are kept; older ones go, and what they sent with them unless the
 * application takes fairlead_engine_next_event. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_engine_accept(fairlead_engine* engine, int64_t timeout_ns,
                                                       fairlead_peer** peer);
/* Handles of all peers, as many as there is room for. How many there are. */
FAIRLEAD_C_EXPORT size_t fairlead_engine_peers(const fairlead_engine* engine, fairlead_peer** peers, size_t room);

/* The handle goes, the session stays until it is closed or its engine ends. */
FAIRLEAD_C_EXPORT void fairlead_peer_release(fairlead_peer* peer);
/* Whether the two name one session. */
FAIRLEAD_C_EXPORT bool fairlead_peer_same(const fairlead_peer* one, const fairlead_peer* other);
FAIRLEAD_C_EXPORT fairlead_peer_state fairlead_peer_get_state(const fairlead_peer* peer);
FAIRLEAD_C_EXPORT fairlead_code fairlead_peer_wait_ready(fairlead_peer* peer, int64_t timeout_ns);
FAIRLEAD_C_EXPORT size_t fairlead_peer_name(const fairlead_peer* peer, char* text, size_t size);
FAIRLEAD_C_EXPORT size_t fairlead_peer_principal(const fairlead_peer* peer, char* text, size_t size);
FAIRLEAD_C_EXPORT size_t fairlead_peer_address(const fairlead_peer* peer, char* text, size_t size);
FAIRLEAD_C_EXPORT size_t fairlead_peer_transport(const fairlead_peer* peer, char* text, size_t size);
/* One line: which path carries it, and why not another. */
FAIRLEAD_C_EXPORT size_t fairlead_peer_explain(const fairlead_peer* peer, char* text, size_t size);
FAIRLEAD_C_EXPORT size_t fairlead_peer_lane(const fairlead_peer* peer);
FAIRLEAD_C_EXPORT fairlead_code fairlead_peer_get_stats(const fairlead_peer* peer, fairlead_peer_stats* stats);
FAIRLEAD_C_EXPORT fairlead_code fairlead_peer_lookup(fairlead_peer* peer, const char* name, int64_t timeout_ns,
                                                     fairlead_remote_memory** memory);
/* Those whose name begins with `prefix`, in order of name. `each` is called on this thread, once for each, and owns the
 * handle that it is given. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_peer_list(fairlead_peer* peer, const char* prefix, int64_t timeout_ns,
                                                   void (*each)(void* context, fairlead_remote_memory* memory),
                                                   void* context);
FAIRLEAD_C_EXPORT fairlead_code fairlead_peer_import(fairlead_peer* peer, const char* capability, int64_t timeout_ns,
                                                     fairlead_remote_memory** memory);
/* Lets posted transfers finish for up to `grace_ns`, then ends the session. Does not block. */
FAIRLEAD_C_EXPORT void fairlead_peer_close(fairlead_peer* peer, int64_t grace_ns);

/* ---- transfers */

typedef enum fairlead_traffic FAIRLEAD_ANY_NUMBER { FAIRLEAD_BULK, FAIRLEAD_COMMANDS } fairlead_traffic;

/* As fairlead::TransferOptions. Where options are asked for, NULL is all defaults, which are 0. */
typedef struct fairlead_transfer_options {
  size_t struct_size;
  uint64_t notify; /* with has_notify, or notify_bytes: the value of the event at the peer */
  const void* notify_bytes;
  size_t notify_size;
  int64_t deadline_ns; /* 0: none; below: it has passed */
  uint64_t tag;
  const fairlead_transfer* after;
  fairlead_traffic traffic;
  bool has_notify;
  bool report;
} fairlead_transfer_options;

typedef struct fairlead_descriptor {
  const fairlead_memory* local;
  const fairlead_remote_memory* remote;
} fairlead_descriptor;

/* Posting does not block, and gives a handle, also for what is refused: such a transfer is done, and says why. NULL
 * only if `peer` is NULL, a structure is malformed, or memory ran out; then fairlead_last_error() says which. Local
 * bytes belong to the transfer until it is done. */
FAIRLEAD_C_EXPORT fairlead_transfer* fairlead_peer_write(fairlead_peer* peer, const fairlead_memory* local,
                                                         const fairlead_remote_memory* remote,
                                                         const fairlead_transfer_options* options);
FAIRLEAD_C_EXPORT fairlead_transfer* fairlead_peer_read(fairlead_peer* peer, const fairlead_memory* local,
                                                        const fairlead_remote_memory* remote,
                                                        const fairlead_transfer_options* options);
/* A batch: one transfer, one completion, one notification. */
FAIRLEAD_C_EXPORT fairlead_transfer* fairlead_peer_write_batch(fairlead_peer* peer, const fairlead_descriptor* batch,
                                                               size_t count, const fairlead_transfer_options* options);
FAIRLEAD_C_EXPORT fairlead_transfer* fairlead_peer_read_batch(fairlead_peer* peer, const fairlead_descriptor* batch,
                                                              size_t count, const fairlead_transfer_options* options);
/* Equal dtype and shape, any strides. */
FAIRLEAD_C_EXPORT fairlead_transfer* fairlead_peer_write_tensor(fairlead_peer* peer, const fairlead_memory* local,
                                                                const fairlead_tensor* from,
                                                                const fairlead_remote_memory* remote,
                                                                const fairlead_tensor* to,
                                                                const fairlead_transfer_options* options);
FAIRLEAD_C_EXPORT fairlead_transfer* fairlead_peer_read_tensor(fairlead_peer* peer, const fairlead_memory* local,
                                                               const fairlead_tensor* to,
                                                               const fairlead_remote_memory* remote,
                                                               const fairlead_tensor* from,
                                                               const fairlead_transfer_options* options);
/* A list that is checked once, and posted any number of times: all of it, or a selection by index. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_peer_prepare_write(fairlead_peer* peer, const fairlead_descriptor* batch,
                                                            size_t count, fairlead_prepared** prepared);
FAIRLEAD_C_EXPORT fairlead_code fairlead_peer_prepare_read(fairlead_peer* peer, const fairlead_descriptor* batch,
                                                           size_t count, fairlead_prepared** prepared);
FAIRLEAD_C_EXPORT fairlead_transfer* fairlead_peer_post(fairlead_peer* peer, const fairlead_prepared* prepared,
                                                        const fairlead_transfer_options* options);
FAIRLEAD_C_EXPORT fairlead_transfer* fairlead_peer_post_selection(fairlead_peer* peer,
                                                                  const fairlead_prepared* prepared,
                                                                  const uint32_t* selection, size_t count,
                                                                  const fairlead_transfer_options* options);
FAIRLEAD_C_EXPORT uint64_t fairlead_prepared_bytes(const fairlead_prepared* prepared);
FAIRLEAD_C_EXPORT size_t fairlead_prepared_size(const fairlead_prepared* prepared);
FAIRLEAD_C_EXPORT void fairlead_prepared_release(fairlead_prepared* prepared);
/* A message: `data` is free again when this returns. */
FAIRLEAD_C_EXPORT fairlead_transfer* fairlead_peer_send(fairlead_peer* peer, const void* data, size_t bytes,
                                                        uint64_t value, const fairlead_transfer_options* options);
/* Of 8 bytes that were published with FAIRLEAD_REMOTE_ATOMIC; fairlead_transfer_old_value() is what they held. */
FAIRLEAD_C_EXPORT fairlead_transfer* fairlead_peer_fetch_add(fairlead_peer* peer, const fairlead_remote_memory* word,
                                                             uint64_t add, const fairlead_transfer_options* options);
FAIRLEAD_C_EXPORT fairlead_transfer* fairlead_peer_compare_swap(fairlead_peer* peer, const fairlead_remote_memory* word,
                                                                uint64_t expected, uint64_t desired,
                                                                const fairlead_transfer_options* options);

FAIRLEAD_C_EXPORT bool fairlead_transfer_done(const fairlead_transfer* transfer);
/* FAIRLEAD_OK while it is not done; then how it ended, and fairlead_last_error() is the sentence. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_transfer_status(const fairlead_transfer* transfer);
/* How it ended, or FAIRLEAD_DEADLINE_EXCEEDED of the wait: ask fairlead_transfer_done() which. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_transfer_wait(fairlead_transfer* transfer, int64_t timeout_ns);
/* Asks for an early end. It still completes once. */
FAIRLEAD_C_EXPORT void fairlead_transfer_cancel(fairlead_transfer* transfer);
FAIRLEAD_C_EXPORT uint64_t fairlead_transfer_bytes(const fairlead_transfer* transfer);
FAIRLEAD_C_EXPORT uint64_t fairlead_transfer_tag(const fairlead_transfer* transfer);
FAIRLEAD_C_EXPORT uint64_t fairlead_transfer_old_value(const fairlead_transfer* transfer);
/* The handle goes, the transfer goes on. */
FAIRLEAD_C_EXPORT void fairlead_transfer_release(fairlead_transfer* transfer);
/* The index of the first that is done (NULL counts as done); `count` if none was in time. */
FAIRLEAD_C_EXPORT size_t fairlead_wait_any(fairlead_transfer* const* transfers, size_t count, int64_t timeout_ns);
/* FAIRLEAD_OK, the first failure in their order, or FAIRLEAD_DEADLINE_EXCEEDED of the wait. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_wait_all(fairlead_transfer* const* transfers, size_t count,
                                                  int64_t timeout_ns);

/* ---- bursts */

/* As fairlead::Burst (fairlead/burst.h): writes, or reads, that are posted one by one and end together, in their order.
 * One thread at a time, unlike other handles. Posting does not block. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_peer_burst_writes(fairlead_peer* peer, fairlead_traffic traffic,
                                                           fairlead_burst** burst);
FAIRLEAD_C_EXPORT fairlead_code fairlead_peer_burst_reads(fairlead_peer* peer, fairlead_traffic traffic,
                                                          fairlead_burst** burst);
/* What is not FAIRLEAD_OK was not added. The handles of the memories may be released; the bytes of operation i, from 0,
 * are busy until fairlead_burst_ended() is above i. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_burst_add(fairlead_burst* burst, const fairlead_memory* local,
                                                   const fairlead_remote_memory* remote);
/* Sends what is gathered. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_burst_flush(fairlead_burst* burst);
FAIRLEAD_C_EXPORT uint64_t fairlead_burst_added(const fairlead_burst* burst);
FAIRLEAD_C_EXPORT uint64_t fairlead_burst_ended(fairlead_burst* burst);
/* Flushes, and waits until `count` operations have ended, or all that were added (UINT64_MAX): FAIRLEAD_OK, the first
 * failure, FAIRLEAD_DEADLINE_EXCEEDED of the wait, or FAIRLEAD_RESOURCE_EXHAUSTED if what is gathered finds no room. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_burst_wait(fairlead_burst* burst, uint64_t count, int64_t timeout_ns);
/* What was added goes out and goes on, but for what is gathered in a session that has no room for it. */
FAIRLEAD_C_EXPORT void fairlead_burst_release(fairlead_burst* burst);

/* ---- events */

typedef enum fairlead_event_kind FAIRLEAD_ANY_NUMBER {
  FAIRLEAD_EVENT_NONE,
  FAIRLEAD_EVENT_CONNECTED,
  FAIRLEAD_EVENT_NOTIFICATION,
  FAIRLEAD_EVENT_MESSAGE,
  FAIRLEAD_EVENT_PATH_CHANGED,
  FAIRLEAD_EVENT_CLOSED
} fairlead_event_kind;

/* As fairlead::Event. What it points at is its own, until fairlead_event_clear(). */
typedef struct fairlead_event {
  size_t struct_size;
  fairlead_event_kind kind;
  fairlead_traffic traffic;
  uint64_t value;
  const void* data;
  size_t data_size;
  const char* text;
  fairlead_code status; /* of FAIRLEAD_EVENT_CLOSED, and of NONE if no event can come any more */
  const char* status_text;
  fairlead_peer* peer; /* whose event it is; with fairlead_peer_next_event NULL */
  void* owned;         /* the library's */
} fairlead_event;

/* Readable while accept, next_event or next_completed has something; take from all three. The engine's: poll it, do not
 * read it. -1 of an engine that is none. */
FAIRLEAD_C_EXPORT int fairlead_engine_event_fd(const fairlead_engine* engine);
/* FAIRLEAD_OK with kind NONE if none came in time. Clear the event when you are done with it, whatever came. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_engine_next_event(fairlead_engine* engine, int64_t timeout_ns,
                                                           fairlead_event* event);
FAIRLEAD_C_EXPORT fairlead_code fairlead_peer_next_event(fairlead_peer* peer, int64_t timeout_ns,
                                                         fairlead_event* event);
/* Frees what it holds, its peer's handle among it (set `peer` to NULL to keep that). One of all zeros may be cleared.
 */
FAIRLEAD_C_EXPORT void fairlead_event_clear(fairlead_event* event);
/* The next of the transfers that were posted with `report`; NULL: there is none. */
FAIRLEAD_C_EXPORT fairlead_transfer* fairlead_engine_next_completed(fairlead_engine* engine);
/* Advances the engine once on this thread. Whether anything happened. */
FAIRLEAD_C_EXPORT bool fairlead_engine_poll(fairlead_engine* engine);

/* ---- what there is, and what it has done. What is given to `each` is there during the call only. */

typedef struct fairlead_device_info {
  size_t struct_size;
  const char* transport; /* "verbs:mlx5_0" */
  const char* detail;
  const char* address;
  const char* reason;
  bool usable;
} fairlead_device_info;

/* What this host could use; with `peer`, a numeric address or NULL, for a path to there. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_engine_devices(const fairlead_engine* engine, const char* peer,
                                                        void (*each)(void* context, const fairlead_device_info* device),
                                                        void* context);

typedef struct fairlead_transport_stats {
  size_t struct_size;
  const char* transport;
  size_t lane;
  uint64_t bytes_sent, bytes_received, requests, requests_in_flight, paths, paths_opened, paths_lost;
  uint64_t retransmissions;                                                        /* with has_retransmissions */
  uint64_t copied_mapped, copied_streamed, copied_by_kernel, copied_through_rings; /* with has_copied */
  bool has_retransmissions;
  bool has_copied;
} fairlead_transport_stats;

/* As fairlead::EngineStats. */
typedef struct fairlead_engine_stats {
  size_t struct_size;
  uint64_t bytes_written, bytes_read, messages_sent, messages_received;
  uint64_t transfers_completed, transfers_failed, replayed_transfers;
  uint64_t recoveries, failovers, failbacks, paths_measured, resumptions;
  uint64_t duplicate_notifications_dropped, staged_bytes, rail_bytes, atomics, atomics_served;
  uint64_t peers_connected, peers_lost, peers_failed, handshakes_refused;
  uint64_t registered_bytes;
  uint64_t pool_bytes, pool_blocks, pool_used_bytes, pool_cached_bytes, pool_given_back, pool_given_back_bytes;
  uint64_t cache_hits, cache_misses, cache_evicted, cache_invalidated, cache_registrations, cache_bytes;
  uint64_t cuda_registered_bytes, cuda_staging_bytes, cuda_bytes_in, cuda_bytes_out;
  uint64_t sleeps;
  uint64_t transfers_under_way, events_untaken, awaiting_credit; /* now */
} fairlead_engine_stats;

FAIRLEAD_C_EXPORT fairlead_code fairlead_engine_get_stats(const fairlead_engine* engine, fairlead_engine_stats* stats);
FAIRLEAD_C_EXPORT fairlead_code fairlead_engine_transports(const fairlead_engine* engine,
                                                           void (*each)(void* context,
                                                                        const fairlead_transport_stats* transport),
                                                           void* context);
/* Where lanes and pool were put, and why, in one line. */
FAIRLEAD_C_EXPORT size_t fairlead_engine_placement(const fairlead_engine* engine, char* text, size_t size);
/* As fairlead::Metrics: GET /metrics for Prometheus at `listen`, "HOST:PORT", or "HOST:PORT-LAST" for the first of
 * these that is free. `discovery` (a folder) and `service` may be NULL. It may outlive the engine, whose last figures
 * it then shows; before fairlead_service_start() takes the engine it is released. */
typedef struct fairlead_metrics fairlead_metrics;
FAIRLEAD_C_EXPORT fairlead_code fairlead_metrics_serve(fairlead_engine* engine, const char* listen,
                                                       const char* discovery, const char* service,
                                                       fairlead_metrics** metrics);
FAIRLEAD_C_EXPORT size_t fairlead_metrics_address(const fairlead_metrics* metrics, char* text, size_t size);
FAIRLEAD_C_EXPORT void fairlead_metrics_release(fairlead_metrics* metrics);
/* The same as text, some 20,000 bytes. */
FAIRLEAD_C_EXPORT size_t fairlead_engine_metrics_text(const fairlead_engine* engine, char* text, size_t size);
/* This process's CUDA devices: "cuda:0", model and driver, how their memory crosses. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_cuda_devices(void (*each)(void* context, const char* name, const char* detail,
                                                                   const char* how),
                                                      void* context);
/* The softroce devices that this user's programs have open: name, address, program and its process. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_softroce_devices(void (*each)(void* context, const char* name,
                                                                       const char* address, const char* program,
                                                                       uint32_t process),
                                                          void* context);

/* ---- DLPack, where the library was built with it (else FAIRLEAD_UNIMPLEMENTED) */

struct DLManagedTensor; /* of <dlpack/dlpack.h> */

/* Takes a framework's tensor over, and calls its deleter when nothing touches it any more. If that fails it stays the
 * caller's. `tensor` may be NULL. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_engine_adopt_dlpack(fairlead_engine* engine, struct DLManagedTensor* managed,
                                                             uint32_t access, fairlead_memory** memory,
                                                             fairlead_tensor* tensor);
/* A tensor in registered memory for a framework, which keeps the memory until it calls the deleter. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_memory_share_dlpack(const fairlead_memory* memory,
                                                             const fairlead_tensor* tensor,
                                                             struct DLManagedTensor** managed);

#ifdef __cplusplus
}
#endif

#endif /* FAIRLEAD_FAIRLEAD_H */
