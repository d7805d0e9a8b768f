// Writes work requests into a send queue: the part that ibv_post_send and the extended ibv_wr_* calls share.
//
// Requests are begun and described one after the other and stay unseen until publish(), so that an error leaves none or
// only the complete ones before it. Owned by whoever posts. Threads: between start() and the end of posting, under the
// send queue's mutex.
// Errors: the first one sticks, later calls do nothing. EINVAL: an opcode, flag or list that the queue pair's type,
// state or limits forbid; ENOMEM: the queue is full.
// Source: man ibv_post_send (table of opcodes), IBTA volume 1, 9.2 and 10.8.3.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <span>

#include "verbs/soft/queues/work_queue.h"

namespace fairlead::soft {

class Qp;

class SendBuilder {
 public:
  explicit SendBuilder(Qp& qp) noexcept : qp_(qp) {}

  /// Forgets what was not published.
  void start() noexcept;
  /// The next request; null after an error. The caller sets remote_address, rkey, immediate, invalidate, compare_add,
  /// swap and the window's fields, as the opcode wants them.
  SendWqe* begin(std::uint64_t id, ibv_wr_opcode opcode, unsigned flags) noexcept;
  /// The next request, whole, if it is a WRITE or a SEND of one segment and breaks no rule, as nearly all are. False:
  /// it is to be begun and described.
  [[nodiscard]] bool add_plain(const ibv_send_wr& request) noexcept;

  // Of the request begun last.
  void set_segments(std::span<const ibv_sge> list) noexcept;
  void set_inline(std::span<const ibv_data_buf> list) noexcept;
  void set_inline_segments(std::span<const ibv_sge> list) noexcept;
  void set_datagram(ibv_ah* ah, std::uint32_t remote_qpn, std::uint32_t remote_qkey) noexcept;
  void fail(int error) noexcept {
    if (error_ == 0) error_ = error;
  }

  /// Checks that the request begun last is whole. The first error of all, or 0.
  int finish() noexcept;
  [[nodiscard]] int error() const noexcept { return error_; }
  /// Hands the whole requests to the queue; the one in error, if any, is dropped.
  void publish() noexcept;

 private:
  [[nodiscard]] int check_begin(ibv_wr_opcode opcode, unsigned flags) const noexcept;
  template <typename Buffer, typename Address, typename Length>
  void copy_inline(std::span<const Buffer> list, Address&& address, Length&& length) noexcept;

  Qp& qp_;
  SendWqe* current_ = nullptr;
  std::uint32_t index_ = 0;  // of the current request, or of the next one while there is none
  int error_ = 0;
};

}  // namespace fairlead::soft
