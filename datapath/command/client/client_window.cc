#include "datapath/command/client/client_window.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "datapath/command/client_channel.h"

namespace fairlead::datapath::command {

namespace {
constexpr std::chrono::seconds kPatience{10};  // for where the window is, which is asked once
constexpr std::chrono::seconds kStands{1};
constexpr std::size_t kPieces = 8;             // of a copy at least, unless they were too small: one is written while
                                               // another is copied on
constexpr std::size_t kMostPiece = 512 << 10;  // each costs both ends 25 us besides; but others wait for one
}  // namespace

// ---- the window ----------------------------------------------------------------------------------------------------

void ClientWindow::begin(Read read, Write write, const Peer& peer, const fairlead::command::Limits& limits) {
  const std::lock_guard lock(mutex_);
  read_ = std::move(read);
  if (limits.version >= kLargePlacedVersion) write_ = std::move(write);
  peer_ = peer;
  slot_bytes_ = limits.payload_bytes;
  const std::size_t most = std::min<std::uint64_t>({kMostPiece, kMaxPlaced, limits.payload_credit / 4});
  const bool may_be_large = limits.version >= kLargePlacedVersion && most > slot_bytes_;
  most_bytes_ = may_be_large ? most / slot_bytes_ * slot_bytes_ : slot_bytes_;
  state_.store(State::kClosed, std::memory_order_release);
}

bool ClientWindow::on_opened(const MessageHeader& header, Bytes body) {
  const auto said = take<WindowBody>(body);
  const auto text = said ? take_padded(body, said->capability_bytes) : std::nullopt;
  if (!text || said->bytes > kMostWindow || state_.load(std::memory_order_relaxed) != State::kAsked) return false;
  const std::lock_guard lock(mutex_);
  bytes_ = said->bytes;
  is_for_reads_ = header.count != 0;
  capability_.assign(reinterpret_cast<const char*>(text->data()), text->size());
  state_.store(bytes_ >= slot_bytes_ ? State::kGiven : State::kNone, std::memory_order_release);
  return true;
}

/// Under mutex_. Whether it is.
bool ClientWindow::open() {
  const State state = state_.load(std::memory_order_acquire);
  if (state == State::kClosed) {
    state_.store(State::kAsked, std::memory_order_release);
    const auto wish =
        make_message({.type = static_cast<std::uint8_t>(MessageType::kOpenWindow), .count = write_ ? 1u : 0u});
    (void)peer_.send(wish, kMessageValue, {.traffic = TrafficClass::kCommands});
  }
  if (state != State::kGiven) return state == State::kOpen;
  const Result<RemoteMemory> found = peer_.import_(capability_, kPatience);
  const bool fits = found && found->size() >= bytes_;
  state_.store(fits ? State::kOpen : State::kNone, std::memory_order_release);
  if (!fits) return false;
  memory_ = *found;
  slots_.resize(bytes_ / slot_bytes_);
  return true;
}

/// False: so much goes by messages. The first large copy has the service asked for a window.
bool ClientWindow::takes(std::size_t bytes) {
  if (bytes < kLeast || state_.load(std::memory_order_acquire) == State::kNone) return false;
  const std::lock_guard lock(mutex_);
  return open();
}

std::optional<Placing> ClientWindow::place(Bytes from) {
  if (!takes(from.size()) || is_for_reads_) return std::nullopt;
  Result<Memory> memory = read_(from);
  if (!memory) return std::nullopt;
  return std::optional<Placing>(std::in_place, *this, *std::move(memory));
}

std::optional<Memory> ClientWindow::fetch(std::span<std::byte> to) {
  if (!write_ || !takes(to.size())) return std::nullopt;
  Result<Memory> memory = write_(to);
  if (!memory) return std::nullopt;
  return *std::move(memory);
}

std::size_t ClientWindow::piece_of(std::size_t bytes) const noexcept {
  return std::clamp(bytes / kPieces / slot_bytes_ * slot_bytes_, slot_bytes_, most_bytes_);
}

bool ClientWindow::Slot::is_free() const noexcept {
  if (channel == nullptr) return !is_taken;
  return channel->reached(fairlead::command::Stage::kExecuted) >= sequence && written.done();
}

// The first that are enough, as what was written last is in the caches of both ends; else the most.
Slots ClientWindow::free_slots(std::size_t bytes) const noexcept {
  const std::size_t wanted = (bytes + slot_bytes_ - 1) / slot_bytes_;
  Slots best, run;
  for (std::size_t i = 0; i != slots_.size() && best.count < wanted; ++i) {
    run = slots_[i].is_free() ? Slots{run.first, run.count + 1} : Slots{i + 1, 0};
    if (run.count > best.count) best = run;
  }
  return best;
}

void ClientWindow::occupy(Slots slots, const Slot& slot) noexcept {
  for (std::size_t i = 0; i != slots.count; ++i) slots_[slots.first + i] = slot;
}

Slots ClientWindow::take_slots(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const Slots slots = free_slots(bytes);
  occupy(slots, {nullptr, 0, {}, true});
  return slots;
}

bool ClientWindow::has_slot() {
  const std::lock_guard lock(mutex_);
  return free_slots(1).count != 0;
}

void ClientWindow::stands(Clock::time_point now) noexcept {
  stands_until_.store((now + kStands).time_since_epoch().count(), std::memory_order_relaxed);
}

void ClientWindow::give(Slots slots) noexcept {
  if (slots.count == 0) return;
  {
    const std::lock_guard lock(fetches_mutex_);
    std::erase_if(fetches_, [slots](const Fetch& each) { return each.from.first == slots.first; });
  }
  const std::lock_guard lock(mutex_);
  occupy(slots, {});
}

void ClientWindow::let_go() noexcept {
  const std::lock_guard lock(mutex_);
  for (Slot& slot : slots_) {
    if (slot.written.done()) slot.written = {};
  }
}

Status ClientWindow::write(const Memory& from, Slots to, const ClientChannel& channel, std::uint64_t sequence,
                           std::vector<Transfer>& posted) {
  const std::lock_guard lock(mutex_);
  const PlacedBody body{offset_of(to), from.size()};
  std::vector<std::byte> message = make_message({.type = static_cast<std::uint8_t>(MessageType::kPlaced),
                                                 .channel = channel.number(),
                                                 .count = 1,
                                                 .sequence = sequence});
  put(message, body);
  Transfer written = peer_.write(from, memory_.slice(body.offset, body.bytes),
                                 {.notify = kMessageValue, .notify_bytes = message, .traffic = TrafficClass::kBulk});
  const bool was_posted = !written.done() || written.code() == Code::kOk;
  occupy(to, was_posted ? Slot{&channel, sequence, written, false} : Slot{});
  if (!was_posted) return written.status();
  posted.push_back(std::move(written));
  return {};
}

// ---- out of it -----------------------------------------------------------------------------------------------------

void ClientWindow::expect(Memory to, Slots from, ClientChannel& channel, std::uint64_t sequence) {
  const std::lock_guard lock(fetches_mutex_);
  fetches_.push_back({std::move(to), from, &channel, sequence});
}

void ClientWindow::is_there(Slots from) {
  const std::lock_guard lock(fetches_mutex_);
  const auto found = std::ranges::find(fetches_, from.first, [](const Fetch& each) { return each.from.first; });
  if (found == fetches_.end()) return;
  found->is_there = true;
  fetching_.store(true, std::memory_order_release);
}

// Channels are told without a lock, as they take these under theirs.
Status ClientWindow::collect() {
  // Not yet, or, where as much is posted as may be, to be tried again.
  const auto is_unposted = [](const Transfer& read) {
    return !read.valid() || (read.done() && read.code() == Code::kResourceExhausted);
  };
  std::vector<Fetch> came;
  {
    const std::lock_guard lock(fetches_mutex_);
    bool more = false;
    for (Fetch& each : fetches_) {
      if (!each.is_there) continue;
      if (is_unposted(each.read)) {
        each.read =
            peer_.read(each.to, memory_.slice(offset_of(each.from), each.to.size()), {.traffic = TrafficClass::kBulk});
      }
      if (!each.read.done() || is_unposted(each.read)) {
        more = true;
        continue;
      }
      if (each.read.code() != Code::kOk) return each.read.status();
      came.push_back(std::move(each));
      each.channel = nullptr;
    }
    std::erase_if(fetches_, [](const Fetch& each) { return each.channel == nullptr; });
    fetching_.store(more, std::memory_order_release);
  }
  {
    const std::lock_guard lock(mutex_);
    for (const Fetch& each : came) occupy(each.from, {});
  }
  for (const Fetch& each : came) (void)each.channel->on_result(each.sequence, each.to.bytes());
  return {};
}

// A peer that stands still may take the session's goodbye, half a second, to be closed.
void ClientWindow::stop() noexcept {
  std::vector<Fetch> ending;
  {
    const std::lock_guard lock(fetches_mutex_);
    ending.swap(fetches_);
    fetching_.store(false, std::memory_order_release);
  }
  if (std::ranges::all_of(ending, [](const Fetch& each) { return each.read.done(); })) return;
  peer_.close(std::chrono::nanoseconds(0));  // and with it all that it does
  for (Fetch& each : ending) (void)each.read.wait();
}

// ---- a copy --------------------------------------------------------------------------------------------------------

Placing::Placing(ClientWindow& window, Memory from) noexcept
    : window_(window), from_(std::move(from)), piece_bytes_(window.piece_of(from_.size())) {}

std::size_t Placing::take(std::size_t bytes) {
  taken_ = window_.take_slots(bytes);
  return std::min(bytes, window_.bytes_of(taken_));
}

bool Placing::place(const ClientChannel& channel, std::uint64_t sequence, Bytes piece) {
  const auto offset = static_cast<std::size_t>(piece.data() - from_.data());
  Status written =
      window_.write(from_.slice(offset, piece.size()), std::exchange(taken_, {}), channel, sequence, posted_);
  if (written.ok()) return true;
  if (piece.size() <= window_.slot_bytes()) return false;
  if (failed_.ok()) failed_ = std::move(written);
  return true;
}

Status Placing::finish() {
  if (posted_.empty()) return std::exchange(failed_, {});
  const std::vector<Transfer> posted = std::exchange(posted_, {});
  Status arrived = wait_all(posted);
  window_.let_go();
  return failed_.ok() ? arrived : std::exchange(failed_, {});
}

}  // namespace fairlead::datapath::command
