#include "datapath/command/resume/seeker.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "datapath/command/resume/points.h"

namespace fairlead::datapath::command {

namespace {

constexpr std::chrono::milliseconds kFirstPause{20}, kLongestPause{1000};
constexpr std::chrono::seconds kOneAttempt{10};  // for the service to answer
constexpr std::chrono::milliseconds kNap{20};    // of who waits for the next attempt

}  // namespace

bool Seeker::is_loss(const Status& why) const noexcept {
  return key_ && dial_ != nullptr && !why.ok() && why.code() != Code::kCancelled &&
         why.code() != Code::kPermissionDenied;
}

void Seeker::lose(Status why) {
  away_ = true;
  lost_ = std::move(why);
  failed_ = Status();
  pause_ = kFirstPause;
  next_ = now_();
  until_ = later(next_, within_);
}

Event Seeker::next_event(Clock::duration most) {
  if (tried_) return tried_->next_event(std::min<Clock::duration>(most, asked_ ? most : Clock::duration(kNap)));
  if (most.count() > 0) std::this_thread::sleep_for(std::min<Clock::duration>(most, kNap));
  return {};
}

Status Seeker::step(const Event& event, const Heard& heard) {
  if (tried_ && !asked_ && tried_->state() == PeerState::kReady) ask();
  if (tried_) {
    if (const Status fine = hear(event, heard); !fine.ok()) return fine;
  }
  if (!away_ || proved_) return {};  // it waits for what the session runs, as in any session
  if (now_() >= until_) {
    close();
    return {lost_.code(),
            fmt::format("{}; the session could not be gone on with for {} ms (resume_within): {}", lost_.message(),
                        within_.count(), failed_.ok() ? "the service did not answer" : failed_.message())};
  }
  if (tried_ && now_() >= tried_until_) {
    close();
    fail({Code::kDeadlineExceeded, fmt::format("the service did not answer within {} s", kOneAttempt.count())});
  }
  return tried_ || now_() < next_ ? Status() : dial();
}

Status Seeker::dial() {
  Result<Peer> peer = dial_();
  if (!peer) {
    fail(peer.error());
    return peer.error().code() == Code::kUnavailable ? peer.error() : Status();  // the client's own engine has ended
  }
  tried_ = *std::move(peer);
  tried_until_ = now_() + kOneAttempt;
  asked_ = proved_ = false;
  return {};
}

/// It is tried again later.
void Seeker::fail(Status why) {
  if (proved_) until_ = later(now_(), within_);  // the service was there
  tried_.reset();
  asked_ = proved_ = false;
  early_.clear();
  early_bytes_ = 0;
  failed_ = std::move(why);
  next_ = now_() + pause_;
  pause_ = std::min<Clock::duration>(2 * pause_, kLongestPause);
}

void Seeker::say(const std::vector<std::byte>& message) {
  (void)tried_->send(message, kMessageValue, {.traffic = TrafficClass::kCommands});
}

void Seeker::ask() {
  asked_ = true;
  attempt_.client = make_nonce();
  std::vector<std::byte> message = make_message({.type = static_cast<std::uint8_t>(MessageType::kResume)});
  put(message, ResumeBody{key_->id, attempt_.client});
  say(message);
}

bool Seeker::is_early(const Event& event) {
  if (!proved_ || event.traffic != TrafficClass::kBulk || event.data.size() > most_early_ - early_bytes_) return false;
  early_bytes_ += event.data.size();
  early_.push_back(event);
  return true;
}

/// Who answers wrongly is not the service that has the session.
Status Seeker::hear(const Event& event, const Heard& heard) {
  if (event.kind == Event::Kind::kClosed || (event.kind == Event::Kind::kNone && !event.status.ok())) {
    fail(event.status.ok() ? Status(Code::kUnavailable, "the service ended the connection") : event.status);
    return {};
  }
  if (event.kind != Event::Kind::kMessage || is_early(event)) return {};
  Bytes body = event.data;
  const auto header = event.value == kMessageValue ? take<MessageHeader>(body) : std::nullopt;
  if (header && is_message(*header, MessageType::kRefused)) {
    const Status why = refusal_in(body);
    close();
    if (why.code() == Code::kResourceExhausted && !proved_) {  // nobody has looked at the session yet
      fail(why);
      return {};
    }
    return {why.code(), fmt::format("{}; {}", lost_.message(), why.message())};
  }
  const auto challenge = header && asked_ && !proved_ && is_message(*header, MessageType::kChallenge)
                             ? take<ChallengeBody>(body)
                             : std::nullopt;
  if (challenge) {
    attempt_.service = challenge->nonce;
    proved_ = true;
    say(points_message(*key_, attempt_, heard()));
    return {};
  }
  auto has = header && proved_ && is_message(*header, MessageType::kResumed)
                 ? read_points<KeptBody>(*key_, attempt_, header->count, body)
                 : std::nullopt;
  if (!has) {
    close();
    return {Code::kDataLoss,
            fmt::format("{}; who answers there is not the service that has the session", lost_.message())};
  }
  back_ = Back{*std::exchange(tried_, std::nullopt), *std::move(has), std::exchange(early_, {})};
  early_bytes_ = 0;
  away_ = asked_ = proved_ = false;
  return {};
}

std::optional<Seeker::Back> Seeker::take_back() noexcept { return std::exchange(back_, std::nullopt); }

void Seeker::close() noexcept {
  if (tried_) tried_->close(std::chrono::nanoseconds(0));
}

}  // namespace fairlead::datapath::command
