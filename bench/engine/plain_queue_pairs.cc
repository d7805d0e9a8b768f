// What a small message waits for beside large writes where there is no engine: two queue pairs of a verbs device, one
// for each kind. What the engine's classes cost and gain is measured against this (commands_beside_bulk.cc).
//
//   fairlead run -- fairlead-plain-queue-pairs DEVICE GID_INDEX SECONDS
//
// One process of this host sends eight bytes, the other sends them back: a round trip. "beside" means that two WRITEs
// of 16 MiB are kept in flight on the other queue pair; "plain", that both have service level 0, "preferred", that the
// small one has 1. Both ends poll without end. Prints what fairlead-commands-beside-bulk prints.
#include <fmt/format.h>
#include <infiniband/verbs.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "bench/base/floor_program.h"
#include "bench/net/histogram.h"

namespace {

using fairlead::bench::die;
using fairlead::bench::number_argument;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kBytes = std::size_t{16} << 20, kWrites = 2;
constexpr std::uint32_t kSmall = 8, kReceives = 64;
constexpr std::uint64_t kReceived = 1, kSent = 2, kWritten = 3;  // wr_id

/// What one end tells the other.
struct End {
  union ibv_gid gid;
  std::uint32_t small_qpn, large_qpn, rkey;
  std::uint64_t address;
};

/// A device with a queue pair of each kind. Each keeps its receives posted.
class Ends {
 public:
  Ends(const char* name, int gid_index) : gid_index_(gid_index), memory_(kWrites * kBytes) {
    int count = 0;
    ibv_device** const list = ibv_get_device_list(&count);
    ibv_device* device = nullptr;
    for (int i = 0; i < count; ++i) {
      if (std::string_view(ibv_get_device_name(list[i])) == name) device = list[i];
    }
    if (device == nullptr) {
      fmt::print(stderr,
                 "fairlead-plain-queue-pairs: no verbs device '{}' among {}; start it under `fairlead run --`\n", name,
                 count);
      std::exit(1);
    }
    context_ = ibv_open_device(device);
    ibv_free_device_list(list);
    if (context_ == nullptr) die("ibv_open_device");
    if (ibv_query_gid(context_, 1, gid_index_, &own_.gid) != 0) die("ibv_query_gid");
    domain_ = ibv_alloc_pd(context_);
    cq_ = ibv_create_cq(context_, 4 * kReceives, nullptr, nullptr, 0);
    if (domain_ == nullptr || cq_ == nullptr) die("ibv_create_cq");
    region_ = ibv_reg_mr(domain_, memory_.data(), memory_.size(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (region_ == nullptr) die("ibv_reg_mr");
    small_ = make();
    large_ = make();
    own_.small_qpn = small_->qp_num;
    own_.large_qpn = large_->qp_num;
    own_.rkey = region_->rkey;
    own_.address = reinterpret_cast<std::uintptr_t>(memory_.data());
    for (std::uint32_t i = 0; i < kReceives; ++i) receive();
  }
  Ends(const Ends&) = delete;
  Ends& operator=(const Ends&) = delete;
  ~Ends() {
    ibv_destroy_qp(small_);
    ibv_destroy_qp(large_);
    ibv_dereg_mr(region_);
    ibv_destroy_cq(cq_);
    ibv_dealloc_pd(domain_);
    ibv_close_device(context_);
  }

  [[nodiscard]] const End& here() const noexcept { return own_; }
  void connect(const End& there, std::uint8_t level_of_small) {
    there_ = there;
    bring_up(small_, there.small_qpn, level_of_small);
    bring_up(large_, there.large_qpn, 0);
  }

  void send() {
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(memory_.data()), kSmall, region_->lkey};
    ibv_send_wr wr{}, *bad = nullptr;
    wr.wr_id = kSent;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
    if (ibv_post_send(small_, &wr, &bad) != 0) die("ibv_post_send");
  }
  void write() {
    const std::uint64_t at = next_write_++ % kWrites * kBytes;
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(memory_.data()) + at, kBytes, region_->lkey};
    ibv_send_wr wr{}, *bad = nullptr;
    wr.wr_id = kWritten;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = there_.address + at;
    wr.wr.rdma.rkey = there_.rkey;
    if (ibv_post_send(large_, &wr, &bad) != 0) die("ibv_post_send");
    ++writing_;
  }
  /// Looks once. True: a message came.
  bool poll() {
    ibv_wc batch[16];
    bool came = false;
    const int count = ibv_poll_cq(cq_, 16, batch);
    for (int i = 0; i < count; ++i) {
      if (batch[i].status != IBV_WC_SUCCESS) {
        fmt::print(stderr, "fairlead-plain-queue-pairs: {}\n", ibv_wc_status_str(batch[i].status));
        std::exit(1);
      }
      if (batch[i].wr_id == kReceived) {
        came = true;
        receive();
      } else if (batch[i].wr_id == kWritten) {
        --writing_;
        ++written_;
      }
    }
    return came;
  }
  [[nodiscard]] std::size_t writing() const noexcept { return writing_; }
  [[nodiscard]] std::uint64_t written() const noexcept { return written_; }

 private:
  ibv_qp* make() {
    ibv_qp_init_attr want{};
    want.send_cq = want.recv_cq = cq_;
    want.qp_type = IBV_QPT_RC;
    want.cap = {.max_send_wr = kReceives,
                .max_recv_wr = kReceives,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = kSmall};
    ibv_qp* const qp = ibv_create_qp(domain_, &want);
    if (qp == nullptr) die("ibv_create_qp");
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0) {
      die("ibv_modify_qp to INIT");
    }
    return qp;
  }
  void receive() {
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(memory_.data()) + kBytes - kSmall, kSmall, region_->lkey};
    ibv_recv_wr wr{.wr_id = kReceived, .next = nullptr, .sg_list = &sge, .num_sge = 1}, *bad = nullptr;
    if (ibv_post_recv(small_, &wr, &bad) != 0) die("ibv_post_recv");
  }
  void bring_up(ibv_qp* qp, std::uint32_t peer, std::uint8_t level) {
    ibv_port_attr port{};
    if (ibv_query_port(context_, 1, &port) != 0) die("ibv_query_port");
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = port.active_mtu;
    attr.dest_qp_num = peer;
    attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = 1;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.dgid = there_.gid;
    attr.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(gid_index_);
    attr.ah_attr.grh.hop_limit = 64;
    attr.ah_attr.sl = level;
    attr.ah_attr.port_num = 1;
    if (ibv_modify_qp(qp, &attr,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) != 0) {
      die("ibv_modify_qp to RTR");
    }
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = attr.rnr_retry = 7;
    attr.max_rd_atomic = 1;
    if (ibv_modify_qp(qp, &attr,
                      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                          IBV_QP_MAX_QP_RD_ATOMIC) != 0) {
      die("ibv_modify_qp to RTS");
    }
  }

  const int gid_index_;
  std::vector<std::byte> memory_;
  ibv_context* context_ = nullptr;
  ibv_pd* domain_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_mr* region_ = nullptr;
  ibv_qp *small_ = nullptr, *large_ = nullptr;
  End own_{}, there_{};
  std::size_t writing_ = 0;
  std::uint64_t next_write_ = 0, written_ = 0;
};

/// Both ends have told each other where they are.
void meet(Ends& ends, int other, std::uint8_t level) {
  End there;
  if (::write(other, &ends.here(), sizeof there) != sizeof there) die("write");
  if (::read(other, &there, sizeof there) != sizeof there) std::exit(1);  // the other has said why
  ends.connect(there, level);
  char ready = 0;
  if (::write(other, &ready, 1) != 1 || ::read(other, &ready, 1) != 1) std::exit(1);
}

void measure(Ends& ends, const char* what, bool beside, unsigned seconds) {
  fairlead::bench::Histogram times;
  std::uint64_t before = 0;
  const Clock::time_point warm = Clock::now() + std::chrono::milliseconds(200);
  const Clock::time_point end = warm + std::chrono::seconds(seconds);
  while (true) {
    while (beside && ends.writing() < kWrites) ends.write();
    const Clock::time_point begin = Clock::now();
    if (begin >= end) break;
    if (begin < warm) before = ends.written();
    ends.send();
    while (!ends.poll()) {
    }
    if (begin >= warm) times.record(static_cast<std::uint64_t>((Clock::now() - begin).count()));
  }
  fmt::print("{:37} {:8} round trips, p50 {:9.1f} us, p99 {:9.1f} us; {:5.2f} GB/s\n", what, times.count(),
             static_cast<double>(times.percentile(50)) / 1e3, static_cast<double>(times.percentile(99)) / 1e3,
             static_cast<double>((ends.written() - before) * kBytes) / 1e9 / seconds);
  while (ends.writing() != 0) (void)ends.poll();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    fmt::print(stderr, "usage: fairlead-plain-queue-pairs DEVICE GID_INDEX SECONDS\n");
    return 2;
  }
  const int gid_index = static_cast<int>(number_argument(argv[2], 255));
  const unsigned seconds = number_argument(argv[3], 3600);
  for (const std::uint8_t level : {std::uint8_t{0}, std::uint8_t{1}}) {
    int between[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, between) != 0) die("socketpair");
    const pid_t answerer = ::fork();  // before there is a device
    if (answerer < 0) die("fork");
    ::close(between[answerer == 0 ? 0 : 1]);
    if (answerer == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      Ends ends(argv[1], gid_index);
      meet(ends, between[1], level);
      while (true) {
        if (ends.poll()) ends.send();
      }
    }
    {
      Ends ends(argv[1], gid_index);
      meet(ends, between[0], level);
      measure(ends, level == 0 ? "plain, idle" : "preferred, idle", false, seconds);
      measure(ends, level == 0 ? "plain, beside" : "preferred, beside", true, seconds);
    }
    ::kill(answerer, SIGKILL);
    ::close(between[0]);
    if (::waitpid(answerer, nullptr, 0) != answerer) die("waitpid");
  }
  return 0;
}
