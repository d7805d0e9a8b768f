// Bytes to messages and records, and back. Whatever comes from the peer is a value, or nothing.
//
// Views refer to the bytes that they were read from. Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "datapath/command/wire.h"
#include "fairlead/command.h"
#include "fairlead/status.h"

namespace fairlead::datapath::command {

using Bytes = std::span<const std::byte>;

/// The struct at the front of `bytes`, which then begin behind it. Nothing: they are too short.
template <typename T>
[[nodiscard]] std::optional<T> take(Bytes& bytes) noexcept {
  if (bytes.size() < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes = bytes.subspan(sizeof value);
  return value;
}
/// The next `count` bytes, and what pads them to a multiple of 8.
[[nodiscard]] std::optional<Bytes> take_padded(Bytes& bytes, std::uint64_t count) noexcept;

template <typename T>
void put(std::vector<std::byte>& to, const T& value) {
  const auto* const from = reinterpret_cast<const std::byte*>(&value);
  to.insert(to.end(), from, from + sizeof value);
}
void put_padded(std::vector<std::byte>& to, Bytes bytes);
/// A record: a body of a fixed size, and bytes behind it.
template <typename Body>
void put_record(std::vector<std::byte>& to, Opcode opcode, std::uint16_t flags, const Body& body, Bytes tail = {}) {
  const std::size_t length = padded(sizeof(RecordHeader) + sizeof body + tail.size()), end = to.size() + length;
  put(to, RecordHeader{static_cast<std::uint16_t>(opcode), flags, static_cast<std::uint32_t>(length)});
  put(to, body);
  to.insert(to.end(), tail.begin(), tail.end());
  to.resize(end);
}

/// One of the session's devices, as a welcome tells of it.
struct DeviceFacts {
  WelcomeDevice facts;  // but for how long the name is
  std::string name;     // of which kMaxDeviceName bytes cross
};
/// Nothing: there are none, or they make no sense.
[[nodiscard]] std::optional<std::vector<DeviceFacts>> take_devices(Bytes& bytes);

[[nodiscard]] std::vector<std::byte> make_message(const MessageHeader& header);
/// Whether that is what a message's header says it is.
[[nodiscard]] inline bool is_message(const MessageHeader& header, MessageType type) noexcept {
  return header.type == static_cast<std::uint8_t>(type);
}
/// What follows the first part is left out, as clients do that know older versions alone, or if that is what the
/// session speaks; what is left out is not followed by anything.
[[nodiscard]] std::vector<std::byte> hello_message(const Hello& hello, const std::optional<HelloMore>& more = {},
                                                   const std::optional<HelloLast>& last = {},
                                                   const std::optional<HelloDevices>& devices = {});
[[nodiscard]] std::vector<std::byte> welcome_message(const Welcome& welcome,
                                                     const std::optional<WelcomeMore>& more = {},
                                                     const std::optional<WelcomeLast>& last = {},
                                                     const std::optional<WelcomeKept>& kept = {},
                                                     const std::optional<std::vector<DeviceFacts>>& devices = {});
/// Whether a message is one of a session that is kept.
[[nodiscard]] bool is_kept_welcome(Bytes message) noexcept;
/// Whether that is the hello of a client that wishes so.
[[nodiscard]] bool is_hello_to_keep(Bytes message) noexcept;
/// Of no bytes: there is none to be had.
[[nodiscard]] std::vector<std::byte> window_message(std::uint64_t bytes, std::string_view capability = {},
                                                    bool is_for_reads = false);
[[nodiscard]] std::vector<std::byte> channel_message(std::uint16_t channel, const ChannelBody& body);
/// Of a text no more than kMaxText bytes.
[[nodiscard]] std::vector<std::byte> refused_message(const Status& why);

/// What a server's kRefused says; never ok.
[[nodiscard]] Status refusal_in(Bytes body);

/// One record of a batch.
struct Record {
  std::uint16_t opcode = 0;
  std::uint16_t flags = 0;
  Bytes body;

  [[nodiscard]] bool is(Opcode which) const noexcept { return opcode == static_cast<std::uint16_t>(which); }
};

/// The record at the front of `bytes`, which then begin behind it. There is one: take_record() said so before.
[[nodiscard]] inline Record next_record(Bytes& bytes) noexcept {
  RecordHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  const Record record{header.opcode, header.flags, bytes.first(header.length).subspan(sizeof header)};
  bytes = bytes.subspan(header.length);
  return record;
}
/// The same. Nothing: they hold no whole record.
[[nodiscard]] inline std::optional<Record> take_record(Bytes& bytes) noexcept {
  RecordHeader header;
  if (bytes.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.length < sizeof header || header.length % 8 != 0 || header.length > kMaxRecord ||
      header.length > bytes.size()) {
    return std::nullopt;
  }
  return next_record(bytes);
}
/// Whether the record's body holds what its opcode says. One that nobody knows does.
[[nodiscard]] bool is_well_formed(const Record& record) noexcept;

/// What follows the fixed part of a kLoad, kLoadFrom, kLaunch, kCopyIn, kGraph, kUpdateGraph or user's record that is
/// well formed.
[[nodiscard]] Bytes tail_of(const Record& record) noexcept;
/// The fixed part of one.
template <typename Body>
[[nodiscard]] Body body_of(const Record& record) noexcept {
  Body body;
  std::memcpy(&body, record.body.data(), sizeof body);
  return body;
}

/// A server's reply.
struct Reply {
  std::uint64_t executed = 0, accepted = 0, complete = 0;
  std::optional<fairlead::command::Failure> failure;
  Bytes data;  // its items
  std::uint32_t items = 0;
};
/// Nothing: it is malformed; that its data is shows as that is taken.
[[nodiscard]] std::optional<Reply> read_reply(const MessageHeader& header, Bytes body);
struct ReplyData {
  std::uint64_t sequence = 0;
  Bytes bytes;
};
[[nodiscard]] std::optional<ReplyData> take_data(Bytes& data) noexcept;

/// The reply's message; `data`: items as put_data() wrote them.
[[nodiscard]] std::vector<std::byte> reply_message(std::uint16_t channel, const Reply& reply);
/// The same into `message`, whose room is used again.
void write_reply(std::vector<std::byte>& message, std::uint16_t channel, const Reply& reply);
void put_data(std::vector<std::byte>& items, std::uint64_t sequence, Bytes bytes);

}  // namespace fairlead::datapath::command
