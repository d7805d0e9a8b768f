// A device whose peer on this host lies: a process that has met it truly, shares the rings with it, and writes into
// them what the input says: packets that carry payload or refer to it, right ones, wrong ones, any bytes anywhere, also
// while the device is at a packet. It answers truly or not what the device asks for, in packets or by reference.
// Whatever it does, memory that was not granted stays as it was and does not leave, what leaves by reference is
// registered and stands no longer than that, and every accepted request completes exactly once.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "base/system/shared_memory.h"
#include "base/system/unix_packets.h"
#include "fairlead/log.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/must.h"
#include "tests/fuzz/scribbler.h"
#include "tests/own_address.h"
#include "verbs/provider/verbs_api.h"
#include "verbs/soft/api/api.h"
#include "verbs/soft/api/soft.h"
#include "verbs/soft/device/device.h"
#include "verbs/soft/port/local/local_port.h"
#include "verbs/soft/wire/packet.h"

namespace {

using namespace fairlead;
using namespace fairlead::soft;
using fuzz::Input;
using fuzz::must;
using local::Reference;
using local::Segment;
using local::Slot;

constexpr std::uint32_t kPeersNumber = 5, kFirstPsn = 0xfffffe, kMtu = 1024;
constexpr unsigned kAll =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

Gid own_gid() { return Gid::from_ipv4(fairlead::test::own_address(1)); }
Gid peer_gid() { return Gid::from_ipv4(fairlead::test::own_address(2)); }

/// Sockets by which nothing comes and nothing goes.
class NoSockets final : public PacketPort {
 public:
  [[nodiscard]] const Gid& address() const noexcept override { return address_; }
  [[nodiscard]] std::uint32_t max_mtu() const noexcept override { return 4096; }
  [[nodiscard]] ReceiveWindow receive_window() const noexcept override { return {320 << 10, 0}; }
  [[nodiscard]] Route make_route(const Gid& destination, std::uint32_t, std::uint8_t, std::uint8_t) override {
    Route route;
    route.source = address_;
    route.destination = destination;
    route.peer_port = kRoceUdpPort;
    return route;
  }
  std::size_t rx_burst(std::span<RxPacket>, Nanos) noexcept override { return 0; }
  void tx_burst(TxBatch& batch) noexcept override { batch.clear(); }
  [[nodiscard]] int wait_fd() const noexcept override { return -1; }

 private:
  const Gid address_ = own_gid();
};

/// What the peer changes in the shared memory when the device has a packet, and when it is about to copy.
struct Changes {
  struct Change {
    std::size_t at = 0;
    std::uint8_t value = 0;
  };
  std::optional<Change> in_packet, in_slot;
};

class ChangingPort final : public PortDecorator, private PayloadSource {
 public:
  ChangingPort(std::unique_ptr<PacketPort> inner, Changes& changes)
      : PortDecorator(std::move(inner)), changes_(changes) {}
  void tx_burst(TxBatch& batch) noexcept override { inner_->tx_burst(batch); }
  std::size_t rx_burst(std::span<RxPacket> packets, Nanos now) noexcept override {
    const std::size_t count = inner_->rx_burst(packets.first(1), now);
    if (count == 0) return 0;
    if (const auto change = std::exchange(changes_.in_packet, {})) {
      bytes_of(packets[0])[change->at % packets[0].bytes.size()] = std::byte{change->value};
    }
    source_ = packets[0].payload_source;
    slot_ = bytes_of(packets[0]) - sizeof(Reference) - Slot::kHead;
    if (source_ != nullptr) packets[0].payload_source = this;
    return count;
  }

 private:
  static std::byte* bytes_of(const RxPacket& packet) { return const_cast<std::byte*>(packet.bytes.data()); }
  bool fetch(std::span<const iovec> to) noexcept override {
    if (const auto change = std::exchange(changes_.in_slot, {})) {
      slot_[change->at % (Slot::kHead + sizeof(Reference))] = std::byte{change->value};
    }
    return source_->fetch(to);
  }

  Changes& changes_;
  PayloadSource* source_ = nullptr;
  std::byte* slot_ = nullptr;
};

/// The device, its memory, and a queue pair that is connected to the peer's.
class Own {
 public:
  static constexpr std::size_t kGuard = 4096, kShared = 64 << 10, kReadOnly = 16 << 10, kLent = 64 << 10;

  explicit Own(const Clock& clock) {
    secret(guard(0)), secret(guard(1)), secret(guard(2)), secret(guard(3));
    auto port = local::LocalPort::around(std::make_unique<NoSockets>(), local::Party{own_gid()}, {});
    device_ = new Device(entry_, Profile::kFull, clock, std::make_unique<ChangingPort>(std::move(port), changes));
    context_ = &device_->context;
    pd_ = api_.alloc_pd(context_);
    cq_ = api_.create_cq(context_, 256, nullptr, nullptr, 0);
    shared_ = api_.reg_mr(pd_, at(kGuard), kShared, kAll);
    read_only_ = api_.reg_mr(pd_, at(2 * kGuard + kShared), kReadOnly, IBV_ACCESS_REMOTE_READ);
    lend();
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq_;
    init.cap = {16, 16, 2, 2, 64};
    init.qp_type = IBV_QPT_RC;
    qp_ = api_.create_qp(pd_, &init);
    must(shared_ != nullptr && read_only_ != nullptr && qp_ != nullptr);
    connect();
  }
  ~Own() {
    for (int each = 0; each < 4; ++each) must(std::ranges::equal(guard(each), secret_));
    must(std::all_of(at(2 * kGuard + kShared), at(2 * kGuard + kShared + kReadOnly),
                     [](std::byte each) { return each == std::byte{}; }));
    must(api_.destroy_qp(qp_) == 0);
    must(api_.dereg_mr(shared_) == 0 && api_.dereg_mr(read_only_) == 0);
    must(lent_ == nullptr || api_.dereg_mr(lent_) == 0);
    must(api_.destroy_cq(cq_) == 0 && api_.dealloc_pd(pd_) == 0 && api_.close_device(context_) == 0);
  }
  Own(const Own&) = delete;
  Own& operator=(const Own&) = delete;

  [[nodiscard]] std::uint32_t number() const { return qp_->qp_num; }
  [[nodiscard]] const ibv_mr& shared() const { return *shared_; }
  [[nodiscard]] const ibv_mr& read_only() const { return *read_only_; }
  [[nodiscard]] bool is_registered(std::uint64_t address, std::size_t bytes) const {
    for (const ibv_mr* each : {shared_, read_only_, lent_}) {
      if (each == nullptr) continue;
      const auto start = reinterpret_cast<std::uint64_t>(each->addr);
      if (address >= start && bytes <= each->length && address - start <= each->length - bytes) return true;
    }
    return false;
  }
  [[nodiscard]] static bool is_secret(std::span<const std::byte> bytes) {
    return std::search(bytes.begin(), bytes.end(), secret_.begin(), secret_.begin() + 16) != bytes.end();
  }

  void post_send(Input& input) {
    static constexpr ibv_wr_opcode kOpcodes[] = {
        IBV_WR_SEND,      IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,        IBV_WR_RDMA_WRITE_WITH_IMM,
        IBV_WR_RDMA_READ, IBV_WR_RDMA_READ,     IBV_WR_ATOMIC_CMP_AND_SWP};
    const std::uint8_t choice = input.byte();
    ibv_send_wr wr{};
    wr.wr_id = next_id_;
    wr.opcode = kOpcodes[choice % std::size(kOpcodes)];
    const ibv_mr* const from = (choice & 128) != 0 && lent_ != nullptr ? lent_ : shared_;
    const std::uint32_t length = wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? 8 : 256U * (input.byte() + 1U);
    std::array<ibv_sge, 2> segments{{{reinterpret_cast<std::uint64_t>(from->addr), length, from->lkey}, {}}};
    wr.num_sge = 1;
    if ((choice & 64) != 0 && length >= 512) {
      segments[0].length = length / 2;
      segments[1] = {segments[0].addr + length / 2, length - length / 2, from->lkey};
      wr.num_sge = 2;
    }
    wr.sg_list = segments.data();
    wr.send_flags = (choice & 32) != 0 ? 0 : IBV_SEND_SIGNALED;
    if (wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
      wr.wr.atomic = {4096, 1, 2, 7};
    } else {
      wr.wr.rdma = {4096, 7};
    }
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(qp_, &wr, &bad) == 0) sends_.insert({next_id_++, wr.send_flags != 0});
  }
  void post_recv(Input& input) {
    ibv_sge segment{reinterpret_cast<std::uint64_t>(shared_->addr), input.byte() * 256U, shared_->lkey};
    ibv_recv_wr wr{next_id_, nullptr, &segment, 1};
    ibv_recv_wr* bad = nullptr;
    if (ibv_post_recv(qp_, &wr, &bad) == 0) receives_.insert(next_id_++);
  }
  void poll() {
    std::array<ibv_wc, 8> completions;
    for (int count; (count = ibv_poll_cq(cq_, 8, completions.data())) > 0;) {
      for (const ibv_wc& each : std::span(completions).first(static_cast<std::size_t>(count))) {
        if (receives_.erase(each.wr_id) == 1) continue;
        // In order; those before it that say nothing where they succeed have.
        for (; !sends_.empty() && sends_.begin()->first < each.wr_id; sends_.erase(sends_.begin())) {
          must(!sends_.begin()->second);
        }
        must(!sends_.empty() && sends_.begin()->first == each.wr_id);
        must(sends_.begin()->second || each.status != IBV_WC_SUCCESS);
        sends_.erase(sends_.begin());
      }
    }
  }
  void lend() { lent_ = api_.reg_mr(pd_, at(3 * kGuard + kShared + kReadOnly), kLent, IBV_ACCESS_LOCAL_WRITE); }
  /// What stood of it stands no more.
  void take_back() {
    if (lent_ != nullptr) must(api_.dereg_mr(std::exchange(lent_, nullptr)) == 0);
  }
  [[nodiscard]] bool has_lent() const { return lent_ != nullptr; }
  void to_error() {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    must(api_.modify_qp(qp_, &attr, IBV_QP_STATE) == 0);
  }
  [[nodiscard]] bool is_idle() const {
    return receives_.empty() && std::ranges::none_of(sends_, [](const auto& each) { return each.second; });
  }

  Changes changes;

 private:
  static std::vector<std::byte> make_secret() {
    std::mt19937_64 random(std::random_device{}());  // no input knows it
    std::vector<std::byte> made(kGuard);
    for (std::byte& each : made) each = static_cast<std::byte>(random());
    for (std::size_t i = 16; i < kGuard; ++i) made[i] = made[i % 16];
    return made;
  }
  [[nodiscard]] std::byte* at(std::size_t offset) { return memory_.data() + offset; }
  [[nodiscard]] std::span<std::byte> guard(int which) {
    constexpr std::array kAt{std::size_t{0}, kGuard + kShared, 2 * kGuard + kShared + kReadOnly,
                             3 * kGuard + kShared + kReadOnly + kLent};
    return {at(kAt[static_cast<std::size_t>(which)]), kGuard};
  }
  static void secret(std::span<std::byte> bytes) { std::ranges::copy(secret_, bytes.begin()); }
  void connect() {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = kAll;
    must(api_.modify_qp(qp_, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.rq_psn = attr.sq_psn = kFirstPsn;
    attr.max_dest_rd_atomic = attr.max_rd_atomic = 4;
    attr.min_rnr_timer = 1;
    attr.dest_qp_num = kPeersNumber;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.sgid_index = 1;
    std::memcpy(attr.ah_attr.grh.dgid.raw, peer_gid().bytes.data(), sizeof attr.ah_attr.grh.dgid.raw);
    must(api_.modify_qp(qp_, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 8;  // about a millisecond
    attr.retry_cnt = attr.rnr_retry = 3;
    must(api_.modify_qp(qp_, &attr,
                        IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_MAX_QP_RD_ATOMIC) == 0);
  }

  inline static const std::vector<std::byte> secret_ = make_secret();
  const fairlead::verbs::VerbsApi& api_ = verbs_api();
  std::vector<std::byte> memory_ = std::vector<std::byte>(4 * kGuard + kShared + kReadOnly + kLent);
  ibv_device entry_{};
  Device* device_ = nullptr;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_mr *shared_ = nullptr, *read_only_ = nullptr, *lent_ = nullptr;
  ibv_qp* qp_ = nullptr;
  std::uint64_t next_id_ = 1;
  std::map<std::uint64_t, bool> sends_;  // whether it says that it succeeded
  std::set<std::uint64_t> receives_;
};

/// The peer, as far as the device can see one.
class Peer {
 public:
  Peer()
      : socket_(local::dial(local::meeting_of(*local::meeting_place(), local::Party{own_gid()}))),
        descriptor_(std::move(*make_shared_memory("fuzz", sizeof(Segment)))),
        mapping_(std::move(*SharedMapping::map(descriptor_.get(), sizeof(Segment)))),
        segment_(*reinterpret_cast<Segment*>(mapping_.get())),
        producer_(segment_.sides[0].ring),
        consumer_(segment_.sides[1].ring),
        memory_(256 << 10, std::byte{0x77}) {
    segment_.sides[0].witness = {reinterpret_cast<std::uintptr_t>(&word_), word_};
    segment_.sides[0].wish = Segment::kNoIcrc;
    must(send_packet(socket_.get(), local::encode(local::Party{peer_gid()}), descriptor_.get()));
  }
  /// Packets that go to it may refer, or not.
  void fetches(bool does) { segment_.sides[0].fetches = does ? 1 : 0; }
  /// So do those that come from it, as the device has found.
  [[nodiscard]] bool is_read() const { return segment_.sides[1].fetches != 0; }

  void act(Input& input, const Own& own) {
    const std::uint8_t kind = input.byte();
    switch (kind % 8) {
      case 0:
      case 1:
        return push(input, own, kind);
      case 2:  // anything, anywhere
        scribbled_ |= kind >= 128;
        for (std::byte& each : room_for(input, kind >= 128)) each = static_cast<std::byte>(input.byte());
        return;
      case 3:
        has_lied_ = true;
        segment_.sides[1].ring.taken = segment_.sides[1].ring.taken + static_cast<std::uint32_t>(input.number());
        return;
      case 4:
        fetches((kind & 8) != 0);
        word_ ^= (kind & 16) != 0 ? 1 : 0;
        return;
      case 5:
        for (Slot& each : segment_.sides[1].ring.slots) each.stands = 0;  // it says to have copied
        return;
      case 6:
        return answer(input, (kind & 8) != 0);
      default:
        hears_ = kind < 128;
    }
  }
  /// Where its packets begin: stamp, lengths, flags, references, headers.
  [[nodiscard]] std::vector<std::span<std::byte>> heads() const {
    std::vector<std::span<std::byte>> all;
    for (std::size_t i = 0; i < 8; ++i) {
      all.emplace_back(reinterpret_cast<std::byte*>(&segment_.sides[0].ring.slots[i]), 64);
    }
    return all;
  }
  /// Looks at what has come.
  void hear(const Own& own) {
    RxPacket packet;
    while (hears_ && consumer_.ready() && came_.size() < 64) {
      local::Consumer::Referred referred;
      if (!consumer_.take(packet, referred)) continue;
      if (!scribbled_) {
        must(!Own::is_secret(packet.bytes));
        // Who said to have taken what it has not was believed: nobody takes that back.
        if (!has_lied_ && referred.slot != nullptr && referred.slot->stands != 0) {
          must(own.is_registered(referred.reference.address, referred.reference.bytes));
        }
      }
      if (referred.slot != nullptr) (void)referred.slot->take_reference();  // as who is done with it does
      Packet& parsed = came_.emplace_back();
      if (parse(packet.bytes, parsed) != ParseError::kNone) {
        must(scribbled_);
        came_.pop_back();
        continue;
      }
      parsed.payload = {static_cast<const std::byte*>(nullptr),
                        referred.slot != nullptr ? referred.reference.bytes : parsed.payload.size()};
    }
    consumer_.release();
  }
  /// Nothing of that stands any more.
  void check_taken_back(const Own& own) const {
    if (scribbled_ || has_lied_) return;
    for (const Slot& each : segment_.sides[1].ring.slots) {
      if ((each.flags & Slot::kRefers) == 0 || each.stands == 0) continue;
      Reference reference;
      std::memcpy(&reference, each.packet.data(), sizeof reference);
      must(own.is_registered(reference.address, reference.bytes));
    }
  }

 private:
  /// A part of the memory that both map; of the ring that the device fills, too.
  std::span<std::byte> room_for(Input& input, bool of_the_device) {
    const std::size_t all = of_the_device ? sizeof(Segment) : sizeof(Segment::Side);
    const std::uint64_t number = input.number();
    // Mostly there where there is something.
    const std::size_t slot = number % 8, within = number / 8;
    const std::size_t at =
        number < 0xf0 ? offsetof(Segment::Side, ring) + offsetof(local::Ring, slots) + slot * sizeof(Slot) + within % 64
                      : number % all;
    return std::span(mapping_.get(), all).subspan(at).first(std::min<std::size_t>(1 + input.byte() % 16, all - at));
  }
  std::uint64_t address(Input& input) {
    const std::uint64_t number = input.number();
    return number < 0xf0 ? reinterpret_cast<std::uint64_t>(memory_.data()) + number * 512 : number;
  }

  struct Outgoing {
    Opcode opcode{};
    Psn psn{};
    Reth reth{};
    Aeth aeth{.syndrome = static_cast<std::uint8_t>(Syndrome::kAck)};
    std::uint32_t immediate = 0;
    std::uint32_t bytes = 0;  // of payload
    std::optional<Reference> reference{};
  };
  void push(const Outgoing& out, std::uint32_t number) {
    if (!producer_.has_room()) return;
    const OpcodeInfo& info = opcode_info(static_cast<std::uint8_t>(out.opcode));
    std::vector<std::byte> bytes(info.header_bytes + kIcrcBytes);
    std::byte* at = bytes.data();
    Bth{.opcode = static_cast<std::uint8_t>(out.opcode),
        .dest_qpn = number,
        .ack_request = true,
        .kin = true,
        .psn = out.psn}
        .encode(at);
    at += Bth::kBytes;
    if (info.reth) out.reth.encode(at);
    if (info.aeth) out.aeth.encode(at);
    std::uint8_t flags = Slot::kUnchecked;
    std::byte* place = producer_.place();
    if (out.reference) {
      std::memcpy(place, &*out.reference, sizeof(Reference));
      place += sizeof(Reference);
      flags |= Slot::kRefers;
    } else {
      bytes.insert(bytes.end() - kIcrcBytes, std::min<std::size_t>(out.bytes, 4096), std::byte{0x33});
    }
    std::ranges::copy(bytes, place);
    const Route route;
    producer_.push(static_cast<std::uint16_t>(bytes.size() + (out.reference ? sizeof(Reference) : 0)), route, flags);
  }
  /// A request as a peer might send it, but for what its fields say.
  void push(Input& input, const Own& own, std::uint8_t kind) {
    static constexpr Opcode kOpcodes[] = {
        Opcode::kWriteOnly,         Opcode::kSendOnly,           Opcode::kWriteFirst,  Opcode::kWriteMiddle,
        Opcode::kWriteLast,         Opcode::kSendFirst,          Opcode::kSendLast,    Opcode::kSendOnlyInvalidate,
        Opcode::kReadRequest,       Opcode::kFetchAdd,           Opcode::kAcknowledge, Opcode::kReadResponseOnly,
        Opcode::kReadResponseFirst, Opcode::kWriteOnlyImmediate, Opcode::kSendMiddle,  Opcode::kMissing};
    const std::uint8_t which = input.byte();
    Outgoing out{.opcode = (kind & 64) != 0 ? static_cast<Opcode>(which) : kOpcodes[which % 16]};
    const std::uint8_t behind = input.byte();
    const OpcodeInfo& info = opcode_info(static_cast<std::uint8_t>(out.opcode));
    if (info.kind == PacketKind::kNone) return;
    out.psn = (info.request() ? next_ : Psn(kFirstPsn)) + behind;
    const ibv_mr& region = (kind & 32) != 0 ? own.read_only() : own.shared();
    if ((kind & 8) != 0) {
      out.reference =
          Reference{address(input), static_cast<std::uint32_t>(input.number() * (kind & 128 ? 1 : kMtu)), 0};
      out.bytes = out.reference->bytes;
    } else {
      out.bytes = static_cast<std::uint32_t>(input.byte()) * 4;
    }
    if (info.reth) {
      out.reth = {reinterpret_cast<std::uint64_t>(region.addr) + input.number() * 512, region.rkey, out.bytes};
      if (out.opcode != Opcode::kWriteOnly || (kind & 16) != 0) {
        out.reth.length = static_cast<std::uint32_t>(input.number() * 512);
      }
    }
    if (info.aeth) out.aeth.syndrome = input.byte();
    push(out, own.number());
    if (info.request() && behind == 0) next_ = next_ + std::max(1U, (out.bytes + kMtu - 1) / kMtu);
  }
  /// What the device asked for last and was not answered: as it should be, or by another length.
  void answer(Input& input, bool truly) {
    if (came_.empty()) return;
    const Packet asked = came_.front();
    came_.erase(came_.begin());
    if (!asked.info->request()) return;
    const std::uint32_t wrong = truly ? 0 : static_cast<std::uint32_t>(input.number()) * 512;
    Outgoing out{.opcode = Opcode::kAcknowledge, .psn = asked.bth.psn};
    if (asked.info->kind == PacketKind::kRead) {
      out.opcode = Opcode::kReadResponseOnly;
      out.bytes = asked.reth.length + wrong;
      if (out.bytes > kMtu || !truly) {
        out.reference = Reference{reinterpret_cast<std::uint64_t>(memory_.data()), out.bytes, 0};
      }
    } else {
      const auto packets = static_cast<std::uint32_t>((asked.payload.size() + kMtu - 1) / kMtu);
      out.psn = out.psn + (std::max(packets, 1U) - 1 + wrong / 512);
    }
    push(out, asked.bth.dest_qpn == kPeersNumber ? number_ : asked.bth.dest_qpn);
  }

 public:
  void knows(std::uint32_t number) { number_ = number; }

 private:
  PrivateFd socket_;
  UniqueFd descriptor_;
  SharedMapping mapping_;
  Segment& segment_;
  local::Producer producer_;
  local::Consumer consumer_;
  std::vector<std::byte> memory_;  // that it lets be read
  std::uint64_t word_ = 0x1234567890abcdef;
  std::vector<Packet> came_;
  Psn next_{kFirstPsn};
  std::uint32_t number_ = 0;  // of the device's queue pair
  bool hears_ = true;
  bool scribbled_ = false;  // into what the device says
  bool has_lied_ = false;   // of what it has taken
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  set_log_level(LogLevel::kOff);
  Input input(data, std::min<std::size_t>(size, 2048));
  ManualClock clock;
  Own own(clock);
  Peer peer;
  peer.knows(own.number());
  peer.fetches(true);
  for (int i = 0; i < 10 && !peer.is_read(); ++i) {
    own.poll();
    clock.advance(kMillisecond);
  }
  must(peer.is_read());
  std::optional<fuzz::Scribbler> scribbler;
  while (!input.empty()) {
    const std::uint8_t step = input.byte();
    switch (step % 8) {
      case 0:
        own.post_send(input);
        break;
      case 1:
        own.post_recv(input);
        break;
      case 2:
      case 3:
        peer.act(input, own);
        break;
      case 4:
        clock.advance(input.byte() * 20 * kMicrosecond);
        if (step >= 128 && !scribbler) scribbler.emplace(peer.heads(), step);
        break;
      case 5: {
        const Changes::Change change{input.byte(), input.byte()};
        ((step & 8) != 0 ? own.changes.in_slot : own.changes.in_packet) = change;
        break;
      }
      case 6:
        if ((step & 8) != 0 && own.has_lent()) {
          own.take_back();
          peer.check_taken_back(own);
        } else if (!own.has_lent()) {
          own.lend();
        }
        break;
      default:
        own.poll();
    }
    peer.hear(own);
  }
  scribbler.reset();
  // From here on nobody says anything: what is still open runs out of retries.
  for (int i = 0; i < 2'000 && !own.is_idle(); ++i) {
    own.poll();
    clock.advance(kMillisecond);
    if (i == 500) own.to_error();  // receives wait for ever
  }
  must(own.is_idle());
  own.to_error();
  own.poll();
  must(own.is_idle());
  return 0;
}
