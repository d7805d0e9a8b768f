#include "bench/collective/group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <thread>
#include <utility>

namespace fairlead::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kIAm = std::uint64_t{1} << 62;     // and the rank: the first message of who connected
constexpr std::uint64_t kYouAre = std::uint64_t{1} << 61;  // and the rank, with all addresses: what a leader says
constexpr std::uint64_t kHere = std::uint64_t{3} << 61;  // and size and rank, with where it listens: who comes to meet
constexpr std::uint64_t kBarrier = std::uint64_t{1} << 63;
constexpr std::uint64_t kGathered = std::uint64_t{1} << 60;   // and the number,
constexpr std::uint64_t kFromFirst = std::uint64_t{3} << 60;  // also here
constexpr std::uint64_t kText = std::uint64_t{5} << 60;       // gathered
constexpr unsigned kSizeShift = 28;
constexpr std::uint64_t kRank = (std::uint64_t{1} << kSizeShift) - 1;
constexpr std::uint64_t kNumber = (std::uint64_t{1} << 56) - 1;
constexpr std::chrono::milliseconds kFirstPause{50}, kLongestPause{2000};
constexpr std::chrono::seconds kLastWords{2};
constexpr std::chrono::seconds kPatience{60};  // beside what its pauses take

/// Until it answers: ranks begin in no order. Each attempt that fails is a line in the log, so they become rarer.
Result<Peer> reach(Engine& engine, const std::string& address, Clock::time_point until) {
  const auto left = [until] { return std::max(until - Clock::now(), Clock::duration(0)); };
  Status why;  // it was not reached when that was tried last
  for (Clock::duration pause = kFirstPause;; pause = std::min<Clock::duration>(2 * pause, kLongestPause)) {
    Result<Peer> peer = engine.connect(address);
    if (!peer) return peer;
    const Status ready = peer->wait_ready(left());
    if (ready.ok()) return peer;
    if (why.ok() || left() > Clock::duration(0)) why = ready;
    if (left() == Clock::duration(0))
      return Status(Code::kDeadlineExceeded, fmt::format("{} did not answer: {}", address, why.message()));
    std::this_thread::sleep_for(std::min(pause, left()));
  }
}

/// The first message of a peer that has just come.
Event first_message(Peer& peer, std::chrono::nanoseconds timeout) {
  while (true) {
    Event event = peer.next_event(timeout);
    if (event.kind != Event::Kind::kConnected && event.kind != Event::Kind::kPathChanged) return event;
  }
}

std::string text_of(const Event& event) {
  return {reinterpret_cast<const char*>(event.data.data()), event.data.size()};
}

/// One after the other, with commas between, as a leader says them.
std::vector<std::string> addresses_of(const Event& event) {
  std::vector<std::string> addresses{""};
  for (const char c : text_of(event)) {
    if (c == ',') {
      addresses.emplace_back();
    } else {
      addresses.back().push_back(c);
    }
  }
  return addresses;
}

Status tell(Peer& peer, std::size_t rank, std::span<const std::string> addresses, std::chrono::nanoseconds timeout) {
  const std::string text = fmt::format("{}", fmt::join(addresses, ","));
  const Status sent = peer.send(std::as_bytes(std::span(text)), kYouAre | rank).wait(timeout);
  return sent.ok() ? sent : of_rank(rank, sent);
}

Status no_such_rank(std::size_t rank, std::size_t size) {
  return {Code::kInvalidArgument, fmt::format("rank {} of {} ranks: they count from 0 to {}", rank, size, size - 1)};
}

/// Names those of the ranks from `first` on that are missing.
template <typename Missing>
Status did_not_come(const Status& why, std::size_t first, std::size_t size, Missing missing) {
  std::string who;
  for (std::size_t rank = first; rank < size; ++rank) {
    if (missing(rank)) who += fmt::format("{}{}", who.empty() ? "" : ", ", rank);
  }
  return {why.code(), fmt::format("of {} ranks these did not come in time: {}", size, who)};
}

/// A group that has joined, without the sessions by which it met. They end before any rank goes on: one that computes
/// hears nothing, and would later find their paths gone, and the word of their end too late.
Result<Group> without(std::span<Peer> met, Result<Group> group) {
  for (Peer& peer : met) {
    if (peer.valid()) peer.close();
  }
  if (!group) return group;
  const Clock::time_point until = Clock::now() + kLastWords;
  for (Peer& peer : met) {
    while (peer.valid() && peer.state() != PeerState::kClosed && Clock::now() < until) {
      peer.next_event(std::chrono::milliseconds(10));
    }
  }
  if (const Status all = group->barrier(); !all.ok()) return all;
  return group;
}

}  // namespace

Status of_rank(std::size_t rank, const Status& status) {
  return {status.code(), fmt::format("rank {}: {}", rank, status.message())};
}

Result<Group> Group::join(Engine* engine, std::size_t rank, std::span<const std::string> addresses,
                          std::chrono::nanoseconds timeout) {
  if (rank >= addresses.size()) return no_such_rank(rank, addresses.size());
  const Clock::time_point until = Clock::now() + timeout;
  Group group(engine, rank, addresses.size());
  group.root_ = addresses.front();
  for (std::size_t other = 0; other < rank; ++other) {
    Result<Peer> peer = reach(*engine, addresses[other], until);
    if (!peer) return of_rank(other, peer.error());
    if (const Status told = peer->send({}, kIAm | rank).wait(timeout); !told.ok()) return of_rank(other, told);
    group.peers_[other] = *std::move(peer);
  }
  for (std::size_t missing = group.size() - rank - 1; missing > 0;) {
    Result<Peer> peer = engine->accept(std::max(until - Clock::now(), Clock::duration(0)));
    if (!peer) {
      return did_not_come(peer.error(), rank + 1, group.size(),
                          [&](std::size_t other) { return !group.peers_[other].valid(); });
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
  std::vector<Peer> told;  // open until all have met: a session that has ended is no longer accepted
  for (std::size_t rank = 1; rank < addresses.size(); ++rank) {
    Result<Peer> peer = reach(*engine, addresses[rank], Clock::now() + timeout);
    if (!peer) return of_rank(rank, peer.error());
    if (const Status sent = tell(*peer, rank, addresses, timeout); !sent.ok()) return sent;
    told.push_back(*std::move(peer));
  }
  return without(told, join(engine, 0, addresses, timeout));
}

Result<Group> Group::follow(Engine* engine, std::chrono::nanoseconds timeout) {
  Result<Peer> leader = engine->accept(timeout);
  if (!leader) return leader.error();
  const Event event = first_message(*leader, timeout);
  if (event.kind != Event::Kind::kMessage || (event.value & kYouAre) == 0) {
    return Status(Code::kPeerDied,
                  fmt::format("the leader at {} went before it said which rank this is", leader->address()));
  }
  return without({&*leader, 1}, join(engine, event.value & ~kYouAre, addresses_of(event), timeout));
}

Result<std::vector<std::string>> Group::receive(Engine* engine, std::size_t size, const std::string& root,
                                                std::chrono::nanoseconds timeout, std::vector<Peer>* met) {
  const Clock::time_point until = Clock::now() + timeout;
  std::vector<std::string> addresses(size);
  addresses[0] = root;
  for (std::size_t missing = size - 1; missing > 0;) {
    Result<Peer> peer = engine->accept(std::max(until - Clock::now(), Clock::duration(0)));
    if (!peer) {
      return did_not_come(peer.error(), 1, size, [&](std::size_t rank) { return !(*met)[rank].valid(); });
    }
    const Event event = first_message(*peer, timeout);
    const Result<HostPort> listens = parse_host_port(text_of(event));
    if (event.kind != Event::Kind::kMessage || (event.value & ~kNumber) != kHere || !listens) {
      peer->close();  // a stranger
      continue;
    }
    const std::uint64_t rank = event.value & kRank, its_size = (event.value & kNumber) >> kSizeShift;
    if (its_size != size) {
      return Status(
          Code::kInvalidArgument,
          fmt::format("rank {} is of {} ranks where rank 0 is of {}: all are to be of one size", rank, its_size, size));
    }
    if (rank == 0 || rank >= size) return no_such_rank(rank, size);
    if ((*met)[rank].valid()) {
      return Status(Code::kInvalidArgument, fmt::format("both {} and {} say that they are rank {}: each has its own",
                                                        addresses[rank], peer->address(), rank));
    }
    const std::string from = peer->address();
    addresses[rank] = fmt::format("{}:{}", from.substr(0, from.rfind(':')), listens->port);
    (*met)[rank] = *std::move(peer);
    --missing;
  }
  return addresses;
}

Result<Group> Group::meet(Engine* engine, std::size_t rank, std::size_t size, const std::string& root,
                          std::chrono::nanoseconds timeout) {
  if (rank >= size) return no_such_rank(rank, size);
  std::vector<Peer> met(size);  // by rank; open until all have joined, as in lead()
  std::vector<std::string> addresses;
  if (rank == 0) {
    Result<std::vector<std::string>> heard = receive(engine, size, root, timeout, &met);
    if (!heard) return heard.error();
    addresses = *std::move(heard);
    for (std::size_t other = 1; other < size; ++other) {
      if (const Status told = tell(met[other], other, addresses, timeout); !told.ok()) return told;
    }
  } else {
    Result<Peer> first = reach(*engine, root, Clock::now() + timeout);
    if (!first) return of_rank(0, first.error());
    const std::string here = engine->listen_address();
    const Status told = first->send(std::as_bytes(std::span(here)), kHere | size << kSizeShift | rank).wait(timeout);
    const Event event = told.ok() ? first_message(*first, timeout) : Event();
    if (event.kind != Event::Kind::kMessage || event.value != (kYouAre | rank)) {
      return of_rank(0, Status(Code::kPeerDied, fmt::format("{} went before all {} ranks had come", root, size)));
    }
    addresses = addresses_of(event);
    met[0] = *std::move(first);
  }
  return without(met, join(engine, rank, addresses, timeout));
}

Status Group::leave() {
  std::vector<Transfer> said = tell_all(kBarrier);
  Status all = expect_of_all(kBarrier);
  // Who has not got ours yet would see that this rank is gone, and no more.
  for (std::size_t i = 0; i < said.size() && all.ok(); ++i) {
    all = said[i].wait(patience_);
    if (!all.ok()) all = of_rank(i < rank_ ? i : i + 1, all);
  }
  for (Peer& peer : peers_) {
    if (peer.valid()) peer.close();
  }
  return all;
}

void Group::allow_pauses(double seconds) {
  patience_ = kPatience + std::chrono::seconds(static_cast<std::int64_t>(std::ceil(seconds)));
}

Result<Event> Group::next(std::size_t rank) {
  while (true) {
    Event event = peers_[rank].next_event(patience_);
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
                                          fmt::format("nothing came from it within {} s", patience_.count()))
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
  tell_all(kBarrier);
  return expect_of_all(kBarrier);
}

std::vector<Transfer> Group::tell_all(std::uint64_t value) {
  std::vector<Transfer> told;
  for (std::size_t other = 0; other < size(); ++other) {
    if (other != rank_) told.push_back(peers_[other].send({}, value));
  }
  return told;
}

Status Group::expect_of_all(std::uint64_t value) {
  for (std::size_t other = 0; other < size(); ++other) {
    if (other == rank_) continue;
    if (const Status there = expect(other, value); !there.ok()) return there;
  }
  return {};
}

Result<Event> Group::next_tagged(std::size_t rank, std::uint64_t tag) {
  Result<Event> event = next(rank);
  if (!event || (event->value & ~kNumber) == tag) return event;
  return disagrees(rank, event->value, tag);
}

Result<std::uint64_t> Group::next_number(std::size_t rank, std::uint64_t tag) {
  const Result<Event> event = next_tagged(rank, tag);
  if (!event) return event.error();
  return event->value & kNumber;
}

Result<std::uint64_t> Group::from_first(std::uint64_t number) {
  if (rank_ != 0) return next_number(0, kFromFirst);
  for (std::size_t other = 1; other < size(); ++other) peers_[other].send({}, kFromFirst | (number & kNumber));
  return number;
}

Result<std::vector<std::uint64_t>> Group::gather(std::uint64_t number) {
  if (rank_ != 0) {
    const Status told = peers_[0].send({}, kGathered | (number & kNumber)).wait(patience_);
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

Result<std::vector<std::string>> Group::gather(std::string_view text) {
  if (rank_ != 0) {
    const Status told = peers_[0].send(std::as_bytes(std::span(text)), kText).wait(patience_);
    return told.ok() ? Result(std::vector{std::string(text)}) : of_rank(0, told);
  }
  std::vector<std::string> texts{std::string(text)};
  for (std::size_t other = 1; other < size(); ++other) {
    const Result<Event> its = next_tagged(other, kText);
    if (!its) return its.error();
    texts.push_back(text_of(*its));
  }
  return texts;
}

}  // namespace fairlead::bench
