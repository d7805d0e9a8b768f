/* The C API's engine, from C: two engines in this process. */
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/capi/check.h"

enum { kBytes = 1 << 16 };

static fairlead_engine *here, *there;
static fairlead_peer *peer, *other_end;
static fairlead_memory *source, *target;
static fairlead_remote_memory* remote;

static fairlead_remote_memory* look_up(const char* name) {
  fairlead_remote_memory* found = NULL;
  CHECK(fairlead_peer_lookup(peer, name, MINUTE, &found) == FAIRLEAD_OK);
  return found;
}

/* The next event at `engine` that is no news of paths. */
static fairlead_event next_event(fairlead_engine* engine) {
  for (;;) {
    fairlead_event event = FAIRLEAD_INIT(fairlead_event);
    CHECK(fairlead_engine_next_event(engine, MINUTE, &event) == FAIRLEAD_OK);
    CHECK(event.kind != FAIRLEAD_EVENT_NONE);
    if (event.kind != FAIRLEAD_EVENT_CONNECTED && event.kind != FAIRLEAD_EVENT_PATH_CHANGED) return event;
    fairlead_event_clear(&event);
  }
}

static void set_up(void) {
  there = make_engine("127.0.0.1:0");
  here = make_engine(NULL);
  peer = connect_to(here, there);
  CHECK(fairlead_engine_accept(there, MINUTE, &other_end) == FAIRLEAD_OK);
  fairlead_peer* none = peer;
  CHECK_FAILS(fairlead_engine_accept(there, 0, &none), FAIRLEAD_DEADLINE_EXCEEDED, "no peer");
  CHECK(none == NULL);
  CHECK(fairlead_engine_allocate(here, kBytes, NULL, &source) == FAIRLEAD_OK);
  CHECK(fairlead_engine_allocate(there, kBytes, NULL, &target) == FAIRLEAD_OK);
  CHECK(fairlead_memory_size(target) == kBytes);
  for (size_t i = 0; i < kBytes; ++i) ((unsigned char*)fairlead_memory_data(source))[i] = (unsigned char)(i * 7);
  CHECK(fairlead_engine_publish(there, "target", target, FAIRLEAD_REMOTE_READ_WRITE | FAIRLEAD_REMOTE_ATOMIC, NULL, NULL,
                                0) == FAIRLEAD_OK);
  remote = look_up("target");
}

static void test_texts(void) {
  CHECK(strcmp(fairlead_code_name(FAIRLEAD_PROTECTION_ERROR), "protection error") == 0);
  char expected[32];
  snprintf(expected, sizeof expected, "%d.%d.%d", FAIRLEAD_VERSION_MAJOR, FAIRLEAD_VERSION_MINOR,
           FAIRLEAD_VERSION_PATCH);
  CHECK(strcmp(fairlead_version(), expected) == 0);
  char text[64], small[4];
  CHECK(fairlead_peer_transport(peer, text, sizeof text) == 3 && strcmp(text, "tcp") == 0);
  const size_t length = fairlead_peer_explain(peer, NULL, 0);
  CHECK(length > 3);
  CHECK(fairlead_peer_explain(peer, small, sizeof small) == length && strlen(small) == 3);
  CHECK(fairlead_remote_memory_name(remote, text, sizeof text) == 6 && strcmp(text, "target") == 0);
  CHECK(fairlead_peer_principal(peer, text, sizeof text) == 0 && text[0] == 0);
  CHECK(fairlead_peer_get_state(peer) == FAIRLEAD_PEER_READY);
}

static void test_write_and_read(void) {
  CHECK(fairlead_remote_memory_size(remote) == kBytes && fairlead_remote_memory_offset(remote) == 0);
  CHECK(ended(fairlead_peer_write(peer, source, remote, NULL)) == FAIRLEAD_OK);
  CHECK(memcmp(fairlead_memory_data(source), fairlead_memory_data(target), kBytes) == 0);

  fairlead_memory *back = NULL, *half = NULL;
  CHECK(fairlead_engine_allocate(here, kBytes, NULL, &back) == FAIRLEAD_OK);
  CHECK(fairlead_memory_slice(back, kBytes / 2, kBytes / 2, &half) == FAIRLEAD_OK);
  fairlead_remote_memory* second = NULL;
  CHECK(fairlead_remote_memory_slice(remote, kBytes / 2, kBytes / 2, &second) == FAIRLEAD_OK);
  fairlead_transfer_options options = FAIRLEAD_INIT(fairlead_transfer_options);
  options.tag = 77;
  fairlead_transfer* read = fairlead_peer_read(peer, half, second, &options);
  CHECK(fairlead_transfer_tag(read) == 77);
  CHECK(ended(read) == FAIRLEAD_OK);
  CHECK(memcmp((char*)fairlead_memory_data(back) + kBytes / 2, (char*)fairlead_memory_data(source) + kBytes / 2,
               kBytes / 2) == 0);
  fairlead_memory_release(half);
  CHECK_FAILS(fairlead_memory_slice(back, kBytes, 1, &half), FAIRLEAD_OUT_OF_RANGE, "has no 1 bytes at 65536");
  CHECK(half == NULL);
  CHECK(ended(fairlead_peer_write(peer, back, second, NULL)) == FAIRLEAD_OUT_OF_RANGE);
  CHECK(ended(fairlead_peer_write(peer, NULL, second, NULL)) == FAIRLEAD_INVALID_ARGUMENT);
  fairlead_memory_release(back);
  fairlead_remote_memory_release(second);
}

static void test_batches_and_prepared_lists(void) {
  enum { kPieces = 4, kPiece = kBytes / kPieces };
  fairlead_descriptor batch[kPieces];
  for (size_t i = 0; i < kPieces; ++i) { /* the target's pieces in the opposite order */
    fairlead_memory* local = NULL;
    fairlead_remote_memory* far = NULL;
    CHECK(fairlead_memory_slice(source, i * kPiece, kPiece, &local) == FAIRLEAD_OK);
    CHECK(fairlead_remote_memory_slice(remote, (kPieces - 1 - i) * kPiece, kPiece, &far) == FAIRLEAD_OK);
    batch[i].local = local;
    batch[i].remote = far;
  }
  const char* const sent = fairlead_memory_data(source);
  const char* const arrived = fairlead_memory_data(target);
  memset(fairlead_memory_data(target), 0, kBytes);
  CHECK(ended(fairlead_peer_write_batch(peer, batch, kPieces, NULL)) == FAIRLEAD_OK);
  for (size_t i = 0; i < kPieces; ++i) CHECK(memcmp(sent + i * kPiece, arrived + (kPieces - 1 - i) * kPiece, kPiece) == 0);

  fairlead_prepared* list = NULL;
  CHECK(fairlead_peer_prepare_write(peer, batch, kPieces, &list) == FAIRLEAD_OK);
  CHECK(fairlead_prepared_size(list) == kPieces && fairlead_prepared_bytes(list) == kBytes);
  memset(fairlead_memory_data(target), 0, kBytes);
  const uint32_t selection[] = {3, 1};
  CHECK(ended(fairlead_peer_post_selection(peer, list, selection, 2, NULL)) == FAIRLEAD_OK);
  CHECK(memcmp(sent + 3 * kPiece, arrived, kPiece) == 0 && memcmp(sent + kPiece, arrived + 2 * kPiece, kPiece) == 0);
  for (size_t i = 0; i < kPiece; ++i) CHECK(arrived[kPiece + i] == 0);
  CHECK(ended(fairlead_peer_post(peer, list, NULL)) == FAIRLEAD_OK);
  CHECK(memcmp(sent, arrived + 3 * kPiece, kPiece) == 0);
  for (size_t i = 0; i < kPieces; ++i) { /* the list keeps what it names */
    fairlead_memory_release((fairlead_memory*)batch[i].local);
    fairlead_remote_memory_release((fairlead_remote_memory*)batch[i].remote);
  }
  CHECK(ended(fairlead_peer_post(peer, list, NULL)) == FAIRLEAD_OK);
  fairlead_prepared_release(list);
  CHECK(fairlead_peer_post(peer, NULL, NULL) == NULL && strcmp(fairlead_last_error(), "prepared is NULL") == 0);
}

static void test_bursts(void) {
  enum { kPiece = 64, kOperations = kBytes / kPiece };
  memset(fairlead_memory_data(target), 0, kBytes);
  fairlead_burst* burst = NULL;
  CHECK(fairlead_peer_burst_writes(peer, FAIRLEAD_BULK, &burst) == FAIRLEAD_OK);
  for (size_t i = 0; i < kOperations; ++i) {
    fairlead_memory* local = NULL;
    fairlead_remote_memory* far = NULL;
    CHECK(fairlead_memory_slice(source, i * kPiece, kPiece, &local) == FAIRLEAD_OK);
    CHECK(fairlead_remote_memory_slice(remote, i * kPiece, kPiece, &far) == FAIRLEAD_OK);
    CHECK(fairlead_burst_add(burst, local, far) == FAIRLEAD_OK);
    fairlead_memory_release(local);
    fairlead_remote_memory_release(far);
  }
  CHECK(fairlead_burst_flush(burst) == FAIRLEAD_OK);
  CHECK(fairlead_burst_wait(burst, UINT64_MAX, MINUTE) == FAIRLEAD_OK);
  CHECK(fairlead_burst_added(burst) == kOperations && fairlead_burst_ended(burst) == kOperations);
  CHECK(memcmp(fairlead_memory_data(source), fairlead_memory_data(target), kBytes) == 0);
  CHECK_FAILS(fairlead_burst_add(burst, NULL, remote), FAIRLEAD_INVALID_ARGUMENT, "the local memory is not valid");
  CHECK_FAILS(fairlead_burst_add(NULL, source, remote), FAIRLEAD_INVALID_ARGUMENT, "burst is NULL");
  CHECK(fairlead_burst_added(burst) == kOperations);
  fairlead_burst_release(burst);
  memset(fairlead_memory_data(source), 0, kBytes);
  CHECK(fairlead_peer_burst_reads(peer, FAIRLEAD_COMMANDS, &burst) == FAIRLEAD_OK);
  CHECK(fairlead_burst_add(burst, source, remote) == FAIRLEAD_OK);
  CHECK(fairlead_burst_wait(burst, 1, MINUTE) == FAIRLEAD_OK);
  CHECK(memcmp(fairlead_memory_data(source), fairlead_memory_data(target), kBytes) == 0);
  fairlead_burst_release(burst);
  CHECK_FAILS(fairlead_peer_burst_writes(peer, (fairlead_traffic)2, &burst), FAIRLEAD_INVALID_ARGUMENT, "traffic");
  CHECK(burst == NULL);
  fairlead_burst_release(NULL);
}

static void test_events(void) {
  fairlead_transfer_options options = FAIRLEAD_INIT(fairlead_transfer_options);
  options.has_notify = true;
  options.notify = 42;
  options.notify_bytes = "which";
  options.notify_size = 5;
  CHECK(ended(fairlead_peer_write(peer, source, remote, &options)) == FAIRLEAD_OK);
  fairlead_event event = next_event(there);
  CHECK(event.kind == FAIRLEAD_EVENT_NOTIFICATION && event.value == 42 && event.data_size == 5);
  CHECK(memcmp(event.data, "which", 5) == 0);
  CHECK(event.peer != NULL && fairlead_peer_same(event.peer, other_end) && !fairlead_peer_same(event.peer, peer));
  fairlead_event_clear(&event);
  CHECK(event.peer == NULL && event.struct_size == sizeof event);
  fairlead_event_clear(&event);

  options = (fairlead_transfer_options)FAIRLEAD_INIT(fairlead_transfer_options);
  options.report = true;
  options.traffic = FAIRLEAD_COMMANDS;
  const int fd = fairlead_engine_event_fd(here);
  for (;;) { /* that the session began */
    fairlead_event old = FAIRLEAD_INIT(fairlead_event);
    CHECK(fairlead_engine_next_event(here, 0, &old) == FAIRLEAD_OK);
    const fairlead_event_kind kind = old.kind;
    fairlead_event_clear(&old);
    if (kind == FAIRLEAD_EVENT_NONE) break;
  }
  fairlead_transfer* sent = fairlead_peer_send(peer, "hello", 5, 7, &options);
  event = next_event(there);
  CHECK(event.kind == FAIRLEAD_EVENT_MESSAGE && event.value == 7 && event.traffic == FAIRLEAD_COMMANDS);
  CHECK(event.data_size == 5 && memcmp(event.data, "hello", 5) == 0);
  fairlead_event_clear(&event);
  struct pollfd ready = {fd, POLLIN, 0};
  CHECK(poll(&ready, 1, 60000) == 1);
  fairlead_transfer* done = fairlead_engine_next_completed(here);
  CHECK(done == sent); /* the one object behind both handles */
  fairlead_transfer_release(done);
  CHECK(fairlead_engine_next_completed(here) == NULL);
  fairlead_transfer* both[] = {sent, NULL};
  CHECK(fairlead_wait_any(both, 2, MINUTE) == 0 && fairlead_wait_all(both, 1, MINUTE) == FAIRLEAD_OK);
  CHECK(fairlead_transfer_status(sent) == FAIRLEAD_OK);
  fairlead_transfer_release(sent);
}

static void test_order_and_atomics(void) {
  fairlead_remote_memory* word = NULL;
  CHECK(fairlead_remote_memory_slice(remote, 8, 8, &word) == FAIRLEAD_OK);
  memset(fairlead_memory_data(target), 0, kBytes);
  fairlead_transfer* first = fairlead_peer_fetch_add(peer, word, 5, NULL);
  fairlead_transfer_options options = FAIRLEAD_INIT(fairlead_transfer_options);
  options.after = first;
  fairlead_transfer* second = fairlead_peer_compare_swap(peer, word, 5, 11, &options);
  CHECK(fairlead_transfer_wait(second, MINUTE) == FAIRLEAD_OK && fairlead_transfer_old_value(second) == 5);
  CHECK(fairlead_transfer_done(first) && fairlead_transfer_old_value(first) == 0);
  CHECK(((uint64_t*)fairlead_memory_data(target))[1] == 11);
  fairlead_transfer_release(first);
  fairlead_transfer_release(second);
  fairlead_remote_memory_release(word);
}

static void test_tensors(void) {
  enum { kRows = 6, kColumns = 10 };
  const int64_t shape[] = {kRows, kColumns};
  fairlead_tensor far = FAIRLEAD_INIT(fairlead_tensor), near = FAIRLEAD_INIT(fairlead_tensor);
  CHECK(fairlead_tensor_contiguous(FAIRLEAD_F32, shape, 2, 0, &far) == FAIRLEAD_OK);
  CHECK(fairlead_tensor_bytes(&far) == kRows * kColumns * 4);
  CHECK(fairlead_engine_publish(there, "tensor", target, FAIRLEAD_REMOTE_WRITE, &far, NULL, 0) == FAIRLEAD_OK);
  fairlead_remote_memory* found = look_up("tensor");
  fairlead_tensor told = FAIRLEAD_INIT(fairlead_tensor);
  CHECK(fairlead_remote_memory_tensor(found, &told) == FAIRLEAD_OK && told.rank == 2 && told.shape[1] == kColumns);
  CHECK(fairlead_remote_memory_access(found) == FAIRLEAD_REMOTE_WRITE);
  near = far; /* here it lies column by column */
  near.strides[0] = 1;
  near.strides[1] = kRows;
  float* const from = fairlead_memory_data(source);
  for (int row = 0; row < kRows; ++row) {
    for (int column = 0; column < kColumns; ++column) from[column * kRows + row] = (float)(row * kColumns + column);
  }
  CHECK(ended(fairlead_peer_write_tensor(peer, source, &near, found, &told, NULL)) == FAIRLEAD_OK);
  for (int i = 0; i < kRows * kColumns; ++i) CHECK(((float*)fairlead_memory_data(target))[i] == (float)i);
  near.rank = 9;
  CHECK(fairlead_peer_write_tensor(peer, source, &near, found, &told, NULL) == NULL);
  CHECK(strstr(fairlead_last_error(), "rank 9") != NULL);
  CHECK_FAILS(fairlead_tensor_check(&far, 100), FAIRLEAD_OUT_OF_RANGE, "100");
  CHECK_FAILS(fairlead_remote_memory_tensor(remote, &told), FAIRLEAD_NOT_FOUND, "target");
  fairlead_dtype dtype = FAIRLEAD_BOOL;
  CHECK(fairlead_dtype_from_name("BF16", &dtype) == FAIRLEAD_OK && dtype == FAIRLEAD_BF16);
  CHECK_FAILS(fairlead_dtype_from_name("F7", &dtype), FAIRLEAD_NOT_FOUND, "'F7'");
  CHECK(fairlead_dtype_size(FAIRLEAD_F64) == 8 && fairlead_dtype_size((fairlead_dtype)99) == 0);
  CHECK(fairlead_engine_unpublish(there, "tensor") == FAIRLEAD_OK);
  fairlead_remote_memory_release(found);
}

static void count_names(void* context, fairlead_remote_memory* memory) {
  ++*(int*)context;
  fairlead_remote_memory_release(memory);
}

static void test_export_and_list(void) {
  char capability[FAIRLEAD_CAPABILITY_SIZE], short_one[16];
  CHECK_FAILS(fairlead_engine_export(there, target, FAIRLEAD_REMOTE_READ, NULL, 0, short_one, sizeof short_one),
              FAIRLEAD_OUT_OF_RANGE, "FAIRLEAD_CAPABILITY_SIZE");
  CHECK(fairlead_engine_export(there, target, FAIRLEAD_REMOTE_READ, NULL, 0, capability, sizeof capability) ==
        FAIRLEAD_OK);
  fairlead_remote_memory* given = NULL;
  CHECK(fairlead_peer_import(peer, capability, MINUTE, &given) == FAIRLEAD_OK);
  CHECK(fairlead_remote_memory_access(given) == FAIRLEAD_REMOTE_READ);
  CHECK(ended(fairlead_peer_read(peer, source, given, NULL)) == FAIRLEAD_OK);
  CHECK(ended(fairlead_peer_write(peer, source, given, NULL)) == FAIRLEAD_PERMISSION_DENIED);
  CHECK(fairlead_engine_unexport(there, capability) == FAIRLEAD_OK);
  CHECK_FAILS(fairlead_engine_unexport(there, "no such text"), FAIRLEAD_INVALID_ARGUMENT, "");
  fairlead_remote_memory_release(given);
  int names = 0;
  CHECK(fairlead_peer_list(peer, "targ", MINUTE, count_names, &names) == FAIRLEAD_OK && names == 1);
}

static void on_release(void* context) { ++*(int*)context; }

static void test_memory_of_the_programs_own(void) {
  static char bytes[4096];
  int released = 0;
  fairlead_memory* ours = NULL;
  CHECK(fairlead_engine_register(here, bytes, sizeof bytes, FAIRLEAD_ACCESS_NONE, on_release, &released, &ours) ==
        FAIRLEAD_OK);
  CHECK(fairlead_memory_data(ours) == bytes && released == 0);
  fairlead_memory_release(ours);
  CHECK(released == 1);
  CHECK_FAILS(fairlead_engine_register(here, NULL, 0, FAIRLEAD_ACCESS_NONE, on_release, &released, &ours),
              FAIRLEAD_INVALID_ARGUMENT, "");
  CHECK(ours == NULL && released == 1);

  const fairlead_bytes ranges[] = {{bytes, 1024}, {bytes + 2048, 1024}};
  fairlead_memory* two[2];
  CHECK(fairlead_engine_register_many(here, ranges, 2, FAIRLEAD_REMOTE_READ, two) == FAIRLEAD_OK);
  CHECK(fairlead_memory_data(two[1]) == bytes + 2048);
  fairlead_memory_release(two[0]);
  fairlead_memory_release(two[1]);

  fairlead_allocate_options options = FAIRLEAD_INIT(fairlead_allocate_options);
  options.shared = true;
  options.alignment = 8192;
  CHECK(fairlead_engine_allocate(here, 100, &options, &ours) == FAIRLEAD_OK);
  CHECK((uintptr_t)fairlead_memory_data(ours) % 8192 == 0);
  int fd = -1;
  size_t offset = 0;
  CHECK(fairlead_memory_shared_file(ours, &fd, &offset) == FAIRLEAD_OK && fd >= 0);
  fairlead_memory_release(ours);
  CHECK_FAILS(fairlead_memory_shared_file(source, &fd, &offset), FAIRLEAD_NOT_FOUND, "shared");
  CHECK_FAILS(fairlead_engine_map_file(here, "/no/such/file", FAIRLEAD_REMOTE_READ, &ours), FAIRLEAD_NOT_FOUND,
              "/no/such/file");
}

/* Structures of programs that are older or newer than the library. */
static void test_structures(void) {
  struct {
    fairlead_transfer_options known;
    uint64_t later;
  } newer = {.known = {.struct_size = sizeof newer}};
  CHECK(ended(fairlead_peer_write(peer, source, remote, &newer.known)) == FAIRLEAD_OK);
  newer.later = 1;
  CHECK(fairlead_peer_write(peer, source, remote, &newer.known) == NULL);
  CHECK(fairlead_last_code() == FAIRLEAD_VERSION_MISMATCH && strstr(fairlead_last_error(), "does not know") != NULL);
  fairlead_transfer_options none = {0};
  CHECK(fairlead_peer_write(peer, source, remote, &none) == NULL);
  CHECK(strstr(fairlead_last_error(), "struct_size is 0") != NULL);
  fairlead_transfer_options huge = {.struct_size = SIZE_MAX};
  CHECK(fairlead_peer_write(peer, source, remote, &huge) == NULL);

  fairlead_engine_config older; /* knows members up to `listen` */
  memset(&older, 0xff, sizeof older);
  fairlead_engine_config_init(&older, offsetof(fairlead_engine_config, keys_file));
  CHECK(older.name != NULL && older.name[0] == 0 && (intptr_t)older.keys_file == -1);
  fairlead_engine* engine = NULL;
  CHECK(fairlead_engine_create(&older, &engine) == FAIRLEAD_OK);
  fairlead_engine_config full = FAIRLEAD_INIT(fairlead_engine_config);
  CHECK(fairlead_engine_get_config(engine, &full) == FAIRLEAD_OK);
  CHECK(full.failover && full.chunk_bytes == 1 << 20 && strcmp(full.transport, "auto") == 0 && full.require[0] == 0);
  fairlead_engine_destroy(engine);

  fairlead_engine_config_init(&full, sizeof full);
  full.paths = 99;
  engine = here;
  CHECK_FAILS(fairlead_engine_create(&full, &engine), FAIRLEAD_INVALID_ARGUMENT, "paths");
  CHECK(engine == NULL);
  fairlead_engine_config_init(&full, sizeof full);
  full.require = "tcp,shm";
  CHECK(fairlead_engine_create(&full, &engine) == FAIRLEAD_OK);
  fairlead_engine_config told = FAIRLEAD_INIT(fairlead_engine_config);
  CHECK(fairlead_engine_get_config(engine, &told) == FAIRLEAD_OK && strcmp(told.require, "tcp,shm") == 0);
  fairlead_engine_destroy(engine);

  struct {
    fairlead_peer_stats known;
    uint64_t later;
  } stats = {.known = {.struct_size = sizeof stats}, .later = 3};
  CHECK(fairlead_peer_get_stats(peer, &stats.known) == FAIRLEAD_OK);
  CHECK(stats.known.transfers_completed > 0 && stats.later == 0 && stats.known.struct_size == sizeof stats);
  /* Of a program that was compiled before what waits was counted. */
  fairlead_peer_stats before = {.struct_size = offsetof(fairlead_peer_stats, transfers_under_way), .transfers_under_way = 7};
  CHECK(fairlead_peer_get_stats(peer, &before) == FAIRLEAD_OK);
  CHECK(before.transfers_completed > 0 && before.transfers_under_way == 7);
  fairlead_event small = {.struct_size = 16};
  CHECK_FAILS(fairlead_engine_next_event(here, 0, &small), FAIRLEAD_INVALID_ARGUMENT, "no room");
}

static void note_transport(void* context, const fairlead_transport_stats* transport) {
  if (strcmp(transport->transport, "tcp") == 0) *(uint64_t*)context += transport->bytes_sent;
}
static void count_device(void* context, const fairlead_device_info* device) {
  if (device->usable && strcmp(device->transport, "tcp") == 0) ++*(int*)context;
}

static void test_facts(void) {
  fairlead_engine_stats stats = FAIRLEAD_INIT(fairlead_engine_stats);
  CHECK(fairlead_engine_get_stats(here, &stats) == FAIRLEAD_OK);
  CHECK(stats.bytes_written >= kBytes && stats.peers_connected == 1 && stats.pool_bytes > 0);
  uint64_t sent = 0;
  CHECK(fairlead_engine_transports(here, note_transport, &sent) == FAIRLEAD_OK && sent > kBytes);
  int devices = 0;
  CHECK(fairlead_engine_devices(here, NULL, count_device, &devices) == FAIRLEAD_OK && devices == 1);
  CHECK(fairlead_engine_placement(here, NULL, 0) > 0);
  fairlead_peer* all[4];
  CHECK(fairlead_engine_peers(here, NULL, 0) == 1 && fairlead_engine_peers(here, all, 4) == 1);
  CHECK(fairlead_peer_same(all[0], peer));
  fairlead_peer_release(all[0]);
}

static int lines;
static void count_line(fairlead_log_level level, const char* line, size_t bytes) {
  if (level == FAIRLEAD_LOG_DEBUG || (line != NULL && bytes > 0)) ++lines;
}

static void test_metrics(void) {
  fairlead_metrics* metrics = NULL;
  CHECK(fairlead_metrics_serve(there, "127.0.0.1:0", NULL, NULL, &metrics) == FAIRLEAD_OK);
  char where[64], page[1 << 16];
  CHECK(fairlead_metrics_address(metrics, where, sizeof where) < sizeof where && strncmp(where, "127.0.0.1:", 10) == 0);
  CHECK_FAILS(fairlead_metrics_serve(here, where, NULL, NULL, &(fairlead_metrics*){NULL}), FAIRLEAD_ALREADY_EXISTS, where);
  CHECK_FAILS(fairlead_metrics_serve(here, NULL, NULL, NULL, &(fairlead_metrics*){NULL}), FAIRLEAD_INVALID_ARGUMENT, "");
  CHECK_FAILS(fairlead_metrics_serve(NULL, where, NULL, NULL, &(fairlead_metrics*){NULL}), FAIRLEAD_INVALID_ARGUMENT, "engine");
  CHECK(fairlead_engine_metrics_text(there, page, sizeof page) < sizeof page);
  CHECK(strstr(page, "\nfairlead_sessions_total 1\n") != NULL);
  CHECK(fairlead_engine_metrics_text(NULL, page, sizeof page) == 0 && fairlead_metrics_address(NULL, page, 1) == 0);
  fairlead_metrics_release(metrics);
  fairlead_metrics_release(NULL);

  fairlead_engine* engine = make_engine(NULL); /* they may outlive their engine */
  CHECK(fairlead_metrics_serve(engine, "127.0.0.1:0", NULL, NULL, &metrics) == FAIRLEAD_OK);
  fairlead_engine_destroy(engine);
  CHECK(fairlead_metrics_address(metrics, where, sizeof where) > 0);
  fairlead_metrics_release(metrics);
}

static void test_log(void) {
  fairlead_set_log_sink(count_line);
  fairlead_set_log_level(FAIRLEAD_LOG_DEBUG);
  fairlead_engine* engine = make_engine("127.0.0.1:0");
  fairlead_peer* also = connect_to(here, engine);
  fairlead_peer_close(also, 0);
  fairlead_peer_release(also);
  fairlead_engine_destroy(engine);
  fairlead_set_log_level(FAIRLEAD_LOG_OFF);
  fairlead_set_log_sink(NULL);
  CHECK(lines > 0);
}

/* Each function is given NULL where it wants something, and says so, or gives nothing. */
static void test_nothing(void) {
  CHECK_FAILS(fairlead_engine_create(NULL, NULL), FAIRLEAD_INVALID_ARGUMENT, "engine is NULL");
  fairlead_memory* memory = NULL;
  CHECK_FAILS(fairlead_engine_allocate(NULL, 1, NULL, &memory), FAIRLEAD_INVALID_ARGUMENT, "engine is NULL");
  CHECK_FAILS(fairlead_engine_allocate(here, 1, NULL, NULL), FAIRLEAD_INVALID_ARGUMENT, "memory is NULL");
  CHECK_FAILS(fairlead_engine_publish(NULL, "x", NULL, 0, NULL, NULL, 0), FAIRLEAD_INVALID_ARGUMENT, "engine is NULL");
  CHECK(fairlead_engine_publish(here, "x", NULL, FAIRLEAD_REMOTE_READ, NULL, NULL, 0) == FAIRLEAD_INVALID_ARGUMENT);
  CHECK(fairlead_engine_publish(here, NULL, source, FAIRLEAD_REMOTE_READ, NULL, NULL, 0) == FAIRLEAD_INVALID_ARGUMENT);
  /* Names that are not there must not stand for everybody. */
  char capability[FAIRLEAD_CAPABILITY_SIZE];
  const char* const nobody[] = {NULL};
  CHECK_FAILS(fairlead_engine_publish(here, "x", source, FAIRLEAD_REMOTE_READ, NULL, NULL, 1), FAIRLEAD_INVALID_ARGUMENT,
              "a name is NULL");
  CHECK_FAILS(fairlead_engine_publish(here, "x", source, FAIRLEAD_REMOTE_READ, NULL, nobody, 1), FAIRLEAD_INVALID_ARGUMENT,
              "a name is NULL");
  CHECK_FAILS(fairlead_engine_export(here, source, FAIRLEAD_REMOTE_READ, NULL, 1, capability, sizeof capability),
              FAIRLEAD_INVALID_ARGUMENT, "a name is NULL");
  CHECK(fairlead_peer_write_batch(peer, NULL, 1, NULL) == NULL && fairlead_last_code() == FAIRLEAD_INVALID_ARGUMENT);
  CHECK(fairlead_peer_read_batch(peer, NULL, 1, NULL) == NULL && fairlead_last_code() == FAIRLEAD_INVALID_ARGUMENT);
  fairlead_prepared* unprepared = NULL;
  CHECK_FAILS(fairlead_peer_prepare_write(peer, NULL, 1, &unprepared), FAIRLEAD_INVALID_ARGUMENT, "batch is NULL");
  CHECK(unprepared == NULL);
  CHECK(fairlead_wait_any(NULL, 1, MINUTE) == 1 && fairlead_last_code() == FAIRLEAD_INVALID_ARGUMENT);
  CHECK_FAILS(fairlead_wait_all(NULL, 1, MINUTE), FAIRLEAD_INVALID_ARGUMENT, "transfers is NULL");
  CHECK_FAILS(fairlead_peer_lookup(NULL, "x", 0, NULL), FAIRLEAD_INVALID_ARGUMENT, "peer is NULL");
  CHECK(fairlead_peer_lookup(peer, NULL, MINUTE, &remote) == FAIRLEAD_INVALID_ARGUMENT && remote == NULL);
  CHECK_FAILS(fairlead_peer_list(peer, "", 0, NULL, NULL), FAIRLEAD_INVALID_ARGUMENT, "each is NULL");
  CHECK(fairlead_peer_write(NULL, source, NULL, NULL) == NULL);
  CHECK(fairlead_peer_send(peer, NULL, 5, 0, NULL) == NULL);
  CHECK_FAILS(fairlead_transfer_wait(NULL, 0), FAIRLEAD_INVALID_ARGUMENT, "transfer is NULL");
  CHECK(fairlead_transfer_done(NULL) && fairlead_transfer_bytes(NULL) == 0);
  CHECK(fairlead_engine_event_fd(NULL) == -1 && !fairlead_engine_poll(NULL));
  CHECK(fairlead_engine_connect(here, NULL, &peer) == FAIRLEAD_INVALID_ARGUMENT && peer == NULL);
  CHECK_FAILS(fairlead_engine_next_event(here, 0, NULL), FAIRLEAD_INVALID_ARGUMENT, "fairlead_event is NULL");
  CHECK_FAILS(fairlead_engine_adopt_dlpack(NULL, NULL, 0, &memory, NULL), fairlead_last_code(), "");
  fairlead_transfer_cancel(NULL);
  fairlead_transfer_release(NULL);
  fairlead_memory_release(NULL);
  fairlead_remote_memory_release(NULL);
  fairlead_peer_release(NULL);
  fairlead_peer_close(NULL, 0);
  fairlead_prepared_release(NULL);
  fairlead_engine_shutdown(NULL);
  fairlead_engine_destroy(NULL);
  fairlead_event_clear(NULL);
  fairlead_engine_config_init(NULL, 0);
}

/* A result is NULL or 0 after a failure, whatever was there before, also if a handle that it is to come from is NULL. */
static void test_results_of_nothing(void) {
  void* const rubbish = (void*)&lines;
#define CHECK_CLEARED(type, call)               \
  do {                                          \
    type* result = rubbish;                     \
    CHECK((call) == FAIRLEAD_INVALID_ARGUMENT); \
    CHECK(result == NULL);                      \
  } while (0)
  CHECK_CLEARED(fairlead_peer, fairlead_engine_connect(NULL, "127.0.0.1:1", &result));
  CHECK_CLEARED(fairlead_peer, fairlead_engine_accept(NULL, 0, &result));
  CHECK_CLEARED(fairlead_memory, fairlead_engine_allocate(NULL, 1, NULL, &result));
  CHECK_CLEARED(fairlead_memory, fairlead_engine_register_many(NULL, NULL, 1, 0, &result));
  CHECK_CLEARED(fairlead_memory, fairlead_engine_register_many(here, NULL, 1, 0, &result));
  CHECK_CLEARED(fairlead_remote_memory, fairlead_peer_lookup(NULL, "x", 0, &result));
  CHECK_CLEARED(fairlead_prepared, fairlead_peer_prepare_write(NULL, NULL, 0, &result));
  CHECK_CLEARED(fairlead_burst, fairlead_peer_burst_writes(NULL, FAIRLEAD_BULK, &result));
  CHECK_CLEARED(fairlead_metrics, fairlead_metrics_serve(NULL, "127.0.0.1:0", NULL, NULL, &result));
#undef CHECK_CLEARED
  char capability[FAIRLEAD_CAPABILITY_SIZE] = "x";
  CHECK(fairlead_engine_export(NULL, NULL, 0, NULL, 0, capability, sizeof capability) == FAIRLEAD_INVALID_ARGUMENT);
  CHECK(capability[0] == 0);
  int fd = 7;
  size_t offset = 7;
  CHECK(fairlead_memory_shared_file(NULL, &fd, &offset) == FAIRLEAD_INVALID_ARGUMENT && fd == -1 && offset == 0);
  fairlead_dtype dtype = FAIRLEAD_F32;
  CHECK(fairlead_dtype_from_name("mine", &dtype) == FAIRLEAD_NOT_FOUND && dtype == 0);
}

/* C lets any number into an enumeration, and into flags. */
static void test_numbers_that_are_none(void) {
  fairlead_engine_config config;
  fairlead_engine_config_init(&config, sizeof config);
  config.progress = (fairlead_progress)99;
  fairlead_engine* engine = NULL;
  CHECK_FAILS(fairlead_engine_create(&config, &engine), FAIRLEAD_INVALID_ARGUMENT, "progress is 99");
  fairlead_transfer_options options = FAIRLEAD_INIT(fairlead_transfer_options);
  options.traffic = (fairlead_traffic)-1;
  CHECK(fairlead_peer_write(peer, source, remote, &options) == NULL);
  CHECK(strstr(fairlead_last_error(), "traffic is -1") != NULL);
  options = (fairlead_transfer_options)FAIRLEAD_INIT(fairlead_transfer_options);
  options.notify_size = 5;
  CHECK(fairlead_peer_write(peer, source, remote, &options) == NULL);
  CHECK_FAILS(fairlead_engine_publish(here, "x", source, 0x101, NULL, NULL, 0), FAIRLEAD_INVALID_ARGUMENT, "access 257");
  fairlead_memory* memory = NULL;
  CHECK_FAILS(fairlead_engine_map_file(here, "/dev/null", 16, &memory), FAIRLEAD_INVALID_ARGUMENT, "access 16");
  fairlead_tensor tensor = FAIRLEAD_INIT(fairlead_tensor);
  tensor.dtype = (fairlead_dtype)(256 + FAIRLEAD_F32);
  CHECK_FAILS(fairlead_tensor_check(&tensor, 100), FAIRLEAD_INVALID_ARGUMENT, "no fairlead_dtype");
  CHECK(strcmp(fairlead_dtype_name((fairlead_dtype)-7), "?") == 0);
  CHECK(strcmp(fairlead_code_name((fairlead_code)1000), "?") == 0);
  fairlead_set_log_level((fairlead_log_level)1000);
}

static void* fail_here(void* text) {
  CHECK(fairlead_last_error()[0] == 0); /* none of this thread's */
  fairlead_dtype dtype;
  (void)fairlead_dtype_from_name("other", &dtype);
  snprintf(text, 64, "%s", fairlead_last_error());
  return NULL;
}

static void test_errors_are_of_threads(void) {
  fairlead_dtype dtype;
  (void)fairlead_dtype_from_name("mine", &dtype);
  char theirs[64] = "";
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, fail_here, theirs) == 0 && pthread_join(thread, NULL) == 0);
  CHECK(strstr(theirs, "'other'") != NULL && strstr(fairlead_last_error(), "'mine'") != NULL);
}

static void test_fork(void) {
  const pid_t child = fork();
  if (child == 0) {
    fairlead_peer* none = NULL;
    const fairlead_code code = fairlead_engine_connect(here, "127.0.0.1:1", &none);
    _exit(code == FAIRLEAD_UNAVAILABLE && none == NULL ? 0 : 1);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(void) {
  set_up();
  test_texts();
  test_write_and_read();
  test_batches_and_prepared_lists();
  test_bursts();
  test_events();
  test_order_and_atomics();
  test_tensors();
  test_export_and_list();
  test_memory_of_the_programs_own();
  test_structures();
  test_facts();
  test_metrics();
  test_log();
  test_results_of_nothing();
  test_numbers_that_are_none();
  test_errors_are_of_threads();
  test_fork();

  fairlead_peer* kept = peer;
  fairlead_remote_memory* region = remote;
  test_nothing();
  /* Handles outlive their engine, and say so. */
  fairlead_engine_shutdown(here);
  CHECK_FAILS(fairlead_engine_allocate(here, 1, NULL, &(fairlead_memory*){NULL}), FAIRLEAD_UNAVAILABLE, "");
  fairlead_engine_destroy(here);
  CHECK(ended(fairlead_peer_write(kept, source, region, NULL)) != FAIRLEAD_OK);
  CHECK(fairlead_peer_get_state(kept) == FAIRLEAD_PEER_CLOSED);
  fairlead_peer_release(kept);
  fairlead_remote_memory_release(region);
  fairlead_memory_release(source);
  fairlead_engine_destroy(there);
  fairlead_peer_release(other_end);
  fairlead_memory_release(target);
  puts("ok");
  return 0;
}
