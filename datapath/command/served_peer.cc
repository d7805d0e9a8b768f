#include "datapath/command/served_peer.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>

#include <bit>
#include <system_error>

#include "datapath/command/metered_executor.h"
#include "datapath/command/process/process_session.h"
#include "datapath/command/server_session.h"

namespace fairlead::datapath::command {

namespace {

constexpr std::chrono::microseconds kSpin{50};        // how long a thread that has nothing to run looks for more
constexpr std::chrono::milliseconds kHeldLook{2};     // how often the same looks whether the client took its results
constexpr std::chrono::microseconds kDeviceLook{50};  // how often it looks how far the device is, after kSpin
constexpr std::chrono::microseconds kTurn{200};       // at a device that is shared, or one command longer
constexpr std::chrono::milliseconds kRun{1};          // at one that is not, before its thread looks up
constexpr std::chrono::microseconds kNewsLook{20};    // how long what gives way runs without a look for messages
constexpr std::chrono::seconds kGoneLook{1};          // how often an idle one looks whether its process is there
constexpr std::chrono::seconds kGrace{30};            // for the words that end a session
constexpr std::uint64_t kFullSessions = 4;            // as many bytes as these have may wait for all of a tenant's

/// All that a client which keeps to its credits can have under way.
std::uint64_t most_queued(const ServerSession::Terms& terms) {
  return terms.channels * (terms.credits * std::uint64_t{kMaxRecord} + terms.payload_credit) + (1 << 20);
}

}  // namespace

std::vector<fairlead::command::ServedDevice> devices_of(const fairlead::command::ServiceConfig& config) {
  if (!config.devices.empty()) return config.devices;
  return {{"device", config.executors}};
}

ServedPeer::ServedPeer(Peer peer, Admission admission, const ServerSession::Terms& terms,
                       const fairlead::command::ServiceConfig& config, ServiceCounters& counters,
                       Turnstiles& turnstiles, std::shared_ptr<ModuleCache> modules, Windows* windows, TimeSource time)
    : peer_(std::move(peer)),
      admission_(std::move(admission)),
      principal_(peer_.principal()),
      key_(terms.key),
      channels_(terms.channels),
      most_queued_(most_queued(terms)),
      may_be_kept_(terms.keep_ms != 0),
      counters_(counters),
      turnstiles_(turnstiles),
      windows_(windows),
      in_process_(!config.program.empty()),
      time_(time) {
  Outlet& outlet = *this;
  if (in_process_) {
    session_ = std::make_unique<ProcessSession>(outlet, terms, config.program, admission_.shared(), std::move(modules));
    return;
  }
  session_ = std::make_unique<ServerSession>(
      outlet, terms,
      [this, devices = devices_of(config)](std::uint32_t device) {
        return MeteredExecutor::make(devices[device].executors, peer_, admission_.account().meter, {device});
      },
      nullptr, std::move(modules));
}

ServedPeer::~ServedPeer() {
  stop();
  if (thread_.joinable()) thread_.join();
  admission_.account().queued_bytes.fetch_sub(queued_bytes_ + running_bytes_, std::memory_order_relaxed);
}

Status ServedPeer::start_thread() {
  try {
    thread_ = std::thread([this] { thread_main(); });
  } catch (const std::system_error& error) {
    return {Code::kResourceExhausted,
            fmt::format("it has no thread for another session ({}); try again when one has ended", error.what())};
  }
  ::pthread_setname_np(thread_.native_handle(), "fairlead-exec");
  return {};
}

void ServedPeer::send(TrafficClass traffic, Bytes message) {
  // Before its client can know that, and be gone. A process may say it, too, of a session that is none to keep.
  if (wishes_to_be_kept_ && !welcome_ && is_kept_welcome(message)) kept_.store(true, std::memory_order_release);
  Transfer sent = peer_.send(message, kMessageValue, {.traffic = traffic});
  // That a client is gone shows elsewhere; but what was not even posted would be missed by nobody.
  const bool is_posted = sent.code() != Code::kResourceExhausted && sent.code() != Code::kInvalidArgument;
  if (!is_posted && unsent_.ok()) unsent_ = sent.status();
  const std::uint64_t bytes = message.size() + kMessageCost;
  sent_[static_cast<std::size_t>(traffic)].emplace_back(std::move(sent), bytes);
  untaken_ += bytes;
}

std::uint64_t ServedPeer::untaken() {
  for (auto& sent : sent_) {
    for (; !sent.empty() && sent.front().first.done(); sent.pop_front()) untaken_ -= sent.front().second;
  }
  return untaken_;
}

bool ServedPeer::may_copy(std::uint64_t bytes) {
  RateLimit& bandwidth = admission_.account().bandwidth;
  const bool may = !bandwidth.is_limited() || bandwidth.take(bytes, now());
  bandwidth_is_used_up_ |= !may;
  return may;
}

std::optional<std::int64_t> ServedPeer::copy_level() {
  RateLimit& bandwidth = admission_.account().bandwidth;
  if (!bandwidth.is_limited()) return std::nullopt;
  return static_cast<std::int64_t>(bandwidth.level(now()));
}

/// And what it took is its tenant's, but for what it takes to begin.
bool ServedPeer::run(std::uint32_t device, Clock::time_point until, Clock::time_point& time) {
  const bool begins = !session_->is_welcome();
  const bool more = session_->run(until, device);
  if (!unsent_.ok()) {
    session_->end({unsent_.code(), fmt::format("what its commands gave cannot be sent: {}; the service is to raise "
                                               "that for its engine, or to lower held_results",
                                               unsent_.message())});
  }
  const Clock::time_point begin = std::exchange(time, now());
  const std::chrono::nanoseconds took = begins ? Clock::duration::zero() : time - begin;
  admission_.account().devices[device].service_ns.fetch_add(static_cast<std::uint64_t>(took.count()),
                                                            std::memory_order_relaxed);
  count(device);
  return more;
}

std::uint32_t ServedPeer::next_device(std::uint32_t last) const noexcept {
  const SessionRunner::Devices& devices = session_->devices();
  const std::uint32_t busy = devices.due | devices.held | devices.pending;
  const std::uint32_t among = busy != 0 ? busy : devices.all;
  const std::uint32_t behind = among & ~((std::uint32_t{2} << last) - 1);
  return static_cast<std::uint32_t>(std::countr_zero(behind != 0 ? behind : among));
}

// ---- in turn -------------------------------------------------------------------------------------------------------

void ServedPeer::deliver(Event event) { queue({std::move(event), std::nullopt}); }

void ServedPeer::attach(Peer peer, std::vector<std::byte> said) {
  Event event;
  event.data = std::move(said);
  queue({std::move(event), std::move(peer)});
}

void ServedPeer::queue(News news) {
  if (!thread_.joinable()) return take(news);
  const std::lock_guard lock(mutex_);
  if (news.peer) forget_attached();
  if (hold(news)) queued_.push_back(std::move(news));
  any_queued_.store(true, std::memory_order_release);
  if (session_ != nullptr) session_->set_news(true);
  news_.notify_one();
}

/// False: it is not read any more; who runs the session ends it. Under mutex_.
bool ServedPeer::hold(const News& news) {
  const std::uint64_t bytes = news.event.data.size() + kMessageCost;
  std::atomic<std::uint64_t>& together = admission_.account().queued_bytes;
  const std::uint64_t most = kFullSessions * most_queued_;
  const std::uint64_t all = together.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (!news.peer && (overrun_ || crowded_ != 0 || all > most || queued_bytes_ + bytes > most_queued_)) {
    together.fetch_sub(bytes, std::memory_order_relaxed);
    if (overrun_ || crowded_ != 0) return false;
    overrun_ = queued_bytes_ + bytes > most_queued_;
    crowded_ = overrun_ ? 0 : all;
    return false;
  }
  queued_bytes_ += bytes;
  return true;
}

/// A peer that was attached and not taken yet, and what it said: its client says that again over the one that comes.
void ServedPeer::forget_attached() {
  const auto first = std::ranges::find_if(queued_, [](const News& news) { return news.peer.has_value(); });
  std::uint64_t bytes = 0;
  for (auto at = first; at != queued_.end(); ++at) bytes += at->event.data.size() + kMessageCost;
  queued_.erase(first, queued_.end());
  queued_bytes_ -= bytes;
  admission_.account().queued_bytes.fetch_sub(bytes, std::memory_order_relaxed);
}

ServedPeer::Left ServedPeer::turn() {
  if (ended_.load(std::memory_order_relaxed)) return Left::kNothing;
  Clock::time_point time = now();
  look_again_ = time + kNewsLook;
  bandwidth_is_used_up_ = false;
  bool more = false;
  std::uint32_t device = next_device(static_cast<std::uint32_t>(kMaxDevices) - 1);
  for (std::uint32_t left = session_->devices().all; left != 0; left &= left - 1) {
    more |= run(device, Clock::time_point::max(), time);
    device = next_device(device);
  }
  return more || session_->devices().due != 0            ? Left::kMore
         : session_->is_held() || session_->is_pending() ? Left::kHeld
                                                         : Left::kNothing;
}

bool ServedPeer::waits_for_time() {
  // A process asks for the level before it copies, and not for each copy.
  const bool used_up = bandwidth_is_used_up_ || copy_level().value_or(1) <= 0;
  return session_->is_pending() || (session_->is_held() && used_up);
}

void ServedPeer::take(News& news) {
  Event& event = news.event;
  if (news.peer) {
    peer_ = *std::move(news.peer);
    for (auto& sent : sent_) sent.clear();
    untaken_ = 0;
    unsent_ = Status();
    session_->resume(std::move(event.data));
    if (told_) peer_.close(kGrace);  // it ended meanwhile, as the client hears now
    return;
  }
  if (event.value != kMessageValue) event.data.clear();  // none of ours, which the session says
  Bytes body = event.data;
  const auto header = command::take<MessageHeader>(body);
  // Once: each answer is one more that its client may leave untaken. What comes again is out of place.
  const bool asks = header && is_message(*header, MessageType::kOpenWindow);
  if (asks && session_->is_welcome() && !session_->is_over() && !std::exchange(asked_, true)) {
    return open_window(header->count != 0);
  }
  if (!welcome_ && may_be_kept_) wishes_to_be_kept_ |= is_hello_to_keep(event.data);
  session_->take(std::move(event.data), event.traffic);
}

void ServedPeer::open_window(bool may_be_for_reads) {
  // Over shm two processes copy a message faster, through their caches, than one does from the other's memory; but for
  // a third process it would be copied twice more. What is read the client copies itself.
  const bool is_for_writes = in_process_ || peer_.transport() != "shm";
  if (windows_ != nullptr && (is_for_writes || may_be_for_reads)) {
    Result<Window> opened = windows_->open(principal_, in_process_);
    if (opened) opened->is_for_reads = !is_for_writes;
    if (opened && session_->take_window(*opened)) {
      window_ = *std::move(opened);
      return;
    }
    if (opened) windows_->close(*opened);
  }
  send(TrafficClass::kCommands, window_message(0, {}));
}

/// What it did on that device since the last time.
void ServedPeer::count(std::uint32_t device) {
  const SessionRunner::Counts& now = session_->counts();
  const auto add = [](std::atomic<std::uint64_t>& to, std::uint64_t is, std::uint64_t was) {
    if (is != was) to.fetch_add(is - was, std::memory_order_relaxed);
  };
  add(counters_.commands, now.commands, counted_.commands);
  add(counters_.failures, now.failures, counted_.failures);
  add(counters_.skipped_unknown, now.skipped_unknown, counted_.skipped_unknown);
  add(counters_.replies, now.replies, counted_.replies);
  TenantAccount& account = admission_.account();
  TenantAccount::AtDevice& there = account.devices[device];
  add(there.commands, now.commands, counted_.commands);
  for (std::size_t i = 0; i < there.failures.size(); ++i) {
    add(there.failures[i], now.failures_by_scope[i], counted_.failures_by_scope[i]);
  }
  const std::uint64_t waiting = session_->waiting();
  add(account.waiting, waiting, std::exchange(counted_waiting_, waiting));  // it wraps, and back
  counted_ = now;
  if (session_->is_welcome() && !std::exchange(welcome_, true)) counters_.begun.fetch_add(1);
  if (session_->is_over() && !std::exchange(told_, true)) {
    (welcome_ ? counters_.ended_wrong : counters_.refused).fetch_add(1);
    peer_.close(kGrace);
  }
}

void ServedPeer::stop() noexcept {
  stopping_.store(true);
  if (thread_.joinable()) {
    for (Turnstile& turnstile : turnstiles_) turnstile.wake();
    const std::lock_guard lock(mutex_);
    if (session_ != nullptr) session_->abandon();
    news_.notify_one();
    return;
  }
  end();
}

void ServedPeer::end() {
  std::unique_ptr<SessionRunner> session;
  {
    const std::lock_guard lock(mutex_);
    session = std::move(session_);
  }
  session.reset();
  if (window_) windows_->close(*window_);
  window_.reset();
  admission_.account().waiting.fetch_sub(std::exchange(counted_waiting_, 0), std::memory_order_relaxed);
  ended_.store(true, std::memory_order_release);
}

// ---- a thread of its own -------------------------------------------------------------------------------------------

void ServedPeer::thread_main() noexcept {
  std::uint32_t device = static_cast<std::uint32_t>(kMaxDevices) - 1;
  while (!stopping_.load()) {
    if (any_queued_.load(std::memory_order_acquire)) take_queued();
    device = next_device(device);
    Clock::time_point time = now(), until = time + kRun;
    // A process and its context take long to begin, and nothing runs at the device yet.
    if (!turnstiles_.empty() && session_->is_welcome()) {
      if (!enter(device)) break;
      until = turn_.began + kTurn;
      time = now();
    }
    (void)run(device, until, time);
    // A process has them now; those of a thread are its channels', within their credits.
    admission_.account().queued_bytes.fetch_sub(std::exchange(running_bytes_, 0), std::memory_order_relaxed);
    if (session_->devices().due != 0 || any_queued_.load(std::memory_order_acquire)) continue;
    leave();
    if (!await_news()) break;
  }
  leave();
  end();
}

/// False: it is to end. A turn that is not over goes on, but at one device alone.
bool ServedPeer::enter(std::uint32_t device) {
  if (device != turn_at_) leave();
  if (turn_.number != 0 && now() < turn_.began + kTurn) return true;
  turn_at_ = device;
  turn_ = turnstiles_[device].enter(*admission_.account().devices[device].member, stopping_, turn_);
  return turn_.number != 0;
}

void ServedPeer::leave() {
  if (turn_.number != 0) turnstiles_[turn_at_].leave(std::exchange(turn_, {}));
}

void ServedPeer::take_queued() {
  std::vector<News> all;
  bool overrun = false;
  std::uint64_t crowded = 0;
  {
    const std::lock_guard lock(mutex_);
    all.swap(queued_);
    running_bytes_ += std::exchange(queued_bytes_, 0);
    overrun = overrun_;
    crowded = crowded_;
    any_queued_.store(false, std::memory_order_relaxed);
    session_->set_news(false);
  }
  moved_at_ = Clock::now();
  for (News& news : all) take(news);
  if (overrun) session_->overrun();
  if (crowded == 0) return;
  session_->end({Code::kResourceExhausted,
                 fmt::format("{} bytes wait for the sessions of its tenant together, which may be {} (what {} sessions "
                             "with all of their credits under way have); wait for some before sending more",
                             crowded, kFullSessions * most_queued_, kFullSessions)});
}

/// False: it is to end.
bool ServedPeer::await_news() {
  const auto is_news = [this] { return any_queued_.load(std::memory_order_acquire) || stopping_.load(); };
  if (session_->is_pending()) {
    const Clock::time_point begin = Clock::now();
    if (std::exchange(moves_, session_->moves()) != session_->moves() || is_news()) moved_at_ = begin;
    if (long_look_.goes_on(begin - moved_at_)) {
      ::sched_yield();
    } else {
      long_look_.end();
      std::unique_lock lock(mutex_);
      news_.wait_for(lock, kDeviceLook, is_news);
    }
    return !stopping_.load();
  }
  long_look_.end();
  if (session_->is_held()) {
    // Waiting for the oldest drives the engine, where nobody else does.
    bool any = false;
    for (auto& sent : sent_) {
      if (!sent.empty()) (void)sent.front().first.wait(kHeldLook);
      any |= !sent.empty();
    }
    if (any) return !stopping_.load();
    std::unique_lock lock(mutex_);  // its tenant's bandwidth holds it
    news_.wait_for(lock, kHeldLook, is_news);
    return !stopping_.load();
  }
  for (const Clock::time_point end = Clock::now() + kSpin; !is_news() && Clock::now() < end;) {
    ::sched_yield();  // who is to give it news may share its core
  }
  std::unique_lock lock(mutex_);
  while (!news_.wait_for(lock, kGoneLook, is_news) && !session_->look()) {
  }
  return !stopping_.load();
}

}  // namespace fairlead::datapath::command
