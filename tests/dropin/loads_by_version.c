/* A C program that knows libibverbs only at run time, as NCCL does: dlopen by name, dlvsym by version.
 *
 * loads_by_version MODE
 *   move    opens the device, connects two queue pairs to each other, writes and sends between them, closes all
 *   exit    the same, and exits with everything open
 *   unload  the same, then dlclose, and lives on for a while
 *   fork    the same, then a child exits and closes the parent's device, and another opens a device of its own
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#undef ibv_get_device_list
#undef ibv_reg_mr
#undef ibv_query_port

static void* library;

static void fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, dlerror() != NULL ? "not found" : "failed");
  exit(1);
}

static void* symbol(const char* name, const char* version) {
  void* found = dlvsym(library, name, version);
  if (found == NULL) {
    fprintf(stderr, "no %s@%s: %s\n", name, version, dlerror());
    exit(1);
  }
  return found;
}

#define CALL(name, version) ((__typeof__(&name))symbol(#name, version))

enum { kBytes = 10000 };

struct end {
  struct ibv_context* context;
  struct ibv_pd* pd;
  struct ibv_mr* mr;
  struct ibv_cq* cq;
  struct ibv_qp* qps[2];
};

static char memory[2 * kBytes];

static struct ibv_context* open_soft0(void) {
  int count = 0;
  struct ibv_device** list = CALL(ibv_get_device_list, "IBVERBS_1.1")(&count);
  struct ibv_context* context = NULL;
  for (int i = 0; list != NULL && i < count; ++i) {
    if (strcmp(CALL(ibv_get_device_name, "IBVERBS_1.1")(list[i]), "soft0") != 0) continue;
    context = CALL(ibv_open_device, "IBVERBS_1.1")(list[i]);
  }
  if (list != NULL) CALL(ibv_free_device_list, "IBVERBS_1.1")(list);
  if (context == NULL) fail("opening soft0");
  return context;
}

static void connect_to(struct ibv_qp* qp, struct ibv_qp* peer, const union ibv_gid* gid) {
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
  __typeof__(&ibv_modify_qp) modify = CALL(ibv_modify_qp, "IBVERBS_1.1");
  int error = modify(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
                              .path_mtu = IBV_MTU_1024,
                              .dest_qp_num = peer->qp_num,
                              .rq_psn = 77,
                              .max_dest_rd_atomic = 1,
                              .min_rnr_timer = 12,
                              .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = 1, .hop_limit = 1}}};
  attr.ah_attr.grh.dgid = *gid;
  error |= modify(qp, &attr,
                  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  attr = (struct ibv_qp_attr){
      .qp_state = IBV_QPS_RTS, .sq_psn = 77, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
  error |= modify(
      qp, &attr,
      IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
  if (error != 0) fail("ibv_modify_qp");
}

static struct end set_up(void) {
  struct end end = {.context = open_soft0()};
  end.pd = CALL(ibv_alloc_pd, "IBVERBS_1.1")(end.context);
  end.mr =
      CALL(ibv_reg_mr, "IBVERBS_1.1")(end.pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  end.cq = CALL(ibv_create_cq, "IBVERBS_1.1")(end.context, 8, NULL, NULL, 0);
  if (end.pd == NULL || end.mr == NULL || end.cq == NULL) fail("making objects");
  struct ibv_qp_init_attr init = {.send_cq = end.cq,
                                  .recv_cq = end.cq,
                                  .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
                                  .qp_type = IBV_QPT_RC};
  for (int i = 0; i < 2; ++i) {
    end.qps[i] = CALL(ibv_create_qp, "IBVERBS_1.1")(end.pd, &init);
    if (end.qps[i] == NULL) fail("ibv_create_qp");
  }
  union ibv_gid gid;
  if (CALL(ibv_query_gid, "IBVERBS_1.1")(end.context, 1, 1, &gid) != 0) fail("ibv_query_gid");
  connect_to(end.qps[0], end.qps[1], &gid);
  connect_to(end.qps[1], end.qps[0], &gid);
  return end;
}

static void await(struct end* end, int count) {
  while (count > 0) {
    struct ibv_wc completion;
    int got = ibv_poll_cq(end->cq, 1, &completion);
    if (got < 0) fail("ibv_poll_cq");
    if (got == 1 && completion.status != IBV_WC_SUCCESS) {
      fail(CALL(ibv_wc_status_str, "IBVERBS_1.1")(completion.status));
    }
    count -= got;
  }
}

static void move(struct end* end) {
  for (int i = 0; i < kBytes; ++i) memory[i] = (char)(i * 7);
  struct ibv_sge receive = {(uintptr_t)memory + kBytes, kBytes, end->mr->lkey};
  struct ibv_recv_wr recv_wr = {.sg_list = &receive, .num_sge = 1};
  struct ibv_recv_wr* bad_recv;
  if (ibv_post_recv(end->qps[1], &recv_wr, &bad_recv) != 0) fail("ibv_post_recv");
  struct ibv_sge first = {(uintptr_t)memory, kBytes / 2, end->mr->lkey};
  struct ibv_send_wr write = {.sg_list = &first, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
  struct ibv_sge all = {(uintptr_t)memory, kBytes, end->mr->lkey};
  struct ibv_send_wr send = {.sg_list = &all, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
  write.wr.rdma.remote_addr = (uintptr_t)memory + kBytes;
  write.wr.rdma.rkey = end->mr->rkey;
  write.next = &send;
  struct ibv_send_wr* bad_send;
  if (ibv_post_send(end->qps[0], &write, &bad_send) != 0) fail("ibv_post_send");
  await(end, 2);
  if (memcmp(memory, memory + kBytes, kBytes) != 0) fail("comparing what was moved");
}

static void close_all(struct end* end) {
  int error = 0;
  for (int i = 0; i < 2; ++i) error |= CALL(ibv_destroy_qp, "IBVERBS_1.1")(end->qps[i]);
  error |= CALL(ibv_destroy_cq, "IBVERBS_1.1")(end->cq);
  error |= CALL(ibv_dereg_mr, "IBVERBS_1.1")(end->mr);
  error |= CALL(ibv_dealloc_pd, "IBVERBS_1.1")(end->pd);
  error |= CALL(ibv_close_device, "IBVERBS_1.1")(end->context);
  if (error != 0) fail("closing");
}

static void expect_success(pid_t child) {
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0) fail("the child");
}

static void fork_twice(struct end* end) {
  pid_t child = fork();
  if (child == 0) {
    close_all(end);
    exit(0);
  }
  expect_success(child);
  child = fork();
  if (child == 0) {
    struct end own = set_up();
    move(&own);
    exit(0);
  }
  expect_success(child);
  move(end); /* the parent's own device still works */
}

int main(int argc, char** argv) {
  const char* mode = argc == 2 ? argv[1] : "";
  library = dlopen("libibverbs.so", RTLD_NOW);
  if (library == NULL) library = dlopen("libibverbs.so.1", RTLD_NOW);
  if (library == NULL) fail("dlopen(libibverbs.so.1)");
  struct end end = set_up();
  move(&end);
  if (strcmp(mode, "move") == 0) {
    close_all(&end);
  } else if (strcmp(mode, "unload") == 0) {
    dlclose(library);
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
  } else if (strcmp(mode, "fork") == 0) {
    fork_twice(&end);
    close_all(&end);
  } else if (strcmp(mode, "exit") != 0) {
    fprintf(stderr, "usage: loads_by_version move|exit|unload|fork\n");
    return 2;
  }
  printf("moved %d bytes\n", kBytes);
  return 0;
}
