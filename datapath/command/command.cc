// The public faces of the client's side: what can be seen to be wrong here is refused here.
#include "fairlead/command.h"

#include <fmt/format.h>

#include <algorithm>

#include "datapath/command/client_session.h"
#include "datapath/command/graph/launch_check.h"
#include "datapath/command/module_cache.h"

namespace fairlead::inline v0::command {

using datapath::command::Bytes;
using datapath::command::ClientChannel;
using datapath::command::ClientSession;
using datapath::command::no_channel;
using datapath::command::of;
using datapath::command::Opcode;

namespace {

using Clock = std::chrono::steady_clock;

template <typename... Words>
Status wrong(fmt::format_string<Words...> text, Words&&... words) {
  return {Code::kInvalidArgument, fmt::format(text, std::forward<Words>(words)...)};
}

template <typename Body>
Bytes bytes_of(const Body& body) {
  return std::as_bytes(std::span(&body, 1));
}

template <typename Body>
Result<std::uint64_t> append(ClientChannel* channel, Opcode opcode, const Body& body, Bytes tail = {}) {
  return channel->append({static_cast<std::uint16_t>(opcode), 0, bytes_of(body), tail});
}

}  // namespace

// ---- Channel -------------------------------------------------------------------------------------------------------

std::uint32_t Channel::number() const noexcept { return valid() ? of(channel_)->number() : 0; }
std::int32_t Channel::priority() const noexcept { return valid() ? of(channel_)->options().priority : 0; }
std::uint32_t Channel::device() const noexcept { return valid() ? of(channel_)->options().device : 0; }

Result<std::uint64_t> Channel::allocate(Handle handle, std::uint64_t bytes) {
  if (!valid()) return no_channel();
  if (handle.bits == 0 || bytes == 0)
    return wrong("an allocation of {} bytes named {}; neither is 0", bytes, handle.bits);
  if (of(channel_)->limits().range.bytes != 0) {
    return wrong("the device has a range of addresses, in which the client places its memory: allocate_at()");
  }
  return append(of(channel_), Opcode::kAllocate, datapath::command::AllocateBody{handle.bits, bytes});
}

Result<std::uint64_t> Channel::fill(Handle to, std::uint64_t offset, std::uint64_t bytes, std::uint8_t value) {
  if (!valid()) return no_channel();
  return append(of(channel_), Opcode::kFill, datapath::command::FillBody{to.bits, offset, bytes, value});
}

Result<std::uint64_t> Channel::copy_in(Handle to, std::uint64_t offset, std::span<const std::byte> from) {
  if (!valid()) return no_channel();
  return of(channel_)->copy_in(to, offset, from);
}

Result<std::uint64_t> Channel::copy_out(std::span<std::byte> to, Handle from, std::uint64_t offset) {
  if (!valid()) return no_channel();
  return of(channel_)->copy_out(to, from, offset);
}

Result<std::uint64_t> Channel::copy_within(Handle to, std::uint64_t to_offset, Handle from, std::uint64_t from_offset,
                                           std::uint64_t bytes) {
  if (!valid()) return no_channel();
  return append(of(channel_), Opcode::kCopyWithin,
                datapath::command::CopyWithinBody{to.bits, to_offset, from.bits, from_offset, bytes});
}

Result<std::uint64_t> Channel::load(Handle function, std::string_view name) {
  if (!valid()) return no_channel();
  if (function.bits == 0 || name.empty() || name.size() > datapath::command::kMaxName) {
    return wrong("function {} with a name of {} bytes; the handle is not 0, and a name has 1 to {} bytes",
                 function.bits, name.size(), datapath::command::kMaxName);
  }
  return append(of(channel_), Opcode::kLoad, datapath::command::LoadBody{function.bits, name.size()},
                std::as_bytes(std::span(name)));
}

Result<std::uint64_t> Channel::load_module(Handle module, std::span<const std::byte> image) {
  if (!valid()) return no_channel();
  if (module.bits == 0 || image.empty()) {
    return wrong("a module of {} bytes named {}; neither is 0", image.size(), module.bits);
  }
  const std::optional<datapath::command::Sha256> digest = datapath::command::sha256_of(image);
  if (!digest) return Status(Code::kUnavailable, "libcrypto computes no SHA-256, which names the module's image");
  return of(channel_)->load_module({module.bits, image.size(), *digest}, image);
}

Result<std::uint64_t> Channel::load(Handle function, Handle module, std::string_view name,
                                    std::span<const Parameter> parameters) {
  if (!valid()) return no_channel();
  if (function.bits == 0 || module.bits == 0 || name.empty() || name.size() > datapath::command::kMaxName ||
      parameters.size() > datapath::command::kMaxLayout) {
    return wrong(
        "function {} of module {} with a name of {} bytes and {} parameters; handles are not 0, a name has 1 "
        "to {} bytes, and there are at most {} parameters",
        function.bits, module.bits, name.size(), parameters.size(), datapath::command::kMaxName,
        datapath::command::kMaxLayout);
  }
  std::vector<std::byte> tail;
  for (const Parameter& each : parameters) {
    const auto kind = each.is_pointer ? datapath::command::kPointerItem : std::uint16_t{0};
    datapath::command::put(tail, datapath::command::ParameterItem{each.bytes, each.alignment, kind});
  }
  const Bytes text = std::as_bytes(std::span(name));
  tail.insert(tail.end(), text.begin(), text.end());
  const datapath::command::LoadFromBody body{function.bits, module.bits, static_cast<std::uint32_t>(parameters.size()),
                                             static_cast<std::uint32_t>(name.size())};
  return of(channel_)->append(
      {static_cast<std::uint16_t>(Opcode::kLoadFrom), datapath::command::kMustKnow, bytes_of(body), tail});
}

Result<std::uint64_t> Channel::launch(const Launch& launch, std::span<const std::byte> parameters) {
  if (!valid()) return no_channel();
  const Limits& limits = of(channel_)->limits();
  if (datapath::command::is_launch(launch, parameters.size(), limits)) return of(channel_)->launch(launch, parameters);
  return datapath::command::check_launch(launch, parameters.size(), limits);
}

Result<std::uint64_t> Channel::user(std::uint16_t opcode, std::span<const std::byte> bytes) {
  if (!valid()) return no_channel();
  const std::size_t most = of(channel_)->session().limits().parameter_bytes;
  if (opcode < datapath::command::kFirstUserOpcode || bytes.size() > most) {
    return wrong("user's command {} of {} bytes; these begin at {} and have at most {} bytes", opcode, bytes.size(),
                 datapath::command::kFirstUserOpcode, most);
  }
  const datapath::command::UserBody body{bytes.size()};
  return of(channel_)->append({opcode, 0, bytes_of(body), bytes});
}

Result<Mark> Channel::record() {
  if (!valid()) return no_channel();
  const Result<std::uint64_t> sequence = of(channel_)->append({static_cast<std::uint16_t>(Opcode::kMark), 0, {}, {}});
  if (!sequence) return sequence.error();
  return Mark{of(channel_)->number(), *sequence};
}

Result<std::uint64_t> Channel::fence(const Mark& mark) {
  if (!valid()) return no_channel();
  if (mark.sequence == 0) return wrong("a fence on no mark");
  return append(of(channel_), Opcode::kFence, datapath::command::FenceBody{mark.channel, mark.sequence});
}

void Channel::flush() noexcept {
  if (valid()) of(channel_)->flush();
}

std::uint64_t Channel::last() const noexcept { return valid() ? of(channel_)->last() : 0; }
std::uint64_t Channel::reached(Stage stage) const noexcept { return valid() ? of(channel_)->reached(stage) : 0; }

Status Channel::wait(std::uint64_t sequence, Stage stage, std::chrono::nanoseconds timeout) {
  if (!valid()) return no_channel();
  if (sequence > last())
    return wrong("command {} of channel {} was not appended; {} is the last", sequence, number(), last());
  ClientSession& session = of(channel_)->session();
  const auto settled = [&] { return of(channel_)->is_settled(sequence, stage); };
  if (!settled()) {
    session.flush_all();
    const Clock::time_point never = Clock::time_point::max();
    const Clock::time_point now = timeout != std::chrono::nanoseconds::max() ? Clock::now() : Clock::time_point();
    if (!session.wait_until(settled, timeout < never - now ? now + timeout : never)) {
      if (session.has_ended()) return session.status();
      return {Code::kDeadlineExceeded,
              fmt::format("command {} of channel {} was not done in time", sequence, number())};
    }
  }
  return of(channel_)->verdict(sequence);
}

Status Channel::synchronize(std::chrono::nanoseconds timeout) { return wait(last(), Stage::kComplete, timeout); }

std::optional<Failure> Channel::failure() const { return valid() ? of(channel_)->failure() : std::nullopt; }
Status Channel::recover() { return valid() ? of(channel_)->recover() : no_channel(); }

// ---- Session -------------------------------------------------------------------------------------------------------

Result<Session> Session::connect(Engine& engine, std::string_view host_port, const SessionOptions& options) {
  auto session = ClientSession::connect(engine, host_port, options);
  if (!session) return session.error();
  return Session(*std::move(session));
}

Result<Channel> Session::open_channel(const ChannelOptions& options) {
  if (of(session_)->has_ended()) return of(session_)->status();
  if (options.device >= device_count()) {
    return Status(Code::kOutOfRange,
                  fmt::format("a channel of device {}; the session has {}, from 0 on", options.device, device_count()));
  }
  ClientChannel* const channel = of(session_)->open_channel(options);
  if (channel == nullptr) {
    return Status(Code::kResourceExhausted,
                  fmt::format("the session has {} channels, as many as the service allows", limits().channels));
  }
  return Channel(std::shared_ptr<ChannelBody>(session_, channel));
}

Handle Session::new_handle() noexcept { return {of(session_)->new_handle()}; }
std::uint32_t Session::device_count() const noexcept {
  return static_cast<std::uint32_t>(of(session_)->device_count());
}
const Limits& Session::limits(std::uint32_t device) const noexcept { return of(session_)->limits(device); }
Status Session::status() const {
  of(session_)->drain();  // who asks now and then, and does nothing else, hears of the end too
  return of(session_)->status();
}
Peer Session::peer() const { return of(session_)->peer(); }
std::uint64_t Session::resumptions() const noexcept { return of(session_)->resumptions(); }
void Session::close() noexcept { of(session_)->close(); }

}  // namespace fairlead::inline v0::command
