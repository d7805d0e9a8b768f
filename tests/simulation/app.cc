#include "app.h"

#include <fmt/format.h>

#include <algorithm>

#include "datapath/flow/atomics.h"
#include "pattern.h"

namespace fairlead::simulation {

using datapath::OpKind;
using datapath::TransferImpl;

namespace {

constexpr std::size_t kTemporaryBytes = 12'000;
constexpr std::uint64_t kPreparedPiece = 300;

Clock::time_point after(Clock::time_point from, microseconds time) {
  return time == kNever ? Clock::time_point::max() : from + time;
}

}  // namespace

App::App(World& world, std::shared_ptr<SimHost> host, std::string name, const Plan& plan, Script& script,
         Outcome& outcome)
    : world_(world),
      host_(std::move(host)),
      name_(std::move(name)),
      plan_(plan),
      script_(script),
      outcome_(outcome),
      slot_used_(plan.slots) {
  for (auto* memory : {&source_, &inbox_, &landing_}) memory->resize(plan.slots * plan.slot_bytes);
  shelf_.resize(plan.slot_bytes);
  temporary_.resize(kTemporaryBytes);
  Pattern::fill(shelf_, 0);
  source_region_ = register_region(source_);
  inbox_region_ = register_region(inbox_);
  shelf_region_ = register_region(shelf_);
  temporary_region_ = register_region(temporary_);
  landing_region_ = register_region(landing_);
  const std::span<std::byte> words = std::as_writable_bytes(std::span(words_));
  words_region_ = register_region(words);
  datapath::RegionTable& regions = host_->regions();
  (void)regions.publish(region("inbox"), inbox_region_, inbox_, Access::kRemoteWrite, std::nullopt);
  (void)regions.publish(region("shelf"), shelf_region_, shelf_, Access::kRemoteRead, std::nullopt);
  (void)regions.publish(region("temporary"), temporary_region_, temporary_, Access::kRemoteWrite, std::nullopt);
  (void)regions.publish(region("words"), words_region_, words, Access::kRemoteAtomic, std::nullopt);
}

std::shared_ptr<datapath::RegionImpl> App::register_region(std::span<std::byte> bytes) {
  auto range = host_->regions().add({.bytes = bytes, .access = Access::kRemoteReadWrite});
  return std::make_shared<datapath::RegionImpl>(*range, bytes, Access::kRemoteReadWrite, nullptr);
}

void App::begin(std::shared_ptr<datapath::SessionImpl> session, App& other) {
  session_ = std::move(session);
  other_ = &other;
}

void App::step() {
  take_events();
  std::erase_if(live_, [this](std::uint64_t id) {
    Record& record = records_[id - 1];
    if (!record.finished && record.transfer->finished.load()) on_finished(id, record);
    if (!record.finished && record.cancel_at <= world_.now() && !record.taken_back && !session_->finished()) {
      record.taken_back = true;
      session_->request_cancel(*record.transfer);
    }
    if (record.finished && record.holds_slot &&
        (record.code != Code::kOk || !record.notifies || record.delivered != 0)) {
      free_slot(record);
    }
    return record.finished && !record.holds_slot;
  });
  if (!connected_ || session_->finished()) return;
  look_up();
  while (posting_ && !script_.done() && inbox_of_other_ && shelf_of_other_ && temporary_of_other_ && words_of_other_ &&
         world_.now() >= post_at_) {
    if (!post((*script_.posts)[script_.next])) break;
    if (++script_.next == script_.posts->size()) break;
    post_at_ = world_.now() + (*script_.posts)[script_.next].gap;
    if (world_.chance(0.5)) break;
  }
  if (plan_.unpublishes && posting_) {
    if (world_.chance(0.01)) listings_.push_back(session_->start_lookup("", true));
    withdraw();
  }
}

void App::take_events() {
  if (plan_.sleepy && posting_ && world_.chance(0.002)) {
    sleeps_until_ = world_.now() + milliseconds(world_.below(30));
  }
  Event event;
  while (world_.now() >= sleeps_until_ && world_.chance(0.9) && session_->take_event(event)) {
    on_event(event);
    event = Event();
  }
}

void App::look_up() {
  for (auto& [what, remote] : {std::pair<const char*, Remote*>{"inbox", &inbox_of_other_},
                               {"shelf", &shelf_of_other_},
                               {"temporary", &temporary_of_other_},
                               {"words", &words_of_other_}}) {
    if (*remote != nullptr) continue;
    auto& request = lookups_[what];
    if (request == nullptr) request = session_->start_lookup(other_->region(what), false);
    if (!request->finished.load()) continue;
    if (request->status.ok() && request->regions.size() == 1) *remote = request->regions.front();
    request.reset();  // while it is withdrawn there is none: asked again
  }
  if (temporary_of_other_ && temporary_of_other_->is_gone()) temporary_of_other_ = nullptr;
}

// Withdraws a region while others write to it, and publishes another under the same name: what peers know is stale.
void App::withdraw() {
  datapath::RegionTable& regions = host_->regions();
  if (withdrawn_.empty()) {
    if (!world_.chance(0.002)) return;
    (void)regions.unpublish(region("temporary"));
    withdrawn_ = temporary_;
    withdrawn_until_ = world_.now() + microseconds(world_.below(300));
  } else if (world_.now() >= withdrawn_until_) {
    if (withdrawn_ != temporary_) wrong("a region was written after it had been withdrawn");
    withdrawn_.clear();
    (void)regions.publish(region("temporary"), temporary_region_, temporary_, Access::kRemoteWrite, std::nullopt);
  }
}

// ---- transfers

// False: there is no room for it now.
bool App::post(const Post& post) {
  const std::uint64_t id = records_.size() + 1;
  Record record;
  record.kind = post.kind;
  record.bytes = std::min(post.bytes, plan_.slot_bytes);
  record.notifies = post.notifies;
  record.traffic = post.traffic;
  if (record.takes_slot()) {
    // The last slot is the prepared list's.
    const auto last = slot_used_.end() - 1;
    const auto free = record.kind == Kind::kPrepared ? last : std::find(slot_used_.begin(), last, false);
    if (record.kind == Kind::kPrepared ? *free : free == last) return false;
    *free = record.holds_slot = true;
    record.slot = static_cast<std::size_t>(free - slot_used_.begin());
  }
  TransferImpl& t = *datapath::acquire_transfer();
  if (record.kind == Kind::kSend) {
    t.message.resize(record.bytes);
    Pattern::fill(t.message, id);
    t.is_send = record.notifies = true;
  } else if (record.is_atomic()) {
    fill_atomic(t, record, id);
  } else {
    fill_one_sided(t, record, post, id);
  }
  t.bytes = record.bytes;
  t.traffic = record.traffic;
  t.has_message = record.notifies || record.is_atomic();
  t.value = id;
  t.deadline = record.deadline = after(world_.now(), post.deadline);
  if (post.follows && id > 1 && records_.back().transfer != nullptr) {
    record.follows = id - 1;
    records_.back().followed = true;
    follow(t, *records_.back().transfer);
  }
  record.cancel_at = after(world_.now(), post.cancel_after);
  record.transfer = &t;
  records_.push_back(std::move(record));
  live_.push_back(id);
  ++unfinished_;
  ++outcome_.transfers;
  session_->submit(t);
  return true;
}

void App::fill_atomic(TransferImpl& t, Record& record, std::uint64_t id) {
  const bool add = record.kind == Kind::kAdd;
  record.bytes = 0;
  record.notifies = false;
  record.expected = swapped_;
  t.atomic = add ? datapath::AtomicOp::kFetchAdd : datapath::AtomicOp::kCompareSwap;
  t.own.ops.push_back({nullptr, 0, nullptr, words_of_other_.get(), add ? 0u : sizeof(std::uint64_t)});
  t.own.keep = {words_of_other_};
  datapath::atomics::put_operands(t.message, add ? 1 : id, record.expected);
}

void App::fill_one_sided(TransferImpl& t, Record& record, const Post& post, std::uint64_t id) {
  const bool read = record.kind == Kind::kRead;
  std::vector<std::byte>& memory = read ? landing_ : source_;
  const auto& region = read ? landing_region_ : source_region_;
  const Remote& remote = read                              ? shelf_of_other_
                         : record.kind == Kind::kForbidden ? temporary_of_other_
                                                           : inbox_of_other_;
  const std::span<std::byte> local = slot(memory, record.slot);
  std::uint64_t base = record.slot * plan_.slot_bytes;
  const auto append = [&](datapath::OpList& list, std::uint64_t from, std::uint64_t to, std::uint64_t length) {
    list.ops.push_back({local.data() + from, length, &region->range(), remote.get(), to});
    list.bytes += length;
  };
  const auto finish = [&](datapath::OpList& list) {
    list.kind = read ? OpKind::kRead : OpKind::kWrite;
    list.keep = {region, remote};
    record.bytes = list.bytes;
    t.list = &list;
  };
  if (record.kind == Kind::kPrepared) {
    if (prepared_ == nullptr) {
      prepared_ = std::make_shared<datapath::PreparedImpl>();
      prepared_->session = session_;
      for (std::uint64_t i = 0; i < 3; ++i)
        append(prepared_->list, i * kPreparedPiece, base + i * kPreparedPiece, kPreparedPiece);
      finish(prepared_->list);
    }
    t.prepared = prepared_;
    t.list = &prepared_->list;
    record.bytes = t.list->bytes;
  } else if (record.kind == Kind::kStrided) {
    // Rows that lie apart at the target; of every other one in the opposite order here.
    const auto rows = static_cast<std::int64_t>(post.pieces);
    const auto columns = static_cast<std::int64_t>(record.bytes) / rows;
    const auto apart = std::max(columns + 3, static_cast<std::int64_t>(plan_.slot_bytes) / (rows + 1));
    TensorSpec here{DType::kU8, 2, {rows, columns}, {columns, 1}, 0};
    if (id % 2 == 0 && columns != 0) {
      here.strides[0] = -columns;
      here.offset = static_cast<std::uint64_t>((rows - 1) * columns);
    }
    TensorSpec there{DType::kU8, 2, {rows, columns}, {apart, 1}, 0};
    if (there.check(plan_.slot_bytes).ok()) record.runs = *datapath::plan_tensor(here, there, 1000);
    for (const datapath::TensorRun& run : record.runs) append(t.own, run.a, base + run.b, run.length);
    if (record.runs.empty()) append(t.own, 0, base, 0);
    finish(t.own);
  } else {
    if (record.kind == Kind::kForbidden) {
      record.bytes = std::min<std::uint64_t>(record.bytes, kTemporaryBytes);
      base = 0;
    }
    if (read) base = record.offset = id * 7919 % (plan_.slot_bytes - record.bytes + 1);
    std::uint64_t at = 0;
    for (std::uint64_t left = post.pieces; left > 1 && record.bytes - at > left; --left) {
      const std::uint64_t length = 1 + (record.bytes - at) / (left + id % 3);
      append(t.own, at, base + at, length);
      at += length;
    }
    append(t.own, at, base + at, record.bytes - at);
    finish(t.own);
  }
  if (!read) Pattern::fill(local.first(record.bytes), id);
}

void App::take_back(unsigned count) {
  if (dead_ || session_->finished()) return;
  for (auto at = live_.rbegin(); at != live_.rend() && count != 0; ++at) {
    Record& record = records_[*at - 1];
    if (record.finished) continue;
    --count;
    record.taken_back = true;
    session_->request_cancel(*record.transfer);
  }
}

void App::close(microseconds grace) {
  listings_.push_back(session_->start_lookup("", true));
  session_->request_close(grace);
}

void App::on_event(Event& event) {
  switch (event.kind) {
    case Event::Kind::kConnected:
      connected_ = true;
      return;
    case Event::Kind::kClosed:
      end_ = event.text;
      end_code_ = event.status.code();
      return;
    case Event::Kind::kNotification:
      return other_->on_delivered(event, nullptr);
    case Event::Kind::kMessage:
      return other_->on_delivered(event, &event.data);
    default:
      return;
  }
}

void App::die() {
  Event event;
  while (session_->take_event(event)) continue;  // nobody will
  for (Record& record : records_) {
    if (record.transfer != nullptr) drop_reference(*record.transfer);
    record.transfer = nullptr;
  }
  live_.clear();
  dead_ = true;
}

void App::release() {
  for (const char* name : {"inbox", "shelf", "temporary", "words"}) (void)host_->regions().unpublish(region(name));
  inbox_of_other_ = shelf_of_other_ = temporary_of_other_ = words_of_other_ = nullptr;
  prepared_.reset();
  lookups_.clear();
  listings_.clear();
  source_region_ = inbox_region_ = shelf_region_ = temporary_region_ = landing_region_ = words_region_ = nullptr;
  if (session_.use_count() != 1) wrong(fmt::format("{} references to the session are left", session_.use_count() - 1));
  session_.reset();
  host_.reset();
}

}  // namespace fairlead::simulation
