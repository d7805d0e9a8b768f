// A host of sessions on streams that say what the test writes, and a clock that it moves.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <deque>
#include <set>
#include <string>
#include <vector>

#include "datapath/session/control_link.h"
#include "datapath/session/session_host.h"

namespace fairlead::datapath {

/// What one stream does. It belongs to the test, which outlives the stream.
struct Script {
  enum class Dial : std::uint8_t { kPending, kStands, kRefused } dial = Dial::kStands;
  std::string to_hear;
  bool ended = false;  // behind what is to be heard
  int send_error = 0;
  std::string said;
  int sends = 0;
};

class ScriptedStream final : public ControlStream {
 public:
  explicit ScriptedStream(Script& script) : script_(script) {}
  IoResult send(std::span<iovec> pieces) noexcept override {
    if (script_.send_error != 0) return {0, script_.send_error};
    ++script_.sends;
    std::size_t bytes = 0;
    for (const iovec& piece : pieces) {
      script_.said.append(static_cast<const char*>(piece.iov_base), piece.iov_len);
      bytes += piece.iov_len;
    }
    return {bytes, 0};
  }
  IoResult receive(std::span<iovec> pieces) noexcept override {
    const std::size_t bytes = std::min(script_.to_hear.size(), pieces[0].iov_len);
    if (bytes == 0) return {0, script_.ended ? 0 : EAGAIN};
    std::memcpy(pieces[0].iov_base, script_.to_hear.data(), bytes);
    script_.to_hear.erase(0, bytes);
    return {bytes, 0};
  }
  Result<bool> connected() override {
    if (script_.dial == Script::Dial::kRefused) return Status(Code::kUnavailable, "connection refused");
    return script_.dial == Script::Dial::kStands;
  }
  std::string peer_host() const override { return "10.0.0.2"; }
  std::string local_host() const override { return "10.0.0.1"; }
  std::string peer_address() const override { return "10.0.0.2:7400"; }

 private:
  Script& script_;
};

/// Of a host, what links and sessions need.
class FakeHost final : public SessionHost, private Domain {
 public:
  std::deque<Result<Script*>> dials;  // what the addresses lead to, in order
  std::vector<std::string> dialed;
  Clock::time_point time{std::chrono::hours(1)};
  Status may_watch;
  std::set<const ControlStream*> watched;
  std::uint32_t events = 0;
  EngineConfig settings;
  int ready = 0, refused = 0;  // sessions, handshakes

  const EngineConfig& config() const noexcept override { return settings; }
  Lane& lane() noexcept override { return lane_; }
  RegionTable& regions() noexcept override { return *regions_; }
  EventQueues& queues() noexcept override { return queues_; }
  const Principals& principals() const noexcept override { return principals_; }
  bool inherited() const noexcept override { return false; }
  Status usable() const override { return {}; }
  Clock::time_point now() const noexcept override { return time; }
  std::uint64_t random() override { return 1; }
  Result<std::unique_ptr<ControlStream>> dial(const std::string& host, std::uint16_t) override {
    dialed.push_back(host);
    const Result<Script*> leads_to = dials.front();
    dials.pop_front();
    if (!leads_to) return leads_to.error();
    return std::unique_ptr<ControlStream>(std::make_unique<ScriptedStream>(**leads_to));
  }
  std::vector<OpenTransport>& transports() noexcept override { return transports_; }
  void open_for_peer(const std::vector<Offer>&) override {}
  std::vector<Offer> offers() const override {
    std::vector<Offer> offers;
    for (const OpenTransport& each : transports_) offers.push_back(each.offer);
    return offers;
  }
  Status watch_control(const ControlStream& stream, ControlLink&, std::uint32_t wanted, bool first) override {
    if (!may_watch.ok()) return may_watch;
    EXPECT_EQ(watched.insert(&stream).second, first);
    events = wanted;
    return {};
  }
  void unwatch_control(const ControlStream& stream) override { EXPECT_EQ(watched.erase(&stream), 1U); }
  Status admit_peer(const SessionImpl&, const std::string&, CreditWindow::Limits&) override { return {}; }
  std::shared_ptr<SessionImpl> find_session(std::uint64_t) override { return nullptr; }
  void session_ready(SessionImpl&) override { ++ready; }
  void session_cut(SessionImpl&, bool) override {}
  void resume_here(std::unique_ptr<ControlChannel>, const control::Resume&) override {}
  void session_closed(SessionImpl&, Ended) override {}
  void handshake_refused() noexcept override { ++refused; }

 private:
  bool progress() noexcept override { return false; }
  bool arm() noexcept override { return true; }
  std::chrono::milliseconds sleep_limit() noexcept override { return std::chrono::milliseconds(1); }

  const std::shared_ptr<RegionTable> regions_ = std::make_shared<RegionTable>();
  EventQueues queues_;
  const Principals principals_;
  std::vector<OpenTransport> transports_;
  Lane lane_{*this, Progress::kApplication, std::chrono::microseconds(0)};
};

}  // namespace fairlead::datapath
