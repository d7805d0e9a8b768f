#include <array>
#include <chrono>
#include <cstring>
#include <limits>
#include <span>

#include "capi/handles.h"
#include "capi/structures.h"
#include "fairlead/command.h"
#include "fairlead/command_graph.h"
#include "fairlead/fairlead_command.h"

using namespace fairlead;        // NOLINT(google-build-using-namespace): a translation from one API to the other
using namespace fairlead::capi;  // NOLINT(google-build-using-namespace)

struct fairlead_session {
  command::Session session;
};
struct fairlead_channel {
  command::Channel channel;
};
struct fairlead_graph {
  command::Graph graph;
};

namespace {

command::Handle handle(fairlead_handle bits) { return {bits}; }
std::span<const std::byte> bytes_of(const void* data, std::size_t size) {
  return {static_cast<const std::byte*>(data), size};
}
command::Extent extent_of(const fairlead_extent& from) {
  const auto at_least_one = [](std::uint32_t n) { return n == 0 ? 1 : n; };
  return {at_least_one(from.x), at_least_one(from.y), at_least_one(from.z)};
}

Status launch_of(const fairlead_launch* from, command::Launch& to) {
  if (from == nullptr) return missing("launch");
  fairlead_launch known = FAIRLEAD_INIT(fairlead_launch);
  if (Status status = take(*from, known, "fairlead_launch"); !status.ok()) return status;
  to = {handle(known.function), extent_of(known.grid), extent_of(known.block), known.shared_bytes};
  return {};
}

/// Appends a command and tells its sequence.
template <typename Append>
fairlead_code appended(fairlead_channel* channel, std::uint64_t* sequence, Append&& append) {
  return outcome([&]() -> Status {
    if (sequence != nullptr) *sequence = 0;
    if (channel == nullptr) return missing("channel");
    Result<std::uint64_t> done = append(channel->channel);
    if (!done) return done.error();
    if (sequence != nullptr) *sequence = *done;
    return {};
  });
}

/// What has the same name and kind in C and C++, either way.
template <typename To, typename From>
void copy_numbers(To& to, const From& from) {
  to.range_bytes = from.range_bytes;
  to.flush_bytes = from.flush_bytes;
  to.flush_commands = from.flush_commands;
  to.wait_for_room = from.wait_for_room;
  to.reserve_range_here = from.reserve_range_here;
}

fairlead_session_options options_of(const command::SessionOptions& from) {
  fairlead_session_options to = FAIRLEAD_INIT(fairlead_session_options);
  to.patience_ns = std::chrono::nanoseconds(from.patience).count();
  to.flush_after_ns = std::chrono::nanoseconds(from.flush_after).count();
  to.resume_within_ns = std::chrono::nanoseconds(from.resume_within).count();
  copy_numbers(to, from);
  return to;
}

command::SessionOptions options_of(const fairlead_session_options& from) {
  using std::chrono::duration_cast, std::chrono::nanoseconds;
  command::SessionOptions to;
  to.patience = duration_cast<std::chrono::milliseconds>(nanoseconds(from.patience_ns));
  to.flush_after = duration_cast<std::chrono::microseconds>(nanoseconds(from.flush_after_ns));
  to.resume_within = duration_cast<std::chrono::milliseconds>(nanoseconds(from.resume_within_ns));
  to.devices = numbers_of(from.devices, from.device_count);
  copy_numbers(to, from);
  return to;
}

Status give_limits(const command::Limits& from, fairlead_session_limits* limits) {
  fairlead_session_limits full = FAIRLEAD_INIT(fairlead_session_limits);
  full.version = from.version;
  full.channels = from.channels;
  full.credits = from.credits;
  full.parameter_bytes = from.parameter_bytes;
  full.payload_bytes = from.payload_bytes;
  full.payload_credit = from.payload_credit;
  full.memory_bytes = from.memory_bytes;
  full.block_threads = from.block_threads;
  full.shared_bytes = from.shared_bytes;
  full.grid = {from.grid.x, from.grid.y, from.grid.z};
  full.modules = from.modules;
  full.graph_records = from.graph_records;
  full.graph_bytes = from.graph_bytes;
  full.least_priority = from.least_priority;
  full.greatest_priority = from.greatest_priority;
  full.range_base = from.range.base;
  full.range_bytes = from.range.bytes;
  full.range_alignment = from.range.alignment;
  full.kept_for_ns = std::chrono::nanoseconds(from.kept_for).count();
  full.device_number = from.device_number;
  full.device_name = from.device_name.c_str();
  return give(full, limits, "fairlead_session_limits");
}

}  // namespace

size_t fairlead_pack(void* parameters, size_t size, size_t end, const void* value, size_t bytes, size_t alignment) {
  constexpr std::size_t kNoRoom = std::numeric_limits<std::size_t>::max();
  if (alignment == 0 || (alignment & (alignment - 1)) != 0 || end > size) return kNoRoom;
  const std::size_t begin = (end + alignment - 1) & ~(alignment - 1);
  if (parameters == nullptr || begin > size || bytes > size - begin) return kNoRoom;
  auto* const to = static_cast<std::byte*>(parameters);
  std::memset(to + end, 0, begin - end);
  std::memcpy(to + begin, value, bytes);
  return begin + bytes;
}

// ---- sessions

void fairlead_session_options_init(fairlead_session_options* options, size_t struct_size) {
  if (options == nullptr) return;
  options->struct_size = struct_size;
  (void)outcome([&] { return give(options_of(command::SessionOptions()), options, "fairlead_session_options"); });
}

fairlead_code fairlead_session_connect(fairlead_engine* engine, const char* host_port,
                                       const fairlead_session_options* options, fairlead_session** session) {
  return outcome([&]() -> Status {
    clear(session);
    if (engine == nullptr) return missing("engine");
    if (session == nullptr) return missing("session");
    fairlead_session_options known = options_of(command::SessionOptions());
    if (options != nullptr) {
      if (Status status = take(*options, known, "fairlead_session_options"); !status.ok()) return status;
    }
    return hand_over([&] { return command::Session::connect(*engine->engine, text_of(host_port), options_of(known)); },
                     session);
  });
}

fairlead_code fairlead_session_open_channel(fairlead_session* session, const fairlead_channel_options* options,
                                            fairlead_channel** channel) {
  return outcome([&]() -> Status {
    clear(channel);
    if (session == nullptr) return missing("session");
    if (channel == nullptr) return missing("channel");
    fairlead_channel_options known = FAIRLEAD_INIT(fairlead_channel_options);
    if (options != nullptr) {
      if (Status status = take(*options, known, "fairlead_channel_options"); !status.ok()) return status;
    }
    return hand_over([&] { return session->session.open_channel({known.priority, known.device}); }, channel);
  });
}

fairlead_handle fairlead_session_new_handle(fairlead_session* session) {
  return session != nullptr ? session->session.new_handle().bits : 0;
}

fairlead_code fairlead_session_get_limits(const fairlead_session* session, fairlead_session_limits* limits) {
  return outcome([&]() -> Status {
    if (session == nullptr) return missing("session");
    return give_limits(session->session.limits(), limits);
  });
}

uint32_t fairlead_session_device_count(const fairlead_session* session) {
  return session != nullptr ? session->session.device_count() : 0;
}

fairlead_code fairlead_session_get_device_limits(const fairlead_session* session, uint32_t device,
                                                 fairlead_session_limits* limits) {
  return outcome([&]() -> Status {
    if (session == nullptr) return missing("session");
    if (const std::uint32_t count = session->session.device_count(); device >= count) {
      return {Code::kOutOfRange,
              "device " + std::to_string(device) + ": the session has " + std::to_string(count) + ", counted from 0"};
    }
    return give_limits(session->session.limits(device), limits);
  });
}

uint64_t fairlead_session_resumptions(const fairlead_session* session) {
  return session != nullptr ? session->session.resumptions() : 0;
}

fairlead_code fairlead_session_status(const fairlead_session* session) {
  return outcome([&] { return session != nullptr ? session->session.status() : missing("session"); });
}

fairlead_code fairlead_session_peer(const fairlead_session* session, fairlead_peer** peer) {
  return outcome([&]() -> Status {
    clear(peer);
    if (session == nullptr) return missing("session");
    if (peer == nullptr) return missing("peer");
    *peer = new fairlead_peer{session->session.peer()};
    return {};
  });
}

void fairlead_session_close(fairlead_session* session) {
  if (session != nullptr) session->session.close();
}

void fairlead_session_release(fairlead_session* session) {
  (void)outcome([&]() -> Status {
    delete session;
    return {};
  });
}

// ---- channels

void fairlead_channel_release(fairlead_channel* channel) {
  (void)outcome([&]() -> Status {
    delete channel;
    return {};
  });
}

uint32_t fairlead_channel_number(const fairlead_channel* channel) {
  return channel != nullptr ? channel->channel.number() : 0;
}

uint32_t fairlead_channel_device(const fairlead_channel* channel) {
  return channel != nullptr ? channel->channel.device() : 0;
}

int32_t fairlead_channel_priority(const fairlead_channel* channel) {
  return channel != nullptr ? channel->channel.priority() : 0;
}

fairlead_code fairlead_channel_allocate(fairlead_channel* channel, fairlead_handle as, uint64_t bytes,
                                        uint64_t* sequence) {
  return appended(channel, sequence, [&](auto& to) { return to.allocate(handle(as), bytes); });
}

fairlead_code fairlead_channel_allocate_at(fairlead_channel* channel, fairlead_handle as, uint64_t address,
                                           uint64_t bytes, uint64_t* sequence) {
  return appended(channel, sequence, [&](auto& to) { return to.allocate_at(handle(as), address, bytes); });
}

fairlead_code fairlead_channel_address_of(const fairlead_channel* channel, fairlead_handle of, uint64_t offset,
                                          uint64_t* address) {
  return outcome([&]() -> Status {
    if (address != nullptr) *address = 0;
    if (channel == nullptr) return missing("channel");
    if (address == nullptr) return missing("address");
    const auto found = channel->channel.address_of(handle(of), offset);
    if (found) *address = *found;
    return found.status();
  });
}

fairlead_code fairlead_channel_release_memory(fairlead_channel* channel, fairlead_handle of, uint64_t* sequence) {
  return appended(channel, sequence, [&](auto& to) { return to.release(handle(of)); });
}

fairlead_code fairlead_channel_fill(fairlead_channel* channel, fairlead_handle to, uint64_t offset, uint64_t bytes,
                                    uint8_t value, uint64_t* sequence) {
  return appended(channel, sequence, [&](auto& at) { return at.fill(handle(to), offset, bytes, value); });
}

fairlead_code fairlead_channel_copy_in(fairlead_channel* channel, fairlead_handle to, uint64_t offset, const void* from,
                                       size_t bytes, uint64_t* sequence) {
  return appended(channel, sequence, [&](auto& at) -> Result<std::uint64_t> {
    if (Status status = check_there(from, bytes, "from"); !status.ok()) return status;
    return at.copy_in(handle(to), offset, bytes_of(from, bytes));
  });
}

fairlead_code fairlead_channel_copy_out(fairlead_channel* channel, void* to, size_t bytes, fairlead_handle from,
                                        uint64_t offset, uint64_t* sequence) {
  return appended(channel, sequence, [&](auto& at) -> Result<std::uint64_t> {
    if (Status status = check_there(to, bytes, "to"); !status.ok()) return status;
    return at.copy_out({static_cast<std::byte*>(to), bytes}, handle(from), offset);
  });
}

fairlead_code fairlead_channel_copy_within(fairlead_channel* channel, fairlead_handle to, uint64_t to_offset,
                                           fairlead_handle from, uint64_t from_offset, uint64_t bytes,
                                           uint64_t* sequence) {
  return appended(channel, sequence,
                  [&](auto& at) { return at.copy_within(handle(to), to_offset, handle(from), from_offset, bytes); });
}

fairlead_code fairlead_channel_copy_across(fairlead_channel* channel, fairlead_handle to, uint64_t to_offset,
                                           uint32_t from_device, fairlead_handle from, uint64_t from_offset,
                                           uint64_t bytes, uint64_t* sequence) {
  return appended(channel, sequence, [&](auto& at) {
    return at.copy_across(handle(to), to_offset, from_device, handle(from), from_offset, bytes);
  });
}

fairlead_code fairlead_channel_load(fairlead_channel* channel, fairlead_handle function, const char* name,
                                    uint64_t* sequence) {
  return appended(channel, sequence, [&](auto& to) { return to.load(handle(function), text_of(name)); });
}

fairlead_code fairlead_channel_load_module(fairlead_channel* channel, fairlead_handle module, const void* image,
                                           size_t bytes, uint64_t* sequence) {
  return appended(channel, sequence, [&](auto& to) -> Result<std::uint64_t> {
    if (Status status = check_there(image, bytes, "image"); !status.ok()) return status;
    return to.load_module(handle(module), bytes_of(image, bytes));
  });
}

fairlead_code fairlead_channel_load_from(fairlead_channel* channel, fairlead_handle function, fairlead_handle module,
                                         const char* name, const fairlead_parameter* parameters, size_t count,
                                         uint64_t* sequence) {
  return appended(channel, sequence, [&](auto& to) -> Result<std::uint64_t> {
    if (Status status = check_there(parameters, count, "parameters"); !status.ok()) return status;
    std::vector<command::Parameter> all;
    for (std::size_t i = 0; i < count; ++i) {
      all.push_back({parameters[i].bytes, parameters[i].alignment, parameters[i].is_pointer != 0});
    }
    return to.load(handle(function), handle(module), text_of(name), all);
  });
}

fairlead_code fairlead_channel_launch(fairlead_channel* channel, const fairlead_launch* launch, const void* parameters,
                                      size_t bytes, uint64_t* sequence) {
  return appended(channel, sequence, [&](auto& to) -> Result<std::uint64_t> {
    command::Launch wanted;
    if (Status status = launch_of(launch, wanted); !status.ok()) return status;
    if (Status status = check_there(parameters, bytes, "parameters"); !status.ok()) return status;
    return to.launch(wanted, bytes_of(parameters, bytes));
  });
}

fairlead_code fairlead_channel_user(fairlead_channel* channel, uint16_t opcode, const void* data, size_t bytes,
                                    uint64_t* sequence) {
  return appended(channel, sequence, [&](auto& to) -> Result<std::uint64_t> {
    if (Status status = check_there(data, bytes, "data"); !status.ok()) return status;
    return to.user(opcode, bytes_of(data, bytes));
  });
}

fairlead_code fairlead_channel_record(fairlead_channel* channel, fairlead_mark* mark) {
  return outcome([&]() -> Status {
    if (mark != nullptr) *mark = {};
    if (channel == nullptr) return missing("channel");
    if (mark == nullptr) return missing("mark");
    const auto recorded = channel->channel.record();
    if (!recorded) return recorded.error();
    *mark = {.sequence = recorded->sequence, .channel = recorded->channel, .reserved = 0};
    return {};
  });
}

fairlead_code fairlead_channel_fence(fairlead_channel* channel, const fairlead_mark* mark, uint64_t* sequence) {
  return appended(channel, sequence, [&](auto& to) -> Result<std::uint64_t> {
    if (mark == nullptr) return missing("mark");
    return to.fence({mark->channel, mark->sequence});
  });
}

void fairlead_channel_flush(fairlead_channel* channel) {
  if (channel != nullptr) channel->channel.flush();
}
uint64_t fairlead_channel_last(const fairlead_channel* channel) {
  return channel != nullptr ? channel->channel.last() : 0;
}
uint64_t fairlead_channel_reached(const fairlead_channel* channel, fairlead_stage stage) {
  if (channel == nullptr || !check_enum(stage, FAIRLEAD_STAGE_COMPLETE, "stage").ok()) return 0;
  return channel->channel.reached(static_cast<command::Stage>(stage));
}

fairlead_code fairlead_channel_wait(fairlead_channel* channel, uint64_t sequence, fairlead_stage stage,
                                    int64_t timeout_ns) {
  return outcome([&]() -> Status {
    if (channel == nullptr) return missing("channel");
    if (Status status = check_enum(stage, FAIRLEAD_STAGE_COMPLETE, "stage"); !status.ok()) return status;
    return channel->channel.wait(sequence, static_cast<command::Stage>(stage), std::chrono::nanoseconds(timeout_ns));
  });
}

fairlead_code fairlead_channel_synchronize(fairlead_channel* channel, int64_t timeout_ns) {
  return outcome([&] {
    return channel != nullptr ? channel->channel.synchronize(std::chrono::nanoseconds(timeout_ns)) : missing("channel");
  });
}

fairlead_code fairlead_channel_failure(const fairlead_channel* channel, fairlead_failure* failure) {
  return outcome([&]() -> Status {
    if (channel == nullptr) return missing("channel");
    const auto stands_at = channel->channel.failure();
    if (!stands_at) return {Code::kNotFound, "the channel stands at no failure"};
    tell({Code::kAborted, stands_at->text});  // the thread keeps the words
    fairlead_failure full = FAIRLEAD_INIT(fairlead_failure);
    full.sequence = stands_at->sequence;
    full.scope = static_cast<fairlead_scope>(stands_at->scope);
    full.result = stands_at->result;
    full.text = fairlead_last_error();
    return give(full, failure, "fairlead_failure");
  });
}

fairlead_code fairlead_channel_recover(fairlead_channel* channel) {
  return outcome([&] { return channel != nullptr ? channel->channel.recover() : missing("channel"); });
}

// ---- graphs

fairlead_code fairlead_graph_create(fairlead_graph** graph) {
  return outcome([&]() -> Status {
    clear(graph);
    if (graph == nullptr) return missing("graph");
    *graph = new fairlead_graph();
    return {};
  });
}

void fairlead_graph_release(fairlead_graph* graph) { delete graph; }

fairlead_code fairlead_graph_launch(fairlead_graph* graph, const fairlead_launch* launch, const void* parameters,
                                    size_t bytes) {
  return outcome([&]() -> Status {
    if (graph == nullptr) return missing("graph");
    command::Launch wanted;
    if (Status status = launch_of(launch, wanted); !status.ok()) return status;
    if (Status status = check_there(parameters, bytes, "parameters"); !status.ok()) return status;
    return graph->graph.launch(wanted, bytes_of(parameters, bytes)).status();
  });
}

fairlead_code fairlead_graph_fill(fairlead_graph* graph, fairlead_handle to, uint64_t offset, uint64_t bytes,
                                  uint8_t value) {
  return outcome([&] {
    return graph != nullptr ? graph->graph.fill(handle(to), offset, bytes, value).status() : missing("graph");
  });
}

fairlead_code fairlead_graph_copy_within(fairlead_graph* graph, fairlead_handle to, uint64_t to_offset,
                                         fairlead_handle from, uint64_t from_offset, uint64_t bytes) {
  return outcome([&] {
    return graph != nullptr ? graph->graph.copy_within(handle(to), to_offset, handle(from), from_offset, bytes).status()
                            : missing("graph");
  });
}

uint32_t fairlead_graph_commands(const fairlead_graph* graph) { return graph != nullptr ? graph->graph.records() : 0; }

fairlead_code fairlead_channel_upload(fairlead_channel* channel, fairlead_handle as, const fairlead_graph* graph,
                                      uint64_t* sequence) {
  return appended(channel, sequence, [&](auto& to) -> Result<std::uint64_t> {
    if (graph == nullptr) return missing("graph");
    return to.upload(handle(as), graph->graph);
  });
}

fairlead_code fairlead_channel_launch_graph(fairlead_channel* channel, fairlead_handle graph, uint64_t* sequence) {
  return appended(channel, sequence, [&](auto& to) { return to.launch_graph(handle(graph)); });
}

fairlead_code fairlead_channel_release_graph(fairlead_channel* channel, fairlead_handle graph, uint64_t* sequence) {
  return appended(channel, sequence, [&](auto& to) { return to.release_graph(handle(graph)); });
}

fairlead_code fairlead_channel_update_graph(fairlead_channel* channel, fairlead_handle graph, uint32_t number,
                                            const fairlead_launch* launch, const void* parameters, size_t bytes,
                                            uint64_t* sequence) {
  return appended(channel, sequence, [&](auto& to) -> Result<std::uint64_t> {
    command::Launch wanted;
    if (Status status = launch_of(launch, wanted); !status.ok()) return status;
    if (Status status = check_there(parameters, bytes, "parameters"); !status.ok()) return status;
    return to.update_graph(handle(graph), number, wanted, bytes_of(parameters, bytes));
  });
}
