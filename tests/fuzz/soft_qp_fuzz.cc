// A live softroce queue pair fed with packets that a fuzzer wrote, between work that it posts.
//
// The input is a list of steps. Packets get a valid ICRC and the queue pair's number, so that they reach the protocol.
// Checked beside what the sanitizers see: memory around the registered region stays as it was, and no work request
// completes twice or unposted.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <set>
#include <vector>

#include "fairlead/log.h"
#include "verbs/provider/verbs_api.h"
#include "verbs/soft/api/soft.h"
#include "verbs/soft/device/device.h"
#include "verbs/soft/port/wrap/loopback_port.h"

namespace {

using namespace fairlead;
using namespace fairlead::soft;

constexpr std::size_t kGuard = 4096;
constexpr std::size_t kRegion = 16384;
constexpr std::uint32_t kPsn = 0xfffffe;

void require(bool condition) {
  if (!condition) std::abort();
}

class Reader {
 public:
  Reader(const std::uint8_t* data, std::size_t size) : at_(data), left_(size) {}
  [[nodiscard]] bool empty() const { return left_ == 0; }
  std::uint8_t byte() {
    if (left_ == 0) return 0;
    --left_;
    return *at_++;
  }
  std::size_t bytes(std::byte* to, std::size_t count) {
    count = std::min(count, left_);
    std::memcpy(to, at_, count);
    at_ += count;
    left_ -= count;
    return count;
  }

 private:
  const std::uint8_t* at_;
  std::size_t left_;
};

class World {
 public:
  World() : memory_(kRegion + 2 * kGuard, std::byte{0x5a}) {
    auto [left, right] = LoopbackPort::make_pair();
    peer_ = std::move(right);
    context_ = &(new Device(entry_, Profile::kFull, clock_, std::move(left)))->context;
    pd_ = api_.alloc_pd(context_);
    cq_ = api_.create_cq(context_, 256, nullptr, nullptr, 0);
    mr_ = api_.reg_mr(pd_, memory_.data() + kGuard, kRegion, 15);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq_;
    init.cap = {16, 16, 2, 2, 64};
    init.qp_type = IBV_QPT_RC;
    qp_ = api_.create_qp(pd_, &init);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = 15;
    require(api_.modify_qp(qp_, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_256;
    attr.rq_psn = attr.sq_psn = kPsn;
    attr.max_dest_rd_atomic = attr.max_rd_atomic = 2;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.sgid_index = 1;
    attr.ah_attr.grh.dgid = peer_->address().to_verbs();
    require(api_.modify_qp(qp_, &attr,
                           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 8;
    attr.retry_cnt = attr.rnr_retry = 3;
    require(api_.modify_qp(qp_, &attr,
                           IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                               IBV_QP_MAX_QP_RD_ATOMIC) == 0);
    ibv_gid own{};
    require(api_.query_gid(context_, 1, 1, &own) == 0);
    route_ = peer_->make_route(Gid::from_verbs(own), 1, 0, 0);
  }
  ~World() {
    for (std::size_t i = 0; i < kGuard; ++i) {
      require(memory_[i] == std::byte{0x5a} && memory_[kGuard + kRegion + i] == std::byte{0x5a});
    }
    require(api_.destroy_qp(qp_) == 0 && api_.dereg_mr(mr_) == 0 && api_.destroy_cq(cq_) == 0);
    require(api_.dealloc_pd(pd_) == 0 && api_.close_device(context_) == 0);
  }

  void step(Reader& input) {
    const std::uint8_t kind = input.byte();
    switch (kind % 6) {
      case 0:
      case 1:
        return packet(input);
      case 2:
        return post_send(input);
      case 3:
        return post_recv();
      case 4:
        clock_.advance(input.byte() * 100 * kMicrosecond);
        return poll();
      default:
        return poll();
    }
  }

 private:
  // opcode, flags, psn offset, then a RETH whose address is relative to the region if bit 0 of flags is set, or raw
  // bytes; the rest of the packet is payload.
  void packet(Reader& input) {
    std::array<std::byte, 600> raw{};
    const std::uint8_t opcode = input.byte();
    const std::uint8_t flags = input.byte();
    const auto offset = static_cast<std::int8_t>(input.byte());
    Bth bth;
    // Of UC and UD, a congestion notification, a receipt, and messages that carry an acknowledgement.
    static constexpr std::uint8_t kOthers[] = {0x24, 0x2a, 0x64, 0x81, 0xc0, 0xc4, 0xc5, 0xca, 0xcb, 0xd7};
    bth.opcode = opcode < 160 ? opcode % 24 : kOthers[opcode % std::size(kOthers)];
    bth.dest_qpn = qp_->qp_num;
    bth.ack_request = (flags & 2) != 0;
    bth.kin = (flags & 16) != 0;
    bth.pad = flags >> 6;
    const bool response = opcode_info(bth.opcode).response();
    bth.psn = Psn((response ? kPsn : kPsn + requests_) + static_cast<std::uint32_t>(offset));
    if (!response && offset == 0) ++requests_;
    std::size_t length = 0;
    if ((flags & 1) != 0 && opcode_info(bth.opcode).reth) {
      const auto where = static_cast<std::uint64_t>(static_cast<std::int8_t>(input.byte()) * 64);
      const std::uint32_t bytes = std::uint32_t{input.byte()} << (input.byte() & 31);
      Reth{reinterpret_cast<std::uint64_t>(mr_->addr) + where, mr_->rkey, bytes}.encode(raw.data());
      length = Reth::kBytes;
    }
    if (opcode_info(bth.opcode).carried_ack) {
      const auto back = static_cast<std::int8_t>(input.byte());
      CarriedAck{Psn(kPsn + static_cast<std::uint32_t>(back)), {input.byte(), 0}}.encode(raw.data() + length);
      length += CarriedAck::kBytes;
    }
    const std::size_t wanted = (flags & 4) != 0 ? 256 : (flags & 8) != 0 ? input.byte() : 8;
    input.bytes(raw.data() + length, wanted);
    length = (length + wanted + 3) & ~std::size_t{3};
    std::byte* header = batch_.begin(route_, Bth::kBytes, length);
    bth.encode(header);
    batch_.payload(raw.data(), length);
    batch_.finish(0);
    peer_->tx_burst(batch_);
    poll();
  }

  void post_send(Reader& input) {
    static constexpr ibv_wr_opcode kOpcodes[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
                                                 IBV_WR_RDMA_WRITE_WITH_IMM};
    const std::uint8_t choice = input.byte();
    ibv_sge segment{reinterpret_cast<std::uint64_t>(mr_->addr), input.byte() * 16U, mr_->lkey};
    if (choice >= 250) segment.lkey ^= 1;
    ibv_send_wr wr{};
    wr.wr_id = next_id_;
    wr.sg_list = &segment;
    wr.num_sge = 1;
    wr.opcode = kOpcodes[choice % 4];
    wr.send_flags = IBV_SEND_SIGNALED | ((choice & 16) != 0 ? static_cast<unsigned>(IBV_SEND_FENCE) : 0U);
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(qp_, &wr, &bad) == 0) open_.insert(next_id_++);
  }

  void post_recv() {
    ibv_sge segment{reinterpret_cast<std::uint64_t>(mr_->addr), 700, mr_->lkey};
    ibv_recv_wr wr{};
    wr.wr_id = next_id_;
    wr.sg_list = &segment;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    if (ibv_post_recv(qp_, &wr, &bad) == 0) open_.insert(next_id_++);
  }

  void poll() {
    std::array<ibv_wc, 8> completions;
    for (int count; (count = ibv_poll_cq(cq_, 8, completions.data())) > 0;) {
      for (int i = 0; i < count; ++i) require(open_.erase(completions[static_cast<std::size_t>(i)].wr_id) == 1);
    }
    std::array<RxPacket, 16> sent;
    while (peer_->rx_burst(sent, clock_.now()) > 0) {
    }
  }

  const fairlead::verbs::VerbsApi& api_ = verbs_api();
  std::vector<std::byte> memory_;
  ibv_device entry_{};
  ManualClock clock_;
  std::unique_ptr<LoopbackPort> peer_;
  ibv_context* context_;
  ibv_pd* pd_;
  ibv_cq* cq_;
  ibv_mr* mr_;
  ibv_qp* qp_;
  Route route_;
  TxBatch batch_;
  std::uint32_t requests_ = 0;
  std::uint64_t next_id_ = 1;
  std::set<std::uint64_t> open_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fairlead::set_log_level(fairlead::LogLevel::kOff);
  World world;
  Reader input(data, std::min<std::size_t>(size, 4096));
  while (!input.empty()) world.step(input);
  return 0;
}
