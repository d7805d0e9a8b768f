// The transfers of fairlead::Peer: checks arguments, fills transfers, and hands them to the session.
#include <fmt/format.h>

#include <algorithm>

#include "base/system/large_bytes.h"
#include "datapath/engine/handles.h"
#include "datapath/engine/posting.h"
#include "datapath/flow/atomics.h"
#include "datapath/transfer/tensor_plan.h"
#include "fairlead/peer.h"

namespace fairlead {

using datapath::append;
using datapath::AtomicOp;
using datapath::Op;
using datapath::OpKind;
using datapath::OpList;
using datapath::region_of;
using datapath::session_of;
using datapath::SessionImpl;
using datapath::share_of;
using datapath::TransferImpl;
using datapath::usable;

namespace {

constexpr std::size_t kMaxTensorRuns = std::size_t{1} << 20;

Status are_valid(const Memory& local, const RemoteMemory& remote) {
  if (local.valid() && remote.valid()) return {};
  return {Code::kInvalidArgument, fmt::format("the {} memory is not valid (an empty handle, or a slice out of bounds)",
                                              local.valid() ? "remote" : "local")};
}

/// What is so of two regions whatever part of them a piece is.
Status check_regions(SessionImpl& session, OpKind kind, const Memory& local, const RemoteMemory& remote) {
  const Access want = kind == OpKind::kWrite ? Access::kRemoteWrite : Access::kRemoteRead;
  if (!allows(remote.access(), want)) {
    return {Code::kPermissionDenied, fmt::format("region '{}' does not grant {}", remote.name(),
                                                 kind == OpKind::kWrite ? "writing" : "reading")};
  }
  if (kind == OpKind::kRead && allows(region_of(local)->access(), Access::kLocalReadOnly)) {
    return {Code::kPermissionDenied,
            fmt::format("cannot read region '{}' into memory that is mapped read-only", remote.name())};
  }
  if (session.id() != region_of(remote)->session) {
    return {Code::kInvalidArgument, fmt::format("region '{}' was looked up in another session", remote.name())};
  }
  if (!region_of(local)->range().is_of(session.host().regions())) {
    return {Code::kInvalidArgument,
            fmt::format("the local memory for region '{}' is registered with another engine; register it with this one",
                        remote.name())};
  }
  return {};
}

}  // namespace

Status datapath::append(SessionImpl& session, OpList& list, const Memory& local, const RemoteMemory& remote) {
  if (!local.valid() || !remote.valid()) return are_valid(local, remote);
  if (local.size() != remote.size()) {
    return {Code::kOutOfRange, fmt::format("{} local bytes for {} remote bytes of region '{}'; slice one of them",
                                           local.size(), remote.size(), remote.name())};
  }
  const datapath::RegionImpl* here = region_of(local);
  const datapath::RemoteRegionImpl* there = region_of(remote);
  // The pieces of a tensor share their regions: one look at them is enough, and one reference to each.
  const std::size_t kept = list.keep.size();
  const bool known = kept >= 2 && list.keep[kept - 2].get() == here && list.keep[kept - 1].get() == there;
  if (!known) {
    if (Status fine = check_regions(session, list.kind, local, remote); !fine.ok()) return fine;
  }
  if (there->is_gone()) {
    return {Code::kProtectionError, datapath::gone_because("the peer", *there)};
  }
  // Room first: what is thrown for want of memory leaves the list as it was.
  if (!known) list.keep.reserve(kept + 2);
  const std::size_t most = list.ops.size() + here->ranges();
  if (most > list.ops.capacity()) list.ops.reserve(std::max(most, 2 * list.ops.size()));
  std::uint64_t done = 0;
  do {
    std::byte* const data = local.data() + done;
    const datapath::RegisteredRange& range = here->range_at(data);
    const std::span<std::byte> held = range.memory().bytes;
    const auto left = static_cast<std::uint64_t>(held.data() + held.size() - data);
    const std::uint64_t length = std::min(local.size() - done, left);
    list.ops.push_back({data, length, &range, there, remote.offset() + done});
    done += length;
  } while (done < local.size());
  if (!known) {
    list.keep.push_back(share_of(local));
    list.keep.push_back(share_of(remote));
  }
  list.bytes += local.size();
  return {};
}

namespace {

void set_options(TransferImpl& t, const TransferOptions& options) {
  if (options.notify) {
    t.value = *options.notify;
    t.has_message = true;
  }
  if (!options.notify_bytes.empty()) {
    t.has_message = true;
    t.message.assign(options.notify_bytes.begin(), options.notify_bytes.end());
  }
  t.report = options.report;
  t.traffic = options.traffic;
  t.tag = options.tag;
  if (options.deadline.count() > 0) t.deadline = datapath::deadline_after(options.deadline);
}

/// Piece i of a batch; the error names it.
Status append_piece(SessionImpl& session, OpList& list, std::span<const Descriptor> batch, std::size_t i) {
  Status added = append(session, list, batch[i].local, batch[i].remote);
  if (added.ok() || batch.size() == 1) return added;
  return {added.code(), fmt::format("piece {} of {}: {}", i, batch.size(), added.message())};
}

/// It ends at once.
void refuse(SessionImpl* session, TransferImpl& t, const Status& status) {
  t.code = status.code();
  t.reason = status.message();
  t.finished.store(true, std::memory_order_release);
  if (!t.report || !usable(session).ok()) return;
  datapath::add_reference(t);
  bool pushed = false;
  try {
    pushed = session->host().queues().push_completed(t);
  } catch (...) {
    datapath::drop_reference(t);
    throw;
  }
  if (!pushed) datapath::drop_reference(t);
}

/// ok, or why a transfer of this session cannot follow that one. One that was refused belongs to no session.
Status may_follow(const SessionImpl* session, const TransferImpl& before) {
  if (before.session == session || (before.session == nullptr && before.finished.load(std::memory_order_acquire))) {
    return {};
  }
  return {Code::kInvalidArgument, "a transfer can only follow one of the same session"};
}

/// One to be filled. Where memory is short it goes back as the handle goes, so its list is set first: what is not known
/// to be in use is not cleared.
Transfer begin(OpKind kind) {
  Transfer handle = datapath::make_transfer(datapath::acquire_transfer());
  TransferImpl& t = *datapath::transfer_of(handle);
  t.own.kind = kind;
  t.list = &t.own;
  return handle;
}

/// Posts it, unless `status` or its own look at it says that it cannot be. Where `status` is ok, the session is
/// usable(). What is thrown for want of memory comes before it counts as under way.
Transfer launch(SessionImpl* session, Transfer&& handle, const TransferOptions& options, const Status& status) {
  TransferImpl* const t = datapath::transfer_of(handle);
  set_options(*t, options);
  TransferImpl* const before = options.after != nullptr ? datapath::transfer_of(*options.after) : nullptr;
  if (!status.ok()) {
    refuse(session, *t, status);
  } else if (options.deadline.count() < 0) {
    refuse(session, *t,
           {Code::kDeadlineExceeded,
            fmt::format("the deadline of {} ns had passed before the transfer was posted", options.deadline.count())});
  } else if (const Status follows = before != nullptr ? may_follow(session, *before) : Status(); !follows.ok()) {
    refuse(session, *t, follows);
  } else if (const Status room = session->admit(*t); !room.ok()) {
    refuse(session, *t, room);
  } else {
    if (before != nullptr) datapath::follow(*t, *before);
    session->submit(*t);
  }
  return std::move(handle);
}

Transfer one_sided(SessionImpl* session, OpKind kind, const Memory& local, const RemoteMemory& remote,
                   const TransferOptions& options) {
  Transfer handle = begin(kind);
  TransferImpl* const t = datapath::transfer_of(handle);
  Status status = usable(session);
  if (status.ok()) status = append(*session, t->own, local, remote);
  t->bytes = t->own.bytes;
  return launch(session, std::move(handle), options, status);
}

Transfer one_sided(SessionImpl* session, OpKind kind, std::span<const Descriptor> batch,
                   const TransferOptions& options) {
  Transfer handle = begin(kind);
  TransferImpl* const t = datapath::transfer_of(handle);
  Status status = usable(session);
  for (std::size_t i = 0; status.ok() && i < batch.size(); ++i) {
    status = append_piece(*session, t->own, batch, i);
  }
  t->bytes = t->own.bytes;
  return launch(session, std::move(handle), options, status);
}

Transfer tensor(SessionImpl* session, OpKind kind, const Memory& local, const TensorSpec& here,
                const RemoteMemory& remote, const TensorSpec& there, const TransferOptions& options) {
  Transfer handle = begin(kind);
  TransferImpl* const t = datapath::transfer_of(handle);
  const auto fill = [&]() -> Status {
    if (Status fine = usable(session); !fine.ok()) return fine;
    if (Status valid = are_valid(local, remote); !valid.ok()) return valid;
    if (Status fits = here.check(local.size()); !fits.ok()) return fits;
    if (Status fits = there.check(remote.size()); !fits.ok()) return fits;
    if (Status target = datapath::check_target(kind == OpKind::kWrite ? there : here); !target.ok()) return target;
    auto runs = datapath::plan_tensor(here, there, kMaxTensorRuns);
    if (!runs) return runs.error();
    for (const datapath::TensorRun& run : *runs) {
      Status added = append(*session, t->own, local.slice(run.a, run.length), remote.slice(run.b, run.length));
      if (!added.ok()) return added;
    }
    return {};
  };
  Status status = fill();
  t->bytes = t->own.bytes;
  return launch(session, std::move(handle), options, status);
}

Status is_list_of(const Prepared& prepared, SessionImpl* session) {
  if (Status fine = usable(session); !fine.ok()) return fine;
  if (!prepared.valid()) return {Code::kInvalidArgument, "the prepared list is an empty handle"};
  if (datapath::list_of(prepared)->session.get() == session) return {};
  return {Code::kInvalidArgument, "the list was prepared for another peer"};
}

Result<Prepared> prepare(const Peer& peer, OpKind kind, std::span<const Descriptor> batch) {
  SessionImpl* session = session_of(peer);
  if (Status fine = usable(session); !fine.ok()) return fine;
  auto prepared = std::make_shared<datapath::PreparedImpl>();
  prepared->session = share_of(peer);
  prepared->list.kind = kind;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (Status added = append_piece(*session, prepared->list, batch, i); !added.ok()) return added;
  }
  return datapath::make_prepared(std::move(prepared));
}

/// ok, or why there can be no atomic on it.
Status check_word(const SessionImpl& session, const RemoteMemory& word, const TransferOptions& options) {
  constexpr std::uint64_t kWordBytes = 8;
  const datapath::RemoteRegionImpl* there = region_of(word);
  if (!word.valid()) {
    return {Code::kInvalidArgument, "the word is not valid memory (an empty handle, or a slice out of bounds)"};
  }
  if (!allows(word.access(), Access::kRemoteAtomic)) {
    return {Code::kPermissionDenied, fmt::format("region '{}' does not grant atomics", word.name())};
  }
  if (word.size() != kWordBytes || word.offset() % kWordBytes != 0) {
    return {Code::kInvalidArgument,
            fmt::format("{} bytes at {} of region '{}' are no word: 8 bytes at a multiple of 8; slice it", word.size(),
                        word.offset(), word.name())};
  }
  if (there->session != session.id()) {
    return {Code::kInvalidArgument, fmt::format("region '{}' was looked up in another session", word.name())};
  }
  if (there->is_gone()) return {Code::kProtectionError, datapath::gone_because("the peer", *there)};
  if (options.notify || !options.notify_bytes.empty()) {
    return {Code::kInvalidArgument, "an atomic notifies nobody; send a message after it"};
  }
  return {};
}

Transfer atomic(SessionImpl* session, AtomicOp op, const RemoteMemory& word, std::uint64_t value,
                std::uint64_t expected, const TransferOptions& options) {
  Transfer handle = datapath::make_transfer(datapath::acquire_transfer());
  TransferImpl* const t = datapath::transfer_of(handle);
  Status status = usable(session);
  if (status.ok()) status = check_word(*session, word, options);
  if (status.ok()) {
    t->atomic = op;
    t->has_message = true;
    t->own.ops.push_back({nullptr, 0, nullptr, region_of(word), word.offset()});
    t->own.keep.push_back(share_of(word));
    datapath::atomics::put_operands(t->message, value, expected);
  }
  return launch(session, std::move(handle), options, status);
}

}  // namespace

Transfer Peer::write(const Memory& local, const RemoteMemory& remote, const TransferOptions& options) {
  return one_sided(session_of(*this), OpKind::kWrite, local, remote, options);
}
Transfer Peer::read(const Memory& local, const RemoteMemory& remote, const TransferOptions& options) {
  return one_sided(session_of(*this), OpKind::kRead, local, remote, options);
}
Transfer Peer::write(std::span<const Descriptor> batch, const TransferOptions& options) {
  return one_sided(session_of(*this), OpKind::kWrite, batch, options);
}
Transfer Peer::read(std::span<const Descriptor> batch, const TransferOptions& options) {
  return one_sided(session_of(*this), OpKind::kRead, batch, options);
}

Transfer Peer::write_tensor(const Memory& local, const TensorSpec& from, const RemoteMemory& remote,
                            const TensorSpec& to, const TransferOptions& options) {
  return tensor(session_of(*this), OpKind::kWrite, local, from, remote, to, options);
}
Transfer Peer::read_tensor(const Memory& local, const TensorSpec& to, const RemoteMemory& remote,
                           const TensorSpec& from, const TransferOptions& options) {
  return tensor(session_of(*this), OpKind::kRead, local, to, remote, from, options);
}

Result<Prepared> Peer::prepare_write(std::span<const Descriptor> batch) {
  return prepare(*this, OpKind::kWrite, batch);
}
Result<Prepared> Peer::prepare_read(std::span<const Descriptor> batch) { return prepare(*this, OpKind::kRead, batch); }

Transfer Peer::post(const Prepared& prepared, const TransferOptions& options) {
  Transfer handle = datapath::make_transfer(datapath::acquire_transfer());
  TransferImpl* const t = datapath::transfer_of(handle);
  SessionImpl* session = session_of(*this);
  const Status status = is_list_of(prepared, session);
  if (status.ok()) {
    t->prepared = share_of(prepared);
    t->list = &t->prepared->list;
    t->bytes = t->list->bytes;
  }
  return launch(session, std::move(handle), options, status);
}

Transfer Peer::post(const Prepared& prepared, std::span<const std::uint32_t> selection,
                    const TransferOptions& options) {
  Transfer handle = begin(OpKind::kWrite);
  TransferImpl* const t = datapath::transfer_of(handle);
  SessionImpl* session = session_of(*this);
  Status status = is_list_of(prepared, session);
  if (status.ok()) {
    const std::vector<Op>& all = datapath::list_of(prepared)->list.ops;
    const auto bad = std::find_if(selection.begin(), selection.end(), [&](std::uint32_t i) { return i >= all.size(); });
    if (bad != selection.end()) {
      status = {Code::kOutOfRange, fmt::format("index {} of a list of {} descriptors", *bad, all.size())};
    } else {
      t->prepared = share_of(prepared);
      t->own.kind = t->prepared->list.kind;
      t->own.ops.reserve(selection.size());
      for (const std::uint32_t i : selection) {
        t->own.ops.push_back(all[i]);
        t->own.bytes += all[i].length;
      }
      t->bytes = t->own.bytes;
    }
  }
  return launch(session, std::move(handle), options, status);
}

Transfer Peer::send(std::span<const std::byte> data, std::uint64_t value, const TransferOptions& options) {
  Transfer handle = datapath::make_transfer(datapath::acquire_transfer());
  TransferImpl* const t = datapath::transfer_of(handle);
  SessionImpl* session = session_of(*this);
  Status status = usable(session);
  if (!status.ok()) return launch(session, std::move(handle), options, status);
  const std::uint64_t limit = session->host().config().max_message_bytes;
  if (options.notify || !options.notify_bytes.empty()) {
    status = {Code::kInvalidArgument, "a message carries its own value; notify is for one-sided transfers"};
  } else if (data.size() > limit) {
    status = {Code::kInvalidArgument,
              fmt::format("a message of {} bytes; the limit is {} (max_message_bytes)", data.size(), limit)};
  } else {
    t->is_send = t->has_message = true;
    if (data.size() >= kLargeBytes) t->message = take_large(data.size());
    t->message.assign(data.begin(), data.end());
    t->bytes = data.size();
    t->value = value;
  }
  return launch(session, std::move(handle), options, status);
}

Transfer Peer::fetch_add(const RemoteMemory& word, std::uint64_t add, const TransferOptions& options) {
  return atomic(session_of(*this), AtomicOp::kFetchAdd, word, add, 0, options);
}
Transfer Peer::compare_swap(const RemoteMemory& word, std::uint64_t expected, std::uint64_t desired,
                            const TransferOptions& options) {
  return atomic(session_of(*this), AtomicOp::kCompareSwap, word, desired, expected, options);
}

}  // namespace fairlead
