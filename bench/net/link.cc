#include "bench/net/link.h"

#include <fmt/format.h>
#include <sched.h>

#include <cstring>

namespace fairlead::bench {

bool Link::acceptable(const Event& event) {
  if (event.kind == Event::Kind::kPathChanged) {
    failed_ = Status(Code::kUnavailable, "the path changed during the measurement: " + event.text);
  } else if (event.kind == Event::Kind::kClosed) {
    failed_ = event.status.ok() ? Status(Code::kUnavailable, "the target closed the session")
                                : Status(event.status.code(), "lost the target: " + event.status.message());
  }
  return failed_.ok();
}

Result<Json> Link::ask(std::string_view type, Json::Object fields) {
  fields.emplace(fields.begin(), "type", type);
  fields.emplace(fields.begin(), "v", kProtocolVersion);
  const std::string text = Json(std::move(fields)).dump();
  static_cast<void>(peer_.send(std::as_bytes(std::span(text)), kControl));
  while (failed_.ok()) {
    const Event event = peer_.next_event(std::chrono::seconds(1));
    if (!acceptable(event)) return failed_;
    if (event.kind != Event::Kind::kMessage || event.value != kControl) continue;
    Result<Json> answer = Json::parse({reinterpret_cast<const char*>(event.data.data()), event.data.size()});
    if (!answer) return answer.error();
    if (const Json* error = answer->find("error"); error != nullptr && error->string() != nullptr) {
      return Status(Code::kInvalidArgument, "the target refused: " + *error->string());
    }
    return answer;
  }
  return failed_;
}

Result<Event> Link::next_spinning() {
  while (failed_.ok()) {
    Event event = peer_.next_event(kSpinning);
    if (event.kind == Event::Kind::kNone) {
      ::sched_yield();
      continue;
    }
    if (!acceptable(event)) return failed_;
    if (event.kind == Event::Kind::kNotification || event.kind == Event::Kind::kMessage) return event;
  }
  return failed_;
}

Status Link::finish(const Transfer& transfer) {
  while (!transfer.done()) {
    static_cast<void>(Transfer(transfer).wait(kSpinning));
    if (!transfer.done()) ::sched_yield();
  }
  return transfer.code() == Code::kOk ? Status() : transfer.status();
}

Status Link::poll_until(const std::function<bool()>& done) {
  for (unsigned idle = 0; !done();) {
    if (engine_->poll()) {
      idle = 0;
    } else if (++idle % kPollsInVain == 0) {
      if (Status status = check(); !status.ok()) return status;
      ::sched_yield();
    }
  }
  return {};
}

Status Link::idle_until(std::chrono::steady_clock::time_point when) {
  // A thread that sleeps wakes 50 us late and more, so the last part is polled.
  constexpr std::chrono::microseconds kLate{100};
  while (failed_.ok()) {
    const auto left = when - std::chrono::steady_clock::now();
    if (left <= std::chrono::nanoseconds(0)) break;
    if (left > kLate) {
      static_cast<void>(acceptable(peer_.next_event(left - kLate)));
    } else {
      static_cast<void>(engine_->poll());
    }
  }
  return failed_;
}

Status Link::wait(const Transfer& transfer) {
  while (!transfer.done()) {
    static_cast<void>(Transfer(transfer).wait(std::chrono::seconds(1)));
    if (transfer.done()) break;
    if (Status status = check(); !status.ok()) return status;
  }
  return transfer.code() == Code::kOk ? Status() : transfer.status();
}

Status Link::wait(Burst& burst, std::uint64_t count) {
  for (;;) {
    const Status status = burst.wait(count, std::chrono::seconds(1));
    if (status.code() != Code::kDeadlineExceeded || burst.ended() >= count) return status;
    if (Status lives = check(); !lives.ok()) return lives;
  }
}

Status Link::check() {
  if (!failed_.ok()) return failed_;
  static_cast<void>(acceptable(peer_.next_event()));
  return failed_;
}

}  // namespace fairlead::bench
