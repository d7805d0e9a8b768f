// One end of a connection for tests: a device, a protection domain, queues, a registered buffer, one queue pair.
//
// Works on a device opened over UDP and on one built over a loopback port with a manual clock.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "tests/bytes.h"
#include "tests/port_under_test.h"
#include "verbs/soft/api/api.h"
#include "verbs/soft/api/soft.h"
#include "verbs/soft/device/device.h"
#include "verbs/soft/port/wrap/loopback_port.h"

namespace fairlead::soft::test {

inline const verbs::VerbsApi& api() { return verbs_api(); }

struct EndpointOptions {
  std::size_t buffer_bytes = 4 << 20;
  int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  int cqe = 1024;
  bool channel = false;
  std::uint64_t wc_flags = 0;  // ibv_create_cq_wc_flags: then the completion queue is an extended one
  std::uint32_t cq_flags = 0;  // ibv_create_cq_attr_flags
  int sq_sig_all = 0;
  std::uint32_t max_wr = 256;
  std::uint32_t max_inline = 0;
  ibv_qp_type type = IBV_QPT_RC;
  std::uint64_t send_ops = 0;  // ibv_qp_create_send_ops_flags: then the queue pair is an extended one
};

struct ConnectOptions {
  ibv_mtu mtu = IBV_MTU_1024;
  std::uint8_t timeout = 14;
  std::uint8_t retry_cnt = 7;
  std::uint8_t rnr_retry = 7;
  std::uint8_t min_rnr_timer = 12;
  std::uint8_t max_reads = 16;
  std::uint32_t psn = 0xfffff0;  // so that it wraps
  std::uint8_t gid_index = 1;
  std::uint8_t service_level = 0;
};

class Endpoint {
 public:
  static constexpr std::uint32_t kQkey = 0x11223344;  // of queue pairs for datagrams

  explicit Endpoint(Device* opened, const EndpointOptions& options = {}) : Endpoint(&opened->context, options) {}
  explicit Endpoint(ibv_context* opened, const EndpointOptions& options = {})
      : context(opened), buffer(options.buffer_bytes) {
    pd = api().alloc_pd(context);
    if (options.channel) channel = api().create_comp_channel(context);
    cq = options.wc_flags != 0 ? make_extended_cq(options) : api().create_cq(context, options.cqe, this, channel, 0);
    EXPECT_NE(cq, nullptr);
    mr = api().reg_mr(pd, buffer.data(), buffer.size(), options.access);
    EXPECT_NE(mr, nullptr);
    qp = make_qp(options);
    EXPECT_NE(qp, nullptr);
  }
  ~Endpoint() {
    if (qp != nullptr) {
      EXPECT_EQ(api().destroy_qp(qp), 0);
    }
    if (mr != nullptr) {
      EXPECT_EQ(api().dereg_mr(mr), 0);
    }
    EXPECT_EQ(api().destroy_cq(cq), 0);
    if (channel != nullptr) {
      EXPECT_EQ(api().destroy_comp_channel(channel), 0);
    }
    EXPECT_EQ(api().dealloc_pd(pd), 0);
    EXPECT_EQ(api().close_device(context), 0);
  }
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  ibv_cq* make_extended_cq(const EndpointOptions& options) {
    ibv_cq_init_attr_ex init{};
    init.cqe = static_cast<std::uint32_t>(options.cqe);
    init.cq_context = this;
    init.channel = channel;
    init.wc_flags = options.wc_flags;
    init.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
    init.flags = options.cq_flags;
    ibv_cq_ex* made = soft::api::create_cq_ex(context, &init);
    return made != nullptr ? ibv_cq_ex_to_cq(made) : nullptr;
  }

  ibv_qp* make_qp(const EndpointOptions& options) {
    ibv_qp_init_attr_ex init{};
    init.send_cq = init.recv_cq = cq;
    init.cap = {options.max_wr, options.max_wr, 4, 4, options.max_inline};
    init.qp_type = options.type;
    init.sq_sig_all = options.sq_sig_all;
    init.comp_mask = IBV_QP_INIT_ATTR_PD | (options.send_ops != 0 ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0);
    init.pd = pd;
    init.send_ops_flags = options.send_ops;
    return soft::api::create_qp_ex(context, &init);
  }

  [[nodiscard]] ibv_gid gid(int index = 1) const {
    ibv_gid value{};
    EXPECT_EQ(api().query_gid(context, 1, index, &value), 0);
    return value;
  }

  int to_init() {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qkey = kQkey;
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    const int last = qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
    return api().modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | last);
  }
  int to_rtr(std::uint32_t peer_qpn, const ibv_gid& peer_gid, const ConnectOptions& options) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = options.mtu;
    attr.dest_qp_num = peer_qpn;
    attr.rq_psn = options.psn;
    attr.max_dest_rd_atomic = options.max_reads;
    attr.min_rnr_timer = options.min_rnr_timer;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.sl = options.service_level;
    attr.ah_attr.grh.dgid = peer_gid;
    attr.ah_attr.grh.sgid_index = options.gid_index;
    attr.ah_attr.grh.hop_limit = 64;
    int mask = IBV_QP_STATE;
    if (qp->qp_type != IBV_QPT_UD) mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (qp->qp_type == IBV_QPT_RC) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    return api().modify_qp(qp, &attr, mask);
  }
  int to_rts(const ConnectOptions& options) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = options.timeout;
    attr.retry_cnt = options.retry_cnt;
    attr.rnr_retry = options.rnr_retry;
    attr.sq_psn = options.psn;
    attr.max_rd_atomic = options.max_reads;
    int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (qp->qp_type == IBV_QPT_RC) {
      mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    }
    return api().modify_qp(qp, &attr, mask);
  }
  int to_state(ibv_qp_state state) {
    ibv_qp_attr attr{};
    attr.qp_state = state;
    return api().modify_qp(qp, &attr, IBV_QP_STATE);
  }
  [[nodiscard]] ibv_qp_state state() const {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    EXPECT_EQ(api().query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
    return attr.qp_state;
  }

  [[nodiscard]] ibv_sge sge(std::size_t offset, std::size_t length) const {
    return {reinterpret_cast<std::uint64_t>(buffer.data()) + offset, static_cast<std::uint32_t>(length), mr->lkey};
  }

  /// Posts one request over one segment of the buffer. `remote` may be null for a SEND.
  int post(ibv_wr_opcode opcode, std::uint64_t id, std::size_t offset, std::size_t length, const Endpoint* remote,
           std::size_t remote_offset, unsigned flags = IBV_SEND_SIGNALED, std::uint32_t immediate = 0) {
    const bool has_place = remote != nullptr;
    const std::uint64_t at = has_place ? reinterpret_cast<std::uint64_t>(remote->buffer.data()) + remote_offset : 0;
    return post_to(opcode, id, sge(offset, length), at, has_place ? remote->mr->rkey : 0, flags, immediate);
  }
  /// The same, to an address of whatever process.
  int post_to(ibv_wr_opcode opcode, std::uint64_t id, ibv_sge segment, std::uint64_t address, std::uint32_t rkey,
              unsigned flags = IBV_SEND_SIGNALED, std::uint32_t immediate = 0) {
    ibv_send_wr wr{};
    wr.wr_id = id;
    wr.opcode = opcode;
    wr.send_flags = flags;
    wr.sg_list = &segment;
    wr.num_sge = 1;
    wr.imm_data = immediate;
    wr.wr.rdma = {address, rkey};
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(qp, &wr, &bad);
  }
  int post_recv(std::uint64_t id, std::size_t offset, std::size_t length) {
    ibv_sge segment = sge(offset, length);
    ibv_recv_wr wr{};
    wr.wr_id = id;
    wr.sg_list = &segment;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    return ibv_post_recv(qp, &wr, &bad);
  }

  /// Polls once; what came is appended to `done`.
  void poll() {
    ibv_wc completions[16];
    const int count = ibv_poll_cq(cq, 16, completions);
    if (count < 0) overflowed = true;
    for (int i = 0; i < count; ++i) done.push_back(completions[i]);
  }

  [[nodiscard]] std::uint64_t counter(std::string_view name) const {
    for (const DeviceCounter& entry : read_counters(context)) {
      if (entry.name == name) return entry.value;
    }
    ADD_FAILURE() << "no counter " << name;
    return 0;
  }

  ibv_context* context;
  std::vector<std::uint8_t> buffer;
  ibv_pd* pd = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;
  ibv_mr* mr = nullptr;
  ibv_qp* qp = nullptr;
  std::vector<ibv_wc> done;
  bool overflowed = false;
};

inline void connect(Endpoint& a, Endpoint& b, const ConnectOptions& options = {}) {
  ASSERT_EQ(a.to_init(), 0);
  ASSERT_EQ(b.to_init(), 0);
  ASSERT_EQ(a.to_rtr(b.qp->qp_num, b.gid(), options), 0);
  ASSERT_EQ(b.to_rtr(a.qp->qp_num, a.gid(), options), 0);
  ASSERT_EQ(a.to_rts(options), 0);
  ASSERT_EQ(b.to_rts(options), 0);
}

/// A device over UDP on loopback, or over another port; each call opens another.
inline ibv_context* open_udp(std::string_view packet_io = "udp", Profile profile = Profile::kFull) {
  static std::atomic<int> opened{0};
  const std::string name = fmt::format("test{}", opened.fetch_add(1));
  const auto device = find_or_add_device({name, profile, std::string(packet_io), ""});
  EXPECT_TRUE(device) << device.status().to_string();
  ibv_context* context = api().open_device(*device);
  EXPECT_NE(context, nullptr);
  return context;
}

/// A device over the port under test, which is UDP on loopback unless another is asked for; see port_under_test().
inline ibv_context* open_on_wire(std::string_view faults = "") {
  return open_udp(fairlead::test::port_under_test(faults));
}

/// Polls both ends until `finished` or the time is up.
inline bool drive(Endpoint& a, Endpoint& b, const std::function<bool()>& finished,
                  std::chrono::seconds limit = std::chrono::seconds(60)) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!finished()) {
    if (std::chrono::steady_clock::now() > end) return false;
    a.poll();
    b.poll();
  }
  return true;
}

}  // namespace fairlead::soft::test
