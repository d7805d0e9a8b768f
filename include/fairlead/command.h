// Commands for a device at another host: what a program asks is written into buffers in its own memory, crosses in
// batches, runs there in order, and is answered by how far it got.
//
//   auto session = fairlead::command::Session::connect(*engine, "gpu7:7471");
//   auto channel = session->open_channel();
//   const fairlead::command::Handle x = session->new_handle(), add = session->new_handle();
//   (void)channel->allocate(x, bytes);
//   (void)channel->copy_in(x, 0, input);
//   (void)channel->load(add, "vector_add");
//   (void)channel->launch({.function = add}, pack(Pointer{x}, Pointer{x}, Pointer{x}, count));
//   (void)channel->copy_out(output, x, 0);
//   fairlead::Status end = channel->synchronize();
//
// The other end is a command::Service (fairlead/command_service.h). docs/commands.md says what crosses, and what is not
// there yet.
#pragma once

#include <array>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "fairlead/engine.h"
#include "fairlead/export.h"
#include "fairlead/peer.h"
#include "fairlead/status.h"

namespace fairlead::inline v0::command {

// The library's own.
class ChannelBody;
class SessionBody;

class Graph;  // fairlead/command_graph.h

/// The client's own name for an allocation, a module, a function or a graph of its session: any number but 0, which
/// names nothing. The kinds have names of their own, and so has each device of the session.
struct Handle {
  std::uint64_t bits = 0;
  auto operator<=>(const Handle&) const = default;
};

/// How far a command got.
enum class Stage : std::uint8_t {
  kTaken,     // its arguments and bytes were copied: the caller's memory is free again. Every command that was appended
  kAccepted,  // the server has it, and it is well formed
  kExecuted,  // the executor has run it, or handed it to its device, or passed it over after a failure
  kComplete,  // the device is past it, and bytes that it copies out are in the caller's memory
};

/// How much of a session a failure ends.
enum class Scope : std::uint8_t {
  kCommand,  // this command; the channel's later ones are passed over until recover()
  kStream,   // what this command waited for failed; the same holds
  kContext,  // all that the session has on the device: every channel fails, for good
  kSession,  // the session has ended
};

/// What went wrong with a command. What ran after it: docs/commands.md says what each device promises.
struct Failure {
  std::uint64_t sequence = 0;  // of the first command of the channel that failed; where a device tells of a fault
                               // afterwards, of the first that is not known to be complete
  Scope scope = Scope::kCommand;
  std::int32_t result = 0;  // a CUresult, also where the device is none of CUDA's
  std::string text;
};

/// Threads in each direction: of a grid in blocks, of a block in threads.
struct Extent {
  std::uint32_t x = 1, y = 1, z = 1;
};

/// What to launch, and on how many threads.
struct Launch {
  Handle function{};
  Extent grid{}, block{};
  std::uint32_t shared_bytes = 0;
};

/// Whether a launch has blocks and threads, and no more of them and of shared memory than that. A pure function, for
/// who writes an executor.
[[nodiscard]] constexpr bool fits(const Launch& launch, const Extent& most_blocks, std::uint32_t most_threads,
                                  std::uint32_t most_shared_bytes) noexcept {
  // 1 to most: from 0 the subtraction leads past it.
  const auto within = [](std::uint32_t value, std::uint32_t most) { return value - 1 < most; };
  const Extent &grid = launch.grid, &block = launch.block;
  if (!within(grid.x, most_blocks.x) || !within(grid.y, most_blocks.y) || !within(grid.z, most_blocks.z)) return false;
  if (!within(block.x, most_threads) || !within(block.y, most_threads) || !within(block.z, most_threads)) return false;
  const std::uint64_t plane = std::uint64_t{block.x} * block.y;
  return plane <= most_threads && plane * block.z <= most_threads && launch.shared_bytes <= most_shared_bytes;
}

/// A pointer parameter: a byte of an allocation.
struct Pointer {
  Handle allocation;
  std::uint64_t offset = 0;
};

/// The parameters of a launch one after the other, each at a multiple of its alignment, as kernels take them.
template <typename... Parameters>
[[nodiscard]] auto pack(const Parameters&... parameters) noexcept {
  static_assert((std::is_trivially_copyable_v<Parameters> && ...));
  constexpr auto kEnd = [] {
    std::size_t end = 0;
    ((end = (end + alignof(Parameters) - 1) / alignof(Parameters) * alignof(Parameters) + sizeof(Parameters)), ...);
    return end;
  }();
  std::array<std::byte, kEnd> bytes{};
  std::size_t end = 0;
  ((end = (end + alignof(Parameters) - 1) / alignof(Parameters) * alignof(Parameters),
    std::memcpy(bytes.data() + end, &parameters, sizeof parameters), end += sizeof(Parameters)),
   ...);
  return bytes;
}

/// One parameter of a function that comes from a module: how pack() places it, and whether it is a Pointer. A device
/// gets an address of 8 bytes for a Pointer, and all else as it is; for Pointer{} it gets 0.
struct Parameter {
  std::uint32_t bytes = 0;      // a Pointer has 16,
  std::uint16_t alignment = 1;  // a multiple of 8: a power of two up to 16
  bool is_pointer = false;
};

/// The parameters of a function in the order of pack(): layout<Pointer, Pointer, Pointer, std::uint32_t>(). Pointers
/// within a structure are not found: they are passed as they are.
template <typename... Types>
[[nodiscard]] constexpr std::array<Parameter, sizeof...(Types)> layout() noexcept {
  return {Parameter{sizeof(Types), alignof(Types), std::is_same_v<Types, Pointer>}...};
}

/// Addresses on the device that are a session's, and the same at both ends (SessionOptions::range_bytes).
struct AddressRange {
  std::uint64_t base = 0, bytes = 0;  // 0 bytes: there is none
  std::uint32_t alignment = 0;        // of what is placed in it: a power of two
};

/// What the server allows; it said so when the session began. From parameter_bytes on, but for payload, a device's.
struct Limits {
  std::uint32_t version = 0;          // of the protocol, negotiated
  std::uint32_t channels = 0;         // of a session
  std::uint32_t credits = 0;          // commands of a channel that are appended and not executed
  std::uint32_t parameter_bytes = 0;  // of a launch, and of a user's command
  std::uint32_t payload_bytes = 0;    // of one record; larger copies become several
  std::uint64_t payload_credit = 0;   // bytes of a channel on their way in, apart from those that commands hold
  std::uint64_t memory_bytes = 0;     // of the session, on the device
  std::uint32_t block_threads = 0;    // of a block, all directions together
  std::uint32_t shared_bytes = 0;     // of a launch
  Extent grid{};
  std::uint32_t modules = 0;  // of the session; 0: the device takes none
  // Of the session's graphs together; 0: the device takes none, or the service is older than graphs. One has at most
  // payload_bytes.
  std::uint32_t graph_records = 0;
  std::uint64_t graph_bytes = 0;
  AddressRange range{};
  /// Of channels; the greatest has the smallest number, as in CUDA. Both 0: there are none, or the service is older.
  std::int32_t least_priority = 0, greatest_priority = 0;
  /// How long the service keeps the session while its client is away (SessionOptions::resume_within). 0: it does not.
  std::chrono::milliseconds kept_for{0};
  /// Which of the service's devices it is, and what that says it is: "host", "NVIDIA H100 PCIe". An older service says
  /// nothing.
  std::uint32_t device_number = 0;
  std::string device_name{};
};

/// A place in a channel that others may wait for.
struct Mark {
  std::uint32_t channel = 0;
  std::uint64_t sequence = 0;
};

/// In SessionOptions::devices, alone: all that the client may use.
inline constexpr std::uint32_t kAllDevices = ~std::uint32_t{0};

struct SessionOptions {
  std::chrono::milliseconds patience{10'000};  // for the session to begin
  std::uint32_t flush_bytes = 4000;            // a buffer leaves when it has so many, 512 to 65,536,
  std::uint32_t flush_commands = 64;           // or holds so many commands, 1 to 4,096 (and up to four times as much of
                                               // both while the service is behind),
  std::chrono::microseconds flush_after{20};   // or its first has waited for so long; 0: not by time, and no thread
  bool wait_for_room = true;                   // appends wait for credits; false: they fail with kResourceExhausted
  /// A range of addresses for all of the session's memory, which the client places (Channel::allocate_at), so that it
  /// knows every address without asking. So much of the device's memory is the session's from its beginning. 0: none.
  std::uint64_t range_bytes = 0;
  /// The same addresses are kept free in this process, so that nothing of its own, and no other session, has them.
  /// false: nobody sees to that; for a service within this process, which has its memory there itself.
  bool reserve_range_here = true;
  /// Where the engine's session with the service is lost (its peer_timeout has passed, or it could not go on), another
  /// is sought for so long, and this one goes on over it as if nothing had happened: nothing runs twice, nothing is
  /// lost, and who waits goes on waiting. The service must keep it, too (Limits::kept_for). What may have to be said
  /// again is kept: of each channel its credits' worth of commands and of payload at most. 0: this one ends with it.
  std::chrono::milliseconds resume_within{0};
  /// Which of the service's devices the session has, by their numbers there: those become the session's devices 0, 1
  /// and so on, in this order of numbers, as by CUDA_VISIBLE_DEVICES. On each it has memory from its beginning, and
  /// range_bytes is of each. Refused if one is not there, or not this client's to use. Empty: the first that it may
  /// use.
  std::vector<std::uint32_t> devices{};
};

struct ChannelOptions {
  /// As of a CUDA stream: a smaller number goes before larger ones of the session, and one beyond Limits is taken for
  /// the nearest that there is (Channel::priority()). docs/commands.md says what is promised of it.
  std::int32_t priority = 0;
  /// Of the session's, below Session::device_count(): all that the channel's commands name is that device's.
  std::uint32_t device = 0;
};

/// A queue of commands. Commands of a channel run in the order of appending; of several channels there is no order but
/// what fences say. A counted handle: the session's.
///
/// Appending gives the command's sequence, counted from 1 in each channel. It copies what it is given, makes no system
/// call but to flush a full buffer, and fails at once with
///   kInvalidArgument    what can be seen here to be wrong (geometry, parameters, sizes): it was not sent, and is no
///                       failure of the channel
///   kAborted            the channel has failed, see failure(); recover() first
///   kResourceExhausted  no credits, unless SessionOptions::wait_for_room
///   what ended the session.
/// All else that goes wrong is a failure() of the channel. Threads: all members from any thread.
class FAIRLEAD_EXPORT Channel {
 public:
  Channel() noexcept = default;
  explicit Channel(std::shared_ptr<ChannelBody> channel) noexcept : channel_(std::move(channel)) {}
  [[nodiscard]] bool valid() const noexcept { return channel_ != nullptr; }
  [[nodiscard]] std::uint32_t number() const noexcept;
  [[nodiscard]] std::int32_t priority() const noexcept;
  [[nodiscard]] std::uint32_t device() const noexcept;

  /// Memory of the session's on the device, all bytes 0, under a handle that names none yet.
  Result<std::uint64_t> allocate(Handle handle, std::uint64_t bytes);
  /// The same, at a place in the device's range (Limits::range) that overlaps no other allocation: what was released
  /// by another channel is free behind a fence on that. Where a session has a range, it has no other memory.
  Result<std::uint64_t> allocate_at(Handle handle, std::uint64_t address, std::uint64_t bytes);
  /// Where that byte is on the device: for parameters and structures that hold addresses. Known without a reply, as the
  /// client placed it. Errors: kNotFound (nothing of that name was placed, or it was released), kOutOfRange.
  [[nodiscard]] Result<std::uint64_t> address_of(Handle handle, std::uint64_t offset = 0) const;
  Result<std::uint64_t> release(Handle handle);
  Result<std::uint64_t> fill(Handle to, std::uint64_t offset, std::uint64_t bytes, std::uint8_t value);
  /// `from` is free again when this returns. More than Limits::payload_bytes become several commands: the last one's
  /// sequence.
  Result<std::uint64_t> copy_in(Handle to, std::uint64_t offset, std::span<const std::byte> from);
  /// `to` is written until the command is complete, or has failed, or the session has ended. Where this fails, the
  /// first of several commands may have been appended: `to` is written until last() is settled.
  Result<std::uint64_t> copy_out(std::span<std::byte> to, Handle from, std::uint64_t offset);
  /// The two may be of one allocation, and overlap.
  Result<std::uint64_t> copy_within(Handle to, std::uint64_t to_offset, Handle from, std::uint64_t from_offset,
                                    std::uint64_t bytes);
  /// From memory of another device of the session's (or this one's), behind what this channel has waited for. Through
  /// the service's memory. More than Limits::payload_bytes become several commands: the last one's sequence. Errors
  /// here: kOutOfRange (no such device), kVersionMismatch (an older service).
  Result<std::uint64_t> copy_across(Handle to, std::uint64_t to_offset, std::uint32_t from_device, Handle from,
                                    std::uint64_t from_offset, std::uint64_t bytes);
  /// Names a function of the server's. The handle may name another one so far.
  Result<std::uint64_t> load(Handle function, std::string_view name);
  /// Code for the device: PTX, a cubin or a fatbin, under a handle that names no module yet. The image is sent if the
  /// service does not have it from anybody yet, by its SHA-256; `image` is free again when this returns, and what is to
  /// be sent goes when the session is waited for or appended to. On devices that take none it is a failure() with
  /// kNotSupported.
  Result<std::uint64_t> load_module(Handle module, std::span<const std::byte> image);
  /// Names a function of a module, and what it takes (layout()). The handle may name another one so far.
  Result<std::uint64_t> load(Handle function, Handle module, std::string_view name,
                             std::span<const Parameter> parameters);
  /// `parameters`: as pack() makes them.
  Result<std::uint64_t> launch(const Launch& launch, std::span<const std::byte> parameters);
  /// A list of commands under a handle that names no graph yet. They are all checked before one runs: a failure()
  /// names the first that is wrong. `graph` is free again when this returns. Errors here: kInvalidArgument (a launch
  /// past the limits, no commands, more than Limits allow), kVersionMismatch (an older service), kUnimplemented (a
  /// device that takes none).
  Result<std::uint64_t> upload(Handle handle, const Graph& graph);
  /// Runs all of its commands, in order. It fails and changes nothing if memory or a graph of that name is not there
  /// any more.
  Result<std::uint64_t> launch_graph(Handle graph);
  Result<std::uint64_t> release_graph(Handle graph);
  /// What command `number` of it (as Graph::launch() said) is launched with from now on: in the runs of the graph that
  /// are appended after this, here or behind a fence on this. Its function stays, so `launch` names none. Errors here:
  /// as upload(); all else is a failure(), and the graph is as it was.
  Result<std::uint64_t> update_graph(Handle graph, std::uint32_t number, const Launch& launch,
                                     std::span<const std::byte> parameters);
  /// Of the executor's own making: it says what the opcodes and bytes mean.
  Result<std::uint64_t> user(std::uint16_t opcode, std::span<const std::byte> bytes);
  /// A place behind all that was appended so far,
  Result<Mark> record();
  /// and what is appended from here on waits until a channel of this session is past it. Fails if that one did.
  Result<std::uint64_t> fence(const Mark& mark);

  /// Sends what is buffered.
  void flush() noexcept;
  /// The sequence of the last command.
  [[nodiscard]] std::uint64_t last() const noexcept;
  /// Up to which command that stage is reached. One load or two.
  [[nodiscard]] std::uint64_t reached(Stage stage) const noexcept;
  /// Flushes this session's channels and waits. ok; kAborted with the failure's words if that command failed or was
  /// passed over; kDeadlineExceeded of the wait; or what ended the session.
  Status wait(std::uint64_t sequence, Stage stage = Stage::kComplete,
              std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max());
  /// The same for the last command.
  Status synchronize(std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max());

  /// The failure that the channel stands at, as far as it is known here: any wait for that command or a later one has
  /// seen it.
  [[nodiscard]] std::optional<Failure> failure() const;
  /// Goes on after a failure: commands that were appended before this were not run, those after it will be. ok if there
  /// is none. Errors: kAborted, of a failure of the context; connect anew.
  Status recover();

 private:
  std::shared_ptr<ChannelBody> channel_;
};

/// A session with a service. A counted handle; it ends with the last one of it and of its channels, when close() is
/// called, or with its engine. Its peer is its own: nobody else is to take that peer's events. fork(): the child's
/// copies are inert. Threads: any.
class FAIRLEAD_EXPORT Session {
 public:
  /// Errors: a bad option or address (kInvalidArgument), no service there in time, kVersionMismatch, why the service
  /// refused, or kUnavailable (the range that it gave is taken in this process).
  static Result<Session> connect(Engine& engine, std::string_view host_port, const SessionOptions& options = {});

  /// Errors: kResourceExhausted (Limits::channels; channels are not given back), kOutOfRange (no such device), what
  /// ended the session.
  Result<Channel> open_channel(const ChannelOptions& options = {});
  /// One that this session has not given before: 1, 2, 3 and so on.
  [[nodiscard]] Handle new_handle() noexcept;
  /// How many devices it has, and what each allows; one that there is not is taken for the first.
  [[nodiscard]] std::uint32_t device_count() const noexcept;
  [[nodiscard]] const Limits& limits(std::uint32_t device = 0) const noexcept;
  /// ok while it lives, else what ended it.
  [[nodiscard]] Status status() const;
  /// The one it has now.
  [[nodiscard]] Peer peer() const;
  /// How often it went on over another peer.
  [[nodiscard]] std::uint64_t resumptions() const noexcept;
  /// Sends what is buffered and ends the session in order.
  void close() noexcept;

 private:
  explicit Session(std::shared_ptr<SessionBody> session) noexcept : session_(std::move(session)) {}
  std::shared_ptr<SessionBody> session_;
};

}  // namespace fairlead::inline v0::command
