#include "app.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace fairlead::simulation {

using datapath::OpKind;
using datapath::TransferImpl;

namespace {

constexpr std::byte kPoison{0xee};  // what a buffer holds that is the application's again

std::byte pattern(std::uint64_t id, std::uint64_t at) {
  const std::uint64_t mixed = (id * 0x9e3779b97f4a7c15 + at * 0xc2b2ae3d27d4eb4f) >> 57;  // 0..127: no poison, no zero
  return static_cast<std::byte>(mixed | 1);
}

bool holds(std::span<const std::byte> bytes, std::uint64_t id, std::uint64_t from = 0) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != pattern(id, from + i)) return false;
  }
  return true;
}

void fill(std::span<std::byte> bytes, std::uint64_t id) {
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = pattern(id, i);
}

constexpr std::uint64_t kShelf = 1'000'000;  // the id of what lies there

}  // namespace

App::App(World& world, std::shared_ptr<SimHost> host, std::string name, bool flood, Outcome& outcome)
    : world_(world), host_(std::move(host)), name_(std::move(name)), flood_(flood), outcome_(outcome) {
  for (auto* memory : {&source_, &inbox_, &landing_}) memory->resize(kSlots * kSlotBytes);
  shelf_.resize(kSlotBytes);
  temporary_.resize(kSlotBytes);
  fill(shelf_, kShelf);
  source_region_ = register_region(source_);
  inbox_region_ = register_region(inbox_);
  shelf_region_ = register_region(shelf_);
  temporary_region_ = register_region(temporary_);
  landing_region_ = register_region(landing_);
  datapath::RegionTable& regions = host_->regions();
  (void)regions.publish("inbox", inbox_region_, inbox_, Access::kRemoteWrite, std::nullopt);
  (void)regions.publish("shelf", shelf_region_, shelf_, Access::kRemoteRead, std::nullopt);
  (void)regions.publish("temporary", temporary_region_, temporary_, Access::kRemoteWrite, std::nullopt);
}

std::shared_ptr<datapath::RegionImpl> App::register_region(std::span<std::byte> bytes) {
  auto range = host_->regions().add({.bytes = bytes, .access = Access::kRemoteReadWrite});
  return std::make_shared<datapath::RegionImpl>(*range, bytes, Access::kRemoteReadWrite, nullptr);
}

void App::wrong(std::string what) {
  if (outcome_.wrong.empty()) outcome_.wrong = fmt::format("{}: {}", name_, what);
}

void App::begin(std::shared_ptr<datapath::SessionImpl> session, App& other) {
  session_ = std::move(session);
  other_ = &other;
}

void App::step() {
  Event event;
  if (flood_ && posting_ && world_.chance(0.002)) sleeps_until_ = world_.now() + milliseconds(world_.below(30));
  while (world_.now() >= sleeps_until_ && world_.chance(0.9) && session_->take_event(event)) {
    on_event(event);
    event = Event();
  }
  for (auto& [id, record] : records_) {
    if (!record.finished && record.transfer->finished.load()) on_finished(id, record);
    if (record.finished && !record.slot_free &&
        (record.code != Code::kOk || !record.notifies || record.delivered != 0)) {
      free_slot(record);
    }
  }
  if (!connected_ || session_->finished()) return;
  look_up();
  const bool ready = posting_ && inbox_of_other_ && shelf_of_other_ && temporary_of_other_;
  for (int i = 0; ready && i < (flood_ ? 8 : 1); ++i) {
    if (world_.chance(0.3)) post();
  }
  if (world_.chance(0.01)) take_back();
  if (posting_ && world_.chance(0.01)) listings_.push_back(session_->start_lookup("", true));
  if (posting_ && world_.chance(0.002)) {  // another region under the same name: what peers know of it is stale
    (void)host_->regions().unpublish("temporary");
    (void)host_->regions().publish("temporary", temporary_region_, temporary_, Access::kRemoteWrite, std::nullopt);
  }
}

void App::look_up() {
  for (auto& [name, remote] : {std::pair<const char*, Remote*>{"inbox", &inbox_of_other_},
                               {"shelf", &shelf_of_other_},
                               {"temporary", &temporary_of_other_}}) {
    auto& request = lookups_[name];
    if (request == nullptr && *remote == nullptr) request = session_->start_lookup(name, false);
    if (request == nullptr || !request->finished.load()) continue;
    if (request->status.ok() && request->regions.size() == 1) *remote = request->regions.front();
    // Between unpublish and publish there is none.
    request.reset();
  }
  if (temporary_of_other_ && temporary_of_other_->refused.load()) temporary_of_other_ = nullptr;
}

void App::post() {
  const std::uint64_t id = records_.size() + 1;
  const auto free = std::find(std::begin(slot_used_), std::end(slot_used_), false);
  Record record;
  const std::uint64_t dice = flood_ && world_.chance(0.9) ? 65 : world_.below(100);
  record.kind = dice < 45 ? Kind::kWrite : dice < 65 ? Kind::kRead : dice < 97 ? Kind::kSend : Kind::kForbidden;
  record.bytes = world_.chance(0.1) ? 0 : 1 + world_.below(world_.chance(0.3) ? kSlotBytes : 300);
  TransferImpl* t = datapath::acquire_transfer();
  record.transfer = t;
  if (record.kind == Kind::kSend) {
    t->message.resize(record.bytes);
    fill(t->message, id);
    t->is_send = t->has_message = record.notifies = true;
    t->value = id;
    t->bytes = record.bytes;
  } else {
    if (free == std::end(slot_used_)) return drop_reference(*t);
    record.slot = static_cast<std::size_t>(free - std::begin(slot_used_));
    record.slot_free = false;
    *free = true;
    const bool read = record.kind == Kind::kRead;
    if (read) record.offset = world_.below(kSlotBytes - record.bytes + 1);
    const std::span<std::byte> local = slot(read ? landing_ : source_, record.slot).first(record.bytes);
    if (!read) fill(local, id);
    const Remote& remote = read ? shelf_of_other_ : record.kind == Kind::kWrite ? inbox_of_other_ : temporary_of_other_;
    const std::uint64_t to = read ? record.offset : record.kind == Kind::kWrite ? record.slot * kSlotBytes : 0;
    const auto& region = read ? landing_region_ : source_region_;
    t->own.kind = read ? OpKind::kRead : OpKind::kWrite;
    for (std::uint64_t at = 0; at < record.bytes || t->own.ops.empty();) {
      std::uint64_t length = record.bytes - at;
      if (length > 1 && world_.chance(0.3)) length = 1 + world_.below(length);
      t->own.ops.push_back({local.data() + at, length, &region->range(), remote.get(), to + at});
      at += length;
    }
    t->own.keep = {region, remote};
    t->own.bytes = t->bytes = record.bytes;
    t->list = &t->own;
    record.notifies = world_.chance(0.7);
    t->has_message = record.notifies;
    t->value = id;
  }
  if (world_.chance(0.05)) t->deadline = world_.now() + microseconds(world_.below(5000));
  records_[id] = record;
  ++unfinished_;
  ++outcome_.transfers;
  session_->submit(*t);
}

void App::take_back() {
  if (records_.empty() || session_->finished()) return;
  // Of the last few, which may be under way.
  auto at = records_.find(records_.size() - world_.below(std::min<std::size_t>(records_.size(), 12)));
  if (at->second.finished) return;
  session_->request_cancel(*at->second.transfer);
}

void App::close() {
  listings_.push_back(session_->start_lookup("", true));
  session_->request_close(std::chrono::seconds(5));
}

void App::on_event(Event& event) {
  switch (event.kind) {
    case Event::Kind::kConnected:
      connected_ = true;
      return;
    case Event::Kind::kClosed:
      end_ = event.text;
      return;
    case Event::Kind::kNotification:
      return other_->on_delivered(event.value, nullptr);
    case Event::Kind::kMessage:
      return other_->on_delivered(event.value, &event.data);
    default:
      return;
  }
}

// The other end was told of one of our transfers.
void App::on_delivered(std::uint64_t id, const std::vector<std::byte>* message) {
  const auto at = records_.find(id);
  if (at == records_.end()) return wrong(fmt::format("a notification of transfer {}, which there is not", id));
  Record& record = at->second;
  if (!record.notifies) return wrong(fmt::format("transfer {} was not to notify", id));
  if (++record.delivered > 1) return wrong(fmt::format("transfer {} was notified {} times", id, record.delivered));
  if (id < last_delivered_) return wrong(fmt::format("transfer {} was notified after {}", id, last_delivered_));
  last_delivered_ = id;
  if ((record.kind == Kind::kSend) != (message != nullptr))
    return wrong(fmt::format("transfer {} came as another kind", id));
  if (message != nullptr) {
    ++outcome_.messages;
    if (message->size() != record.bytes || !holds(*message, id)) wrong(fmt::format("message {} has other bytes", id));
    return;
  }
  ++outcome_.notified;
  if (record.kind == Kind::kWrite && !holds(other_->slot(other_->inbox_, record.slot).first(record.bytes), id)) {
    wrong(fmt::format("transfer {} was notified before its bytes", id));
  }
}

void App::on_finished(std::uint64_t id, Record& record) {
  record.finished = true;
  record.code = record.transfer->code;
  --unfinished_;
  const Code code = record.code;
  ++(code == Code::kOk ? outcome_.ok : outcome_.failed);
  if (code == Code::kCancelled || code == Code::kDeadlineExceeded) ++outcome_.cancelled;
  if (code == Code::kProtectionError) {
    ++outcome_.refused;
    if (record.kind != Kind::kForbidden) wrong(fmt::format("transfer {} was refused what was granted", id));
  }
  if (code == Code::kOk && record.kind == Kind::kWrite &&
      !holds(other_->slot(other_->inbox_, record.slot).first(record.bytes), id)) {
    wrong(fmt::format("write {} is ok, but its bytes are not there", id));
  }
  if (code == Code::kOk && record.kind == Kind::kRead &&
      !holds(slot(landing_, record.slot).first(record.bytes), kShelf, record.offset)) {
    wrong(fmt::format("read {} is ok, but its bytes are not here", id));
  }
  // The memory is the application's again.
  if (record.kind != Kind::kSend) {
    std::ranges::fill(slot(record.kind == Kind::kRead ? landing_ : source_, record.slot), kPoison);
  }
  drop_reference(*record.transfer);
  record.transfer = nullptr;
}

void App::free_slot(Record& record) {
  record.slot_free = true;
  slot_used_[record.slot] = false;
  if (record.kind == Kind::kWrite) std::ranges::fill(other_->slot(other_->inbox_, record.slot), std::byte{0});
}

std::string App::unfinished() const {
  std::string text = fmt::format("{} of {}:", name_, unfinished_);
  for (const auto& [id, record] : records_) {
    if (record.finished || text.size() > 300) continue;
    static constexpr const char* kKinds[] = {"write", "read", "send", "forbidden write"};
    text += fmt::format(" {} {} of {} bytes{};", kKinds[static_cast<int>(record.kind)], id, record.bytes,
                        record.delivered != 0 ? ", delivered" : "");
  }
  return text;
}

void App::check_end(bool lives) {
  for (const auto& [name, request] : lookups_) {
    if (request != nullptr && !request->finished.load()) wrong(fmt::format("the look-up of '{}' never ended", name));
  }
  for (const auto& listing : listings_) {
    if (!listing->finished.load()) wrong("a listing never ended");
  }
  for (auto& [id, record] : records_) {
    if (!record.finished) wrong(fmt::format("transfer {} never ended", id));
    // Where the session was lost, nobody can know.
    if (record.delivered != 0 && record.code != Code::kOk && lives) {
      wrong(fmt::format("transfer {} was notified, but ended with '{}'", id, to_string(record.code)));
    }
    if (record.notifies && record.code == Code::kOk && record.delivered == 0) {
      wrong(fmt::format("transfer {} is ok, but was not notified", id));
    }
  }
  for (std::size_t i = 0; i < kSlots; ++i) {
    if (slot_used_[i]) continue;
    if (!std::ranges::all_of(other_->slot(other_->inbox_, i), [](std::byte b) { return b == std::byte{0}; })) {
      wrong(fmt::format("slot {} was written after its transfer had ended", i));
    }
    if (!std::ranges::all_of(slot(landing_, i), [](std::byte b) { return b == std::byte{0} || b == kPoison; })) {
      wrong(fmt::format("slot {} was read into after its transfer had ended", i));
    }
  }
  const PeerStats stats = session_->stats();
  outcome_.failovers += stats.failovers;
  outcome_.replayed += stats.replayed_transfers;
  outcome_.duplicates += stats.duplicate_notifications_dropped;
  outcome_.staged_bytes += stats.staged_bytes;
}

void App::release() {
  for (const char* name : {"inbox", "shelf", "temporary"}) (void)host_->regions().unpublish(name);
  inbox_of_other_ = shelf_of_other_ = temporary_of_other_ = nullptr;
  lookups_.clear();
  listings_.clear();
  source_region_ = inbox_region_ = shelf_region_ = temporary_region_ = landing_region_ = nullptr;
  if (session_.use_count() != 1) wrong(fmt::format("{} references to the session are left", session_.use_count() - 1));
  session_.reset();
}

}  // namespace fairlead::simulation
