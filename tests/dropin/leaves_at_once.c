/* A server that ends by _exit as soon as it is connected, as fio's does; its client must be told, not left to its
 * timers. Prints the events that the client gets. It finds librdmacm's calls at run time: the drop-in has them.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "by_name.h"

enum { kPatience = 20000 }; /* ms */

/* The next event, with its identifier; -1 when none comes. */
static int next_event(struct rdma_event_channel* channel, struct rdma_cm_id** id) {
  struct pollfd ready = {.fd = channel->fd, .events = POLLIN};
  struct rdma_cm_event* event = NULL;
  if (poll(&ready, 1, kPatience) != 1 || CALL(rdma_get_cm_event)(channel, &event) != 0) return -1;
  int type = (int)event->event;
  if (id != NULL) *id = event->id;
  CALL(rdma_ack_cm_event)(event);
  return type;
}

static struct rdma_cm_id* make(struct rdma_event_channel** channel) {
  struct rdma_cm_id* id = NULL;
  *channel = CALL(rdma_create_event_channel)();
  must(*channel == NULL || CALL(rdma_create_id)(*channel, &id, NULL, RDMA_PS_TCP) != 0, "rdma_create_id");
  return id;
}

static void serve(const char* address, int tell) {
  setenv("FAIRLEAD_SOFT_ADDRESS", address, 1);
  struct rdma_event_channel* channel = NULL;
  struct rdma_cm_id* id = make(&channel);
  struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(address)};
  must(CALL(rdma_bind_addr)(id, (struct sockaddr*)&here), "rdma_bind_addr");
  must(CALL(rdma_listen)(id, 1), "rdma_listen");
  here.sin_port = CALL(rdma_get_src_port)(id);
  must(write(tell, &here, sizeof(here)) != sizeof(here), "write");
  struct rdma_cm_id* child = NULL;
  must(next_event(channel, &child) != RDMA_CM_EVENT_CONNECT_REQUEST, "a request");
  struct rdma_conn_param param = {.qp_num = 18};
  must(CALL(rdma_accept)(child, &param), "rdma_accept");
  must(next_event(channel, NULL) != RDMA_CM_EVENT_ESTABLISHED, "a connection");
  _exit(0);
}

int main(int argc, char** argv) {
  int ends[2];
  must(argc != 3 || pipe(ends) != 0, "the arguments, a pipe");
  if (fork() == 0) serve(argv[1], ends[1]);
  setenv("FAIRLEAD_SOFT_ADDRESS", argv[2], 1);
  struct sockaddr_in there;
  must(read(ends[0], &there, sizeof(there)) != sizeof(there), "read");
  struct rdma_event_channel* channel = NULL;
  struct rdma_cm_id* id = make(&channel);
  must(CALL(rdma_resolve_addr)(id, NULL, (struct sockaddr*)&there, kPatience), "rdma_resolve_addr");
  must(next_event(channel, NULL) != RDMA_CM_EVENT_ADDR_RESOLVED, "an address");
  must(CALL(rdma_resolve_route)(id, kPatience), "rdma_resolve_route");
  must(next_event(channel, NULL) != RDMA_CM_EVENT_ROUTE_RESOLVED, "a route");
  struct rdma_conn_param param = {.qp_num = 17, .retry_count = 7};
  must(CALL(rdma_connect)(id, &param), "rdma_connect");
  int event = next_event(channel, NULL);
  if (event == RDMA_CM_EVENT_CONNECT_RESPONSE) { /* without a queue pair of its own it is told to say when */
    must(CALL(rdma_establish)(id), "rdma_establish");
    event = RDMA_CM_EVENT_ESTABLISHED;
  }
  must(event != RDMA_CM_EVENT_ESTABLISHED, "a connection");
  event = next_event(channel, NULL);
  printf("%s\n", event < 0 ? "no event" : CALL(rdma_event_str)((enum rdma_cm_event_type)event));
  return 0;
}
