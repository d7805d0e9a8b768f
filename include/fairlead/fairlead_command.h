/* Fairlead for C: command channels, a device at another host (fairlead/command.h, command_service.h; docs/commands.md).
 *
 *   fairlead_session_connect(engine, "gpu7:7471", NULL, &session);
 *   fairlead_session_open_channel(session, NULL, &channel);
 *   fairlead_handle x = fairlead_session_new_handle(session), add = fairlead_session_new_handle(session);
 *   fairlead_channel_allocate(channel, x, bytes, NULL);
 *   fairlead_channel_copy_in(channel, x, 0, input, bytes, NULL);
 *   fairlead_channel_load(channel, add, "vector_add", NULL);
 *   fairlead_channel_launch(channel, &launch, parameters, parameter_bytes, NULL);
 *   fairlead_channel_copy_out(channel, output, bytes, x, 0, NULL);
 *   end = fairlead_channel_synchronize(channel, FAIRLEAD_FOREVER);
 *
 * Errors, ownership, threads and structures are as fairlead/fairlead.h says. Functions that append a command give its
 * sequence in `sequence`, which may be NULL. */
#ifndef FAIRLEAD_FAIRLEAD_COMMAND_H
#define FAIRLEAD_FAIRLEAD_COMMAND_H

#include "fairlead/fairlead.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fairlead_session fairlead_session;
typedef struct fairlead_channel fairlead_channel;
typedef struct fairlead_graph fairlead_graph;
typedef struct fairlead_executors fairlead_executors;
typedef struct fairlead_service fairlead_service;
typedef struct fairlead_call fairlead_call;

/* The client's own name for an allocation, a module, a function or a graph; 0 names nothing. */
typedef uint64_t fairlead_handle;

typedef enum fairlead_stage FAIRLEAD_ANY_NUMBER {
  FAIRLEAD_STAGE_TAKEN,
  FAIRLEAD_STAGE_ACCEPTED,
  FAIRLEAD_STAGE_EXECUTED,
  FAIRLEAD_STAGE_COMPLETE
} fairlead_stage;

typedef enum fairlead_scope FAIRLEAD_ANY_NUMBER {
  FAIRLEAD_SCOPE_COMMAND,
  FAIRLEAD_SCOPE_STREAM,
  FAIRLEAD_SCOPE_CONTEXT,
  FAIRLEAD_SCOPE_SESSION
} fairlead_scope;

typedef struct fairlead_extent {
  uint32_t x, y, z;
} fairlead_extent;

/* What to launch. Extents of 0 count as 1. */
typedef struct fairlead_launch {
  size_t struct_size;
  fairlead_handle function;
  fairlead_extent grid, block;
  uint32_t shared_bytes;
} fairlead_launch;

/* A pointer among the parameters of a launch: a byte of an allocation. */
typedef struct fairlead_pointer {
  fairlead_handle allocation;
  uint64_t offset;
} fairlead_pointer;

/* One parameter of a function that comes from a module. A pointer has 16 bytes. */
typedef struct fairlead_parameter {
  uint32_t bytes;
  uint16_t alignment;
  uint16_t is_pointer;
} fairlead_parameter;

/* A place in a channel that others may wait for. */
typedef struct fairlead_mark {
  uint64_t sequence;
  uint32_t channel;
  uint32_t reserved; /* 0 */
} fairlead_mark;

/* Puts `value` behind the `end` bytes that `parameters` (with room for `size`) has, at a multiple of `alignment`, and
 * gives the new end; SIZE_MAX if there is no room, or the alignment is no power of two. */
FAIRLEAD_C_EXPORT size_t fairlead_pack(void* parameters, size_t size, size_t end, const void* value, size_t bytes,
                                       size_t alignment);

/* ---- the client */

/* As fairlead::command::SessionOptions; fairlead_session_options_init() fills in the defaults. */
typedef struct fairlead_session_options {
  size_t struct_size;
  int64_t patience_ns;
  int64_t flush_after_ns;
  uint64_t range_bytes;
  uint32_t flush_bytes;
  uint32_t flush_commands;
  bool wait_for_room;
  bool reserve_range_here;
  int64_t resume_within_ns;
  const uint32_t* devices; /* of the service's, by number; NULL: the first that the client may use */
  size_t device_count;
} fairlead_session_options;

/* In fairlead_session_options.devices, alone: all that the client may use. */
#define FAIRLEAD_ALL_DEVICES UINT32_MAX

/* As fairlead::command::Limits. `device_name` is the session's, as long as a handle of it is there. */
typedef struct fairlead_session_limits {
  size_t struct_size;
  uint64_t payload_credit, memory_bytes, graph_bytes;
  uint64_t range_base, range_bytes;
  uint32_t range_alignment;
  uint32_t version, channels, credits, parameter_bytes, payload_bytes, block_threads, shared_bytes, modules;
  uint32_t graph_records;
  fairlead_extent grid;
  int32_t least_priority, greatest_priority;
  int64_t kept_for_ns;
  const char* device_name;
  uint32_t device_number;
} fairlead_session_limits;

/* As fairlead::command::ChannelOptions; all defaults are 0. */
typedef struct fairlead_channel_options {
  size_t struct_size;
  int32_t priority;  /* as of a CUDA stream: a smaller number goes first */
  uint32_t reserved; /* 0: where programs of the first release have nothing */
  uint32_t device;   /* of the session's, below fairlead_session_device_count() */
} fairlead_channel_options;

/* As fairlead::command::Failure. `text` is the thread's, until its next call of Fairlead that fails. */
typedef struct fairlead_failure {
  size_t struct_size;
  uint64_t sequence;
  fairlead_scope scope;
  int32_t result;
  const char* text;
} fairlead_failure;

FAIRLEAD_C_EXPORT void fairlead_session_options_init(fairlead_session_options* options, size_t struct_size);
/* `options` may be NULL. The engine must outlive the session. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_session_connect(fairlead_engine* engine, const char* host_port,
                                                         const fairlead_session_options* options,
                                                         fairlead_session** session);
/* `options` may be NULL. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_session_open_channel(fairlead_session* session,
                                                              const fairlead_channel_options* options,
                                                              fairlead_channel** channel);
FAIRLEAD_C_EXPORT fairlead_handle fairlead_session_new_handle(fairlead_session* session);
FAIRLEAD_C_EXPORT fairlead_code fairlead_session_get_limits(const fairlead_session* session,
                                                            fairlead_session_limits* limits);
/* How many of the service's devices it has; they count from 0. */
FAIRLEAD_C_EXPORT uint32_t fairlead_session_device_count(const fairlead_session* session);
/* Of one of them; the function above tells of the first. Errors: FAIRLEAD_OUT_OF_RANGE. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_session_get_device_limits(const fairlead_session* session, uint32_t device,
                                                                   fairlead_session_limits* limits);
/* How often it went on over another peer. */
FAIRLEAD_C_EXPORT uint64_t fairlead_session_resumptions(const fairlead_session* session);
/* FAIRLEAD_OK while it lives, else what ended it. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_session_status(const fairlead_session* session);
FAIRLEAD_C_EXPORT fairlead_code fairlead_session_peer(const fairlead_session* session, fairlead_peer** peer);
/* Sends what is buffered, and ends the session. */
FAIRLEAD_C_EXPORT void fairlead_session_close(fairlead_session* session);
/* The session ends with the last handle of it and of its channels. */
FAIRLEAD_C_EXPORT void fairlead_session_release(fairlead_session* session);

FAIRLEAD_C_EXPORT void fairlead_channel_release(fairlead_channel* channel);
FAIRLEAD_C_EXPORT uint32_t fairlead_channel_number(const fairlead_channel* channel);
FAIRLEAD_C_EXPORT int32_t fairlead_channel_priority(const fairlead_channel* channel);
FAIRLEAD_C_EXPORT uint32_t fairlead_channel_device(const fairlead_channel* channel);
FAIRLEAD_C_EXPORT fairlead_code fairlead_channel_allocate(fairlead_channel* channel, fairlead_handle handle,
                                                          uint64_t bytes, uint64_t* sequence);
FAIRLEAD_C_EXPORT fairlead_code fairlead_channel_allocate_at(fairlead_channel* channel, fairlead_handle handle,
                                                             uint64_t address, uint64_t bytes, uint64_t* sequence);
/* Where that byte is on the device, in a session with a range. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_channel_address_of(const fairlead_channel* channel, fairlead_handle handle,
                                                            uint64_t offset, uint64_t* address);
/* Frees an allocation of the device's. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_channel_release_memory(fairlead_channel* channel, fairlead_handle handle,
                                                                uint64_t* sequence);
FAIRLEAD_C_EXPORT fairlead_code fairlead_channel_fill(fairlead_channel* channel, fairlead_handle to, uint64_t offset,
                                                      uint64_t bytes, uint8_t value, uint64_t* sequence);
/* `from` is free again when this returns. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_channel_copy_in(fairlead_channel* channel, fairlead_handle to, uint64_t offset,
                                                         const void* from, size_t bytes, uint64_t* sequence);
/* `to` is written until the command is complete or has failed, or the session has ended. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_channel_copy_out(fairlead_channel* channel, void* to, size_t bytes,
                                                          fairlead_handle from, uint64_t offset, uint64_t* sequence);
FAIRLEAD_C_EXPORT fairlead_code fairlead_channel_copy_within(fairlead_channel* channel, fairlead_handle to,
                                                             uint64_t to_offset, fairlead_handle from,
                                                             uint64_t from_offset, uint64_t bytes, uint64_t* sequence);
/* From memory of another device of the session's, behind what this channel has waited for. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_channel_copy_across(fairlead_channel* channel, fairlead_handle to,
                                                             uint64_t to_offset, uint32_t from_device,
                                                             fairlead_handle from, uint64_t from_offset, uint64_t bytes,
                                                             uint64_t* sequence);
FAIRLEAD_C_EXPORT fairlead_code fairlead_channel_load(fairlead_channel* channel, fairlead_handle function,
                                                      const char* name, uint64_t* sequence);
FAIRLEAD_C_EXPORT fairlead_code fairlead_channel_load_module(fairlead_channel* channel, fairlead_handle module,
                                                             const void* image, size_t bytes, uint64_t* sequence);
FAIRLEAD_C_EXPORT fairlead_code fairlead_channel_load_from(fairlead_channel* channel, fairlead_handle function,
                                                           fairlead_handle module, const char* name,
                                                           const fairlead_parameter* parameters, size_t count,
                                                           uint64_t* sequence);
/* `parameters`: as fairlead_pack() puts them. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_channel_launch(fairlead_channel* channel, const fairlead_launch* launch,
                                                        const void* parameters, size_t bytes, uint64_t* sequence);
/* Of the executor's own making. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_channel_user(fairlead_channel* channel, uint16_t opcode, const void* data,
                                                      size_t bytes, uint64_t* sequence);
FAIRLEAD_C_EXPORT fairlead_code fairlead_channel_record(fairlead_channel* channel, fairlead_mark* mark);
FAIRLEAD_C_EXPORT fairlead_code fairlead_channel_fence(fairlead_channel* channel, const fairlead_mark* mark,
                                                       uint64_t* sequence);
FAIRLEAD_C_EXPORT void fairlead_channel_flush(fairlead_channel* channel);
FAIRLEAD_C_EXPORT uint64_t fairlead_channel_last(const fairlead_channel* channel);
FAIRLEAD_C_EXPORT uint64_t fairlead_channel_reached(const fairlead_channel* channel, fairlead_stage stage);
FAIRLEAD_C_EXPORT fairlead_code fairlead_channel_wait(fairlead_channel* channel, uint64_t sequence,
                                                      fairlead_stage stage, int64_t timeout_ns);
FAIRLEAD_C_EXPORT fairlead_code fairlead_channel_synchronize(fairlead_channel* channel, int64_t timeout_ns);
/* The failure that the channel stands at; FAIRLEAD_NOT_FOUND: it stands at none. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_channel_failure(const fairlead_channel* channel, fairlead_failure* failure);
FAIRLEAD_C_EXPORT fairlead_code fairlead_channel_recover(fairlead_channel* channel);

/* Commands that cross once and run as often as wanted. One thread at a time. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_graph_create(fairlead_graph** graph);
FAIRLEAD_C_EXPORT void fairlead_graph_release(fairlead_graph* graph);
FAIRLEAD_C_EXPORT fairlead_code fairlead_graph_launch(fairlead_graph* graph, const fairlead_launch* launch,
                                                      const void* parameters, size_t bytes);
FAIRLEAD_C_EXPORT fairlead_code fairlead_graph_fill(fairlead_graph* graph, fairlead_handle to, uint64_t offset,
                                                    uint64_t bytes, uint8_t value);
FAIRLEAD_C_EXPORT fairlead_code fairlead_graph_copy_within(fairlead_graph* graph, fairlead_handle to,
                                                           uint64_t to_offset, fairlead_handle from,
                                                           uint64_t from_offset, uint64_t bytes);
FAIRLEAD_C_EXPORT uint32_t fairlead_graph_commands(const fairlead_graph* graph);
/* `graph` is free again when this returns; on the device it is called `handle`. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_channel_upload(fairlead_channel* channel, fairlead_handle handle,
                                                        const fairlead_graph* graph, uint64_t* sequence);
FAIRLEAD_C_EXPORT fairlead_code fairlead_channel_launch_graph(fairlead_channel* channel, fairlead_handle graph,
                                                              uint64_t* sequence);
FAIRLEAD_C_EXPORT fairlead_code fairlead_channel_release_graph(fairlead_channel* channel, fairlead_handle graph,
                                                               uint64_t* sequence);
/* With what its command `number` (fairlead_graph_commands(), once that was added) is launched in the runs that are
   appended after this. Its function stays: launch->function is 0. A failure leaves the graph as it was. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_channel_update_graph(fairlead_channel* channel, fairlead_handle graph,
                                                              uint32_t number, const fairlead_launch* launch,
                                                              const void* parameters, size_t bytes, uint64_t* sequence);

/* ---- the server: executors, which run a session's commands, and the service that asks them to */

typedef enum fairlead_parameter_kind FAIRLEAD_ANY_NUMBER {
  FAIRLEAD_PARAMETER_POINTER,
  FAIRLEAD_PARAMETER_U32,
  FAIRLEAD_PARAMETER_U64,
  FAIRLEAD_PARAMETER_F32,
  FAIRLEAD_PARAMETER_ADDRESS
} fairlead_parameter_kind;

/* One call of a kernel of the program's own, there while the kernel runs. Parameters by their place. */
FAIRLEAD_C_EXPORT void* fairlead_call_pointer(const fairlead_call* call, size_t i);
FAIRLEAD_C_EXPORT uint64_t fairlead_call_number(const fairlead_call* call, size_t i); /* U32 and U64 */
FAIRLEAD_C_EXPORT float fairlead_call_real(const fairlead_call* call, size_t i);
FAIRLEAD_C_EXPORT fairlead_extent fairlead_call_grid(const fairlead_call* call);
FAIRLEAD_C_EXPORT fairlead_extent fairlead_call_block(const fairlead_call* call);
/* What stands at an address of the session's range; NULL: nothing of the session's, or not all of it. */
FAIRLEAD_C_EXPORT void* fairlead_call_at(const fairlead_call* call, uint64_t address, uint64_t bytes);

/* A kernel in C, run once for a launch, over the whole grid. It is called from threads of the service. */
typedef struct fairlead_host_kernel {
  size_t struct_size;
  const char* name;
  const fairlead_parameter_kind* parameters; /* at most 16 */
  size_t parameter_count;
  size_t alignment; /* of what its pointers point at: a power of two up to 16; 0: 1 */
  /* How many bytes the pointer `i` reaches over; UINT64_MAX refuses. NULL: it has no pointers. */
  uint64_t (*extent)(void* context, const fairlead_call* call, size_t i);
  /* NULL, or why it failed, a text that stays; then the session's context is lost. */
  const char* (*run)(void* context, const fairlead_call* call);
  void* context;
  bool takes_long; /* more than some microseconds */
} fairlead_host_kernel;

typedef struct fairlead_host_executor_config {
  size_t struct_size;
  uint64_t memory_bytes;                      /* of a session; 0: 1 GiB */
  size_t allocations;                         /* of a session; 0: 4096 */
  size_t functions;                           /* of a session; 0: 1024 */
  const fairlead_host_kernel* const* kernels; /* beside the standard ones */
  size_t kernel_count;
  bool without_standard_kernels;
} fairlead_host_executor_config;

typedef struct fairlead_cuda_executor_config {
  size_t struct_size;
  int32_t ordinal;
  bool own_process;
  uint64_t memory_bytes; /* 0: the defaults of fairlead/cuda_executor.h */
  size_t allocations, functions, staging_bytes;
  uint32_t modules;
  bool no_modules;
} fairlead_cuda_executor_config;

/* This host as a device. `config` may be NULL. Texts and kernels are copied, their contexts are the caller's. A kernel
 * that no session could run is refused here. */
FAIRLEAD_C_EXPORT fairlead_code fairlead_host_executors(const fairlead_host_executor_config* config,
                                                        fairlead_executors** executors);
FAIRLEAD_C_EXPORT fairlead_code fairlead_cuda_executors(const fairlead_cuda_executor_config* config,
                                                        fairlead_executors** executors);
FAIRLEAD_C_EXPORT void fairlead_executors_release(fairlead_executors* executors);
/* What a fairlead_service_config.program does; its exit code. */
FAIRLEAD_C_EXPORT int fairlead_serve_session(const fairlead_executors* executors);

typedef enum fairlead_sharing FAIRLEAD_ANY_NUMBER {
  FAIRLEAD_SHARING_FREE,
  FAIRLEAD_SHARING_BEST_EFFORT,
  FAIRLEAD_SHARING_EQUAL,
  FAIRLEAD_SHARING_FIXED
} fairlead_sharing;

/* As fairlead::command::Tenant; 0: no limit. */
typedef struct fairlead_tenant {
  size_t struct_size;
  const char* name;
  uint64_t memory_bytes;
  uint64_t bytes_per_second;
  double share;
  uint32_t sessions, channels, credits;
  const uint32_t* devices; /* that it may use, by number; NULL: all */
  size_t device_count;
} fairlead_tenant;

/* As fairlead::command::TenantDeviceStats; failures as below. */
typedef struct fairlead_tenant_device_stats {
  size_t struct_size;
  uint64_t memory_bytes, commands, bytes_in, bytes_out, service_ns;
  uint64_t failures[3];
} fairlead_tenant_device_stats;

/* As fairlead::command::TenantStats; failures by scope: command, stream, context. `devices`: by number. */
typedef struct fairlead_tenant_stats {
  size_t struct_size;
  const char* name;
  uint64_t sessions, memory_bytes, waiting, commands, bytes_in, bytes_out, service_ns, rejections;
  uint64_t failures[3];
  uint64_t away;
  const fairlead_tenant_device_stats* const* devices;
  size_t device_count;
} fairlead_tenant_stats;

/* As fairlead::command::ServedDevice. */
typedef struct fairlead_served_device {
  size_t struct_size;
  const char* name;
  const fairlead_executors* executors;
} fairlead_served_device;

/* As fairlead::command::ServiceConfig; fairlead_service_config_init() fills in the defaults. */
typedef struct fairlead_service_config {
  size_t struct_size;
  const fairlead_executors* executors;
  const char* const* program; /* NULL: sessions run in this process */
  size_t program_count;
  const fairlead_tenant* const* tenants;
  size_t tenant_count;
  int64_t longest_turn_ns;
  uint64_t payload_credit, held_results, module_bytes, module_cache_bytes, graph_bytes;
  size_t max_sessions;
  uint32_t channels, credits, graph_records;
  fairlead_sharing sharing;
  bool in_turn; /* commands run on the service's thread, not on one for each session */
  int64_t keep_away_ns;
  size_t most_away;
  const fairlead_served_device* const* devices; /* several; then `executors` is NULL */
  size_t device_count;
  uint64_t window_bytes;
} fairlead_service_config;

/* As fairlead::command::ServiceStats. */
typedef struct fairlead_service_stats {
  size_t struct_size;
  uint64_t sessions, sessions_begun, sessions_refused, sessions_ended_wrong;
  uint64_t commands, failures, skipped_unknown, replies, modules_cached, modules_sent, turn_overruns;
  uint64_t leaving;
  uint64_t away, resumed;
} fairlead_service_stats;

FAIRLEAD_C_EXPORT void fairlead_service_config_init(fairlead_service_config* config, size_t struct_size);
/* Serves every peer that connects to the engine. The engine's handle is gone when this returns, however it ends: the
 * service has the engine. Refused while metrics of it are served: serve those of fairlead_service_engine(). */
FAIRLEAD_C_EXPORT fairlead_code fairlead_service_start(fairlead_engine* engine, const fairlead_service_config* config,
                                                       fairlead_service** service);
FAIRLEAD_C_EXPORT size_t fairlead_service_listen_address(const fairlead_service* service, char* text, size_t size);
/* Its engine, for figures and keys: the service's, which goes with it. Not to be destroyed. */
FAIRLEAD_C_EXPORT fairlead_engine* fairlead_service_engine(fairlead_service* service);
FAIRLEAD_C_EXPORT fairlead_code fairlead_service_get_stats(const fairlead_service* service,
                                                           fairlead_service_stats* stats);
FAIRLEAD_C_EXPORT fairlead_code fairlead_service_tenants(
    const fairlead_service* service, void (*each)(void* context, const fairlead_tenant_stats* tenant), void* context);
FAIRLEAD_C_EXPORT fairlead_code fairlead_service_set_tenants(fairlead_service* service,
                                                             const fairlead_tenant* const* tenants, size_t count);
/* New sessions are turned away. */
FAIRLEAD_C_EXPORT void fairlead_service_drain(fairlead_service* service);
/* Ends every session; the handle stays. */
FAIRLEAD_C_EXPORT void fairlead_service_stop(fairlead_service* service);
FAIRLEAD_C_EXPORT void fairlead_service_destroy(fairlead_service* service);

#ifdef __cplusplus
}
#endif

#endif /* FAIRLEAD_FAIRLEAD_COMMAND_H */
