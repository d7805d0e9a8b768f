/* The C API in six calls: create, connect, allocate, lookup, write, wait. As write_one_buffer.cc, with which it talks.
 *
 *   write_one_buffer                receives: publishes 1 MiB as "inbox", prints where, waits for one notification
 *   write_one_buffer HOST:PORT      sends: one buffer of 1 MiB into that inbox, with the notification 42 */
#include <stdio.h>
#include <string.h>

#include "fairlead/fairlead.h"

enum { kBytes = 1 << 20, kArrived = 42 };

static int fail(void) {
  fprintf(stderr, "write_one_buffer: %s\n", fairlead_last_error());
  return 1;
}

static int send_one(fairlead_engine* engine, const char* address) {
  fairlead_peer* peer = NULL;
  fairlead_memory* buffer = NULL;
  fairlead_remote_memory* inbox = NULL;
  if (fairlead_engine_connect(engine, address, &peer) != FAIRLEAD_OK) return fail();
  if (fairlead_engine_allocate(engine, kBytes, NULL, &buffer) != FAIRLEAD_OK) return fail();
  memset(fairlead_memory_data(buffer), 'x', kBytes);
  if (fairlead_peer_lookup(peer, "inbox", FAIRLEAD_FOREVER, &inbox) != FAIRLEAD_OK) return fail();

  fairlead_transfer_options options = FAIRLEAD_INIT(fairlead_transfer_options);
  options.has_notify = true;
  options.notify = kArrived;
  fairlead_transfer* transfer = fairlead_peer_write(peer, buffer, inbox, &options);
  if (transfer == NULL || fairlead_transfer_wait(transfer, FAIRLEAD_FOREVER) != FAIRLEAD_OK) return fail();
  char transport[32];
  fairlead_peer_transport(peer, transport, sizeof transport);
  printf("sent %d bytes over %s\n", kBytes, transport);

  fairlead_transfer_release(transfer);
  fairlead_remote_memory_release(inbox);
  fairlead_memory_release(buffer);
  fairlead_peer_release(peer);
  return 0;
}

static int receive_one(fairlead_engine* engine) {
  fairlead_memory* inbox = NULL;
  if (fairlead_engine_allocate(engine, kBytes, NULL, &inbox) != FAIRLEAD_OK) return fail();
  if (fairlead_engine_publish(engine, "inbox", inbox, FAIRLEAD_REMOTE_WRITE, NULL, NULL, 0) != FAIRLEAD_OK) return fail();
  char address[64];
  fairlead_engine_listen_address(engine, address, sizeof address);
  printf("listening on %s\n", address);
  fflush(stdout);
  for (bool arrived = false; !arrived;) {
    fairlead_event event = FAIRLEAD_INIT(fairlead_event);
    if (fairlead_engine_next_event(engine, FAIRLEAD_FOREVER, &event) != FAIRLEAD_OK) return fail();
    arrived = event.kind == FAIRLEAD_EVENT_NOTIFICATION && event.value == kArrived;
    fairlead_event_clear(&event);
  }
  printf("received %d bytes of '%c'\n", kBytes, *(const char*)fairlead_memory_data(inbox));
  fairlead_memory_release(inbox);
  return 0;
}

int main(int argc, char** argv) {
  fairlead_engine_config config;
  fairlead_engine_config_init(&config, sizeof config);
  if (argc < 2) config.listen = "127.0.0.1:0";
  fairlead_engine* engine = NULL;
  if (fairlead_engine_create(&config, &engine) != FAIRLEAD_OK) return fail();
  const int result = argc < 2 ? receive_one(engine) : send_one(engine, argv[1]);
  fairlead_engine_destroy(engine);
  return result;
}
