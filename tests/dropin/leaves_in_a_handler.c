/* A program that ends by _exit in a signal handler, which came while it allocated memory. It must end, whoever then has
 * the lock of malloc, and with the status that it asked for. Its malloc has a lock of its own, so that the signal comes
 * in the middle each time. With an argument, an address where nobody is, it is about to connect to there.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "by_name.h"

enum { kStatus = 7, kPatience = 2000 /* ms */ };

void* __libc_malloc(size_t size);
void __libc_free(void* memory);

static pthread_mutex_t heap = PTHREAD_MUTEX_INITIALIZER;
static volatile sig_atomic_t leaves;
static pthread_t leaver;

void* malloc(size_t size) {
  pthread_mutex_lock(&heap);
  if (leaves && pthread_equal(pthread_self(), leaver)) raise(SIGUSR1); /* does not come back */
  void* memory = __libc_malloc(size);
  pthread_mutex_unlock(&heap);
  return memory;
}

void free(void* memory) {
  pthread_mutex_lock(&heap);
  __libc_free(memory);
  pthread_mutex_unlock(&heap);
}

static void leave(int number) {
  (void)number;
  _exit(kStatus);
}

static void connect_to(const char* address) {
  struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = htons(7041), .sin_addr.s_addr = inet_addr(address)};
  struct rdma_cm_id* id = NULL;
  struct rdma_event_channel* channel = CALL(rdma_create_event_channel)();
  must(channel == NULL || CALL(rdma_create_id)(channel, &id, NULL, RDMA_PS_TCP) != 0, "rdma_create_id");
  must(CALL(rdma_resolve_addr)(id, NULL, (struct sockaddr*)&there, kPatience), "rdma_resolve_addr");
  must(CALL(rdma_resolve_route)(id, kPatience), "rdma_resolve_route");
  struct rdma_conn_param param = {.qp_num = 17, .retry_count = 7};
  must(CALL(rdma_connect)(id, &param), "rdma_connect");
}

int main(int argc, char** argv) {
  must(signal(SIGUSR1, leave) == SIG_ERR, "signal");
  if (argc > 1) connect_to(argv[1]);
  leaver = pthread_self();
  leaves = 1;
  void* volatile memory = malloc(1);
  free(memory);
  return 1;
}
