/* Stands for the system's libibverbs with a device in it: what a call about that device must reach. */
#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#undef ibv_get_device_list
#undef ibv_query_port

static struct ibv_device device = {.node_type = IBV_NODE_CA, .transport_type = IBV_TRANSPORT_IB, .name = "stub0"};
static struct ibv_context context = {.device = &device};
static int lists;

struct ibv_device** ibv_get_device_list(int* count) {
  struct ibv_device** list = calloc(2, sizeof(*list));
  list[0] = &device;
  if (count != NULL) *count = 1;
  ++lists;
  return list;
}

void ibv_free_device_list(struct ibv_device** list) {
  --lists;
  free(list);
}

const char* ibv_get_device_name(struct ibv_device* which) { return which->name; }

__be64 ibv_get_device_guid(struct ibv_device* which) { return which == &device ? 0x1122334455667788 : 0; }

struct ibv_context* ibv_open_device(struct ibv_device* which) { return which == &device ? &context : NULL; }

/* Fails unless every list was given back. */
int ibv_close_device(struct ibv_context* which) { return which == &context && lists == 0 ? 0 : -1; }

int ibv_query_device(struct ibv_context* which, struct ibv_device_attr* attr) {
  memset(attr, 0, sizeof(*attr));
  attr->vendor_id = which == &context ? 0x5150 : 0;
  return 0;
}
