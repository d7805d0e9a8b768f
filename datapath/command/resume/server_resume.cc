// A session whose client lost its peer, and has another: what either has of the other's words is compared, and the rest
// said again.
//
// The client says again what was not accepted, from what it keeps; commands have sequences without gaps, so none runs
// twice. Replies say how far a channel is, and are as good later. What copy-outs gave would be lost, so it is kept
// until the client says to have it, and copy-outs wait where too much is kept.
#include <fmt/format.h>

#include <vector>

#include "datapath/command/resume/points.h"
#include "datapath/command/server_session.h"

namespace fairlead::datapath::command {

bool ServerSession::hear(ServerChannel& channel, std::uint64_t sequence) {
  if (sequence > channel.executed()) {
    end(Code::kDataLoss, fmt::format("the client says to have what command {} of channel {} gave, of which {} have run",
                                     sequence, channel.number(), channel.executed()));
    return false;
  }
  channel.results().unheard.heard(sequence);
  return true;
}

void ServerSession::take_heard(const MessageHeader& header) {
  ServerChannel* const channel = channel_of(header);
  if (channel == nullptr || !hear(*channel, header.sequence)) return;
  now_.due |= now_.held;
}

// A client tells of what it has when that is held_results / 4, so what is not told of never keeps the next from its
// room.
bool ServerSession::has_unheard_room(std::uint64_t bytes) {
  std::uint64_t all = kept_bytes() + bytes + kResultCost;
  for (ServerChannel* const channel : channels_.all()) all += channel->results().unheard.bytes();
  return all <= terms_.held_results + terms_.payload_bytes + kResultCost;
}

void ServerSession::resume(std::vector<std::byte> said) {
  if (is_over()) return outlet_.send(TrafficClass::kCommands, refused_message(ended_));
  Bytes rest = said;
  const auto attempt = command::take<Attempt>(rest);
  if (!attempt || !kept_) return end(Code::kInvalidArgument, "this session is not one to go on with over another peer");
  for (ServerChannel* const channel : channels_.all()) channel->say_again(0, 0);
  while (const auto point = command::take<HeardBody>(rest)) {
    ServerChannel* const channel = channels_.find(point->channel);
    if (channel == nullptr) continue;  // nothing of it has come
    if (!hear(*channel, point->heard)) return;
    channel->say_again(point->failed, point->scope);
  }
  std::vector<KeptBody> has;
  for (ServerChannel* const channel : channels_.all()) {
    has.push_back({channel->number(), channel->accepted(), channel->results().unheard.last_payload});
  }
  outlet_.send(TrafficClass::kCommands, points_message(terms_.key, *attempt, has));
  modules_.ask_again();
  now_.due = now_.all;
  for (ServerChannel* const channel : channels_.all()) say_again(*channel);
}

void ServerSession::say_again(ServerChannel& channel) {
  for (UnheardResults::Result& result : channel.results().unheard.results()) {
    send_result(channel, result.sequence, result.message);
    if (channel.reply_is_full()) reply(channel);
  }
  if (channel.owes_reply()) reply(channel);
}

}  // namespace fairlead::datapath::command
