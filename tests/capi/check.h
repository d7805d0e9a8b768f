/* What the C test programs share: a check that names its line, and two engines with a session between them. */
#ifndef FAIRLEAD_TESTS_CAPI_CHECK_H
#define FAIRLEAD_TESTS_CAPI_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fairlead/fairlead.h"

#define CHECK(condition)                                                                                   \
  do {                                                                                                     \
    if (!(condition)) {                                                                                    \
      fprintf(stderr, "%s:%d: %s does not hold; the last error is '%s'\n", __FILE__, __LINE__, #condition, \
              fairlead_last_error());                                                                      \
      exit(1);                                                                                             \
    }                                                                                                      \
  } while (0)

/* It failed so, and the sentence has that in it. */
#define CHECK_FAILS(call, code, words)                     \
  do {                                                     \
    CHECK((call) == (code));                               \
    CHECK(fairlead_last_code() == (code));                 \
    CHECK(strstr(fairlead_last_error(), (words)) != NULL); \
  } while (0)

#define MINUTE INT64_C(60000000000)

static inline fairlead_engine* make_engine(const char* listen) {
  fairlead_engine_config config;
  fairlead_engine_config_init(&config, sizeof config);
  config.listen = listen;
  config.transport = "tcp";
  fairlead_engine* engine = NULL;
  CHECK(fairlead_engine_create(&config, &engine) == FAIRLEAD_OK && engine != NULL);
  return engine;
}

static inline fairlead_peer* connect_to(fairlead_engine* from, const fairlead_engine* to) {
  char address[64];
  CHECK(fairlead_engine_listen_address(to, address, sizeof address) < sizeof address);
  fairlead_peer* peer = NULL;
  CHECK(fairlead_engine_connect(from, address, &peer) == FAIRLEAD_OK);
  CHECK(fairlead_peer_wait_ready(peer, MINUTE) == FAIRLEAD_OK);
  return peer;
}

/* Waits for it, and lets it go. */
static inline fairlead_code ended(fairlead_transfer* transfer) {
  CHECK(transfer != NULL);
  const fairlead_code code = fairlead_transfer_wait(transfer, MINUTE);
  CHECK(fairlead_transfer_done(transfer));
  CHECK(fairlead_transfer_status(transfer) == code);
  fairlead_transfer_release(transfer);
  return code;
}

#endif
