#include "bench/collective/group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <thread>
#include <utility>

namespace fairlead::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kIAm = std::uint64_t{1} << 62;     // and the rank: the first message of who connected
constexpr std::uint64_t kYouAre = std::uint64_t{1} << 61;  // and the rank, with all addresses: what a leader says
constexpr std::uint64_t kBarrier = std::uint64_t{1} << 63;
constexpr std::uint64_t kGathered = std::uint64_t{1} << 60;   // and the number,
constexpr std::uint64_t kFromFirst = std::uint64_t{3} << 60;  // also here
constexpr std::uint64_t kGatheredText = std::uint64_t{5} << 60;
constexpr std::uint64_t kNumber = (std::uint64_t{1} << 56) - 1;
constexpr std::chrono::seconds kPatience{60};  // for one step of a rank that lives

Status of_rank(std::size_t rank, const Status& status) {
  return {status.code(), fmt::format("rank {}: {}", rank, status.message())};
}

/// Until it answers: ranks begin in no order.
Result<Peer> reach(Engine& engine, const std::string& address, Clock::time_point until) {
  while (true) {
    const auto left = std::max(until - Clock::now(), Clock::duration(0));
    Result<Peer> peer = engine.connect(address);
    if (!peer) return peer;
    const Status ready = peer->wait_ready(left);
    if (ready.ok()) return peer;
    if (Clock::now() >= until)
      return Status(Code::kDeadlineExceeded, fmt::format("{} did not answer: {}", address, ready.message()));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

/// The first message of a peer that has just come.
Event first_message(Peer& peer, std::chrono::nanoseconds timeout) {
  while (true) {
    Event event = peer.next_event(timeout);
    if (event.kind != Event::Kind::kConnected && event.kind != Event::Kind::kPathChanged) return event;
  }
}

}  // namespace

Result<Group> Group::join(Engine* engine, std::size_t rank, std::span<const std::string> addresses,
                          std::chrono::nanoseconds timeout) {
  if (rank >= addresses.size()) {
    return Status(Code::kInvalidArgument, fmt::format("rank {} of {} ranks: they count from 0 to {}", rank,
                                                      addresses.size(), addresses.size() - 1));
  }
  const Clock::time_point until = Clock::now() + timeout;
  Group group(engine, rank, addresses.size());
  for (std::size_t other = 0; other < rank; ++other) {
    Result<Peer> peer = reach(*engine, addresses[other], until);
    if (!peer) return of_rank(other, peer.error());
    if (const Status told = peer->send({}, kIAm | rank).wait(timeout); !told.ok()) return of_rank(other, told);
    group.peers_[other] = *std::move(peer);
  }
  for (std::size_t missing = group.size() - rank - 1; missing > 0;) {
    Result<Peer> peer = engine->accept(std::max(until - Clock::now(), Clock::duration(0)));
    if (!peer) {
      std::string who;
      for (std::size_t other = rank + 1; other < group.size(); ++other) {
        if (!group.peers_[other].valid()) who += fmt::format("{}{}", who.empty() ? "" : ", ", other);
      }
      return Status(peer.error().code(), fmt::format("of {} ranks these did not come in time: {}", group.size(), who));
    }
    const Event event = first_message(*peer, timeout);
    const std::uint64_t other = event.value & ~kIAm;
    if (event.kind != Event::Kind::kMessage || (event.value & kIAm) == 0 || other <= rank || other >= group.size() ||
        group.peers_[other].valid()) {
      peer->close();  // a stranger, or one that is there already
      continue;
    }
    group.peers_[other] = *std::move(peer);
    --missing;
  }
  if (const Status all = group.barrier(); !all.ok()) return all;
  return group;
}

Result<Group> Group::lead(Engine* engine, std::span<const std::string> others, std::chrono::nanoseconds timeout) {
  std::vector<std::string> addresses{engine->listen_address()};
  addresses.insert(addresses.end(), others.begin(), others.end());
  const std::string text = fmt::format("{}", fmt::join(addresses, ","));
  std::vector<Peer> told;  // open until all have met: a session that has ended is no longer accepted
  for (std::size_t rank = 1; rank < addresses.size(); ++rank) {
    Result<Peer> peer = reach(*engine, addresses[rank], Clock::now() + timeout);
    if (!peer) return of_rank(rank, peer.error());
    const Status sent = peer->send(std::as_bytes(std::span(text)), kYouAre | rank).wait(timeout);
    if (!sent.ok()) return of_rank(rank, sent);
    told.push_back(*std::move(peer));
  }
  Result<Group> group = join(engine, 0, addresses, timeout);
  for (Peer& peer : told) peer.close();
  return group;
}

Result<Group> Group::follow(Engine* engine, std::chrono::nanoseconds timeout) {
  Result<Peer> leader = engine->accept(timeout);
  if (!leader) return leader.error();
  const Event event = first_message(*leader, timeout);
  if (event.kind != Event::Kind::kMessage || (event.value & kYouAre) == 0) {
    return Status(Code::kPeerDied,
                  fmt::format("the leader at {} went before it said which rank this is", leader->address()));
  }
  std::vector<std::string> addresses{""};
  for (const std::byte byte : event.data) {
    if (const char c = static_cast<char>(byte); c == ',') {
      addresses.emplace_back();
    } else {
      addresses.back().push_back(c);
    }
  }
  return join(engine, event.value & ~kYouAre, addresses, timeout);
}

Result<Event> Group::next(std::size_t rank) {
  while (true) {
    Event event = peers_[rank].next_event(kPatience);
    switch (event.kind) {
      case Event::Kind::kNotification:
      case Event::Kind::kMessage:
        return event;
      case Event::Kind::kConnected:
      case Event::Kind::kPathChanged:
        break;
      case Event::Kind::kClosed:
        return of_rank(rank, event.status.ok() ? Status(Code::kPeerDied, "it has left the group") : event.status);
      case Event::Kind::kNone:
        return of_rank(rank, event.status.ok()
                                 ? Status(Code::kDeadlineExceeded,
                                          fmt::format("nothing came from it within {} s", kPatience.count()))
                                 : event.status);
    }
  }
}

Status Group::expect(std::size_t rank, std::uint64_t value) {
  const Result<Event> event = next(rank);
  if (!event) return event.error();
  return event->value == value ? Status() : disagrees(rank, event->value, value);
}

Status Group::disagrees(std::size_t rank, std::uint64_t its, std::uint64_t ours) const {
  return {Code::kInvalidArgument,
          fmt::format("rank {} is at step {:#x} where this rank, {}, is at {:#x}: every rank must make the same calls "
                      "with the same types and sizes",
                      rank, its, rank_, ours)};
}

Status Group::barrier() {
  for (std::size_t other = 0; other < size(); ++other) {
    if (other != rank_) peers_[other].send({}, kBarrier);
  }
  for (std::size_t other = 0; other < size(); ++other) {
    if (other == rank_) continue;
    if (const Status there = expect(other, kBarrier); !there.ok()) return there;
  }
  return {};
}

Result<std::uint64_t> Group::next_number(std::size_t rank, std::uint64_t tag) {
  const Result<Event> event = next(rank);
  if (!event) return event.error();
  if ((event->value & ~kNumber) == tag) return event->value & kNumber;
  const Status status = disagrees(rank, event->value, tag);
  return status;
}

Result<std::uint64_t> Group::from_first(std::uint64_t number) {
  if (rank_ != 0) return next_number(0, kFromFirst);
  for (std::size_t other = 1; other < size(); ++other) peers_[other].send({}, kFromFirst | (number & kNumber));
  return number;
}

Result<std::vector<std::uint64_t>> Group::gather(std::uint64_t number) {
  if (rank_ != 0) {
    const Status told = peers_[0].send({}, kGathered | (number & kNumber)).wait(kPatience);
    return told.ok() ? Result(std::vector{number}) : of_rank(0, told);
  }
  std::vector<std::uint64_t> numbers{number};
  for (std::size_t other = 1; other < size(); ++other) {
    const Result<std::uint64_t> its = next_number(other, kGathered);
    if (!its) return its.error();
    numbers.push_back(*its);
  }
  return numbers;
}

Result<std::vector<std::string>> Group::gather_text(std::string_view text) {
  if (rank_ != 0) {
    const Status told = peers_[0].send(std::as_bytes(std::span(text)), kGatheredText).wait(kPatience);
    return told.ok() ? Result(std::vector{std::string(text)}) : of_rank(0, told);
  }
  std::vector<std::string> texts{std::string(text)};
  for (std::size_t other = 1; other < size(); ++other) {
    const Result<Event> event = next(other);
    if (!event) return event.error();
    if (event->value != kGatheredText) return disagrees(other, event->value, kGatheredText);
    std::string& its = texts.emplace_back();
    for (const std::byte byte : event->data) its.push_back(static_cast<char>(byte));
  }
  return texts;
}

}  // namespace fairlead::bench
