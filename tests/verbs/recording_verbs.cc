#include "recording_verbs.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace fairlead::verbs::testing {
namespace {

std::vector<RecordingVerbs*>& registry() {
  static std::vector<RecordingVerbs*> all;
  return all;
}

std::uint32_t next_number() {
  static std::uint32_t number = 0x100;
  return ++number;
}

}  // namespace

std::uint64_t RecordedSend::bytes() const {
  std::uint64_t total = 0;
  for (const ibv_sge& segment : segments) total += segment.length;
  return total;
}

// The entries of the table.
struct Table {
  static ibv_device** get_device_list(int* count) {
    auto** list = new ibv_device*[registry().size() + 1]();
    for (std::size_t i = 0; i < registry().size(); ++i) list[i] = registry()[i]->device();
    *count = static_cast<int>(registry().size());
    return list;
  }
  static void free_device_list(ibv_device** list) { delete[] list; }
  static const char* get_device_name(ibv_device* device) { return device->name; }

  static ibv_context* open_device(ibv_device* device) {
    auto* context = new RecordingVerbs::Context{};
    context->device = device;
    context->async_fd = ::eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
    context->ops.post_send = &post_send;
    context->ops.post_recv = &post_recv;
    context->ops.poll_cq = &poll_cq;
    context->ops.req_notify_cq = &req_notify_cq;
    return context;
  }
  static int close_device(ibv_context* context) {
    ::close(context->async_fd);
    delete static_cast<RecordingVerbs::Context*>(context);
    return 0;
  }
  static int query_device(ibv_context* context, ibv_device_attr* attr) {
    const auto& features = RecordingVerbs::of(context).features_;
    *attr = {};
    attr->max_qp_wr = features.max_qp_wr;
    attr->max_sge = features.max_sge;
    attr->max_sge_rd = features.max_sge;
    attr->max_cqe = features.max_cqe;
    attr->max_qp_rd_atom = features.max_rd_atomic;
    attr->max_qp_init_rd_atom = features.max_rd_atomic;
    attr->phys_port_cnt = 1;
    return 0;
  }
  static int query_port(ibv_context* context, std::uint8_t, ibv_port_attr* attr) {
    const auto& features = RecordingVerbs::of(context).features_;
    *attr = {};
    attr->state = features.state;
    attr->link_layer = features.link_layer;
    attr->active_mtu = features.active_mtu;
    attr->max_msg_sz = features.max_msg_sz;
    attr->gid_tbl_len = 16;
    attr->active_speed = 32;  // 25 Gb/s a lane
    attr->active_width = 2;   // 4x
    return 0;
  }
  static int query_gid(ibv_context* context, std::uint8_t, int index, ibv_gid* gid) {
    for (const GidFacts& facts : RecordingVerbs::of(context).features_.gids) {
      if (facts.index == index) *gid = gid_of(facts.address);
    }
    return 0;
  }
  static int query_gid_ex(ibv_context* context, std::uint32_t, std::uint32_t index, ibv_gid_entry* entry) {
    for (const GidFacts& facts : RecordingVerbs::of(context).features_.gids) {
      if (facts.index != static_cast<int>(index)) continue;
      *entry = {};
      entry->gid = gid_of(facts.address);
      entry->gid_index = index;
      entry->gid_type = facts.type;
      entry->ndev_ifindex = facts.interface;
      return 0;
    }
    return ENODATA;
  }

  static ibv_pd* alloc_pd(ibv_context* context) {
    auto* pd = new ibv_pd{};
    pd->context = context;
    return pd;
  }
  static int dealloc_pd(ibv_pd* pd) {
    delete pd;
    return 0;
  }
  static ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t length, int access) {
    RecordingVerbs& owner = RecordingVerbs::of(pd->context);
    if (owner.features_.reg_mr_errno != 0) {
      errno = owner.features_.reg_mr_errno;
      return nullptr;
    }
    if (owner.features_.read_only && (access & IBV_ACCESS_LOCAL_WRITE) != 0) {
      errno = EFAULT;
      return nullptr;
    }
    auto mr = std::make_unique<ibv_mr>();
    mr->context = pd->context;
    mr->pd = pd;
    mr->addr = address;
    mr->length = length;
    mr->lkey = mr->rkey = next_number();
    if (owner.features_.one_key) mr->rkey = ~std::uint32_t{0};
    owner.access_[mr->lkey] = access;
    return (owner.regions_[mr->lkey] = std::move(mr)).get();
  }
  static int dereg_mr(ibv_mr* mr) {
    RecordingVerbs::of(mr->context).regions_.erase(std::uint32_t{mr->lkey});
    return 0;
  }

  static ibv_comp_channel* create_comp_channel(ibv_context* context) {
    auto* channel = new ibv_comp_channel{};
    channel->context = context;
    channel->fd = ::eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
    return channel;
  }
  static int destroy_comp_channel(ibv_comp_channel* channel) {
    ::close(channel->fd);
    delete channel;
    return 0;
  }
  static ibv_cq* create_cq(ibv_context* context, int cqe, void* user, ibv_comp_channel* channel, int) {
    RecordingVerbs& owner = RecordingVerbs::of(context);
    if (cqe > owner.features_.max_cqe) {
      errno = EINVAL;
      return nullptr;
    }
    auto cq = std::make_unique<RecordedCq>();
    cq->context = context;
    cq->channel = channel;
    cq->cq_context = user;
    cq->cqe = cqe;
    owner.cqs_.push_back(std::move(cq));
    return owner.cqs_.back().get();
  }
  static int destroy_cq(ibv_cq* cq) {
    std::erase_if(RecordingVerbs::of(cq->context).cqs_, [cq](const auto& own) { return own.get() == cq; });
    return 0;
  }
  static int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** user) {
    std::uint64_t one = 0;
    if (::read(channel->fd, &one, sizeof one) != sizeof one) return -1;
    RecordingVerbs& owner = RecordingVerbs::of(channel->context);
    *cq = owner.channel_events_.front();
    *user = (*cq)->cq_context;
    owner.channel_events_.erase(owner.channel_events_.begin());
    return 0;
  }
  static void ack_cq_events(ibv_cq*, unsigned) {}

  static ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* init) {
    RecordingVerbs& owner = RecordingVerbs::of(pd->context);
    const auto& features = owner.features_;
    if (init->cap.max_inline_data > features.max_inline ||
        init->cap.max_send_wr > static_cast<std::uint32_t>(features.max_qp_wr) ||
        init->cap.max_recv_wr > static_cast<std::uint32_t>(features.max_qp_wr) ||
        init->cap.max_send_sge > static_cast<std::uint32_t>(features.max_sge)) {
      errno = EINVAL;
      return nullptr;
    }
    auto qp = std::make_unique<RecordedQp>();
    qp->context = pd->context;
    qp->pd = pd;
    qp->send_cq = init->send_cq;
    qp->recv_cq = init->recv_cq;
    qp->qp_num = next_number();
    qp->state = IBV_QPS_RESET;
    qp->cap = init->cap;
    qp->cap.max_inline_data = features.max_inline;
    init->cap = qp->cap;
    const std::uint32_t number = qp->qp_num;
    return (owner.qps_[number] = std::move(qp)).get();
  }
  static int modify_qp(ibv_qp* base, ibv_qp_attr* attr, int mask) {
    auto& qp = static_cast<RecordedQp&>(*base);
    qp.state = attr->qp_state;
    if ((mask & IBV_QP_ACCESS_FLAGS) != 0) qp.attr.qp_access_flags = attr->qp_access_flags;
    if ((mask & IBV_QP_AV) != 0) qp.attr.ah_attr = attr->ah_attr;
    if ((mask & IBV_QP_PATH_MTU) != 0) qp.attr.path_mtu = attr->path_mtu;
    if ((mask & IBV_QP_DEST_QPN) != 0) qp.attr.dest_qp_num = attr->dest_qp_num;
    if ((mask & IBV_QP_RQ_PSN) != 0) qp.attr.rq_psn = attr->rq_psn;
    if ((mask & IBV_QP_SQ_PSN) != 0) qp.attr.sq_psn = attr->sq_psn;
    if ((mask & IBV_QP_TIMEOUT) != 0) qp.attr.timeout = attr->timeout;
    if ((mask & IBV_QP_RETRY_CNT) != 0) qp.attr.retry_cnt = attr->retry_cnt;
    if ((mask & IBV_QP_RNR_RETRY) != 0) qp.attr.rnr_retry = attr->rnr_retry;
    if ((mask & IBV_QP_MIN_RNR_TIMER) != 0) qp.attr.min_rnr_timer = attr->min_rnr_timer;
    if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0) qp.attr.max_rd_atomic = attr->max_rd_atomic;
    if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0) qp.attr.max_dest_rd_atomic = attr->max_dest_rd_atomic;
    if (attr->qp_state == IBV_QPS_ERR) RecordingVerbs::of(qp.context).flush(qp);
    return 0;
  }
  static int query_qp(ibv_qp* base, ibv_qp_attr* attr, int, ibv_qp_init_attr* init) {
    auto& qp = static_cast<RecordedQp&>(*base);
    *attr = qp.attr;
    attr->cap = qp.cap;
    *init = {};
    init->cap = qp.cap;
    return 0;
  }
  // Leaves the completions of the queue pair behind, as some devices do.
  static int destroy_qp(ibv_qp* qp) {
    RecordingVerbs::of(qp->context).qps_.erase(std::uint32_t{qp->qp_num});
    return 0;
  }

  static int get_async_event(ibv_context* context, ibv_async_event* event) {
    std::uint64_t one = 0;
    if (::read(context->async_fd, &one, sizeof one) != sizeof one) return -1;
    RecordingVerbs& owner = RecordingVerbs::of(context);
    *event = owner.async_.front();
    owner.async_.pop_front();
    return 0;
  }
  static void ack_async_event(ibv_async_event*) {}

  static int post_send(ibv_qp* base, ibv_send_wr* list, ibv_send_wr** bad) {
    auto& qp = static_cast<RecordedQp&>(*base);
    RecordingVerbs& owner = RecordingVerbs::of(qp.context);
    *bad = list;
    if (owner.features_.post_send_errno != 0) return owner.features_.post_send_errno;
    qp.doorbells.push_back(0);
    for (ibv_send_wr* wr = list; wr != nullptr; wr = wr->next) {
      *bad = wr;
      if (const int error = owner_check(owner, qp, *wr); error != 0) return error;
      RecordedSend send;
      send.wr = *wr;
      send.wr.next = nullptr;
      send.segments.assign(wr->sg_list, wr->sg_list + wr->num_sge);
      send.wr.sg_list = nullptr;
      if (send.is_inline()) {
        for (const ibv_sge& segment : send.segments) {
          const auto* from = reinterpret_cast<const std::byte*>(segment.addr);
          send.inline_data.insert(send.inline_data.end(), from, from + segment.length);
        }
      }
      ++qp.doorbells.back();
      ++qp.unretired;
      qp.posted.push_back(send);
      qp.sends.push_back(std::move(send));
    }
    if (qp.state == IBV_QPS_ERR) owner.flush(qp);
    return 0;
  }

  static int owner_check(RecordingVerbs& owner, RecordedQp& qp, const ibv_send_wr& wr) {
    if (qp.unretired >= qp.cap.max_send_wr) {
      owner.violation(fmt::format("send queue overfilled: {} slots", qp.cap.max_send_wr));
      return ENOMEM;
    }
    if (static_cast<std::uint32_t>(wr.num_sge) > qp.cap.max_send_sge) owner.violation("too many segments");
    std::uint64_t bytes = 0;
    for (int i = 0; i < wr.num_sge; ++i) {
      const ibv_sge& segment = wr.sg_list[i];
      bytes += segment.length;
      const int access = wr.opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_LOCAL_WRITE : 0;
      if ((wr.send_flags & IBV_SEND_INLINE) == 0 &&
          !owner.covered(segment.addr, segment.length, segment.lkey, access)) {
        owner.violation("local memory outside its registration");
      }
    }
    if (bytes > owner.features_.max_msg_sz) owner.violation(fmt::format("{} bytes above max_msg_sz", bytes));
    if ((wr.send_flags & IBV_SEND_INLINE) != 0 && bytes > qp.cap.max_inline_data) {
      owner.violation(fmt::format("{} bytes inline, {} granted", bytes, qp.cap.max_inline_data));
    }
    if (wr.opcode == IBV_WR_RDMA_READ) {
      const auto outstanding = std::count_if(qp.sends.begin(), qp.sends.end(), [](const RecordedSend& send) {
        return send.wr.opcode == IBV_WR_RDMA_READ;
      });
      if (outstanding >= qp.attr.max_rd_atomic) owner.violation("more READs outstanding than max_rd_atomic");
    }
    return 0;
  }

  static int post_recv(ibv_qp* base, ibv_recv_wr* list, ibv_recv_wr** bad) {
    auto& qp = static_cast<RecordedQp&>(*base);
    RecordingVerbs& owner = RecordingVerbs::of(qp.context);
    ++qp.receive_doorbells;
    for (ibv_recv_wr* wr = list; wr != nullptr; wr = wr->next) {
      *bad = wr;
      if (qp.receives.size() >= qp.cap.max_recv_wr) {
        owner.violation(fmt::format("receive queue overfilled: {} slots", qp.cap.max_recv_wr));
        return ENOMEM;
      }
      qp.receives.push_back({wr->wr_id, wr->sg_list[0]});
    }
    return 0;
  }

  static int poll_cq(ibv_cq* base, int count, ibv_wc* out) {
    auto& cq = static_cast<RecordedCq&>(*base);
    int taken = 0;
    for (; taken < count && !cq.entries.empty(); ++taken) {
      out[taken] = cq.entries.front();
      cq.entries.pop_front();
      RecordedQp* qp = RecordingVerbs::find_qp(out[taken].qp_num);
      const bool receive = (out[taken].opcode & IBV_WC_RECV) != 0;
      if (qp == nullptr || receive) continue;
      qp->unretired -= qp->retires.front();
      qp->retires.pop_front();
    }
    return taken;
  }

  static int req_notify_cq(ibv_cq* cq, int) {
    static_cast<RecordedCq*>(cq)->armed = true;
    return 0;
  }
};

const VerbsApi& RecordingVerbs::api() {
  static const VerbsApi table = [] {
    VerbsApi api{};
    api.source = "recording double";
    api.get_device_list = &Table::get_device_list;
    api.free_device_list = &Table::free_device_list;
    api.get_device_name = &Table::get_device_name;
    api.open_device = &Table::open_device;
    api.close_device = &Table::close_device;
    api.query_device = &Table::query_device;
    api.query_port = &Table::query_port;
    api.query_gid = &Table::query_gid;
    api.query_gid_ex = &Table::query_gid_ex;
    api.alloc_pd = &Table::alloc_pd;
    api.dealloc_pd = &Table::dealloc_pd;
    api.reg_mr = &Table::reg_mr;
    api.dereg_mr = &Table::dereg_mr;
    api.create_comp_channel = &Table::create_comp_channel;
    api.destroy_comp_channel = &Table::destroy_comp_channel;
    api.create_cq = &Table::create_cq;
    api.destroy_cq = &Table::destroy_cq;
    api.get_cq_event = &Table::get_cq_event;
    api.ack_cq_events = &Table::ack_cq_events;
    api.create_qp = &Table::create_qp;
    api.modify_qp = &Table::modify_qp;
    api.query_qp = &Table::query_qp;
    api.destroy_qp = &Table::destroy_qp;
    api.get_async_event = &Table::get_async_event;
    api.ack_async_event = &Table::ack_async_event;
    api.activity = [](ibv_context* context) { return RecordingVerbs::of(context).activity_; };
    return api;
  }();
  return table;
}

RecordingVerbs::RecordingVerbs(Features features) : features_(std::move(features)) {
  if (features_.gids.empty()) features_.gids.push_back({1, *parse_address("127.0.0.9"), IBV_GID_TYPE_ROCE_V2, 0});
  device_.owner = this;
  device_.transport_type = IBV_TRANSPORT_IB;
  std::snprintf(device_.name, sizeof device_.name, "%s", features_.name.c_str());
  registry().push_back(this);
}

RecordingVerbs::~RecordingVerbs() { std::erase(registry(), this); }

ibv_device* RecordingVerbs::device() { return &device_; }

RecordingVerbs& RecordingVerbs::of(const ibv_context* context) { return *static_cast<Device*>(context->device)->owner; }

std::vector<RecordedQp*> RecordingVerbs::qps() {
  std::vector<RecordedQp*> all;
  for (auto& [number, qp] : qps_) all.push_back(qp.get());
  return all;
}

std::vector<RecordedCq*> RecordingVerbs::cqs() {
  std::vector<RecordedCq*> all;
  for (auto& cq : cqs_) all.push_back(cq.get());
  return all;
}

RecordedQp* RecordingVerbs::find_qp(std::uint32_t number) {
  for (RecordingVerbs* owner : registry()) {
    const auto found = owner->qps_.find(number);
    if (found != owner->qps_.end()) return found->second.get();
  }
  return nullptr;
}

bool RecordingVerbs::covered(std::uint64_t address, std::uint64_t length, std::uint32_t key, int access) const {
  const auto found = regions_.find(key);
  if (found == regions_.end()) return false;
  const auto base = reinterpret_cast<std::uintptr_t>(found->second->addr);
  if (address < base || length > found->second->length || address - base > found->second->length - length) return false;
  return (access_.at(key) & access) == access;
}

void RecordingVerbs::complete(RecordedQp& qp, ibv_cq* base, ibv_wc entry) {
  auto& cq = static_cast<RecordedCq&>(*base);
  entry.qp_num = qp.qp_num;
  cq.entries.push_back(entry);
  if (cq.entries.size() > static_cast<std::size_t>(cq.cqe)) violation("completion queue overrun");
  if (!cq.armed) return;
  cq.armed = false;
  channel_events_.push_back(&cq);
  const std::uint64_t one = 1;
  if (::write(cq.channel->fd, &one, sizeof one) != sizeof one) violation("eventfd");
}

void RecordingVerbs::send_completion(RecordedQp& qp, const RecordedSend& send, ibv_wc_status status) {
  ++qp.silent;
  if (status == IBV_WC_SUCCESS && !send.signalled()) return;
  ibv_wc entry{};
  entry.wr_id = send.wr.wr_id;
  entry.status = status;
  entry.opcode = send.wr.opcode == IBV_WR_RDMA_READ ? IBV_WC_RDMA_READ
                 : send.wr.opcode == IBV_WR_SEND    ? IBV_WC_SEND
                                                    : IBV_WC_RDMA_WRITE;
  qp.retires.push_back(std::exchange(qp.silent, 0));
  complete(qp, qp.send_cq, entry);
}

void RecordingVerbs::succeed(RecordedQp& qp, std::size_t count) {
  for (; count > 0; --count) {
    const RecordedSend send = qp.sends.at(0);
    qp.sends.pop_front();
    send_completion(qp, send, IBV_WC_SUCCESS);
  }
}

void RecordingVerbs::flush(RecordedQp& qp) {
  if (!features_.flushes) return;
  for (; !qp.sends.empty(); qp.sends.pop_front()) send_completion(qp, qp.sends.front(), IBV_WC_WR_FLUSH_ERR);
  for (; !qp.receives.empty(); qp.receives.pop_front()) {
    ibv_wc entry{};
    entry.wr_id = qp.receives.front().wr_id;
    entry.status = IBV_WC_WR_FLUSH_ERR;
    entry.opcode = IBV_WC_RECV;
    complete(qp, qp.recv_cq, entry);
  }
}

void RecordingVerbs::fail(RecordedQp& qp, ibv_wc_status status) {
  const RecordedSend send = qp.sends.at(0);
  qp.sends.pop_front();
  qp.state = IBV_QPS_ERR;
  send_completion(qp, send, status);
  flush(qp);
}

void RecordingVerbs::notify(RecordedQp& qp, const RecordedSend& send) {
  ibv_wc entry{};
  entry.wr_id = qp.receives.front().wr_id;
  entry.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
  entry.byte_len = static_cast<std::uint32_t>(send.bytes());
  entry.imm_data = send.wr.imm_data;
  entry.wc_flags = IBV_WC_WITH_IMM;
  qp.receives.pop_front();
  complete(qp, qp.recv_cq, entry);
}

void RecordingVerbs::deliver(RecordedQp& qp, const std::vector<std::byte>& bytes) {
  if (qp.receives.empty()) {
    violation("a message found no receive buffer (RNR)");
    return;
  }
  const RecordedReceive receive = qp.receives.front();
  qp.receives.pop_front();
  ibv_wc entry{};
  entry.wr_id = receive.wr_id;
  entry.opcode = IBV_WC_RECV;
  entry.byte_len = static_cast<std::uint32_t>(bytes.size());
  entry.status = bytes.size() > receive.segment.length ? IBV_WC_LOC_LEN_ERR : IBV_WC_SUCCESS;
  if (entry.status == IBV_WC_SUCCESS && !bytes.empty()) {
    std::memcpy(reinterpret_cast<void*>(receive.segment.addr), bytes.data(), bytes.size());
  }
  complete(qp, qp.recv_cq, entry);
}

bool RecordingVerbs::step(RecordedQp& qp) {
  if (qp.sends.empty() || qp.state != IBV_QPS_RTS) return false;
  RecordedQp* peer = find_qp(qp.attr.dest_qp_num);
  if (peer == nullptr || (peer->state != IBV_QPS_RTR && peer->state != IBV_QPS_RTS)) {
    fail(qp, IBV_WC_RETRY_EXC_ERR);
    return true;
  }
  RecordingVerbs& far = of(peer->context);
  const RecordedSend& send = qp.sends.front();
  std::vector<std::byte> data = send.inline_data;
  if (data.empty() && send.wr.opcode != IBV_WR_RDMA_READ) {
    for (const ibv_sge& segment : send.segments) {
      const auto* from = reinterpret_cast<const std::byte*>(segment.addr);
      data.insert(data.end(), from, from + segment.length);
    }
  }
  const bool notifies = send.wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  if ((send.wr.opcode == IBV_WR_SEND || notifies) && peer->receives.empty()) {
    violation("a message found no receive buffer (RNR)");
    return false;
  }
  if (send.wr.opcode == IBV_WR_SEND) {
    far.deliver(*peer, data);
  } else {
    const std::uint64_t address = send.wr.wr.rdma.remote_addr;
    const bool read = send.wr.opcode == IBV_WR_RDMA_READ;
    const int access = read ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
    if (send.bytes() != 0 && !far.covered(address, send.bytes(), send.wr.wr.rdma.rkey, access)) {
      peer->state = IBV_QPS_ERR;
      far.flush(*peer);
      far.raise(IBV_EVENT_QP_ACCESS_ERR, peer);
      fail(qp, IBV_WC_REM_ACCESS_ERR);
      return true;
    }
    auto* remote = reinterpret_cast<std::byte*>(address);
    if (!read && !data.empty()) std::memcpy(remote, data.data(), data.size());
    for (const ibv_sge& segment : send.segments) {
      if (!read) break;
      std::memcpy(reinterpret_cast<void*>(segment.addr), remote, segment.length);
      remote += segment.length;
    }
    if (notifies) far.notify(*peer, send);
  }
  succeed(qp);
  return true;
}

void RecordingVerbs::raise(ibv_event_type type, ibv_qp* qp) {
  ibv_async_event event{};
  event.event_type = type;
  event.element.qp = qp;
  async_.push_back(event);
  const std::uint64_t one = 1;
  for (RecordedCq* cq : cqs()) {
    if (::write(cq->context->async_fd, &one, sizeof one) != sizeof one) violation("eventfd");
    return;  // one context per double
  }
}

}  // namespace fairlead::verbs::testing
