/* Threads that are cancelled where they wait in calls of the drop-in's, before they do so or while they do, and where
 * they poll. Each must end as cancelled, and what it waited for must be as if it had never been there.
 *
 * cancelled_threads FIFO     to which nobody writes
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "by_name.h"

#undef ibv_get_device_list
#undef ibv_reg_mr

enum { kBytes = 4096 };

static char memory[2 * kBytes];
static const char* fifo;
static struct ibv_context* context;
static struct ibv_mr* region;
static struct ibv_comp_channel* channel;
static struct ibv_cq* cq;
static struct ibv_qp* qps[2];
static struct rdma_event_channel* cm_channel;

static void to(struct ibv_qp* qp, struct ibv_qp_attr attr, int mask) {
  must(CALL(ibv_modify_qp)(qp, &attr, IBV_QP_STATE | mask), "ibv_modify_qp");
}

static void connect_to(struct ibv_qp* qp, struct ibv_qp* peer, const union ibv_gid* gid) {
  to(qp, (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .port_num = 1},
     IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  to(qp,
     (struct ibv_qp_attr){
         .qp_state = IBV_QPS_RTR,
         .path_mtu = IBV_MTU_1024,
         .dest_qp_num = peer->qp_num,
         .max_dest_rd_atomic = 1,
         .min_rnr_timer = 12,
         .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = *gid, .sgid_index = 1, .hop_limit = 1}}},
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  to(qp,
     (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1},
     IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

static void set_up(void) {
  struct ibv_device** list = CALL(ibv_get_device_list)(NULL);
  must(list == NULL || list[0] == NULL, "ibv_get_device_list");
  context = CALL(ibv_open_device)(list[0]);
  must(context == NULL, "ibv_open_device");
  CALL(ibv_free_device_list)(list);
  struct ibv_pd* pd = CALL(ibv_alloc_pd)(context);
  region = CALL(ibv_reg_mr)(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
  channel = CALL(ibv_create_comp_channel)(context);
  cq = CALL(ibv_create_cq)(context, 8, NULL, channel, 0);
  cm_channel = CALL(rdma_create_event_channel)();
  must(region == NULL || channel == NULL || cq == NULL || cm_channel == NULL, "making objects");
  struct ibv_qp_init_attr init = {.send_cq = cq,
                                  .recv_cq = cq,
                                  .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
                                  .qp_type = IBV_QPT_RC};
  for (int i = 0; i < 2; ++i) must((qps[i] = CALL(ibv_create_qp)(pd, &init)) == NULL, "ibv_create_qp");
  union ibv_gid gid;
  must(CALL(ibv_query_gid)(context, 1, 1, &gid), "ibv_query_gid");
  connect_to(qps[0], qps[1], &gid);
  connect_to(qps[1], qps[0], &gid);
}

/* A message, and the completions of both ends. */
static void converse(void) {
  struct ibv_sge into = {(uintptr_t)memory + kBytes, kBytes, region->lkey};
  struct ibv_recv_wr receive = {.sg_list = &into, .num_sge = 1};
  struct ibv_recv_wr* bad_receive;
  must(ibv_post_recv(qps[1], &receive, &bad_receive), "ibv_post_recv");
  struct ibv_sge from = {(uintptr_t)memory, kBytes, region->lkey};
  struct ibv_send_wr send = {.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
  struct ibv_send_wr* bad_send;
  must(ibv_post_send(qps[0], &send, &bad_send), "ibv_post_send");
  for (int left = 2; left > 0;) {
    struct ibv_wc completion;
    int got = ibv_poll_cq(cq, 1, &completion);
    must(got < 0 || (got == 1 && completion.status != IBV_WC_SUCCESS), "ibv_poll_cq");
    left -= got;
  }
}

static void next_completion_event(void) {
  struct ibv_cq* of;
  void* user;
  must(CALL(ibv_get_cq_event)(channel, &of, &user), "ibv_get_cq_event");
  CALL(ibv_ack_cq_events)(of, 1);
}

/* The host's addresses may change meanwhile, which is one. */
static void take_async_events(void) {
  for (;;) {
    struct ibv_async_event event;
    must(CALL(ibv_get_async_event)(context, &event), "ibv_get_async_event");
    CALL(ibv_ack_async_event)(&event);
  }
}

static void next_cm_event(void) {
  struct rdma_cm_event* event;
  must(CALL(rdma_get_cm_event)(cm_channel, &event), "rdma_get_cm_event");
}

static void open_fifo(void) { must(open(fifo, O_RDONLY) < 0, "open"); }
static void fopen_fifo(void) { must(fopen(fifo, "r") == NULL, "fopen"); }

static atomic_int conversations;
static void converse_for_ever(void) {
  for (;;) {
    converse();
    ++conversations;
    pthread_testcancel();
  }
}

struct waiter {
  void (*call)(void);
  int cancelled_before;
  atomic_int thread; /* the system's number */
};

static void* run(void* argument) {
  struct waiter* waiter = argument;
  if (waiter->cancelled_before) pthread_cancel(pthread_self());
  waiter->thread = (int)syscall(SYS_gettid);
  waiter->call();
  return NULL;
}

static int sleeps(int thread) {
  char path[64], state = 0;
  snprintf(path, sizeof(path), "/proc/self/task/%d/stat", thread);
  FILE* file = fopen(path, "r");
  must(file == NULL || fscanf(file, "%*d (%*[^)]) %c", &state) != 1, path);
  fclose(file);
  return state == 'S';
}

/* Waits until `reached`; null: until the thread sleeps. */
static void cancel(void (*call)(void), int cancelled_before, atomic_int* reached, const char* what) {
  struct waiter waiter = {.call = call, .cancelled_before = cancelled_before};
  pthread_t thread;
  must(pthread_create(&thread, NULL, run, &waiter), "pthread_create");
  if (!cancelled_before) {
    while (waiter.thread == 0 || (reached != NULL ? *reached == 0 : !sleeps(waiter.thread))) sched_yield();
    must(pthread_cancel(thread), "pthread_cancel");
  }
  void* result = NULL;
  must(pthread_join(thread, &result) != 0 || result != PTHREAD_CANCELED, what);
}

int main(int argc, char** argv) {
  must(argc != 2, "usage: cancelled_threads FIFO");
  fifo = argv[1];
  set_up();
  for (int before = 0; before < 2; ++before) {
    cancel(next_completion_event, before, NULL, "a thread in ibv_get_cq_event");
    cancel(take_async_events, before, NULL, "a thread in ibv_get_async_event");
    cancel(next_cm_event, before, NULL, "a thread in rdma_get_cm_event");
    cancel(open_fifo, before, NULL, "a thread in open");
    cancel(fopen_fifo, before, NULL, "a thread in fopen");
    conversations = 0;
    cancel(converse_for_ever, before, &conversations, "a thread that polls");
    must(conversations == 0, "a conversation");
  }
  must(ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
  converse();
  next_completion_event();
  int descriptor = cm_channel->fd;
  CALL(rdma_destroy_event_channel)(cm_channel);
  must(fcntl(descriptor, F_GETFD) >= 0, "the end of a channel that nobody waits in any more");
  int error = 0;
  for (int i = 0; i < 2; ++i) error |= CALL(ibv_destroy_qp)(qps[i]);
  error |= CALL(ibv_destroy_cq)(cq) | CALL(ibv_destroy_comp_channel)(channel) | CALL(ibv_close_device)(context);
  must(error, "closing");
  printf("all as they were\n");
  return 0;
}
