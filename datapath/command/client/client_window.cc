#include "datapath/command/client/client_window.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "datapath/command/client_channel.h"

namespace fairlead::datapath::command {

namespace {
constexpr std::chrono::seconds kPatience{10};  // for where the window is, which is asked once
}  // namespace

// ---- the window ----------------------------------------------------------------------------------------------------

void ClientWindow::begin(Read read, const Peer& peer, std::size_t slot_bytes) {
  const std::lock_guard lock(mutex_);
  read_ = std::move(read);
  peer_ = peer;
  slot_bytes_ = slot_bytes;
  state_.store(State::kClosed, std::memory_order_release);
}

bool ClientWindow::on_opened(Bytes body) {
  const auto said = take<WindowBody>(body);
  const auto text = said ? take_padded(body, said->capability_bytes) : std::nullopt;
  if (!text || said->bytes > kMostWindow || state_.load(std::memory_order_relaxed) != State::kAsked) return false;
  const std::lock_guard lock(mutex_);
  bytes_ = said->bytes;
  capability_.assign(reinterpret_cast<const char*>(text->data()), text->size());
  state_.store(bytes_ >= slot_bytes_ ? State::kGiven : State::kNone, std::memory_order_release);
  return true;
}

/// Under mutex_. Whether it is.
bool ClientWindow::open() {
  const State state = state_.load(std::memory_order_acquire);
  if (state == State::kClosed) {
    state_.store(State::kAsked, std::memory_order_release);
    const auto wish = make_message({.type = static_cast<std::uint8_t>(MessageType::kOpenWindow)});
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

std::optional<Placing> ClientWindow::place(Bytes from) {
  if (from.size() < kLeast || state_.load(std::memory_order_acquire) == State::kNone) return std::nullopt;
  {
    const std::lock_guard lock(mutex_);
    if (!open()) return std::nullopt;
  }
  Result<Memory> memory = read_(from);
  if (!memory) return std::nullopt;
  return std::optional<Placing>(std::in_place, *this, *std::move(memory));
}

// The first of them, as what was written last is in the caches of both ends.
std::size_t ClientWindow::free_slot() const noexcept {
  const auto is_free = [](const Slot& slot) {
    if (slot.channel == nullptr) return true;
    const bool was_executed = slot.channel->reached(fairlead::command::Stage::kExecuted) >= slot.sequence;
    return was_executed && slot.written.done();
  };
  return static_cast<std::size_t>(std::ranges::find_if(slots_, is_free) - slots_.begin());
}

void ClientWindow::let_go() noexcept {
  const std::lock_guard lock(mutex_);
  for (Slot& slot : slots_) {
    if (slot.written.done()) slot.written = {};
  }
}

bool ClientWindow::write(const Memory& from, const ClientChannel& channel, std::uint64_t sequence,
                         std::vector<Transfer>& posted) {
  const std::lock_guard lock(mutex_);
  const std::size_t number = free_slot();
  if (number == slots_.size() || from.size() > slot_bytes_) return false;
  const PlacedBody body{number * slot_bytes_, from.size()};
  std::vector<std::byte> message = make_message({.type = static_cast<std::uint8_t>(MessageType::kPlaced),
                                                 .channel = channel.number(),
                                                 .count = 1,
                                                 .sequence = sequence});
  put(message, body);
  Transfer written = peer_.write(from, memory_.slice(body.offset, body.bytes),
                                 {.notify = kMessageValue, .notify_bytes = message, .traffic = TrafficClass::kBulk});
  if (written.done() && written.code() != Code::kOk) return false;
  slots_[number] = {&channel, sequence, written};
  posted.push_back(std::move(written));
  return true;
}

// ---- a copy --------------------------------------------------------------------------------------------------------

bool Placing::place(const ClientChannel& channel, std::uint64_t sequence, Bytes piece) {
  const auto offset = static_cast<std::size_t>(piece.data() - from_.data());
  return window_.write(from_.slice(offset, piece.size()), channel, sequence, posted_);
}

Status Placing::finish() {
  if (posted_.empty()) return {};
  const std::vector<Transfer> posted = std::exchange(posted_, {});
  Status arrived = wait_all(posted);
  window_.let_go();
  return arrived;
}

}  // namespace fairlead::datapath::command
