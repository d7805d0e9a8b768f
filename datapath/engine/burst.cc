#include "fairlead/burst.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <new>
#include <utility>

#include "datapath/engine/handles.h"
#include "datapath/engine/posting.h"

namespace fairlead {

using datapath::OpKind;
using datapath::SessionImpl;
using datapath::TransferImpl;

namespace {

Status moved() { return {Code::kInvalidArgument, "this burst was moved away; use the one that it was moved to"}; }

}  // namespace

struct Burst::State {
  /// So many of all had been added with it.
  struct Group {
    Transfer transfer;
    std::uint64_t behind = 0;
  };

  State(const Peer& peer, OpKind with_kind, TrafficClass with_traffic)
      : session(datapath::share_of(peer)), kind(with_kind), traffic(with_traffic) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (gathered != 0) post_if_due(true);
    if (open != nullptr) datapath::drop_reference(*open);
  }

  Status add(const Memory& local, const RemoteMemory& remote) {
    if (failure.ok() && open != nullptr && gathered != kGroup && is_as_before(local, remote)) {
      open->own.ops.push_back({local.data(), local.size(), range, there, remote.offset()});
      open->own.bytes += local.size();
    } else if (Status status = add_another(local, remote); !status.ok()) {
      return status;
    }
    ++added;
    ++gathered;
    post_if_due(false);
    return {};
  }

  /// One that has to be looked at.
  Status add_another(const Memory& local, const RemoteMemory& remote) {
    if (!failure.ok()) return failure;
    if (open == nullptr || gathered == kGroup) {
      if (Status begun = begin(); !begun.ok()) return begun;
    }
    Status status = datapath::append(*session, open->own, local, remote);
    if (status.ok()) remember(local, remote);
    return status;
  }

  /// A group, once the one before it is out.
  Status begin() {
    if (Status fine = datapath::usable(session.get()); !fine.ok()) return fine;
    if (open != nullptr) {
      if (Status status = post(); !status.ok()) return status;
    }
    open = datapath::acquire_transfer();
    open->own.kind = kind;
    open->list = &open->own;
    open->traffic = traffic;
    range = nullptr;
    return {};
  }

  /// Whether it is between the memories of the operation before it in the group, which were looked at then.
  [[nodiscard]] bool is_as_before(const Memory& local, const RemoteMemory& remote) const noexcept {
    return range != nullptr && datapath::region_of(local) == here && datapath::region_of(remote) == there &&
           local.size() == remote.size() && local.data() >= held.data() &&
           local.data() + local.size() <= held.data() + held.size() && !there->is_gone();
  }
  void remember(const Memory& local, const RemoteMemory& remote) noexcept {
    here = datapath::region_of(local);
    there = datapath::region_of(remote);
    range = &here->range_at(local.data());
    held = range->memory().bytes;
  }

  Status flush() {
    if (gathered == 0) return {};
    Status status = post();
    if (status.ok()) look();
    return status;
  }
  /// What is gathered, which is something, goes out. What throws for want of memory comes before that.
  Status post() {
    Status status = datapath::usable(session.get());
    if (!status.ok()) return status;
    open->bytes = open->own.bytes;
    groups.emplace_back();
    try {
      status = session->admit(*open);
    } catch (const std::bad_alloc&) {
      groups.pop_back();
      throw;
    }
    if (!status.ok()) {
      groups.pop_back();
      return status;
    }
    gathered = 0;
    session->submit(*open);
    groups.back() = {datapath::make_transfer(std::exchange(open, nullptr)), added};
    return {};
  }
  /// For who has added one already: the next one says it.
  void post_if_due(bool due) noexcept {
    try {
      if (!(due || gathered == kGroup || nothing_is_under_way())) return;
      if (post().ok()) look();
    } catch (const std::bad_alloc&) {  // then it has no room, like a session that is full
    }
  }

  /// Looks only where the youngest is done, which costs those that are added while others are under way a load.
  [[nodiscard]] bool nothing_is_under_way() {
    if (!groups.empty() && groups.back().transfer.done()) look();
    return groups.empty();
  }

  /// What ended of the oldest.
  void look() {
    while (!groups.empty() && groups.front().transfer.done()) {
      const Group& group = groups.front();
      if (failure.ok() && group.transfer.code() != Code::kOk) {
        const Status why = group.transfer.status();
        failure = {why.code(),
                   fmt::format("operations {} to {} of the burst: {}", ended, group.behind - 1, why.message())};
      }
      ended = group.behind;
      groups.pop_front();
    }
  }

  Status wait(std::uint64_t count, std::chrono::nanoseconds timeout) {
    const datapath::Clock::time_point deadline = datapath::deadline_after(timeout);
    const std::uint64_t wanted = std::min(count, added);
    look();
    Status flushed = flush();
    while (ended < wanted) {
      if (groups.empty()) {
        if (!flushed.ok()) return flushed;
        continue;  // it was done at once
      }
      const auto left = std::max<std::chrono::nanoseconds>(deadline - datapath::Clock::now(), {});
      static_cast<void>(groups.front().transfer.wait(left));
      if (!groups.front().transfer.done()) {
        return {Code::kDeadlineExceeded,
                fmt::format("the wait timed out with {} of {} operations ended; they go on", ended, wanted)};
      }
      look();
      flushed = flush();
    }
    return failure;
  }

  const std::shared_ptr<SessionImpl> session;
  const OpKind kind;
  const TrafficClass traffic;
  TransferImpl* open = nullptr;  // what is gathered, not posted
  std::size_t gathered = 0;      // operations of that
  std::deque<Group> groups;      // posted, the oldest first
  // Of the operation before, in the same group: its memories, and the range that its first byte lies in. Null: none.
  const datapath::RegionImpl* here = nullptr;
  const datapath::RemoteRegionImpl* there = nullptr;
  const datapath::RegisteredRange* range = nullptr;
  std::span<std::byte> held;
  std::uint64_t added = 0, ended = 0;
  Status failure;  // of the first group that failed
};

Burst::Burst(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Burst::~Burst() = default;
Burst::Burst(Burst&&) noexcept = default;
Burst& Burst::operator=(Burst&&) noexcept = default;

Burst Burst::writes(const Peer& peer, TrafficClass traffic) {
  return Burst(std::make_unique<State>(peer, OpKind::kWrite, traffic));
}
Burst Burst::reads(const Peer& peer, TrafficClass traffic) {
  return Burst(std::make_unique<State>(peer, OpKind::kRead, traffic));
}

Status Burst::add(const Memory& local, const RemoteMemory& remote) {
  return state_ != nullptr ? state_->add(local, remote) : moved();
}
Status Burst::flush() {
  if (state_ == nullptr) return moved();
  return state_->flush();
}
std::uint64_t Burst::added() const noexcept { return state_ != nullptr ? state_->added : 0; }
std::uint64_t Burst::ended() {
  if (state_ == nullptr) return 0;
  state_->look();
  if (state_->nothing_is_under_way()) static_cast<void>(state_->flush());
  return state_->ended;
}
Status Burst::wait(std::uint64_t count, std::chrono::nanoseconds timeout) {
  return state_ != nullptr ? state_->wait(count, timeout) : moved();
}
Status Burst::finish(std::chrono::nanoseconds timeout) { return wait(added(), timeout); }

}  // namespace fairlead
