#include "verbs/soft/rc/responder_questions.h"

#include <algorithm>
#include <utility>

#include "verbs/soft/qp/qp.h"
#include "verbs/soft/qp/qp_context.h"
#include "verbs/soft/rc/requester_limits.h"
#include "verbs/soft/rc/responder_answers.h"

namespace fairlead::soft::responder {
namespace {

Reply& newest_reply(ReceiveState& r) noexcept {
  return r.replies[(r.reply_head + r.reply_count - 1) % r.replies.size()];
}

// What the packet repeats, as it was asked: nothing if its packets were for anything else.
const Question* recall(const ReceiveState& r, std::uint64_t position, const Packet& packet) noexcept {
  const auto found = std::find_if(r.questions.begin(), r.questions.end(), [position](const Question& asked) {
    return position - asked.position < asked.packets;
  });
  if (found == r.questions.end() || found->atomic != (packet.info->kind == PacketKind::kAtomic)) return nullptr;
  return &*found;
}

// Of a READ any part may be repeated that begins with a packet of its answer.
bool is_part(const Qp& qp, const Question& asked, std::uint64_t position, const Reth& part) noexcept {
  const std::uint64_t offset = (position - asked.position) * qp.mtu;
  return part.rkey == asked.rkey && part.address == asked.address + offset && offset + part.length <= asked.length;
}

void owe_again(Qp& qp, const Reply& reply) noexcept {
  ReceiveState& r = qp.receive;
  // The requester went back: what it asked for from there on it will ask for again. But what an answer under way has
  // still to come to needs nothing.
  while (r.reply_count > 0 && newest_reply(r).end() > reply.position) {
    const Reply& newest = newest_reply(r);
    if (newest.position + newest.next <= reply.position && newest.end() >= reply.end()) return;
    --r.reply_count;
  }
  if (r.reply_count < r.replies.size()) push_reply(qp, reply);
}

// A requester of our kind repeats only what it lacks; the rest is to come as it would have.
void owe_part_again(Qp& qp, Reply reply) noexcept {
  ReceiveState& r = qp.receive;
  const auto at = [&r](std::uint32_t i) -> Reply& { return r.replies[(r.reply_head + i) % r.replies.size()]; };
  std::uint32_t before = 0;
  for (std::uint32_t i = 0; i < r.reply_count; ++i) {
    const Reply& other = at(i);
    const std::uint64_t unsent = other.position + other.next;
    if (unsent <= reply.position && reply.position < other.end()) return;           // it is to come
    if (reply.position < unsent && unsent < reply.end() && unsent < other.end()) {  // its end is
      reply.packets = static_cast<std::uint32_t>(unsent - reply.position);
      reply.length = std::min(reply.length, reply.packets * qp.mtu);
    }
    if (other.position <= reply.position) before = i + 1;
  }
  if (r.reply_count == r.replies.size()) return;
  push_reply(qp, reply);
  for (std::uint32_t i = r.reply_count - 1; i > before; --i) std::swap(at(i), at(i - 1));
}

}  // namespace

void drop_oldest_reply(ReceiveState& r) noexcept {
  r.reply_head = static_cast<std::uint32_t>((r.reply_head + 1) % r.replies.size());
  --r.reply_count;
}

// Of memory that is gone nothing can be repeated. The peer may have the answer; but not one that was taken back, as it
// referred to the memory: to that it must hear something.
void refuse_repetition(Qp& qp, const Packet& packet) noexcept {
  if (!qp.receive.referred) return qp.domain.counters.drop_bogus.add();
  send_refusal(qp, packet.bth.psn, Syndrome::kNakRemoteAccess);
}

bool make_room(ReceiveState& r) noexcept {
  if (r.questions.empty()) return false;
  const Question& oldest = r.questions[r.oldest_question];
  if (oldest.end() > r.answered) return false;
  // It has the answer, so what it repeated meanwhile it wants no more.
  while (r.reply_count > 0 && r.replies[r.reply_head].position < oldest.end()) drop_oldest_reply(r);
  // Else one question was repeated in several parts; which of them are wanted still is seen when they are repeated.
  if (r.reply_count == r.replies.size()) drop_oldest_reply(r);
  return true;
}

void ask(Qp& qp, const Packet& packet, Question question) noexcept {
  ReceiveState& r = qp.receive;
  question.position = r.position;
  r.questions[r.oldest_question] = question;
  r.oldest_question = static_cast<std::uint32_t>((r.oldest_question + 1) % r.questions.size());
  push_reply(qp, {question, packet.bth.psn});
}

void repeat(Qp& qp, const Packet& packet) noexcept {
  ReceiveState& r = qp.receive;
  // Before the first packet of all it is a number that no question has.
  const std::uint64_t position = r.position + static_cast<std::uint64_t>(packet.bth.psn.since(r.expected));
  const Question* asked = recall(r, position, packet);
  if (asked == nullptr) return qp.domain.counters.drop_bogus.add();
  Reply reply{*asked, packet.bth.psn};
  reply.again = true;
  if (asked->atomic) {
    if (packet.atomic.rkey != asked->rkey || packet.atomic.address != asked->address) {
      return qp.domain.counters.drop_bogus.add();
    }
  } else {
    if (!is_part(qp, *asked, position, packet.reth)) return qp.domain.counters.drop_bogus.add();
    if (!may_read(qp, packet.reth)) return refuse_repetition(qp, packet);
    reply.position = position;
    reply.packets = response_packets(qp, packet.reth);
    reply.address = packet.reth.address;
    reply.length = packet.reth.length;
  }
  packet.bth.kin ? owe_part_again(qp, reply) : owe_again(qp, reply);
}

bool may_read(const Qp& qp, const Reth& reth) noexcept {
  return (qp.attr.qp_access_flags & IBV_ACCESS_REMOTE_READ) != 0 &&
         (reth.length == 0 || qp.domain.regions.find(&qp.pd_ref, reth.rkey, reth.address, reth.length,
                                                     IBV_ACCESS_REMOTE_READ, qp.number()) != nullptr);
}

std::uint32_t response_packets(const Qp& qp, const Reth& reth) noexcept { return packets_of(reth.length, qp.mtu); }

}  // namespace fairlead::soft::responder
