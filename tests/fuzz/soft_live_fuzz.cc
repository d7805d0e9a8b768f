// Two devices at work, and a network that alters their packets as the input says, always with a right ICRC: so the
// damage reaches the protocol. Whatever happens, memory outside the regions and memory that was not granted stays as it
// was, every accepted request completes exactly once, and once the network behaves nothing hangs.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <set>
#include <vector>

#include "fairlead/log.h"
#include "verbs/provider/verbs_api.h"
#include "verbs/soft/api/api.h"
#include "verbs/soft/api/soft.h"
#include "verbs/soft/device/device.h"
#include "verbs/soft/port/port_decorator.h"
#include "verbs/soft/port/wrap/loopback_port.h"
#include "verbs/soft/wire/icrc.h"

namespace {

using namespace fairlead;
using namespace fairlead::soft;

void require(bool condition) {
  if (!condition) std::abort();
}

/// What the input decides; all zeros once it is used up.
class Tape {
 public:
  Tape(const std::uint8_t* data, std::size_t size) : at_(data), left_(size) {}
  [[nodiscard]] bool empty() const { return left_ == 0; }
  std::uint8_t byte() {
    if (left_ == 0) return 0;
    --left_;
    return *at_++;
  }

 private:
  const std::uint8_t* at_;
  std::size_t left_;
};

class AlteringPort final : public PortDecorator {
 public:
  AlteringPort(std::unique_ptr<PacketPort> inner, Tape& tape) : PortDecorator(std::move(inner)), tape_(tape) {}

  void tx_burst(TxBatch& batch) noexcept override { inner_->tx_burst(batch); }
  [[nodiscard]] int wait_fd() const noexcept override { return -1; }

  std::size_t rx_burst(std::span<RxPacket> packets, Nanos now) noexcept override {
    handed_out_.clear();
    std::array<RxPacket, 8> arrived;
    const std::size_t count = inner_->rx_burst(std::span(arrived).first(std::min(packets.size(), arrived.size())), now);
    for (std::size_t i = 0; i < count; ++i) admit(arrived[i]);
    if (count == 0 && late_) queue_.push_back(std::exchange(late_, nullptr));
    while (handed_out_.size() < packets.size() && !queue_.empty()) {
      handed_out_.push_back(std::move(queue_.front()));
      queue_.pop_front();
    }
    for (std::size_t i = 0; i < handed_out_.size(); ++i) packets[i] = view(*handed_out_[i]);
    return handed_out_.size();
  }

 private:
  struct Held {
    std::vector<std::byte> bytes;
    RxPacket packet;
  };

  static RxPacket view(const Held& held) {
    RxPacket packet = held.packet;
    packet.bytes = held.bytes;
    return packet;
  }
  void seal(Held& held) const {
    if (held.bytes.size() < Bth::kBytes + kIcrcBytes) return;
    const auto covered = std::span(held.bytes).first(held.bytes.size() - kIcrcBytes);
    const UdpFrame frame{held.packet.source, address(), held.packet.source_port, kRoceUdpPort, 0, held.bytes.size()};
    store_icrc(held.bytes.data() + covered.size(), icrc(frame, covered));
  }
  void admit(const RxPacket& packet) {
    auto held = std::make_unique<Held>(Held{{packet.bytes.begin(), packet.bytes.end()}, packet});
    std::vector<std::byte>& bytes = held->bytes;
    const auto alter = [&](std::size_t within) {
      bytes[tape_.byte() % std::min(within, bytes.size())] ^= static_cast<std::byte>(tape_.byte());
    };
    switch (tape_.byte() % 16) {
      case 8:
        return;
      case 9:
        queue_.push_back(std::make_unique<Held>(*held));
        break;
      case 10:
        if (late_) queue_.push_back(std::move(late_));
        late_ = std::move(held);
        return;
      case 11:
        alter(Bth::kBytes);
        break;
      case 12:
        alter(48);
        break;
      case 13:
        alter(bytes.size());
        alter(48);
        break;
      case 14:
        bytes.resize(bytes.size() - std::min<std::size_t>(bytes.size(), (tape_.byte() % 64) * 4));
        break;
      case 15:
        bytes.resize(bytes.size() + (tape_.byte() % 80) * 4);
        break;
      default:
        break;
    }
    held->packet.traffic_class = bytes.size() % 8 == 0 ? 3 : 0;  // marked now and then
    seal(*held);
    queue_.push_back(std::move(held));
  }

  Tape& tape_;
  std::deque<std::unique_ptr<Held>> queue_;
  std::unique_ptr<Held> late_;
  std::vector<std::unique_ptr<Held>> handed_out_;
};

constexpr std::size_t kGuard = 4096;
constexpr std::size_t kShared = 16384;   // granted to the peer in every way
constexpr std::size_t kReadOnly = 4096;  // granted for READ only
constexpr std::byte kUntouched{0x5a};
constexpr std::uint32_t kQkey = 0x1234;
constexpr unsigned kAll =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

class End {
 public:
  End(ibv_device& entry, const Clock& clock, std::unique_ptr<PacketPort> port, ibv_qp_type type, bool shared_queue)
      : memory_(3 * kGuard + kShared + kReadOnly, kUntouched),
        device_(new Device(entry, Profile::kFull, clock, std::move(port))),
        context_(&device_->context) {
    device_->set_congestion(DcqcnConfig{});
    pd_ = api_.alloc_pd(context_);
    cq_ = api_.create_cq(context_, 256, nullptr, nullptr, 0);
    shared_ = api_.reg_mr(pd_, memory_.data() + kGuard, kShared, kAll);
    read_only_ = api_.reg_mr(pd_, memory_.data() + 2 * kGuard + kShared, kReadOnly, IBV_ACCESS_REMOTE_READ);
    require(shared_ != nullptr && read_only_ != nullptr);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq_;
    init.cap = {16, 16, 2, 2, 64};
    init.qp_type = type;
    if (shared_queue) {
      ibv_srq_init_attr wanted{};
      wanted.attr = {16, 2, 0};
      srq_ = api::create_srq(pd_, &wanted);
      require(srq_ != nullptr);
      init.srq = srq_;
    }
    qp_ = api_.create_qp(pd_, &init);
    require(qp_ != nullptr);
  }
  ~End() {
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      const bool may_change = i >= kGuard && i < kGuard + kShared;
      require(may_change || memory_[i] == kUntouched);
    }
    require(ah_ == nullptr || api::destroy_ah(ah_) == 0);
    require(api_.destroy_qp(qp_) == 0 && (srq_ == nullptr || api::destroy_srq(srq_) == 0));
    require(api_.dereg_mr(shared_) == 0 && api_.dereg_mr(read_only_) == 0);
    require(api_.destroy_cq(cq_) == 0 && api_.dealloc_pd(pd_) == 0 && api_.close_device(context_) == 0);
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  void connect(const End& peer) {
    const bool rc = qp_->qp_type == IBV_QPT_RC;
    const bool ud = qp_->qp_type == IBV_QPT_UD;
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = kAll;
    attr.qkey = kQkey;
    require(api_.modify_qp(qp_, &attr,
                           IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)) ==
            0);
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_256;
    attr.rq_psn = attr.sq_psn = 0xfffffe;
    attr.max_dest_rd_atomic = attr.max_rd_atomic = 4;
    attr.min_rnr_timer = 1;
    attr.dest_qp_num = peer_qpn_ = peer.qp_->qp_num;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.sgid_index = 1;
    require(api_.query_gid(peer.context_, 1, 1, &attr.ah_attr.grh.dgid) == 0);
    if (ud) require((ah_ = api::create_ah(pd_, &attr.ah_attr)) != nullptr);
    const int path = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    const int answers = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    require(api_.modify_qp(qp_, &attr, IBV_QP_STATE | (ud ? 0 : path) | (rc ? answers : 0)) == 0);
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 8;  // about a millisecond
    attr.retry_cnt = attr.rnr_retry = 3;
    const int retries = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    require(api_.modify_qp(qp_, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | (rc ? retries : 0)) == 0);
  }

  void post_send(Tape& tape, const End& peer) {
    static constexpr ibv_wr_opcode kOpcodes[] = {IBV_WR_SEND,
                                                 IBV_WR_SEND_WITH_IMM,
                                                 IBV_WR_RDMA_WRITE,
                                                 IBV_WR_RDMA_READ,
                                                 IBV_WR_RDMA_WRITE_WITH_IMM,
                                                 IBV_WR_ATOMIC_CMP_AND_SWP,
                                                 IBV_WR_ATOMIC_FETCH_AND_ADD};
    const std::uint8_t choice = tape.byte();
    ibv_send_wr wr{};
    wr.wr_id = next_id_;
    const bool ud = qp_->qp_type == IBV_QPT_UD;
    wr.opcode = kOpcodes[choice % (ud ? 2 : std::size(kOpcodes))];
    const bool atomic = wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    const std::uint32_t length = atomic ? 8 : tape.byte() * 8U;
    ibv_sge segment{address(shared_) + tape.byte() * 8U, length, shared_->lkey};
    wr.sg_list = &segment;
    wr.num_sge = 1;
    wr.send_flags = IBV_SEND_SIGNALED | ((choice & 64) != 0 ? static_cast<unsigned>(IBV_SEND_FENCE) : 0U);
    const ibv_mr& target = choice >= 240 ? *peer.read_only_ : *peer.shared_;
    const std::uint64_t remote = address(&target) + tape.byte() * 64U;  // its last quarter is past the end
    if (ud) {
      wr.wr.ud = {ah_, peer_qpn_, choice >= 240 ? kQkey + 1 : kQkey};
    } else if (atomic) {
      wr.wr.atomic = {remote, 1, 2, target.rkey};
    } else {
      wr.wr.rdma = {remote, target.rkey};
    }
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(qp_, &wr, &bad) != 0) return;
    sends_.insert(next_id_++);
  }

  void post_recv(Tape& tape) {
    ibv_sge segment{address(shared_), tape.byte() * 8U, shared_->lkey};
    ibv_recv_wr wr{};
    wr.wr_id = next_id_;
    wr.sg_list = &segment;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    const int error = srq_ != nullptr ? ibv_post_srq_recv(srq_, &wr, &bad) : ibv_post_recv(qp_, &wr, &bad);
    if (error == 0) receives_.insert(next_id_++);
  }

  void poll() {
    std::array<ibv_wc, 8> completions;
    for (int count; (count = ibv_poll_cq(cq_, 8, completions.data())) > 0;) {
      for (int i = 0; i < count; ++i) {
        const std::uint64_t id = completions[static_cast<std::size_t>(i)].wr_id;
        require(sends_.erase(id) + receives_.erase(id) == 1);
      }
    }
  }
  void to_error() {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    require(api_.modify_qp(qp_, &attr, IBV_QP_STATE) == 0);
  }
  [[nodiscard]] bool sent_all() const { return sends_.empty(); }
  /// Receive requests of a shared queue stay there when their queue pair ends.
  [[nodiscard]] bool idle() const { return sends_.empty() && (srq_ != nullptr || receives_.empty()); }

 private:
  static std::uint64_t address(const ibv_mr* region) { return reinterpret_cast<std::uint64_t>(region->addr); }

  const fairlead::verbs::VerbsApi& api_ = verbs_api();
  std::vector<std::byte> memory_;
  Device* device_;
  ibv_context* context_;
  ibv_pd* pd_;
  ibv_cq* cq_;
  ibv_mr* shared_;
  ibv_mr* read_only_;
  ibv_qp* qp_;
  ibv_srq* srq_ = nullptr;
  ibv_ah* ah_ = nullptr;
  std::uint32_t peer_qpn_ = 0;
  std::uint64_t next_id_ = 1;
  std::set<std::uint64_t> sends_;
  std::set<std::uint64_t> receives_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fairlead::set_log_level(fairlead::LogLevel::kOff);
  Tape tape(data, std::min<std::size_t>(size, 2048));
  ibv_device entry{};
  ManualClock clock;
  auto [left, right] = LoopbackPort::make_pair();
  static constexpr ibv_qp_type kTypes[] = {IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
  const std::uint8_t kind = tape.byte();
  const ibv_qp_type type = kTypes[kind % 4];
  const bool shared_queue = (kind & 16) != 0;
  End a(entry, clock, std::make_unique<AlteringPort>(std::move(left), tape), type, shared_queue);
  End b(entry, clock, std::make_unique<AlteringPort>(std::move(right), tape), type, shared_queue);
  a.connect(b);
  b.connect(a);
  while (!tape.empty()) {
    const std::uint8_t step = tape.byte();
    End& self = (step & 128) != 0 ? b : a;
    End& peer = (step & 128) != 0 ? a : b;
    switch (step % 8) {
      case 0:
      case 1:
      case 2:
        self.post_send(tape, peer);
        break;
      case 3:
      case 4:
        self.post_recv(tape);
        break;
      case 5:
        clock.advance(tape.byte() * 20 * kMicrosecond);
        break;
      default:
        self.poll();
    }
  }
  // From here on the network behaves: what is still open succeeds or runs out of retries.
  for (int i = 0; i < 20'000 && !(a.sent_all() && b.sent_all()); ++i) {
    a.poll();
    b.poll();
    clock.advance(100 * kMicrosecond);
  }
  require(a.sent_all() && b.sent_all());
  a.to_error();
  b.to_error();
  a.poll();
  b.poll();
  require(a.idle() && b.idle());
  return 0;
}
