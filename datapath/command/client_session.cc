#include "datapath/command/client_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/system/large_bytes.h"
#include "base/system/long_look.h"
#include "base/system/yielding_look.h"

namespace fairlead::datapath::command {

using fairlead::command::Limits;
using fairlead::command::SessionOptions;

namespace {

constexpr std::chrono::seconds kRead{1};        // at most, until the reader looks whether it has waited for long enough
constexpr std::chrono::nanoseconds kMoment{1};  // a look while nobody wants the core: some rounds of the engine at once
constexpr std::chrono::microseconds kAlone{50};  // while nobody else does, for a transfer before it is looked who does
constexpr std::chrono::microseconds kFetched{20};  // until it is looked whether what is read has come
constexpr auto kMostNap = 8 * Readers::kLinger;    // the same for who waits for room while others read

Status checked(const SessionOptions& options, std::size_t max_message_bytes) {
  const auto wrong = [](std::string what) { return Status(Code::kInvalidArgument, std::move(what)); };
  if (options.flush_bytes < 512 || options.flush_bytes > 65536) {
    return wrong(fmt::format("flush_bytes is {}, and must be 512 to 65536", options.flush_bytes));
  }
  if (options.flush_commands < 1 || options.flush_commands > 4096) {
    return wrong(fmt::format("flush_commands is {}, and must be 1 to 4096", options.flush_commands));
  }
  if (options.flush_after.count() < 0 || options.flush_after > std::chrono::seconds(1)) {
    return wrong(fmt::format("flush_after is {} us, and must be 0 to 1000000", options.flush_after.count()));
  }
  if (options.resume_within.count() < 0) {
    return wrong(fmt::format("resume_within is {} ms, and must not be below 0", options.resume_within.count()));
  }
  if (const std::size_t least = sizeof(MessageHeader) + options.flush_bytes + kMaxRecord; max_message_bytes < least) {
    return wrong(fmt::format("the engine's max_message_bytes is {}, and must be at least {} for flush_bytes of {}",
                             max_message_bytes, least, options.flush_bytes));
  }
  return {};
}

/// As it crosses. Errors: there is no such device anywhere.
Result<std::uint64_t> wish_for(const std::vector<std::uint32_t>& devices) {
  if (devices == std::vector{fairlead::command::kAllDevices}) return kAllDevices;
  std::uint64_t wish = kAnyDevice;
  for (const std::uint32_t device : devices) {
    if (device >= kMaxDevices) {
      return Status(Code::kInvalidArgument,
                    fmt::format("device {} of a service, which has at most {}; legal: 0 to {}, or kAllDevices alone",
                                device, kMaxDevices, kMaxDevices - 1));
    }
    wish |= std::uint64_t{1} << device;
  }
  return wish;
}

}  // namespace

// ---- life ----------------------------------------------------------------------------------------------------------

Result<std::shared_ptr<ClientSession>> ClientSession::connect(Engine& engine, std::string_view host_port,
                                                              const SessionOptions& options) {
  if (Status fine = checked(options, engine.config().max_message_bytes); !fine.ok()) return fine;
  const Result<std::uint64_t> devices = wish_for(options.devices);
  if (!devices) return devices.error();
  Result<Peer> peer = engine.connect(host_port);
  if (!peer) return peer.error();
  const Clock::time_point now = Clock::now(), deadline = later(now, options.patience);
  const Status ready = peer->wait_ready(deadline - now);
  if (!ready.ok()) {
    peer->close();
    return Status(ready.code(), fmt::format("cannot reach {}: {}", host_port, ready.message()));
  }
  auto session = std::make_shared<ClientSession>(*peer, options);
  const Result<HelloMore> wish = session->range_.ask(options);
  if (!wish) return wish.error();
  if (options.resume_within.count() != 0) {
    session->seek_by([dial = engine.connector(), to = std::string(host_port)] { return dial(to); }, &Clock::now);
  }
  session->greet(engine.config().max_message_bytes, *wish, *devices);
  if (!session->wait_until([&] { return session->is_welcome(); }, deadline)) {
    if (session->has_ended()) return session->status();
    return Status(Code::kDeadlineExceeded, fmt::format("{} does not answer as a service of commands does", host_port));
  }
  if (const Status fits = session->check_devices(*devices); !fits.ok()) return fits;
  if (const Status same = session->range_.mirror(options, session->limits_); !same.ok()) return same;
  if (session->limits().version >= kWindowVersion && !session->outlives_peers()) {
    session->window_.begin(engine.local_reader(), engine.local_writer(), *peer, session->limits());
  }
  ClientSession* const self = session.get();
  if (session->outlives_peers() && !self->keeper_.start([self] { self->drain(); })) {
    return Status(Code::kResourceExhausted, "there was no thread to be had that keeps the session");
  }
  if (options.flush_after.count() == 0) return session;
  const bool started = self->flusher_.start(options.flush_after, [self] {
    Flusher::Looked looked;
    const Clock::time_point now = Clock::now();
    for (ClientChannel* each = self->first_.load(std::memory_order_acquire); each != nullptr; each = each->next()) {
      const ClientChannel::Due due = each->flush_if_due(now, self->options_.flush_after);
      looked.was_due |= due.was_sent;
      if (due.left && (!looked.soonest || *due.left < *looked.soonest)) looked.soonest = due.left;
    }
    return looked;
  });
  if (!started) return Status(Code::kResourceExhausted, "there was no thread to be had that sends buffers in time");
  return session;
}

ClientSession::ClientSession(Peer peer, const SessionOptions& options) : peer_(std::move(peer)), options_(options) {}

void ClientSession::greet(std::size_t max_message_bytes, const HelloMore& more, std::uint64_t devices) noexcept {
  max_message_bytes_ = max_message_bytes;
  const std::size_t largest = max_message_bytes - sizeof(MessageHeader);
  send(peer_, TrafficClass::kCommands,
       hello_message({.payload_bytes = static_cast<std::uint32_t>(std::min(largest, kPayloadPiece))}, more,
                     HelloLast{.keep = seeker_ ? 1u : 0u}, HelloDevices{devices}));
}

ClientSession::~ClientSession() {
  keeper_.stop();
  flusher_.stop();
  if (!flusher_.inherited()) close();
}

void ClientSession::close() noexcept {
  flush_all();
  const std::lock_guard lock(mutex_);
  end({Code::kUnavailable, "the session was closed"});
  peer_.close();
  if (seeker_) seeker_->close();
}

Status ClientSession::status() const {
  const std::lock_guard lock(mutex_);
  return why_ended_;
}

/// Under mutex_.
void ClientSession::end(Status why) {
  if (ended_.load(std::memory_order_relaxed)) return;
  window_.stop();  // before who waits is told, and has its memory again
  why_ended_ =
      !choked_.load(std::memory_order_acquire)
          ? std::move(why)
          : Status(Code::kResourceExhausted,
                   "more is under way to the service than EngineConfig::max_posted and max_posted_bytes allow; "
                   "raise them, or use fewer channels at once");
  ended_.store(true, std::memory_order_release);
  readers_.wake_all();
}

ClientChannel* ClientSession::open_channel(const fairlead::command::ChannelOptions& options) {
  const std::lock_guard lock(opening_);
  const std::size_t number = channel_count_.load(std::memory_order_relaxed);
  if (number >= channels_.size()) return nullptr;
  const Limits& there = limits(options.device);
  const std::int32_t priority = std::clamp(options.priority, there.greatest_priority, there.least_priority);
  channels_[number] =
      std::make_unique<ClientChannel>(*this, static_cast<std::uint16_t>(number), peer_, max_message_bytes_,
                                      fairlead::command::ChannelOptions{priority, options.device});
  ClientChannel* const channel = channels_[number].get();
  // Behind those that go before it, and the same; who walks along sees it or not.
  std::atomic<ClientChannel*>* at = &first_;
  for (ClientChannel* each = at->load(); each != nullptr && each->options().priority <= priority; each = at->load()) {
    at = &each->next_in_order();
  }
  channel->next_in_order().store(at->load(), std::memory_order_relaxed);
  at->store(channel, std::memory_order_release);
  channel_count_.store(number + 1, std::memory_order_release);
  return channel;
}

// ---- out -----------------------------------------------------------------------------------------------------------

void ClientSession::send(Peer& peer, TrafficClass traffic, Bytes message) noexcept {
  const Transfer sent = peer.send(message, kMessageValue, {.traffic = traffic});
  // What becomes of it shows in replies, or in the end; but what was not even posted would be missed by nobody.
  if (sent.code() != Code::kResourceExhausted && sent.code() != Code::kInvalidArgument) return;
  choked_.store(true, std::memory_order_release);
  peer.close(std::chrono::nanoseconds(0));
}

void ClientSession::wait_for(Placing placing) {
  for (Transfer& each : placing.posted()) {
    while (!each.done()) {
      bool is_mine = has_ended();
      if (!is_mine) {
        const std::lock_guard lock(mutex_);
        is_mine = readers_.is_idle(Clock::now());
      }
      if (is_mine) {
        (void)each.wait(kAlone);
      } else {
        (void)wait_until([&each] { return each.done(); }, Clock::now() + Readers::kLinger, Haste::kNo);
      }
    }
  }
  Status arrived = placing.finish();
  if (arrived.ok()) return;
  const std::lock_guard lock(mutex_);
  peer_.close(std::chrono::nanoseconds(0));
  end(std::move(arrived));
}

void ClientSession::flush_all() noexcept {
  for (ClientChannel* each = first_.load(std::memory_order_acquire); each != nullptr; each = each->next()) {
    each->flush();
  }
}

// ---- in ------------------------------------------------------------------------------------------------------------

void ClientSession::drain() noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || readers_.is_reading()) return;
  const bool any = take_events() || window_.is_fetching();
  fetch();
  if (any) readers_.wake_done();
}

/// Under mutex_: all that has come. False: nothing has.
bool ClientSession::take_events() {
  bool any = false;
  for (bool more = true; more && !has_ended(); any = true) {
    const bool is_away = seeker_ && seeker_->is_away();
    Event event = is_away ? seeker_->next_event(Clock::duration(0)) : peer_.next_event();
    more = event.kind != Event::Kind::kNone || !event.status.ok();
    if (!more && !is_away) break;
    handle(event);
    give_large(std::move(event.data));
  }
  return any;
}

bool ClientSession::wait_until(const std::function<bool()>& done, Clock::time_point deadline, Haste haste) {
  std::unique_lock lock(mutex_);
  Clock::duration nap = Readers::kLinger;
  for (bool comes = true; !done() && !has_ended(); comes = false) {
    const Clock::time_point now = Clock::now();
    if (comes) readers_.come(haste, now);
    if (now >= deadline) {
      readers_.call_next(haste);  // who slept while this one read
      lock.unlock();
      drain();  // who only looks finds what has come
      return done();
    }
    if (!readers_.begin(haste, now)) {
      readers_.sleep(lock, done, haste,
                     std::min<Clock::time_point>(deadline, now + (haste == Haste::kYes ? kRead : nap)));
      nap = std::min<Clock::duration>(2 * nap, kMostNap);
      continue;
    }
    lock.unlock();
    const Clock::duration most = window_.is_fetching() ? Clock::duration(kFetched) : Clock::duration(kRead);
    Event event = next_event(std::min<Clock::duration>(deadline - now, most), haste);
    lock.lock();
    readers_.end();
    handle(event);
    fetch();
    give_large(std::move(event.data));
    readers_.wake_done();
  }
  readers_.call_next(haste);
  return done();
}

/// Under mutex_.
void ClientSession::fetch() {
  if (!window_.is_fetching() || has_ended()) return;
  const Status collected = window_.collect();
  if (collected.ok()) return;
  (void)take_events();  // the service may have said why
  end({collected.code(), "a copy out cannot be read from the session's window: " + collected.message()});
  peer_.close();
}

/// Gives its core away between looks: where both ends share one, who only looks keeps the other from answering. Who is
/// in haste looks for longer while nobody takes it.
Event ClientSession::next_event(Clock::duration most, Haste haste) {
  if (seeker_ && seeker_->is_away()) return seeker_->next_event(most);
  LongLook long_look;
  YieldingLook& look = this_threads_look();
  const Clock::time_point begin = Clock::now();
  for (Clock::duration waited{0}; waited < most && long_look.goes_on(waited); waited = Clock::now() - begin) {
    Event event = peer_.next_event(haste == Haste::kYes && look.is_alone() ? kMoment : std::chrono::nanoseconds(0));
    if (event.kind != Event::Kind::kNone || !event.status.ok()) return event;
    look.missed();
  }
  return peer_.next_event(most);
}

/// Under mutex_. Of what has ended nothing is taken any more: the memory that it is for is somebody else's again.
void ClientSession::handle(const Event& event) {
  if (has_ended()) return;
  if (seeker_ && seeker_->is_away()) return seek(event);
  if (event.kind == Event::Kind::kMessage) {
    if (event.value != kMessageValue) return end({Code::kDataLoss, "the peer is no service of commands"});
    handle_message(event.data, event.traffic);
    if (heard_bytes_ != 0 && unsaid_ >= heard_bytes_) say_heard();
    return;
  }
  if (event.kind == Event::Kind::kClosed || (event.kind == Event::Kind::kNone && !event.status.ok())) {
    lose(event.status.ok() ? Status(Code::kUnavailable, "the service ended the session") : event.status);
  }
}

ClientChannel* ClientSession::channel_of(const MessageHeader& header) const noexcept { return channel(header.channel); }

void ClientSession::handle_message(Bytes message, TrafficClass traffic) {
  Bytes body = message;
  const auto header = take<MessageHeader>(body);
  bool legal = false;
  if (header && header->type == static_cast<std::uint8_t>(MessageType::kRefused)) return end(refusal_in(body));
  if (header && header->type == static_cast<std::uint8_t>(MessageType::kWelcome)) return welcome(body);
  if (header && is_message(*header, MessageType::kWindow)) legal = window_.on_opened(*header, body);
  if (ClientChannel* const channel = header ? channel_of(*header) : nullptr; channel != nullptr) {
    if (header->type == static_cast<std::uint8_t>(MessageType::kReply)) {
      const std::optional<Reply> reply = read_reply(*header, body);
      legal = reply && channel->on_reply(*reply);
    } else if (header->type == static_cast<std::uint8_t>(MessageType::kResult) && traffic == TrafficClass::kBulk) {
      legal = channel->on_result(header->sequence, body);
    } else if (header->type == static_cast<std::uint8_t>(MessageType::kWanted)) {
      const auto wanted = take<WantedBody>(body);
      legal = wanted && channel->on_wanted(header->sequence, *wanted);
    }
  }
  if (legal) return;
  end({Code::kDataLoss,
       fmt::format("the service sent a message of {} bytes that makes no sense here", message.size())});
  peer_.close();
}

void ClientSession::welcome(Bytes body) {
  std::optional<WelcomeRead> read = read_welcome(body, seeker_.has_value());
  if (!read || welcome_.load(std::memory_order_relaxed)) {
    peer_.close();
    return end({Code::kDataLoss, "the service's welcome makes no sense"});
  }
  limits_ = std::move(read->devices);
  if (const auto& kept = read->kept) {
    heard_bytes_ = std::clamp<std::uint64_t>(kept->heard_bytes, 1, kMostSaid);
    seeker_->keep({kept->id, kept->secret}, 4 * (heard_bytes_ + kMaxPayload));
  }
  if (options_.range_bytes == 0) {  // none was asked for
    for (Limits& each : limits_) each.range = {};
  }
  channels_.resize(limits().channels);
  welcome_.store(true, std::memory_order_release);
}

/// ok, or why the session does not have what was wished for: a service that knows of one device gives that.
Status ClientSession::check_devices(std::uint64_t wish) const {
  if (limits().version >= kDevicesVersion || wish == kAllDevices || (wish & ~std::uint64_t{1}) == 0) return {};
  return {Code::kVersionMismatch,
          fmt::format("the service speaks version {} of the commands' protocol, which knows of one device; version {} "
                      "knows of several: leave SessionOptions::devices empty, or update the service",
                      limits().version, kDevicesVersion)};
}

}  // namespace fairlead::datapath::command
