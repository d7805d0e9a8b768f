#include "datapath/transfer_impl.h"

#include <mutex>

#include "datapath/base/spin_lock.h"
#include "datapath/session.h"

namespace fairlead::datapath {
namespace {

constexpr std::size_t kPooled = 4096;
constexpr std::size_t kKeptMessageBytes = 16384;

struct Pool {
  SpinLock lock;  // guards `free`
  std::vector<TransferImpl*> free;
};

// Never destroyed: handles may outlive static destruction.
Pool& pool() {
  static Pool* const instance = [] {
    auto* made = new Pool;
    made->free.reserve(kPooled);  // no allocation under a spinning lock
    return made;
  }();
  return *instance;
}

void reset(TransferImpl& t) {
  t.session.reset();
  t.prepared.reset();
  t.own.clear();
  t.list = nullptr;
  t.message.clear();
  if (t.message.capacity() > kKeptMessageBytes) t.message.shrink_to_fit();
  t.value = 0;
  t.has_message = t.is_send = t.report = t.message_done = t.active = false;
  t.message_all_posted = t.message_aborted = false;
  t.tag = t.bytes = t.next_offset = t.posted_bytes = t.done_bytes = t.message_posted = 0;
  t.next_op = 0;
  t.outstanding = t.messages_outstanding = 0;
  t.deadline = Clock::time_point::max();
  t.failure = t.code = Code::kOk;
  t.reason.clear();
  t.previous = t.next = nullptr;
  t.cancel_requested.store(false, std::memory_order_relaxed);
  t.finished.store(false, std::memory_order_relaxed);
}

}  // namespace

void TransferImpl::run() noexcept { session->accept_transfer(*this); }

void TransferImpl::rewind() noexcept {
  next_op = 0;
  next_offset = posted_bytes = done_bytes;
  while (next_op < list->ops.size() && next_offset >= list->ops[next_op].length) {
    next_offset -= list->ops[next_op].length;
    ++next_op;
  }
}

TransferImpl* acquire_transfer() {
  Pool& p = pool();
  TransferImpl* t = nullptr;
  {
    const std::lock_guard lock(p.lock);
    if (!p.free.empty()) {
      t = p.free.back();
      p.free.pop_back();
    }
  }
  if (t == nullptr) return new TransferImpl;
  t->references.store(1, std::memory_order_relaxed);
  return t;
}

void add_reference(TransferImpl& transfer) noexcept { transfer.references.fetch_add(1, std::memory_order_relaxed); }

void drop_reference(TransferImpl& transfer) noexcept {
  // Whoever holds the only reference has nobody to race with.
  const bool last = transfer.references.load(std::memory_order_acquire) == 1 ||
                    transfer.references.fetch_sub(1, std::memory_order_acq_rel) == 1;
  if (!last) return;
  reset(transfer);
  Pool& p = pool();
  {
    const std::lock_guard lock(p.lock);
    if (p.free.size() < kPooled) {
      p.free.push_back(&transfer);
      return;
    }
  }
  delete &transfer;
}

}  // namespace fairlead::datapath
