#include "datapath/command/client_channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <mutex>
#include <utility>

#include "datapath/command/client_session.h"
#include "datapath/command/graph/launch_record.h"

namespace fairlead::datapath::command {

using fairlead::command::Failure;
using fairlead::command::Scope;
using fairlead::command::Stage;

namespace {

constexpr std::size_t kGaps = 1024;
constexpr std::chrono::microseconds kForMore{50};
constexpr std::uint32_t kPieces = 4;          // of a copy, whose commands leave together: each message costs both ends
constexpr std::size_t kManyBytes = 32 << 10;  // of payload: its command does not wait for others, nor the timer
constexpr std::chrono::milliseconds kForSlots{10};  // of the window, unless somebody waited in vain not long ago
constexpr std::uint32_t kWhileBehind = 4;           // times what a buffer holds, and so many buffers are under way

/// Pads with zeros to a multiple of 8. Most of what is put is some words long.
inline std::byte* put_words(std::byte* at, Bytes bytes) noexcept {
  if (bytes.size() > 64) {
    std::memcpy(at, bytes.data(), bytes.size());
    std::memset(at + bytes.size(), 0, padded(bytes.size()) - bytes.size());
    return at + padded(bytes.size());
  }
  std::size_t done = 0;
  for (std::array<std::uint64_t, 2> words; done + sizeof words <= bytes.size(); done += sizeof words) {
    std::memcpy(&words, bytes.data() + done, sizeof words);
    std::memcpy(at + done, &words, sizeof words);
  }
  if (std::uint64_t word = 0; done + sizeof word <= bytes.size()) {
    std::memcpy(&word, bytes.data() + done, sizeof word);
    std::memcpy(at + done, &word, sizeof word);
    done += sizeof word;
  }
  if (done == bytes.size()) return at + done;
  std::uint64_t last = 0;
  std::memcpy(&last, bytes.data() + done, bytes.size() - done);
  std::memcpy(at + done, &last, sizeof last);
  return at + done + sizeof last;
}

void gather(std::vector<std::byte>& payload, Bytes from) {
  payload.reserve(sizeof(MessageHeader) + from.size());
  payload.resize(sizeof(MessageHeader));
  payload.insert(payload.end(), from.begin(), from.end());
}

void put_header(std::vector<std::byte>& payload, std::uint16_t channel, std::uint64_t sequence) noexcept {
  const MessageHeader header{static_cast<std::uint8_t>(MessageType::kPayload), 0, channel, 1, sequence};
  std::memcpy(payload.data(), &header, sizeof header);
}

}  // namespace

ClientChannel::ClientChannel(ClientSession& session, std::uint16_t number, Peer peer, std::size_t max_message_bytes,
                             const fairlead::command::ChannelOptions& options)
    : session_(session),
      number_(number),
      options_(options),
      most_bytes_(std::min(
          {kWhileBehind * std::size_t{session.options().flush_bytes}, kMaxBatch - kMaxRecord, max_message_bytes})),
      to_(std::move(peer)),
      buffer_(most_bytes_ + kMaxRecord) {}

const fairlead::command::Limits& ClientChannel::limits() const noexcept { return session_.limits(options_.device); }

// ---- appending -----------------------------------------------------------------------------------------------------

/// Whether a buffer that has what it may, of so many bytes, leaves now: what is sent to a service that has much to do
/// waits there, and larger buffers cost both ends less.
inline bool ClientChannel::is_full(std::size_t bytes) const noexcept {
  const std::uint32_t commands = session_.options().flush_commands;
  const bool behind = under_way() - buffered_ >= kWhileBehind * commands;
  return !behind || bytes > most_bytes_ || buffered_ >= kWhileBehind * commands;
}

inline std::byte* ClientChannel::next_record(std::uint16_t opcode, std::uint16_t flags, std::size_t length) {
  const auto& options = session_.options();
  assert(length <= kMaxRecord);
  if (buffered_ != 0 && used_ + length > options.flush_bytes && is_full(used_ + length)) flush_locked();
  if (buffered_ == 0) {
    used_ = sizeof(MessageHeader);
    if (options.flush_after.count() > 0) since_ = Clock::now();
  }
  std::byte* const at = buffer_.data() + used_;
  const RecordHeader header{opcode, flags, static_cast<std::uint32_t>(length)};
  std::memcpy(at, &header, sizeof header);
  return at;
}

inline std::uint64_t ClientChannel::written(std::size_t length) {
  const auto& options = session_.options();
  used_ += length;
  ++buffered_;
  const std::uint64_t sequence = last_.load(std::memory_order_relaxed) + 1;
  last_.store(sequence, std::memory_order_release);
  if ((buffered_ >= options.flush_commands || used_ >= options.flush_bytes) && is_full(used_)) flush_locked();
  return sequence;
}

inline ClientChannel::Room ClientChannel::room(std::uint64_t payload) const noexcept {
  if (session_.has_ended() || has_failed()) return Room::kFailed;
  if (under_way() >= session_.limits().credits) return Room::kNo;
  return input_bytes_.load(std::memory_order_relaxed) + payload <= session_.limits().payload_credit ? Room::kYes
                                                                                                    : Room::kNo;
}

template <typename Write>
Result<std::uint64_t> ClientChannel::with_room(std::uint64_t payload, std::uint64_t behind, Write write) {
  for (Room found = Room::kNo; found != Room::kFailed;) {
    bool was_sent = false, begins = false;
    std::uint64_t sequence = 0;
    {
      const std::lock_guard lock(lock_);
      found = behind != 0 && passed_over(behind) != nullptr ? Room::kFailed : room(payload);
      if (found == Room::kYes) {
        const std::uint64_t sent = sent_;
        sequence = write();
        was_sent = sent != sent_;
        begins = buffered_ == 1;
      }
    }
    if (found == Room::kYes) {
      if (begins) session_.arm();
      if (was_sent) session_.drain();
      return sequence;
    }
    if (found == Room::kFailed) break;
    if (!session_.options().wait_for_room) {
      session_.flush_all();
      session_.drain();
      return Status(Code::kResourceExhausted,
                    fmt::format("channel {} has as many commands or bytes under way as it may, {} and {}; wait for "
                                "some of them",
                                number_, session_.limits().credits, session_.limits().payload_credit));
    }
    session_.flush_all();
    session_.wait_until([&] { return room(payload) != Room::kNo; }, Clock::time_point::max(), Haste::kNo);
    // Then a little longer, for room for many: each wait is a hand-over. A fence may keep the channel from more.
    const std::uint64_t most = session_.limits().credits - session_.limits().credits / 4;
    session_.wait_until([&] { return under_way() <= most || has_failed(); }, Clock::now() + kForMore, Haste::kNo);
  }
  return failed_status();
}

Status ClientChannel::failed_status() const {
  if (session_.has_ended()) return session_.status();
  const std::lock_guard lock(lock_);
  if (failure_) return {Code::kAborted, describe(*failure_, number_) + "; recover() first"};
  return {Code::kAborted, "another thread recovered the channel meanwhile; append again"};
}

Result<std::uint64_t> ClientChannel::append(const Command& command, std::uint64_t behind) {
  return with_room(0, behind, [&] { return write(command); });
}

Result<std::uint64_t> ClientChannel::launch(const fairlead::command::Launch& launch, Bytes parameters) {
  return with_room(0, 0, [&] {
    const std::size_t length = padded(sizeof(RecordHeader) + sizeof(LaunchBody) + parameters.size());
    std::byte* const body = next_record(static_cast<std::uint16_t>(Opcode::kLaunch), 0, length) + sizeof(RecordHeader);
    put_launch(body, launch, static_cast<std::uint32_t>(parameters.size()));
    put_words(body + sizeof(LaunchBody), parameters);
    return written(length);
  });
}

Result<std::uint64_t> ClientChannel::append_with_bytes(Command command, Bytes from, std::uint64_t behind, bool more) {
  if (from.size() <= kMaxInline) {
    command.flags |= kInline;
    command.tail = from;
    return append(command, behind);
  }
  // The bytes are gathered before the lock is taken, and sent when it is free again: others append meanwhile.
  const std::lock_guard in_order(paying_);
  const auto kept = session_.outlives_peers() ? std::make_shared<std::vector<std::byte>>() : nullptr;
  std::vector<std::byte>& payload = kept != nullptr ? *kept : payload_;
  gather(payload, from);
  Result<std::uint64_t> sequence = with_room(from.size(), behind, [&] {
    put_header(payload, number_, add_input(from.size(), kept));
    return write(command);
  });
  if (!sequence) return sequence;
  post(*sequence, payload);
  const bool is_due = !more || *sequence % kPieces == 0;
  if (from.size() >= kManyBytes && is_due) flush();
  return sequence;
}

/// Under lock_. The sequence of the command that is to be written next, with which so much payload goes.
std::uint64_t ClientChannel::add_input(std::size_t bytes, std::shared_ptr<const std::vector<std::byte>> message) {
  const std::uint64_t next = last_.load(std::memory_order_relaxed) + 1;
  inputs_.push_back({next, bytes, std::move(message)});
  input_bytes_.store(input_bytes_.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
  return next;
}

Result<std::uint64_t> ClientChannel::copy_in(fairlead::command::Handle to, std::uint64_t offset, Bytes from) {
  std::optional<Placing> placing = session_.window().place(from);
  for (std::uint64_t last = 0;;) {
    const bool may_place = placing && from.size() > kMaxInline;
    const Result<Piece> piece =
        may_place ? place_piece(to, offset, from, *placing, last) : copy_piece(to, offset, from, last);
    const bool goes_on = piece && !(placing && placing->has_failed());
    if (goes_on && piece->bytes < from.size()) {
      last = piece->sequence;
      offset += piece->bytes;
      from = from.subspan(piece->bytes);
      continue;
    }
    if (placing) session_.wait_for(*std::move(placing));
    if (!piece) return piece.error();
    return piece->sequence;
  }
}

Result<ClientChannel::Piece> ClientChannel::copy_piece(fairlead::command::Handle to, std::uint64_t offset, Bytes from,
                                                       std::uint64_t behind) {
  const Bytes piece = from.first(std::min<std::size_t>(from.size(), session_.limits().payload_bytes));
  const CopyBody body{to.bits, offset, piece.size()};
  const Result<std::uint64_t> sequence =
      append_with_bytes({static_cast<std::uint16_t>(Opcode::kCopyIn), 0, std::as_bytes(std::span(&body, 1)), {}}, piece,
                        behind, piece.size() < from.size());
  if (!sequence) return sequence.error();
  return Piece{*sequence, piece.size()};
}

Result<ClientChannel::Piece> ClientChannel::place_piece(fairlead::command::Handle to, std::uint64_t offset, Bytes from,
                                                        Placing& placing, std::uint64_t behind) {
  const std::lock_guard in_order(paying_);
  Bytes piece = from.first(std::min(from.size(), placing.piece_bytes()));
  bool has_place = false;
  const Result<std::uint64_t> sequence = with_room(piece.size(), behind, [&] {
    const std::size_t room = placing.take(piece.size());
    has_place = room != 0;
    piece = piece.first(has_place ? room : std::min<std::size_t>(piece.size(), session_.limits().payload_bytes));
    add_input(piece.size(), nullptr);
    const CopyBody body{to.bits, offset, piece.size()};
    return write({static_cast<std::uint16_t>(Opcode::kCopyIn), 0, std::as_bytes(std::span(&body, 1)), {}});
  });
  if (!sequence) return sequence.error();
  if (!has_place || !placing.place(*this, *sequence, piece)) {
    gather(payload_, piece);
    put_header(payload_, number_, *sequence);
    post(*sequence, payload_);
  }
  const bool is_large = piece.size() >= kPieces * std::size_t{session_.limits().payload_bytes};
  if (is_large || piece.size() == from.size() || *sequence % kPieces == 0) flush();
  return Piece{*sequence, piece.size()};
}

/// Unless it was said again before it was said.
void ClientChannel::post(std::uint64_t sequence, Bytes payload) noexcept {
  const std::lock_guard in_order(posting_);
  if (posted_ >= sequence) return;
  posted_ = sequence;
  session_.send(to_, TrafficClass::kBulk, payload);
}

Result<std::uint64_t> ClientChannel::copy_out(std::span<std::byte> to, fairlead::command::Handle from,
                                              std::uint64_t offset) {
  ClientWindow& window = session_.window();
  const std::optional<Memory> memory = window.fetch(to);
  const std::size_t most = memory ? window.piece_of(to.size()) : session_.limits().payload_bytes;
  for (std::uint64_t last = 0;;) {
    const bool may_fetch = memory && to.size() > kMaxInline;
    if (may_fetch && session_.options().wait_for_room && !window.has_slot()) {
      const Clock::time_point now = Clock::now();
      if (window.moves(now)) {
        session_.flush_all();
        const bool moved = session_.wait_until([&] { return window.has_slot(); }, now + kForSlots, Haste::kNo);
        if (!moved) window.stands(now);
      }
    }
    const Result<Piece> piece = copy_piece_out(to, {from.bits, offset, 0}, may_fetch ? &*memory : nullptr, most, last);
    if (!piece) return piece.error();
    last = piece->sequence;
    to = to.subspan(piece->bytes);
    offset += piece->bytes;
    if (to.empty()) return piece->sequence;
  }
}

Result<ClientChannel::Piece> ClientChannel::copy_piece_out(std::span<std::byte> to, CopyBody from, const Memory* memory,
                                                           std::size_t most, std::uint64_t behind) {
  ClientWindow& window = session_.window();
  const Result<std::uint64_t> sequence = with_room(0, behind, [&] {
    const std::size_t wish = std::min(to.size(), most);
    Output output{last_.load(std::memory_order_relaxed) + 1, to.first(wish)};
    if (memory != nullptr) output.slots = window.take_slots(wish);
    const bool is_placed = output.slots.count != 0;
    const std::size_t room = is_placed ? window.bytes_of(output.slots) : session_.limits().payload_bytes;
    output.to = to.first(std::min(wish, room));
    from.bytes = output.to.size();
    const CopyToWindowBody there{from, window.offset_of(output.slots)};
    if (is_placed) {
      const auto at = static_cast<std::size_t>(output.to.data() - memory->data());
      window.expect(memory->slice(at, from.bytes), output.slots, *this, output.sequence);
    }
    if (outputs_.empty()) output_.store(output.sequence, std::memory_order_release);
    outputs_.push_back(std::move(output));
    const Bytes body = is_placed ? std::as_bytes(std::span(&there, 1)) : std::as_bytes(std::span(&from, 1));
    return write({static_cast<std::uint16_t>(Opcode::kCopyOut), is_placed ? kPlaced : std::uint16_t{0}, body, {}});
  });
  if (!sequence) return sequence.error();
  return Piece{*sequence, from.bytes};
}

Result<std::uint64_t> ClientChannel::load_module(const ModuleBody& body, Bytes image) {
  std::vector<std::byte> kept(image.begin(), image.end());
  const Command command{static_cast<std::uint16_t>(Opcode::kModule), kMustKnow, std::as_bytes(std::span(&body, 1)), {}};
  return with_room(0, 0, [&] {
    images_.push_back({last_.load(std::memory_order_relaxed) + 1, std::move(kept)});
    return write(command);
  });
}

/// Under lock_. The sequence, once the record is in the buffer.
std::uint64_t ClientChannel::write(const Command& command) {
  const std::size_t length = padded(sizeof(RecordHeader) + command.body.size() + command.tail.size());
  assert(command.body.size() % 8 == 0);
  std::byte* const at = next_record(command.opcode, command.flags, length) + sizeof(RecordHeader);
  put_words(put_words(at, command.body), command.tail);
  return written(length);
}

void ClientChannel::flush_locked() noexcept {
  if (buffered_ == 0) return;
  const MessageHeader header{static_cast<std::uint8_t>(MessageType::kCommands), 0, number_, buffered_,
                             last_.load(std::memory_order_relaxed) - buffered_ + 1};
  std::memcpy(buffer_.data(), &header, sizeof header);
  const Bytes message = std::span(buffer_).first(used_);
  if (session_.outlives_peers()) kept_.add(header.sequence, last_.load(std::memory_order_relaxed), message);
  buffered_ = 0;
  ++sent_;
  tell();
  session_.send(to_, TrafficClass::kCommands, message);
}

void ClientChannel::tell() noexcept {
  if (std::exchange(told_, true) || (options_.priority == 0 && options_.device == 0)) return;
  session_.send(to_, TrafficClass::kCommands, channel_message(number_, {options_.priority, options_.device}));
}

void ClientChannel::flush() noexcept {
  const std::lock_guard lock(lock_);
  flush_locked();
}

ClientChannel::Due ClientChannel::flush_if_due(Clock::time_point now, Clock::duration age) noexcept {
  const std::unique_lock lock(lock_, std::try_to_lock);
  if (!lock.owns_lock()) return {false, age};  // somebody is at it
  if (buffered_ == 0) return {};
  if (now - since_ < age) return {false, age - (now - since_)};
  flush_locked();
  return {true, std::nullopt};
}

Status ClientChannel::recover() {
  while (!session_.has_ended()) {
    bool recovered = false;
    {
      const std::lock_guard lock(lock_);
      if (!failure_) return {};
      if (failure_->scope >= Scope::kContext) {
        return {Code::kAborted,
                describe(*failure_, number_) + "; what the session had on the device is lost, connect anew"};
      }
      if (under_way() < session_.limits().credits) {
        const RecoverBody body{failure_->sequence};
        const std::uint64_t sequence =
            write({static_cast<std::uint16_t>(Opcode::kRecover), 0, std::as_bytes(std::span(&body, 1)), {}});
        if (gaps_.size() == kGaps) gaps_.pop_front();
        gaps_.push_back({*std::exchange(failure_, std::nullopt), sequence});
        failed_.store(kNone, std::memory_order_release);
        recovered = true;
      }
    }
    if (recovered) {
      session_.arm();
      return {};
    }
    session_.flush_all();
    session_.wait_until([&] { return under_way() < session_.limits().credits; }, Clock::time_point::max());
  }
  return session_.status();
}

}  // namespace fairlead::datapath::command
