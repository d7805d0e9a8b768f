// What is right of a transfer: while it is under way, when it ends, and when all has ended.
#include <fmt/format.h>

#include <algorithm>

#include "app.h"
#include "pattern.h"

namespace fairlead::simulation {
namespace {

constexpr const char* kKinds[] = {"write",           "read", "send", "strided write", "prepared write",
                                  "forbidden write", "add",  "swap"};

bool all_are(std::span<const std::byte> bytes, std::byte value) {
  return bytes.empty() || (bytes[0] == value && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

}  // namespace

void App::wrong(std::string what) {
  if (outcome_.wrong.empty()) outcome_.wrong = fmt::format("{}: {}", name_, what);
}

/// Of a write: whether its bytes are where they belong, and nowhere else in the slot.
bool App::placed(std::uint64_t id, const Record& record) const {
  const std::span<const std::byte> target = other_->slot(other_->inbox_, record.slot);
  if (record.kind != Kind::kStrided) return Pattern::holds(target.first(record.bytes), id);
  std::uint64_t end = 0;
  for (const datapath::TensorRun& run : record.runs) {
    if (!all_are(target.subspan(end, run.b - end), std::byte{0})) return false;
    if (!Pattern::holds(target.subspan(run.b, run.length), id, run.a)) return false;
    end = run.b + run.length;
  }
  return all_are(target.subspan(end), std::byte{0});
}

// The other end was told of one of our transfers.
void App::on_delivered(const Event& event, const std::vector<std::byte>* message) {
  const std::uint64_t id = event.value;
  if (id == 0 || id > records_.size())
    return wrong(fmt::format("a notification of transfer {}, which there is not", id));
  Record& record = records_[id - 1];
  if (!record.notifies) return wrong(fmt::format("transfer {} was not to notify", id));
  if (++record.delivered > 1) return wrong(fmt::format("transfer {} was notified {} times", id, record.delivered));
  if (event.traffic != record.traffic) return wrong(fmt::format("transfer {} came with another class", id));
  if (record.follows != 0 && !has_ended_well(records_[record.follows - 1])) {
    return wrong(fmt::format("transfer {} was notified before {}, which it follows, had ended", id, record.follows));
  }
  std::uint64_t& last = last_delivered_[static_cast<std::size_t>(record.traffic)];
  if (record.follows == 0) {  // else its place is where it began
    if (id < last) return wrong(fmt::format("transfer {} was notified after {}", id, last));
    last = id;
  }
  outcome_.commands += record.traffic == TrafficClass::kCommands ? 1 : 0;
  if ((record.kind == Kind::kSend) != (message != nullptr)) {
    return wrong(fmt::format("transfer {} came as another kind", id));
  }
  if (message != nullptr) {
    ++outcome_.messages;
    if (message->size() != record.bytes || !Pattern::holds(*message, id)) {
      wrong(fmt::format("message {} has other bytes", id));
    }
    return;
  }
  ++outcome_.notified;
  // Of one that has failed since, with its session, the slot may be another's already.
  if (record.kind == Kind::kRead || record.kind == Kind::kForbidden || !record.holds_slot) return;
  if (!placed(id, record)) wrong(fmt::format("transfer {} was notified before its bytes", id));
}

bool App::has_ended_well(const Record& record) {
  if (record.transfer == nullptr) return record.code == Code::kOk;
  return record.transfer->finished.load() && record.transfer->code == Code::kOk;
}

void App::on_finished(std::uint64_t id, Record& record) {
  record.finished = true;
  record.code = record.transfer->code;
  --unfinished_;
  const Code code = record.code;
  ++(code == Code::kOk ? outcome_.ok : outcome_.failed);
  if (code == Code::kOk) outcome_.bytes += record.bytes;
  if (code == Code::kCancelled || code == Code::kDeadlineExceeded) ++outcome_.cancelled;
  outcome_.refused += code == Code::kProtectionError ? 1 : 0;
  record.untrue = untrue(record);
  if (code == Code::kOk && record.follows != 0 && !has_ended_well(records_[record.follows - 1])) {
    wrong(fmt::format("transfer {} is ok, but {}, which it follows, is not", id, record.follows));
  }
  if (code == Code::kOk && record.kind == Kind::kRead &&
      !Pattern::holds(slot(landing_, record.slot).first(record.bytes), 0, record.offset)) {
    wrong(fmt::format("read {} is ok, but its bytes are not here", id));
  } else if (code == Code::kOk && record.is_atomic()) {
    ++outcome_.atomics;
    record.held = record.transfer->value;
    if (record.kind == Kind::kSwap) swapped_ = record.held == record.expected ? id : record.held;
  } else if (code == Code::kOk && record.kind != Kind::kSend && record.kind != Kind::kRead &&
             record.kind != Kind::kForbidden && !placed(id, record)) {
    wrong(fmt::format("write {} is ok, but its bytes are not there", id));
  }
  // The memory is the application's again.
  if (record.takes_slot()) {
    std::ranges::fill(slot(record.kind == Kind::kRead ? landing_ : source_, record.slot).first(record.bytes), kPoison);
  }
  if (record.transfer->references.load() > (record.followed ? 2 : 1))
    wrong(fmt::format("transfer {} has ended, but is still held", id));
  drop_reference(*record.transfer);
  record.transfer = nullptr;
}

/// Why it must not have ended so, in a session that is not lost; null: it may.
const char* App::untrue(const Record& record) const {
  // Or it shared the fate of what it was to follow.
  if (record.code != Code::kOk && record.follows != 0) {
    const Record& before = records_[record.follows - 1];
    const Code code = before.transfer != nullptr ? before.transfer->code : before.code;
    if (code == record.code) return before.untrue;
  }
  switch (record.code) {
    case Code::kOk:
      return nullptr;
    case Code::kProtectionError:
      return record.kind == Kind::kForbidden ? nullptr : "access was granted";
    case Code::kCancelled:
      return record.taken_back ? nullptr : "nobody cancelled it";
    case Code::kDeadlineExceeded:
      return world_.now() >= record.deadline ? nullptr : "its deadline had not passed";
    default:
      return "its session lived";
  }
}

void App::free_slot(Record& record) {
  record.holds_slot = false;
  slot_used_[record.slot] = false;
  if (record.kind != Kind::kRead && record.kind != Kind::kForbidden) {
    // Of the slot, what may have been written: all of it by a strided one.
    const std::span<std::byte> target = other_->slot(other_->inbox_, record.slot);
    std::ranges::fill(record.kind == Kind::kStrided ? target : target.first(record.bytes), std::byte{0});
  }
}

std::string App::unfinished() const {
  std::string text = fmt::format("{} of {}:", name_, unfinished_);
  for (const std::uint64_t id : live_) {
    const Record& record = records_[id - 1];
    if (record.finished || text.size() > 300) continue;
    text += fmt::format(" {} {} of {} bytes{};", kKinds[static_cast<int>(record.kind)], id, record.bytes,
                        record.delivered != 0 ? ", delivered" : "");
  }
  return text;
}

/// Each atomic that ended well was carried out once, in the order of its class; those that failed were not.
void App::check_words(bool lives) {
  std::uint64_t adds = 0, swaps = 0, unknown = 0;
  std::array<std::uint64_t, kTrafficClasses> due{};
  std::vector<bool> seen(records_.size() + 1);
  std::map<std::uint64_t, std::uint64_t> swapped;  // from, to
  for (std::size_t i = 0; i < records_.size(); ++i) {
    const Record& record = records_[i];
    const std::uint64_t id = i + 1;
    unknown += record.is_atomic() && record.code == Code::kOutcomeUnknown ? 1 : 0;
    if (!record.is_atomic() || record.code != Code::kOk) continue;
    if (record.kind == Kind::kSwap) {
      const bool known =
          record.held == 0 || (record.held <= records_.size() && records_[record.held - 1].kind == Kind::kSwap);
      if (!known) wrong(fmt::format("swap {} found {}, which nobody put there", id, record.held));
      if (record.held != record.expected) continue;
      ++swaps;
      if (!swapped.emplace(record.held, id).second) wrong(fmt::format("swap {} found what another had taken", id));
      continue;
    }
    ++adds;
    if (record.held >= records_.size() || seen[record.held]) {
      return wrong(fmt::format("add {} found {}, which another had found", id, record.held));
    }
    seen[record.held] = true;
    if (record.follows != 0) continue;  // its place is where it began
    std::uint64_t& least = due[static_cast<std::size_t>(record.traffic)];
    if (record.held < least) wrong(fmt::format("add {} found {}, though one before it found more", id, record.held));
    least = record.held;
  }
  const std::uint64_t sum = other_->words_[0];
  if (sum < adds || sum > adds + unknown) {
    wrong(fmt::format("the word holds {} after {} adds and {} atomics of unknown outcome", sum, adds, unknown));
  }
  if (!lives) return;
  std::uint64_t value = 0, walked = 0;
  for (auto next = swapped.find(0); next != swapped.end(); next = swapped.find(value), ++walked) value = next->second;
  if (walked != swaps || value != other_->words_[1]) {
    wrong(fmt::format("the word holds {}; {} swaps of {} lead to {}", other_->words_[1], walked, swaps, value));
  }
}

void App::check_end(bool lives, bool true_ends) {
  const PeerStats stats = session_->stats();
  outcome_.failovers += stats.failovers;
  outcome_.resumed += stats.resumptions;
  outcome_.replayed += stats.replayed_transfers;
  outcome_.duplicates += stats.duplicate_notifications_dropped;
  outcome_.staged_bytes += stats.staged_bytes;
  outcome_.rail_bytes += stats.rail_bytes;
  if (dead_) return;
  for (const auto& [name, request] : lookups_) {
    if (request != nullptr && !request->finished.load()) wrong(fmt::format("the look-up of '{}' never ended", name));
  }
  for (const auto& listing : listings_) {
    if (!listing->finished.load()) wrong("a listing never ended");
  }
  if (connected_ && end_.empty()) wrong("the session ended without a word");
  if (lives && !excused_ && end_code_ != Code::kOk)
    wrong(fmt::format("the session was closed, but ended so: {}", end_));
  for (std::size_t i = 0; i < records_.size(); ++i) {
    const Record& record = records_[i];
    if (!record.finished) wrong(fmt::format("transfer {} never ended", i + 1));
    if (true_ends && record.untrue != nullptr) {
      wrong(fmt::format("{} {} ended with '{}', though {}", kKinds[static_cast<int>(record.kind)], i + 1,
                        to_string(record.code), record.untrue));
    }
    if (!lives) continue;  // nobody can know
    if (record.delivered != 0 && record.code != Code::kOk) {
      wrong(fmt::format("transfer {} was notified, but ended with '{}'", i + 1, to_string(record.code)));
    }
    if (record.notifies && record.code == Code::kOk && record.delivered == 0) {
      wrong(fmt::format("transfer {} is ok, but was not notified", i + 1));
    }
  }
  check_words(lives);
  for (std::size_t i = 0; i < slot_used_.size(); ++i) {
    if (slot_used_[i]) continue;
    // What a lost session had on the wire lands until its other end knows.
    if (lives && !all_are(other_->slot(other_->inbox_, i), std::byte{0})) {
      wrong(fmt::format("slot {} was written after its transfer had ended", i));
    }
    if (!std::ranges::all_of(slot(landing_, i), [](std::byte b) { return b == std::byte{0} || b == kPoison; })) {
      wrong(fmt::format("slot {} was read into after its transfer had ended", i));
    }
  }
}

}  // namespace fairlead::simulation
