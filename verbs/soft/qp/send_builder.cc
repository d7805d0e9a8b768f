#include "verbs/soft/qp/send_builder.h"

#include <algorithm>
#include <cerrno>

#include "verbs/soft/qp/ah.h"
#include "verbs/soft/qp/qp.h"
#include "verbs/soft/queues/device_base.h"

namespace fairlead::soft {
namespace {

constexpr std::uint32_t kAtomicBytes = 8;
constexpr unsigned kKnownFlags =
    IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;  // no checksum offload

bool legal(ibv_wr_opcode opcode, ibv_qp_type type, Profile profile) noexcept {
  const bool connected = type == IBV_QPT_RC || type == IBV_QPT_UC;
  switch (opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
      return true;
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return connected;
    case IBV_WR_RDMA_READ:
      return type == IBV_QPT_RC;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
    case IBV_WR_SEND_WITH_INV:  // on the wire there is one for RC alone
      return type == IBV_QPT_RC && profile == Profile::kFull;
    case IBV_WR_LOCAL_INV:
    case IBV_WR_BIND_MW:
      return connected && profile == Profile::kFull;
    default:
      return false;
  }
}

template <typename Buffer, typename Length>
std::uint64_t total(std::span<const Buffer> list, Length&& length) noexcept {
  std::uint64_t bytes = 0;
  for (const Buffer& buffer : list) bytes += length(buffer);
  return bytes;
}

}  // namespace

void SendBuilder::start() noexcept {
  index_ = qp_.sq.poster_tail();
  current_ = nullptr;
  error_ = 0;
}

int SendBuilder::check_begin(ibv_wr_opcode opcode, unsigned flags) const noexcept {
  const ibv_qp_state state = qp_.current_state();
  if (state == IBV_QPS_RESET || state == IBV_QPS_INIT || state == IBV_QPS_RTR) return EINVAL;
  if (!legal(opcode, qp_.type(), qp_.device.profile()) || (flags & ~kKnownFlags) != 0) return EINVAL;
  return qp_.sq.full(index_) ? ENOMEM : 0;
}

SendWqe* SendBuilder::begin(std::uint64_t id, ibv_wr_opcode opcode, unsigned flags) noexcept {
  if (finish() != 0) return nullptr;
  if (const int error = check_begin(opcode, flags); error != 0) {
    fail(error);
    return nullptr;
  }
  SendWqe& wqe = qp_.sq.at(index_);
  wqe = {};
  wqe.id = id;
  wqe.opcode = opcode;
  wqe.signaled = qp_.signal_all || (flags & IBV_SEND_SIGNALED) != 0;
  wqe.solicited = (flags & IBV_SEND_SOLICITED) != 0;
  wqe.fence = (flags & IBV_SEND_FENCE) != 0;
  current_ = &wqe;
  return current_;
}

bool SendBuilder::add_plain(const ibv_send_wr& request) noexcept {
  const bool known = request.opcode == IBV_WR_RDMA_WRITE || request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM ||
                     request.opcode == IBV_WR_SEND || request.opcode == IBV_WR_SEND_WITH_IMM;
  if (!known || request.num_sge != 1 || qp_.type() != IBV_QPT_RC || error_ != 0 || current_ != nullptr) return false;
  if (check_begin(request.opcode, request.send_flags) != 0) return false;
  const ibv_sge& segment = *request.sg_list;
  const bool inlined = (request.send_flags & IBV_SEND_INLINE) != 0;
  if (segment.length > (inlined ? qp_.sq.max_inline() : kMaxMessage) || qp_.sq.max_segments() == 0) return false;

  // What such requests have; nobody reads the rest of one.
  SendWqe& wqe = qp_.sq.at(index_);
  wqe.id = request.wr_id;
  wqe.remote_address = request.wr.rdma.remote_addr;
  wqe.rkey = request.wr.rdma.rkey;
  wqe.immediate = request.imm_data;
  wqe.length = segment.length;
  wqe.segments = inlined ? 0 : 1;
  wqe.opcode = request.opcode;
  wqe.signaled = qp_.signal_all || (request.send_flags & IBV_SEND_SIGNALED) != 0;
  wqe.solicited = (request.send_flags & IBV_SEND_SOLICITED) != 0;
  wqe.fence = (request.send_flags & IBV_SEND_FENCE) != 0;
  wqe.inlined = inlined;
  wqe.executed = false;
  if (inlined) {
    // verbs hands addresses as numbers.
    const auto* bytes = reinterpret_cast<const std::byte*>(segment.addr);  // NOLINT(performance-no-int-to-ptr)
    std::copy_n(bytes, segment.length, qp_.sq.inline_bytes(index_));
  } else {
    qp_.sq.segments(index_).front() = segment;
  }
  ++index_;
  return true;
}

void SendBuilder::set_segments(std::span<const ibv_sge> list) noexcept {
  if (error_ != 0 || current_ == nullptr) return;
  if (list.size() > qp_.sq.max_segments()) return fail(EINVAL);
  const std::uint64_t length = total(list, [](const ibv_sge& segment) { return segment.length; });
  if (length > kMaxMessage) return fail(EINVAL);
  current_->segments = static_cast<std::uint32_t>(list.size());
  current_->length = static_cast<std::uint32_t>(length);
  std::copy(list.begin(), list.end(), qp_.sq.segments(index_).data());
}

template <typename Buffer, typename Address, typename Length>
void SendBuilder::copy_inline(std::span<const Buffer> list, Address&& address, Length&& length) noexcept {
  if (error_ != 0 || current_ == nullptr) return;
  if (!current_->is_send() && !current_->is_write()) return fail(EINVAL);
  const std::uint64_t bytes = total(list, length);
  if (bytes > qp_.sq.max_inline()) return fail(EINVAL);
  current_->inlined = true;
  current_->length = static_cast<std::uint32_t>(bytes);
  std::byte* to = qp_.sq.inline_bytes(index_);
  for (const Buffer& buffer : list) to = std::copy_n(address(buffer), length(buffer), to);
}

void SendBuilder::set_inline(std::span<const ibv_data_buf> list) noexcept {
  copy_inline(
      list, [](const ibv_data_buf& buffer) { return static_cast<const std::byte*>(buffer.addr); },
      [](const ibv_data_buf& buffer) { return buffer.length; });
}

void SendBuilder::set_inline_segments(std::span<const ibv_sge> list) noexcept {
  // verbs hands addresses as numbers.
  copy_inline(
      list,
      [](const ibv_sge& segment) {
        return reinterpret_cast<const std::byte*>(segment.addr);  // NOLINT(performance-no-int-to-ptr)
      },
      [](const ibv_sge& segment) { return std::uint64_t{segment.length}; });
}

void SendBuilder::set_datagram(ibv_ah* ah, std::uint32_t remote_qpn, std::uint32_t remote_qkey) noexcept {
  if (error_ != 0 || current_ == nullptr) return;
  if (qp_.connected() || ah == nullptr) return fail(EINVAL);
  qp_.datagram_path(index_) = static_cast<const Ah*>(ah)->path;
  current_->ah = ah;
  current_->remote_qpn = remote_qpn;
  current_->remote_qkey = remote_qkey;
}

int SendBuilder::finish() noexcept {
  if (error_ != 0 || current_ == nullptr) return error_;
  if (current_->is_atomic() && current_->length != kAtomicBytes) fail(EINVAL);
  if (qp_.type() == IBV_QPT_UD && current_->ah == nullptr) fail(EINVAL);
  if (error_ != 0) return error_;
  current_ = nullptr;
  ++index_;
  return 0;
}

void SendBuilder::publish() noexcept { qp_.sq.publish(index_); }

}  // namespace fairlead::soft
