/* Command channels from C: a service with a kernel in C, and a client of it, in one process. */
#include <math.h>
#include <time.h>

#include "fairlead/fairlead_command.h"
#include "tests/capi/check.h"

enum { kCount = 1000 };

static const fairlead_parameter_kind kScaleParameters[] = {FAIRLEAD_PARAMETER_POINTER, FAIRLEAD_PARAMETER_F32,
                                                           FAIRLEAD_PARAMETER_U32};

static uint64_t scale_extent(void* context, const fairlead_call* call, size_t i) {
  (void)context;
  (void)i;
  return fairlead_call_number(call, 2) * sizeof(float);
}

static const char* scale(void* context, const fairlead_call* call) {
  ++*(int*)context;
  if (fairlead_call_grid(call).x == 13) return "13 is not to be";
  float* const numbers = fairlead_call_pointer(call, 0);
  for (uint64_t i = 0; i < fairlead_call_number(call, 2); ++i) numbers[i] *= fairlead_call_real(call, 1);
  return NULL;
}

static fairlead_service* serve(int* calls) {
  const fairlead_host_kernel kernel = {.struct_size = sizeof kernel,
                                       .name = "scale",
                                       .parameters = kScaleParameters,
                                       .parameter_count = 3,
                                       .alignment = sizeof(float),
                                       .extent = scale_extent,
                                       .run = scale,
                                       .context = calls};
  const fairlead_host_kernel* const kernels[] = {&kernel};
  const fairlead_host_executor_config host = {
      .struct_size = sizeof host, .memory_bytes = 1 << 20, .kernels = kernels, .kernel_count = 1};
  fairlead_executors* executors = NULL;
  CHECK(fairlead_host_executors(&host, &executors) == FAIRLEAD_OK);
  fairlead_service_config config;
  fairlead_service_config_init(&config, sizeof config);
  config.executors = executors;
  fairlead_service* service = NULL;
  CHECK(fairlead_service_start(make_engine("127.0.0.1:0"), &config, &service) == FAIRLEAD_OK);
  fairlead_executors_release(executors);
  return service;
}

/* scale(x, by, kCount), as pack() would have it */
static size_t parameters_of(char* room, size_t size, fairlead_handle x, float by) {
  const fairlead_pointer pointer = {x, 0};
  const uint32_t count = kCount;
  size_t end = fairlead_pack(room, size, 0, &pointer, sizeof pointer, 8);
  end = fairlead_pack(room, size, end, &by, sizeof by, 4);
  return fairlead_pack(room, size, end, &count, sizeof count, 4);
}

static void test_commands(fairlead_session* session, fairlead_channel* channel) {
  fairlead_session_limits limits = FAIRLEAD_INIT(fairlead_session_limits);
  CHECK(fairlead_session_get_limits(session, &limits) == FAIRLEAD_OK && limits.memory_bytes == 1 << 20);
  const fairlead_handle x = fairlead_session_new_handle(session), function = fairlead_session_new_handle(session);
  float in[kCount], out[kCount];
  for (int i = 0; i < kCount; ++i) in[i] = (float)i;
  uint64_t sequence = 0;
  CHECK(fairlead_channel_allocate(channel, x, sizeof in, &sequence) == FAIRLEAD_OK && sequence == 1);
  CHECK(fairlead_channel_copy_in(channel, x, 0, in, sizeof in, NULL) == FAIRLEAD_OK);
  CHECK(fairlead_channel_load(channel, function, "scale", NULL) == FAIRLEAD_OK);
  char parameters[64];
  const size_t bytes = parameters_of(parameters, sizeof parameters, x, 3);
  CHECK(bytes == 24);
  fairlead_launch launch = FAIRLEAD_INIT(fairlead_launch);
  launch.function = function;
  CHECK(fairlead_channel_launch(channel, &launch, parameters, bytes, NULL) == FAIRLEAD_OK);

  fairlead_graph* graph = NULL;
  CHECK(fairlead_graph_create(&graph) == FAIRLEAD_OK);
  CHECK(fairlead_graph_launch(graph, &launch, parameters, bytes) == FAIRLEAD_OK);
  CHECK(fairlead_graph_fill(graph, x, 0, 4, 0) == FAIRLEAD_OK && fairlead_graph_commands(graph) == 2);
  const fairlead_handle step = fairlead_session_new_handle(session);
  CHECK(fairlead_channel_upload(channel, step, graph, NULL) == FAIRLEAD_OK);
  fairlead_graph_release(graph);
  CHECK(fairlead_channel_launch_graph(channel, step, NULL) == FAIRLEAD_OK);

  fairlead_channel* second = NULL;
  fairlead_channel_options options = FAIRLEAD_INIT(fairlead_channel_options);
  options.priority = -1000; /* taken for the nearest that there is */
  CHECK(fairlead_session_open_channel(session, &options, &second) == FAIRLEAD_OK);
  CHECK(fairlead_channel_priority(second) == limits.greatest_priority && fairlead_channel_priority(channel) == 0);
  fairlead_mark mark;
  CHECK(fairlead_channel_record(channel, &mark) == FAIRLEAD_OK && mark.channel == fairlead_channel_number(channel));
  CHECK(fairlead_channel_fence(second, &mark, NULL) == FAIRLEAD_OK);
  CHECK(fairlead_channel_copy_out(second, out, sizeof out, x, 0, NULL) == FAIRLEAD_OK);
  CHECK(fairlead_channel_synchronize(second, MINUTE) == FAIRLEAD_OK);
  for (int i = 0; i < kCount; ++i) CHECK(fabsf(out[i] - (float)(9 * i)) == 0);
  CHECK(fairlead_channel_reached(second, FAIRLEAD_STAGE_COMPLETE) == fairlead_channel_last(second));
  fairlead_channel_release(second);
}

static float first_of(fairlead_channel* channel, fairlead_handle x) {
  float value = -1;
  CHECK(fairlead_channel_copy_out(channel, &value, sizeof value, x, 0, NULL) == FAIRLEAD_OK);
  CHECK(fairlead_channel_synchronize(channel, MINUTE) == FAIRLEAD_OK);
  return value;
}

static void test_updates_of_a_graph(fairlead_session* session, fairlead_channel* channel) {
  const fairlead_handle x = fairlead_session_new_handle(session), function = fairlead_session_new_handle(session),
                        step = fairlead_session_new_handle(session);
  float ones[kCount];
  for (int i = 0; i < kCount; ++i) ones[i] = 1;
  CHECK(fairlead_channel_allocate(channel, x, sizeof ones, NULL) == FAIRLEAD_OK);
  CHECK(fairlead_channel_copy_in(channel, x, 0, ones, sizeof ones, NULL) == FAIRLEAD_OK);
  CHECK(fairlead_channel_load(channel, function, "scale", NULL) == FAIRLEAD_OK);
  char parameters[64];
  size_t bytes = parameters_of(parameters, sizeof parameters, x, 2);
  fairlead_launch launch = FAIRLEAD_INIT(fairlead_launch);
  launch.function = function;
  fairlead_graph* graph = NULL;
  CHECK(fairlead_graph_create(&graph) == FAIRLEAD_OK);
  CHECK(fairlead_graph_launch(graph, &launch, parameters, bytes) == FAIRLEAD_OK);
  const uint32_t number = fairlead_graph_commands(graph);
  CHECK(fairlead_channel_upload(channel, step, graph, NULL) == FAIRLEAD_OK);
  fairlead_graph_release(graph);
  CHECK(fairlead_channel_launch_graph(channel, step, NULL) == FAIRLEAD_OK);
  CHECK(first_of(channel, x) == 2);

  bytes = parameters_of(parameters, sizeof parameters, x, 5);
  launch.function = 0; /* it stays */
  const uint64_t before = fairlead_channel_last(channel);
  uint64_t sequence = 0;
  CHECK(fairlead_channel_update_graph(channel, step, number, &launch, parameters, bytes, &sequence) == FAIRLEAD_OK);
  CHECK(sequence == before + 1);
  CHECK(fairlead_channel_launch_graph(channel, step, NULL) == FAIRLEAD_OK);
  CHECK(first_of(channel, x) == 10);

  const fairlead_launch named = {.struct_size = sizeof named, .function = function};
  CHECK(fairlead_channel_update_graph(channel, step, number, &named, parameters, bytes, NULL) ==
        FAIRLEAD_INVALID_ARGUMENT);
  CHECK(fairlead_channel_update_graph(channel, step, 0, &launch, parameters, bytes, &sequence) ==
        FAIRLEAD_INVALID_ARGUMENT);
  CHECK(sequence == 0);
  CHECK_FAILS(fairlead_channel_update_graph(channel, step, number, NULL, parameters, bytes, NULL),
              FAIRLEAD_INVALID_ARGUMENT, "launch");
  CHECK_FAILS(fairlead_channel_update_graph(NULL, step, number, &launch, parameters, bytes, NULL),
              FAIRLEAD_INVALID_ARGUMENT, "channel");
  /* One that the device refuses leaves the graph as it was. */
  CHECK(fairlead_channel_update_graph(channel, step, number + 1, &launch, parameters, bytes, NULL) == FAIRLEAD_OK);
  CHECK(fairlead_channel_synchronize(channel, MINUTE) == FAIRLEAD_ABORTED);
  CHECK(fairlead_channel_recover(channel) == FAIRLEAD_OK);
  CHECK(fairlead_channel_launch_graph(channel, step, NULL) == FAIRLEAD_OK);
  CHECK(first_of(channel, x) == 50);
}

static void test_failures(fairlead_session* session, fairlead_channel* channel) {
  fairlead_failure failure = FAIRLEAD_INIT(fairlead_failure);
  CHECK_FAILS(fairlead_channel_failure(channel, &failure), FAIRLEAD_NOT_FOUND, "no failure");
  CHECK(fairlead_channel_release_memory(channel, 12345, NULL) == FAIRLEAD_OK);
  CHECK(fairlead_channel_synchronize(channel, MINUTE) == FAIRLEAD_ABORTED);
  CHECK(fairlead_channel_failure(channel, &failure) == FAIRLEAD_OK);
  CHECK(failure.sequence == fairlead_channel_last(channel) && failure.scope == FAIRLEAD_SCOPE_COMMAND);
  CHECK(failure.result == 400 && strlen(failure.text) > 0);
  CHECK(fairlead_channel_recover(channel) == FAIRLEAD_OK);
  CHECK(fairlead_channel_synchronize(channel, MINUTE) == FAIRLEAD_OK);

  fairlead_launch launch = FAIRLEAD_INIT(fairlead_launch);
  CHECK(fairlead_channel_launch(channel, &launch, NULL, 0, NULL) == FAIRLEAD_INVALID_ARGUMENT);
  CHECK_FAILS(fairlead_channel_launch(channel, NULL, NULL, 0, NULL), FAIRLEAD_INVALID_ARGUMENT, "launch is NULL");
  CHECK_FAILS(fairlead_channel_fill(NULL, 1, 0, 1, 0, NULL), FAIRLEAD_INVALID_ARGUMENT, "channel is NULL");

  const fairlead_handle x = fairlead_session_new_handle(session), function = fairlead_session_new_handle(session);
  CHECK(fairlead_channel_allocate(channel, x, kCount * sizeof(float), NULL) == FAIRLEAD_OK);
  CHECK(fairlead_channel_load(channel, function, "scale", NULL) == FAIRLEAD_OK);
  char parameters[24];
  const size_t bytes = parameters_of(parameters, sizeof parameters, x, 2);
  launch.function = function;
  launch.grid.x = 13;
  CHECK(fairlead_channel_launch(channel, &launch, parameters, bytes, NULL) == FAIRLEAD_OK);
  CHECK(fairlead_channel_synchronize(channel, MINUTE) == FAIRLEAD_ABORTED);
  CHECK(fairlead_channel_failure(channel, &failure) == FAIRLEAD_OK && failure.scope == FAIRLEAD_SCOPE_CONTEXT);
  CHECK(strstr(failure.text, "13 is not to be") != NULL);
  CHECK(parameters_of(parameters, 20, x, 2) == SIZE_MAX);
  CHECK_FAILS(fairlead_channel_wait(channel, 1, (fairlead_stage)4, 0), FAIRLEAD_INVALID_ARGUMENT, "stage is 4");
  CHECK(fairlead_channel_reached(channel, (fairlead_stage)-1) == 0);
}

typedef struct seen {
  int tenants;
  size_t devices;
  uint64_t bytes_in[2];
} seen;

static void see_tenant(void* context, const fairlead_tenant_stats* tenant) {
  seen* const all = context;
  ++all->tenants;
  all->devices = tenant->device_count;
  for (size_t i = 0; i < tenant->device_count && i < 2; ++i) all->bytes_in[i] = tenant->devices[i]->bytes_in;
}

/* A service of three devices that this host is: a session has two of them, and copies from one to the other. */
static void test_several_devices(fairlead_engine* engine) {
  fairlead_executors *large = NULL, *small = NULL;
  fairlead_host_executor_config host = {.struct_size = sizeof host, .memory_bytes = 1 << 20};
  CHECK(fairlead_host_executors(&host, &large) == FAIRLEAD_OK);
  host.memory_bytes = 1 << 16;
  CHECK(fairlead_host_executors(&host, &small) == FAIRLEAD_OK);
  const fairlead_served_device first = {.struct_size = sizeof first, .name = "large", .executors = large},
                               second = {.struct_size = sizeof second, .name = "small", .executors = small};
  const fairlead_served_device* const devices[] = {&first, &first, &second};
  const uint32_t theirs[] = {0, 3};
  const fairlead_tenant tenant = {.struct_size = sizeof tenant, .name = "*", .devices = theirs, .device_count = 2};
  const fairlead_tenant* const tenants[] = {&tenant};
  fairlead_service_config config;
  fairlead_service_config_init(&config, sizeof config);
  config.devices = devices;
  config.device_count = 3;
  fairlead_service* service = NULL;
  config.executors = small; /* one or several */
  CHECK(fairlead_service_start(make_engine("127.0.0.1:0"), &config, &service) == FAIRLEAD_INVALID_ARGUMENT);
  config.executors = NULL;
  CHECK(fairlead_service_start(make_engine("127.0.0.1:0"), &config, &service) == FAIRLEAD_OK);
  fairlead_executors_release(large);
  fairlead_executors_release(small);
  CHECK_FAILS(fairlead_service_set_tenants(service, tenants, 1), FAIRLEAD_INVALID_ARGUMENT, "device 3");
  char address[64];
  CHECK(fairlead_service_listen_address(service, address, sizeof address) > 0);

  const uint32_t wanted[] = {2, 0};
  fairlead_session_options options;
  fairlead_session_options_init(&options, sizeof options);
  CHECK(options.devices == NULL && options.device_count == 0);
  options.patience_ns = MINUTE;
  options.devices = wanted;
  options.device_count = 2;
  fairlead_session* session = NULL;
  CHECK(fairlead_session_connect(engine, address, &options, &session) == FAIRLEAD_OK);
  CHECK(fairlead_session_device_count(session) == 2 && fairlead_session_resumptions(session) == 0);
  fairlead_session_limits limits = FAIRLEAD_INIT(fairlead_session_limits);
  CHECK(fairlead_session_get_device_limits(session, 1, &limits) == FAIRLEAD_OK);
  CHECK(limits.device_number == 2 && limits.memory_bytes == 1 << 16 && strcmp(limits.device_name, "host") == 0);
  CHECK(fairlead_session_get_limits(session, &limits) == FAIRLEAD_OK && limits.device_number == 0);
  CHECK_FAILS(fairlead_session_get_device_limits(session, 2, &limits), FAIRLEAD_OUT_OF_RANGE, "the session has 2");

  fairlead_channel *on_large = NULL, *on_small = NULL;
  fairlead_channel_options channel = FAIRLEAD_INIT(fairlead_channel_options);
  CHECK(fairlead_session_open_channel(session, &channel, &on_large) == FAIRLEAD_OK);
  channel.device = 1;
  CHECK(fairlead_session_open_channel(session, &channel, &on_small) == FAIRLEAD_OK);
  CHECK(fairlead_channel_device(on_large) == 0 && fairlead_channel_device(on_small) == 1);
  channel.device = 2;
  fairlead_channel* none = NULL;
  CHECK(fairlead_session_open_channel(session, &channel, &none) == FAIRLEAD_OUT_OF_RANGE && none == NULL);

  enum { kBytes = 1000 };
  const fairlead_handle x = fairlead_session_new_handle(session); /* each device has names of its own */
  char in[kBytes], out[kBytes] = {0};
  for (int i = 0; i < kBytes; ++i) in[i] = (char)(i * 7);
  CHECK(fairlead_channel_allocate(on_large, x, kBytes, NULL) == FAIRLEAD_OK);
  CHECK(fairlead_channel_copy_in(on_large, x, 0, in, kBytes, NULL) == FAIRLEAD_OK);
  fairlead_mark mark;
  CHECK(fairlead_channel_record(on_large, &mark) == FAIRLEAD_OK);
  CHECK(fairlead_channel_allocate(on_small, x, kBytes, NULL) == FAIRLEAD_OK);
  CHECK(fairlead_channel_fence(on_small, &mark, NULL) == FAIRLEAD_OK);
  uint64_t sequence = 0;
  CHECK(fairlead_channel_copy_across(on_small, x, 0, 0, x, 0, kBytes, &sequence) == FAIRLEAD_OK && sequence == 3);
  CHECK(fairlead_channel_copy_out(on_small, out, kBytes, x, 0, NULL) == FAIRLEAD_OK);
  CHECK(fairlead_channel_synchronize(on_small, MINUTE) == FAIRLEAD_OK && memcmp(in, out, kBytes) == 0);
  CHECK(fairlead_channel_copy_across(on_small, x, 0, 2, x, 0, kBytes, NULL) == FAIRLEAD_OUT_OF_RANGE);
  CHECK_FAILS(fairlead_channel_copy_across(NULL, x, 0, 0, x, 0, 1, NULL), FAIRLEAD_INVALID_ARGUMENT, "channel");

  seen all = {0};
  for (int tries = 0; tries < 60000 && all.bytes_in[0] == 0; ++tries) { /* it counts behind its replies */
    all = (seen){0};
    CHECK(fairlead_service_tenants(service, see_tenant, &all) == FAIRLEAD_OK);
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
  CHECK(all.tenants == 1 && all.devices == 3 && all.bytes_in[0] == kBytes && all.bytes_in[1] == 0);
  fairlead_channel_release(on_large);
  fairlead_channel_release(on_small);
  fairlead_session_release(session);
  const uint32_t others[] = {3};
  options.devices = others;
  options.device_count = 1;
  CHECK(fairlead_session_connect(engine, address, &options, &session) != FAIRLEAD_OK && session == NULL);
  fairlead_service_destroy(service);
}

/* A kernel that no session could run is refused when the executors are made. */
static void test_kernels_that_are_none(void) {
  const fairlead_parameter_kind many[17] = {FAIRLEAD_PARAMETER_U32};
  const fairlead_host_kernel good = {.struct_size = sizeof good, .name = "mine", .parameters = kScaleParameters,
                                     .parameter_count = 3, .extent = scale_extent, .run = scale};
  struct {
    fairlead_host_kernel kernel;
    const char* why;
  } cases[] = {{good, "'mine' has no function: set run"},
               {good, "'mine' has 17 parameters: at most 16"},
               {good, "'mine' has parameter 0, which points at memory"},
               {good, "'mine' has the alignment 3"}};
  cases[0].kernel.run = NULL;
  cases[1].kernel.parameters = many;
  cases[1].kernel.parameter_count = 17;
  cases[2].kernel.extent = NULL;
  cases[3].kernel.alignment = 3;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    const fairlead_host_kernel* const kernels[] = {&cases[i].kernel};
    const fairlead_host_executor_config host = {.struct_size = sizeof host, .kernels = kernels, .kernel_count = 1};
    fairlead_executors* executors = NULL;
    CHECK_FAILS(fairlead_host_executors(&host, &executors), FAIRLEAD_INVALID_ARGUMENT, cases[i].why);
    CHECK(executors == NULL);
  }
}

/* Metrics look at an engine where it is, so a service does not take it from under them. */
static void test_metrics_of_a_service(void) {
  fairlead_executors* executors = NULL;
  CHECK(fairlead_host_executors(NULL, &executors) == FAIRLEAD_OK);
  fairlead_service_config config;
  fairlead_service_config_init(&config, sizeof config);
  config.executors = executors;
  fairlead_engine* engine = make_engine("127.0.0.1:0");
  fairlead_metrics* metrics = NULL;
  CHECK(fairlead_metrics_serve(engine, "127.0.0.1:0", NULL, NULL, &metrics) == FAIRLEAD_OK);
  fairlead_service* service = (fairlead_service*)(void*)&config;
  CHECK_FAILS(fairlead_service_start(engine, &config, &service), FAIRLEAD_INVALID_ARGUMENT, "metrics of this engine");
  CHECK(service == NULL);
  char where[64];
  CHECK(fairlead_metrics_address(metrics, where, sizeof where) > 0); /* of an engine that has gone */
  fairlead_metrics_release(metrics);

  fairlead_engine_config its;
  fairlead_engine_config_init(&its, sizeof its);
  its.listen = "127.0.0.1:0";
  its.require = "tcp,shm";
  its.forbid = "verbs";
  CHECK(fairlead_engine_create(&its, &engine) == FAIRLEAD_OK);
  CHECK(fairlead_service_start(engine, &config, &service) == FAIRLEAD_OK);
  fairlead_executors_release(executors);
  engine = fairlead_service_engine(service);
  CHECK(fairlead_engine_get_config(engine, &its) == FAIRLEAD_OK);
  CHECK(strcmp(its.require, "tcp,shm") == 0 && strcmp(its.forbid, "verbs") == 0);
  CHECK(fairlead_metrics_serve(engine, "127.0.0.1:0", NULL, NULL, &metrics) == FAIRLEAD_OK);
  fairlead_service_destroy(service);
  fairlead_metrics_release(metrics);
}

static void count_tenant(void* context, const fairlead_tenant_stats* tenant) {
  if (tenant->commands > 0) ++*(int*)context;
}

int main(void) {
  int calls = 0;
  fairlead_service* service = serve(&calls);
  char address[64];
  CHECK(fairlead_service_listen_address(service, address, sizeof address) > 0);
  fairlead_engine* engine = make_engine(NULL);
  fairlead_session_options options;
  fairlead_session_options_init(&options, sizeof options);
  CHECK(options.flush_commands == 64 && options.wait_for_room);
  options.patience_ns = MINUTE;
  fairlead_session* session = NULL;
  CHECK(fairlead_session_connect(engine, address, &options, &session) == FAIRLEAD_OK);
  fairlead_channel* channel = NULL;
  CHECK(fairlead_session_open_channel(session, NULL, &channel) == FAIRLEAD_OK);
  test_commands(session, channel);
  test_updates_of_a_graph(session, channel);
  test_failures(session, channel);
  CHECK(calls == 6);

  fairlead_service_stats stats = FAIRLEAD_INIT(fairlead_service_stats);
  for (int tries = 0; tries < 60000 && (stats.failures < 2 || stats.commands <= 8);
       ++tries) { /* it counts behind its replies */
    CHECK(fairlead_service_get_stats(service, &stats) == FAIRLEAD_OK);
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
  CHECK(stats.sessions_begun == 1 && stats.failures >= 2 && stats.commands > 8);
  int tenants = 0;
  CHECK(fairlead_service_tenants(service, count_tenant, &tenants) == FAIRLEAD_OK && tenants == 1);
  fairlead_engine_stats figures = FAIRLEAD_INIT(fairlead_engine_stats);
  CHECK(fairlead_engine_get_stats(fairlead_service_engine(service), &figures) == FAIRLEAD_OK);
  fairlead_service* second = NULL; /* an engine that is a service's stays with it */
  CHECK_FAILS(fairlead_service_start(fairlead_service_engine(service), NULL, &second), FAIRLEAD_INVALID_ARGUMENT,
              "a service's already");
  fairlead_engine_destroy(fairlead_service_engine(service));
  CHECK(second == NULL && fairlead_engine_get_stats(fairlead_service_engine(service), &figures) == FAIRLEAD_OK);
  CHECK(figures.peers_connected == 1);

  fairlead_channel_release(channel);
  fairlead_session_close(session);
  CHECK(fairlead_session_status(session) != FAIRLEAD_OK);
  fairlead_session_release(session);
  fairlead_service_drain(service);
  CHECK(fairlead_session_connect(engine, address, &options, &session) == FAIRLEAD_UNAVAILABLE && session == NULL);
  fairlead_service_stop(service);
  fairlead_service_destroy(service);
  test_several_devices(engine);
  test_kernels_that_are_none();
  test_metrics_of_a_service();
  fairlead_engine_destroy(engine);

  /* Results are NULL after a failure, whatever was there before. */
  session = (fairlead_session*)(void*)&calls;
  channel = (fairlead_channel*)(void*)&calls;
  fairlead_peer* peer = (fairlead_peer*)(void*)&calls;
  service = (fairlead_service*)(void*)&calls;
  CHECK(fairlead_session_connect(NULL, address, NULL, &session) == FAIRLEAD_INVALID_ARGUMENT && session == NULL);
  CHECK(fairlead_session_open_channel(NULL, NULL, &channel) == FAIRLEAD_INVALID_ARGUMENT && channel == NULL);
  CHECK(fairlead_session_peer(NULL, &peer) == FAIRLEAD_INVALID_ARGUMENT && peer == NULL);
  CHECK(fairlead_service_start(NULL, NULL, &service) == FAIRLEAD_INVALID_ARGUMENT && service == NULL);

  fairlead_service_config config;
  fairlead_service_config_init(&config, sizeof config); /* no executors: refused, and the engine is gone all the same */
  CHECK(fairlead_service_start(make_engine("127.0.0.1:0"), &config, &service) == FAIRLEAD_INVALID_ARGUMENT);
  CHECK(service == NULL);
  puts("ok");
  return 0;
}
