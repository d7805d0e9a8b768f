#include "datapath/command/codec.h"

#include <algorithm>
#include <utility>

#include "datapath/command/graph/launch_record.h"

namespace fairlead::datapath::command {
namespace {

using fairlead::command::Failure;
using fairlead::command::Scope;

constexpr auto kLastScope = static_cast<std::uint16_t>(Scope::kSession);

Bytes bytes_of(std::string_view text) noexcept {
  return std::as_bytes(std::span(text)).first(std::min(text.size(), kMaxText));
}
std::string text_of(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

template <typename Body>
bool holds(const Record& record, std::uint64_t (*tail)(const Body&), std::size_t limit) noexcept {
  if (record.body.size() < sizeof(Body)) return false;
  const std::uint64_t bytes = tail(body_of<Body>(record));
  return bytes <= limit && bytes <= record.body.size() - sizeof(Body);
}
template <typename Body>
bool holds(const Record& record) noexcept {
  return record.body.size() >= sizeof(Body);
}

std::uint64_t name_bytes(const LoadBody& body) noexcept { return body.name_bytes; }
std::uint64_t new_parameter_bytes(const UpdateGraphBody& body) noexcept { return body.parameter_bytes; }
std::uint64_t copied_bytes(const CopyBody& body) noexcept { return body.bytes; }
std::uint64_t layout_bytes(const LoadFromBody& body) noexcept {
  // Too much for any record, where it is out of bounds.
  if (body.parameters > kMaxLayout || body.name_bytes > kMaxName) return kMaxRecord;
  return body.parameters * sizeof(ParameterItem) + body.name_bytes;
}
std::uint64_t graph_bytes(const GraphBody& body) noexcept { return body.bytes; }
std::uint64_t user_bytes(const UserBody& body) noexcept { return body.bytes; }

}  // namespace

std::optional<Bytes> take_padded(Bytes& bytes, std::uint64_t count) noexcept {
  if (count > bytes.size() || padded(count) > bytes.size()) return std::nullopt;
  const Bytes taken = bytes.first(count);
  bytes = bytes.subspan(padded(count));
  return taken;
}

void put_padded(std::vector<std::byte>& to, Bytes bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
  to.resize(padded(to.size()));
}

std::vector<std::byte> make_message(const MessageHeader& header) {
  std::vector<std::byte> message;
  put(message, header);
  return message;
}

std::vector<std::byte> hello_message(const Hello& hello, const std::optional<HelloMore>& more,
                                     const std::optional<HelloLast>& last, const std::optional<HelloDevices>& devices) {
  auto message = make_message({.type = static_cast<std::uint8_t>(MessageType::kHello)});
  put(message, hello);
  if (more) put(message, *more);
  if (last) put(message, *last);
  if (devices) put(message, *devices);
  return message;
}

std::vector<std::byte> welcome_message(const Welcome& welcome, const std::optional<WelcomeMore>& more,
                                       const std::optional<WelcomeLast>& last, const std::optional<WelcomeKept>& kept,
                                       const std::optional<std::vector<DeviceFacts>>& devices) {
  auto message = make_message({.type = static_cast<std::uint8_t>(MessageType::kWelcome)});
  put(message, welcome);
  if (more) put(message, *more);
  if (last) put(message, *last);
  if (kept) put(message, *kept);
  if (!devices) return message;
  put(message, WelcomeDevices{devices->size()});
  for (const DeviceFacts& each : *devices) {
    const Bytes name = bytes_of(std::string_view(each.name).substr(0, kMaxDeviceName));
    WelcomeDevice facts = each.facts;
    facts.name_bytes = static_cast<std::uint32_t>(name.size());
    put(message, facts);
    put_padded(message, name);
  }
  return message;
}

std::optional<std::vector<DeviceFacts>> take_devices(Bytes& bytes) {
  const auto devices = take<WelcomeDevices>(bytes);
  if (!devices || devices->count == 0 || devices->count > kMaxDevices) return std::nullopt;
  std::vector<DeviceFacts> all;
  for (std::uint64_t i = 0; i < devices->count; ++i) {
    const auto facts = take<WelcomeDevice>(bytes);
    const auto name =
        facts && facts->name_bytes <= kMaxDeviceName ? take_padded(bytes, facts->name_bytes) : std::optional<Bytes>();
    if (!name || facts->greatest_priority > 0 || facts->least_priority < 0) return std::nullopt;
    all.push_back({*facts, text_of(*name)});
  }
  return all;
}

bool is_kept_welcome(Bytes message) noexcept {
  const auto header = take<MessageHeader>(message);
  constexpr std::size_t kBefore = sizeof(Welcome) + sizeof(WelcomeMore) + sizeof(WelcomeLast);
  if (!header || !is_message(*header, MessageType::kWelcome) || message.size() < kBefore) return false;
  message = message.subspan(kBefore);
  const auto kept = take<WelcomeKept>(message);
  return kept && kept->keep_ms != 0;
}

bool is_hello_to_keep(Bytes message) noexcept {
  const auto header = take<MessageHeader>(message);
  const auto hello = header && is_message(*header, MessageType::kHello) ? take<Hello>(message) : std::nullopt;
  if (!hello || hello->newest < kResumeVersion || !take<HelloMore>(message)) return false;
  const auto last = take<HelloLast>(message);
  return last && last->keep == 1;
}

std::vector<std::byte> channel_message(std::uint16_t channel, const ChannelBody& body) {
  auto message = make_message({.type = static_cast<std::uint8_t>(MessageType::kChannel), .channel = channel});
  put(message, body);
  return message;
}

std::vector<std::byte> window_message(std::uint64_t bytes, std::string_view capability, bool is_for_reads) {
  auto message =
      make_message({.type = static_cast<std::uint8_t>(MessageType::kWindow), .count = is_for_reads ? 1u : 0u});
  put(message, WindowBody{bytes, capability.size()});
  put_padded(message, bytes_of(capability));
  return message;
}

std::vector<std::byte> refused_message(const Status& why) {
  auto message = make_message({.type = static_cast<std::uint8_t>(MessageType::kRefused)});
  const Bytes text = bytes_of(why.message());
  put(message,
      Refused{.code = static_cast<std::uint16_t>(why.code()), .text_bytes = static_cast<std::uint16_t>(text.size())});
  put_padded(message, text);
  return message;
}

Status refusal_in(Bytes body) {
  const auto said = take<Refused>(body);
  const std::optional<Bytes> text = said ? take_padded(body, said->text_bytes) : std::nullopt;
  const bool known = said && said->code != 0 && said->code <= static_cast<std::uint16_t>(Code::kInternal);
  if (!text || !known) return {Code::kDataLoss, "the service ended the session, in words that are malformed"};
  return {static_cast<Code>(said->code), "the service says: " + text_of(*text)};
}

bool is_well_formed(const Record& record) noexcept {
  if (record.opcode >= kFirstUserOpcode) return holds<UserBody>(record, user_bytes, kMaxParameters);
  switch (static_cast<Opcode>(record.opcode)) {
    case Opcode::kAllocate:
      return holds<AllocateBody>(record);
    case Opcode::kRelease:
      return holds<ReleaseBody>(record);
    case Opcode::kFill:
      return holds<FillBody>(record);
    case Opcode::kCopyIn:
      if ((record.flags & kInline) != 0) return holds<CopyBody>(record, copied_bytes, kMaxInline);
      return holds<CopyBody>(record);
    case Opcode::kCopyOut:
      if ((record.flags & kPlaced) != 0) return holds<CopyToWindowBody>(record);
      return holds<CopyBody>(record);
    case Opcode::kCopyWithin:
      return holds<CopyWithinBody>(record);
    case Opcode::kLoad:
      return holds<LoadBody>(record, name_bytes, kMaxName);
    case Opcode::kLaunch:
      return is_well_formed_launch(record);
    case Opcode::kMark:
      return true;
    case Opcode::kFence:
      return holds<FenceBody>(record);
    case Opcode::kRecover:
      return holds<RecoverBody>(record);
    case Opcode::kModule:
      return holds<ModuleBody>(record);
    case Opcode::kLoadFrom:
      return holds<LoadFromBody>(record, layout_bytes, kMaxLayout * sizeof(ParameterItem) + kMaxName);
    case Opcode::kGraph:
      if ((record.flags & kInline) != 0) return holds<GraphBody>(record, graph_bytes, kMaxInline);
      return holds<GraphBody>(record);
    case Opcode::kLaunchGraph:
    case Opcode::kReleaseGraph:
      return holds<GraphHandleBody>(record);
    case Opcode::kAllocateAt:
      return holds<AllocateAtBody>(record);
    case Opcode::kCopyAcross:
      return holds<CopyAcrossBody>(record);
    case Opcode::kUpdateGraph:
      return holds<UpdateGraphBody>(record, new_parameter_bytes, kMaxParameters);
  }
  return true;
}

Bytes tail_of(const Record& record) noexcept {
  if (record.is(Opcode::kLoad)) return record.body.subspan(sizeof(LoadBody), body_of<LoadBody>(record).name_bytes);
  if (record.is(Opcode::kLaunch)) {
    return record.body.subspan(sizeof(LaunchBody), body_of<LaunchBody>(record).parameter_bytes);
  }
  if (record.is(Opcode::kUpdateGraph)) {
    return record.body.subspan(sizeof(UpdateGraphBody), body_of<UpdateGraphBody>(record).parameter_bytes);
  }
  if (record.is(Opcode::kCopyIn)) return record.body.subspan(sizeof(CopyBody), body_of<CopyBody>(record).bytes);
  if (record.is(Opcode::kGraph)) return record.body.subspan(sizeof(GraphBody), body_of<GraphBody>(record).bytes);
  if (record.is(Opcode::kLoadFrom)) {
    return record.body.subspan(sizeof(LoadFromBody), layout_bytes(body_of<LoadFromBody>(record)));
  }
  return record.body.subspan(sizeof(UserBody), body_of<UserBody>(record).bytes);
}

std::optional<Reply> read_reply(const MessageHeader& header, Bytes body) {
  const auto fixed = take<ReplyBody>(body);
  if (!fixed || fixed->failed > 1) return std::nullopt;
  Reply reply{header.sequence, fixed->accepted, fixed->complete, {}, {}, header.count};
  if (fixed->failed == 1) {
    const auto said = take<FailureBody>(body);
    const std::optional<Bytes> text = said ? take_padded(body, said->text_bytes) : std::nullopt;
    if (!text || said->scope > kLastScope || said->sequence == 0 || said->result == 0) return std::nullopt;
    reply.failure = Failure{said->sequence, static_cast<Scope>(said->scope), said->result, text_of(*text)};
  }
  reply.data = body;
  return reply;
}

std::optional<ReplyData> take_data(Bytes& data) noexcept {
  const auto item = take<DataItem>(data);
  const std::optional<Bytes> bytes = item ? take_padded(data, item->bytes) : std::nullopt;
  if (!bytes) return std::nullopt;
  return ReplyData{item->sequence, *bytes};
}

std::vector<std::byte> reply_message(std::uint16_t channel, const Reply& reply) {
  std::vector<std::byte> message;
  write_reply(message, channel, reply);
  return message;
}

void write_reply(std::vector<std::byte>& message, std::uint16_t channel, const Reply& reply) {
  const struct {
    MessageHeader header;
    ReplyBody body;
  } front{{.type = static_cast<std::uint8_t>(MessageType::kReply),
           .channel = channel,
           .count = reply.items,
           .sequence = reply.executed},
          {reply.accepted, reply.complete, reply.failure ? 1u : 0u}};
  static_assert(sizeof front == sizeof(MessageHeader) + sizeof(ReplyBody));
  message.resize(sizeof front);
  std::memcpy(message.data(), &front, sizeof front);
  if (reply.failure) {
    const Bytes text = bytes_of(reply.failure->text);
    put(message,
        FailureBody{reply.failure->sequence, reply.failure->result, static_cast<std::uint16_t>(reply.failure->scope),
                    static_cast<std::uint16_t>(text.size())});
    put_padded(message, text);
  }
  message.insert(message.end(), reply.data.begin(), reply.data.end());
}

void put_data(std::vector<std::byte>& items, std::uint64_t sequence, Bytes bytes) {
  put(items, DataItem{sequence, bytes.size()});
  put_padded(items, bytes);
}

}  // namespace fairlead::datapath::command
