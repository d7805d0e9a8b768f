#include "verbs/soft/responder_atomics.h"

#include <algorithm>
#include <atomic>

#include "verbs/soft/domain.h"
#include "verbs/soft/guarded.h"
#include "verbs/soft/qp.h"
#include "verbs/soft/responder_answers.h"

namespace fairlead::soft::responder {
namespace {

constexpr std::size_t kWordBytes = 8;

std::uint64_t execute_on(std::uint64_t& memory, const Packet& packet) noexcept {
  const std::atomic_ref word(memory);
  if (packet.bth.opcode == static_cast<std::uint8_t>(Opcode::kFetchAdd)) {
    return word.fetch_add(packet.atomic.swap_or_add);
  }
  std::uint64_t original = packet.atomic.compare;
  word.compare_exchange_strong(original, packet.atomic.swap_or_add);
  return original;
}

void remember(ReceiveState& r, const AtomicResult& result) noexcept {
  if (r.results.size() < r.replies.size()) return r.results.push_back(result);  // reserved
  r.results[r.oldest_result] = result;
  r.oldest_result = static_cast<std::uint32_t>((r.oldest_result + 1) % r.results.size());
}

void owe_result(Qp& qp, const AtomicResult& result) noexcept {
  ReadReply reply;
  reply.first = result.psn;
  reply.packets = 1;
  reply.atomic = true;
  reply.original = result.original;
  push_reply(qp, reply);
}

}  // namespace

Verdict execute_atomic(Qp& qp, const Packet& packet) noexcept {
  ReceiveState& r = qp.receive;
  // More READs and atomics than max_dest_rd_atomic are the requester's fault (9.7.4.1.6).
  if (r.reply_count == r.replies.size() || packet.atomic.address % kWordBytes != 0) return Verdict::kInvalid;
  if ((qp.attr.qp_access_flags & IBV_ACCESS_REMOTE_ATOMIC) == 0) return Verdict::kAccess;
  std::byte* at = qp.domain.regions.find(&qp.pd_ref, packet.atomic.rkey, packet.atomic.address, kWordBytes,
                                         IBV_ACCESS_REMOTE_ATOMIC, qp.number());
  if (at == nullptr) return Verdict::kAccess;
  // A region may give aligned numbers to memory that is not.
  if (reinterpret_cast<std::uintptr_t>(at) % kWordBytes != 0) return Verdict::kOperation;
  AtomicResult result{packet.bth.psn, 0};
  const bool done = attempt(at, kWordBytes, [&] {
    touch(at);
    result.original = execute_on(*reinterpret_cast<std::uint64_t*>(at), packet);
  });
  if (!done) return Verdict::kOperation;
  remember(r, result);
  owe_result(qp, result);
  return Verdict::kAccept;
}

void repeat_atomic(Qp& qp, const Packet& packet) noexcept {
  ReceiveState& r = qp.receive;
  const auto found = std::find_if(r.results.begin(), r.results.end(),
                                  [&packet](const AtomicResult& result) { return result.psn == packet.bth.psn; });
  if (found == r.results.end()) return qp.domain.counters.drop_bogus.add();
  drop_replies_from(qp, packet.bth.psn);
  if (r.reply_count < r.replies.size()) owe_result(qp, *found);
}

}  // namespace fairlead::soft::responder
