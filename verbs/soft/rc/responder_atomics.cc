#include "verbs/soft/rc/responder_atomics.h"

#include <atomic>

#include "base/guarded.h"
#include "verbs/soft/qp/qp.h"
#include "verbs/soft/qp/qp_context.h"
#include "verbs/soft/rc/responder_questions.h"

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

}  // namespace

Verdict execute_atomic(Qp& qp, const Packet& packet) noexcept {
  if (!make_room(qp.receive) || packet.atomic.address % kWordBytes != 0) return Verdict::kInvalid;
  if ((qp.attr.qp_access_flags & IBV_ACCESS_REMOTE_ATOMIC) == 0) return Verdict::kAccess;
  std::byte* at = qp.domain.regions.find(&qp.pd_ref, packet.atomic.rkey, packet.atomic.address, kWordBytes,
                                         IBV_ACCESS_REMOTE_ATOMIC, qp.number());
  if (at == nullptr) return Verdict::kAccess;
  // A region may give aligned numbers to memory that is not.
  if (reinterpret_cast<std::uintptr_t>(at) % kWordBytes != 0) return Verdict::kOperation;
  Question question{.packets = 1, .rkey = packet.atomic.rkey, .address = packet.atomic.address, .atomic = true};
  const bool done = attempt(at, kWordBytes, [&] {
    touch(at);
    question.original = execute_on(*reinterpret_cast<std::uint64_t*>(at), packet);
  });
  if (!done) return Verdict::kOperation;
  ask(qp, packet, question);
  return Verdict::kAccept;
}

}  // namespace fairlead::soft::responder
