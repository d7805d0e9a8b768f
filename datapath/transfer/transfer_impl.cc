#include "datapath/transfer/transfer_impl.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <mutex>
#include <utility>

#include "base/spin_lock.h"
#include "base/system/large_bytes.h"

namespace fairlead::datapath {
namespace {

constexpr std::size_t kPooled = 4096;
constexpr std::size_t kKeptMessageBytes = 16384;

struct Pool {
  SpinLock lock;  // guards `free`
  std::vector<TransferImpl*> free;
};

// Never destroyed: handles may outlive static destruction. A child that is forked does not inherit the lock taken.
Pool& pool() {
  static Pool* const instance = [] {
    auto* made = new Pool;
    made->free.reserve(kPooled);  // no allocation under a spinning lock
    ::pthread_atfork([] { pool().lock.lock(); }, [] { pool().lock.unlock(); }, [] { pool().lock.unlock(); });
    return made;
  }();
  return *instance;
}

// What this thread let go of last, for its next posts: no lock is needed for it. Objects of a trivial type, so that it
// is good until the thread's very end.
struct Stock {
  static constexpr std::size_t kMost = 64;
  std::array<TransferImpl*, kMost> free;
  std::size_t count;
  bool closed;  // the thread is about to end
};
constinit thread_local Stock stock{};

void put_into_pool(TransferImpl& transfer) {
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

// Gives a thread's stock to the others when it ends.
struct StockCloser {
  void watch() noexcept {}  // makes sure that it is there
  ~StockCloser() {
    stock.closed = true;
    while (stock.count != 0) put_into_pool(*stock.free[--stock.count]);
  }
};
thread_local StockCloser stock_closer;

// As new. What the transfer did not take is not touched.
void reset(TransferImpl& t) {
  if (t.list == &t.own || t.atomic != AtomicOp::kNone) t.own.clear();
  if (t.prepared != nullptr) {
    t.prepared.reset();
  } else {
    t.session_owner.reset();
  }
  if (t.has_message) {
    if (t.message.capacity() > kKeptMessageBytes) give_large(std::exchange(t.message, {}));
    t.message.clear();
    t.value = t.message_posted = t.ticket = 0;
    t.verdict = Code::kOk;
  }
  if (t.was_lost) t.again.clear();
  if (t.code != Code::kOk || t.failure != Code::kOk) t.reason.clear();
  t.session = nullptr;
  t.sink = nullptr;
  t.list = nullptr;
  t.finished.store(false, std::memory_order_relaxed);
  t.failure = t.code = Code::kOk;
  t.active = t.has_message = t.is_send = t.is_outcome = t.is_piece = t.report = t.has_outcome = false;
  t.atomic = AtomicOp::kNone;
  t.message_all_posted = t.message_aborted = t.message_done = t.waits = t.tied = t.was_lost = t.by_message = false;
  t.traffic = TrafficClass::kBulk;
  t.tag = t.bytes = t.posted_bytes = t.done_bytes = 0;
  t.deadline = Clock::time_point::max();
  t.cursor = {};
  t.outstanding = t.on_rails = t.lost = t.messages_outstanding = t.apart = t.held_apart = 0;
  t.previous = t.next = nullptr;
}

}  // namespace

void TransferImpl::run() noexcept { sink->accept_transfer(*this); }

Cursor OpList::find(std::uint64_t at) const noexcept {
  Cursor cursor{0, at};
  while (cursor.op < ops.size() && cursor.offset >= ops[cursor.op].length) {
    cursor = {cursor.op + 1, cursor.offset - ops[cursor.op].length};
  }
  return cursor;
}

void TransferImpl::rewind() noexcept {
  if (again.empty() || again.back().at + again.back().bytes != posted_bytes) return;
  posted_bytes = again.back().at;
  cursor = list->find(posted_bytes);
  again.pop_back();
}

void TransferImpl::post_again(Extent part) {
  was_lost = true;
  const auto behind = std::ranges::lower_bound(again, part.at, {}, &Extent::at);
  const bool joins_next = behind != again.end() && part.at + part.bytes == behind->at;
  if (behind != again.begin() && std::prev(behind)->at + std::prev(behind)->bytes == part.at) {
    std::prev(behind)->bytes += part.bytes + (joins_next ? behind->bytes : 0);
    if (joins_next) again.erase(behind);
  } else if (joins_next) {
    *behind = {part.at, part.bytes + behind->bytes};
  } else {
    again.insert(behind, part);
  }
}

TransferImpl* acquire_transfer() {
  TransferImpl* t = nullptr;
  if (stock.count != 0) {
    t = stock.free[--stock.count];
  } else {
    Pool& p = pool();
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

void follow(TransferImpl& transfer, TransferImpl& before) noexcept {
  add_reference(before);
  transfer.after = &before;
  transfer.tied = true;
}

void drop_reference(TransferImpl& transfer) noexcept {
  // Whoever holds the only reference has nobody to race with.
  const bool last = transfer.references.load(std::memory_order_acquire) == 1 ||
                    transfer.references.fetch_sub(1, std::memory_order_acq_rel) == 1;
  if (!last) return;
  reset(transfer);
  if (stock.count == Stock::kMost || stock.closed) return put_into_pool(transfer);
  if (stock.count == 0) stock_closer.watch();
  stock.free[stock.count++] = &transfer;
}

}  // namespace fairlead::datapath
