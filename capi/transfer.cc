#include <chrono>
#include <span>

#include "capi/handles.h"
#include "capi/structures.h"

using namespace fairlead;        // NOLINT(google-build-using-namespace): a translation from one API to the other
using namespace fairlead::capi;  // NOLINT(google-build-using-namespace)

namespace {

/// Posts with the caller's options. NULL: why not is the thread's last error.
template <typename Post>
fairlead_transfer* posted(fairlead_peer* peer, const fairlead_transfer_options* options, Post&& post) {
  fairlead_transfer* handle = nullptr;
  (void)outcome([&]() -> Status {
    if (peer == nullptr) return missing("peer");
    fairlead_transfer_options known = FAIRLEAD_INIT(fairlead_transfer_options);
    if (options != nullptr) {
      if (Status status = take(*options, known, "fairlead_transfer_options"); !status.ok()) return status;
    }
    if (Status status = check_enum(known.traffic, FAIRLEAD_COMMANDS, "traffic"); !status.ok()) return status;
    if (known.notify_bytes == nullptr && known.notify_size > 0) return missing("notify_bytes");
    Borrowed after(known.after);
    TransferOptions wanted;
    if (known.has_notify) wanted.notify = known.notify;
    wanted.notify_bytes = {static_cast<const std::byte*>(known.notify_bytes), known.notify_size};
    wanted.deadline = std::chrono::nanoseconds(known.deadline_ns);
    wanted.report = known.report;
    wanted.traffic = static_cast<TrafficClass>(known.traffic);
    if (known.after != nullptr) wanted.after = &*after;
    wanted.tag = known.tag;
    return post(peer->peer, wanted, handle);
  });
  return handle;
}

Result<std::vector<Descriptor>> batch_of(const fairlead_descriptor* batch, std::size_t count) {
  if (Status status = check_there(batch, count, "batch"); !status.ok()) return status;
  std::vector<Descriptor> all;
  all.reserve(count);
  for (std::size_t i = 0; i < count; ++i) all.push_back({memory_of(batch[i].local), memory_of(batch[i].remote)});
  return all;
}

/// The transfers behind an array of handles, each with a reference of its own.
Result<std::vector<Transfer>> transfers_of(fairlead_transfer* const* handles, std::size_t count) {
  if (Status status = check_there(handles, count, "transfers"); !status.ok()) return status;
  std::vector<Transfer> all;
  all.reserve(count);
  for (std::size_t i = 0; i < count; ++i) all.push_back(*Borrowed(handles[i]));
  return all;
}

/// What the two that prepare have in common.
template <typename Do>
fairlead_code prepared_by(fairlead_peer* peer, fairlead_prepared** prepared, Do&& act) {
  return outcome([&]() -> Status {
    clear(prepared);
    if (peer == nullptr) return missing("peer");
    if (prepared == nullptr) return missing("prepared");
    return hand_over([&] { return act(peer->peer); }, prepared);
  });
}

}  // namespace

// ---- posting

fairlead_transfer* fairlead_peer_write(fairlead_peer* peer, const fairlead_memory* local,
                                       const fairlead_remote_memory* remote, const fairlead_transfer_options* options) {
  return posted(peer, options, [&](Peer& to, const TransferOptions& wanted, fairlead_transfer*& handle) -> Status {
    handle = handle_of(to.write(memory_of(local), memory_of(remote), wanted));
    return {};
  });
}

fairlead_transfer* fairlead_peer_read(fairlead_peer* peer, const fairlead_memory* local,
                                      const fairlead_remote_memory* remote, const fairlead_transfer_options* options) {
  return posted(peer, options, [&](Peer& to, const TransferOptions& wanted, fairlead_transfer*& handle) -> Status {
    handle = handle_of(to.read(memory_of(local), memory_of(remote), wanted));
    return {};
  });
}

fairlead_transfer* fairlead_peer_write_batch(fairlead_peer* peer, const fairlead_descriptor* batch, size_t count,
                                             const fairlead_transfer_options* options) {
  return posted(peer, options, [&](Peer& to, const TransferOptions& wanted, fairlead_transfer*& handle) -> Status {
    const auto all = batch_of(batch, count);
    if (!all) return all.error();
    handle = handle_of(to.write(*all, wanted));
    return {};
  });
}

fairlead_transfer* fairlead_peer_read_batch(fairlead_peer* peer, const fairlead_descriptor* batch, size_t count,
                                            const fairlead_transfer_options* options) {
  return posted(peer, options, [&](Peer& to, const TransferOptions& wanted, fairlead_transfer*& handle) -> Status {
    const auto all = batch_of(batch, count);
    if (!all) return all.error();
    handle = handle_of(to.read(*all, wanted));
    return {};
  });
}

fairlead_transfer* fairlead_peer_write_tensor(fairlead_peer* peer, const fairlead_memory* local,
                                              const fairlead_tensor* from, const fairlead_remote_memory* remote,
                                              const fairlead_tensor* to, const fairlead_transfer_options* options) {
  return posted(peer, options, [&](Peer& at, const TransferOptions& wanted, fairlead_transfer*& handle) -> Status {
    TensorSpec here, there;
    if (Status status = tensor_of(from, here); !status.ok()) return status;
    if (Status status = tensor_of(to, there); !status.ok()) return status;
    handle = handle_of(at.write_tensor(memory_of(local), here, memory_of(remote), there, wanted));
    return {};
  });
}

fairlead_transfer* fairlead_peer_read_tensor(fairlead_peer* peer, const fairlead_memory* local,
                                             const fairlead_tensor* to, const fairlead_remote_memory* remote,
                                             const fairlead_tensor* from, const fairlead_transfer_options* options) {
  return posted(peer, options, [&](Peer& at, const TransferOptions& wanted, fairlead_transfer*& handle) -> Status {
    TensorSpec here, there;
    if (Status status = tensor_of(to, here); !status.ok()) return status;
    if (Status status = tensor_of(from, there); !status.ok()) return status;
    handle = handle_of(at.read_tensor(memory_of(local), here, memory_of(remote), there, wanted));
    return {};
  });
}

fairlead_transfer* fairlead_peer_send(fairlead_peer* peer, const void* data, size_t bytes, uint64_t value,
                                      const fairlead_transfer_options* options) {
  return posted(peer, options, [&](Peer& to, const TransferOptions& wanted, fairlead_transfer*& handle) -> Status {
    if (Status status = check_there(data, bytes, "data"); !status.ok()) return status;
    handle = handle_of(to.send({static_cast<const std::byte*>(data), bytes}, value, wanted));
    return {};
  });
}

fairlead_transfer* fairlead_peer_fetch_add(fairlead_peer* peer, const fairlead_remote_memory* word, uint64_t add,
                                           const fairlead_transfer_options* options) {
  return posted(peer, options, [&](Peer& to, const TransferOptions& wanted, fairlead_transfer*& handle) -> Status {
    handle = handle_of(to.fetch_add(memory_of(word), add, wanted));
    return {};
  });
}

fairlead_transfer* fairlead_peer_compare_swap(fairlead_peer* peer, const fairlead_remote_memory* word,
                                              uint64_t expected, uint64_t desired,
                                              const fairlead_transfer_options* options) {
  return posted(peer, options, [&](Peer& to, const TransferOptions& wanted, fairlead_transfer*& handle) -> Status {
    handle = handle_of(to.compare_swap(memory_of(word), expected, desired, wanted));
    return {};
  });
}

// ---- prepared lists

fairlead_code fairlead_peer_prepare_write(fairlead_peer* peer, const fairlead_descriptor* batch, size_t count,
                                          fairlead_prepared** prepared) {
  return prepared_by(peer, prepared, [&](Peer& of) -> Result<Prepared> {
    const auto all = batch_of(batch, count);
    return all ? of.prepare_write(*all) : all.error();
  });
}

fairlead_code fairlead_peer_prepare_read(fairlead_peer* peer, const fairlead_descriptor* batch, size_t count,
                                         fairlead_prepared** prepared) {
  return prepared_by(peer, prepared, [&](Peer& of) -> Result<Prepared> {
    const auto all = batch_of(batch, count);
    return all ? of.prepare_read(*all) : all.error();
  });
}

fairlead_transfer* fairlead_peer_post(fairlead_peer* peer, const fairlead_prepared* prepared,
                                      const fairlead_transfer_options* options) {
  return posted(peer, options, [&](Peer& to, const TransferOptions& wanted, fairlead_transfer*& handle) -> Status {
    if (prepared == nullptr) return missing("prepared");
    handle = handle_of(to.post(prepared->prepared, wanted));
    return {};
  });
}

fairlead_transfer* fairlead_peer_post_selection(fairlead_peer* peer, const fairlead_prepared* prepared,
                                                const uint32_t* selection, size_t count,
                                                const fairlead_transfer_options* options) {
  return posted(peer, options, [&](Peer& to, const TransferOptions& wanted, fairlead_transfer*& handle) -> Status {
    if (prepared == nullptr) return missing("prepared");
    if (Status status = check_there(selection, count, "selection"); !status.ok()) return status;
    handle = handle_of(to.post(prepared->prepared, {selection, count}, wanted));
    return {};
  });
}

uint64_t fairlead_prepared_bytes(const fairlead_prepared* prepared) {
  return prepared != nullptr ? prepared->prepared.bytes() : 0;
}
size_t fairlead_prepared_size(const fairlead_prepared* prepared) {
  return prepared != nullptr ? prepared->prepared.size() : 0;
}
void fairlead_prepared_release(fairlead_prepared* prepared) {
  (void)outcome([&]() -> Status {
    delete prepared;
    return {};
  });
}

// ---- what was posted

bool fairlead_transfer_done(const fairlead_transfer* transfer) { return Borrowed(transfer)->done(); }

fairlead_code fairlead_transfer_status(const fairlead_transfer* transfer) {
  return outcome([&] { return transfer != nullptr ? Borrowed(transfer)->status() : missing("transfer"); });
}

fairlead_code fairlead_transfer_wait(fairlead_transfer* transfer, int64_t timeout_ns) {
  return outcome([&] {
    return transfer != nullptr ? Borrowed(transfer)->wait(std::chrono::nanoseconds(timeout_ns)) : missing("transfer");
  });
}

void fairlead_transfer_cancel(fairlead_transfer* transfer) { Borrowed(transfer)->cancel(); }
uint64_t fairlead_transfer_bytes(const fairlead_transfer* transfer) { return Borrowed(transfer)->bytes(); }
uint64_t fairlead_transfer_tag(const fairlead_transfer* transfer) { return Borrowed(transfer)->tag(); }
uint64_t fairlead_transfer_old_value(const fairlead_transfer* transfer) { return Borrowed(transfer)->old_value(); }

void fairlead_transfer_release(fairlead_transfer* transfer) {
  (void)outcome([&]() -> Status {
    (void)Transfer(Passkey(), transfer);
    return {};
  });
}

size_t fairlead_wait_any(fairlead_transfer* const* transfers, size_t count, int64_t timeout_ns) {
  std::size_t done = count;
  (void)outcome([&]() -> Status {
    const auto all = transfers_of(transfers, count);
    if (!all) return all.error();
    done = wait_any(*all, std::chrono::nanoseconds(timeout_ns));
    return {};
  });
  return done;
}

fairlead_code fairlead_wait_all(fairlead_transfer* const* transfers, size_t count, int64_t timeout_ns) {
  return outcome([&]() -> Status {
    const auto all = transfers_of(transfers, count);
    return all ? wait_all(*all, std::chrono::nanoseconds(timeout_ns)) : all.error();
  });
}
