// One end's set of paths, whose peer, transports and clock are the test.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "datapath/flow/path_set.h"

namespace fairlead::datapath::path_test {

using std::chrono::milliseconds;
using State = PathState;
using What = PathEvent;

/// The paths here tell nobody.
class Nobody final : public PathEvents {
  void on_ready(Path&) noexcept override {}
  void on_completion(Path&, const Ended&) noexcept override {}
  void on_message(Path&, std::span<const std::byte>) noexcept override {}
  void on_notification(Path&, std::uint32_t) noexcept override {}
  void on_down(Path&, Code, std::string_view) noexcept override {}
};
inline Nobody nobody;

/// Takes everything, and is drained when the test says so.
class FakePath final : public Path {
 public:
  explicit FakePath(bool& drained) : Path(nobody), drained_(drained) {}
  [[nodiscard]] std::string local_description() const override { return "fake"; }
  Status connect(std::string_view peer) override {
    return peer == "bad" ? Status(Code::kDataLoss, "not a description") : Status();
  }
  [[nodiscard]] std::uint32_t max_outstanding() const noexcept override { return 5; }
  std::size_t post(std::span<const WorkRequest> requests) noexcept override { return requests.size(); }
  void close() noexcept override {}
  [[nodiscard]] bool drained() const noexcept override { return drained_; }
  [[nodiscard]] std::string describe() const override { return "a path"; }

 private:
  bool& drained_;
};

class FakeEndpoint final : public Endpoint {
 public:
  FakeEndpoint(const bool& broken, bool& drained) : broken_(broken), drained_(drained) {}
  Result<std::unique_ptr<Path>> open_path(const PathConfig&) override {
    if (broken_) return Status(Code::kUnavailable, "no more queue pairs");
    return std::unique_ptr<Path>(std::make_unique<FakePath>(drained_));
  }
  bool poll() noexcept override { return false; }
  bool arm() noexcept override { return true; }
  [[nodiscard]] int wait_fd() const noexcept override { return -1; }
  [[nodiscard]] int wait_timeout_us() const noexcept override { return -1; }

 private:
  const bool& broken_;
  bool& drained_;
};

class FakeDevice final : public Device {
 public:
  FakeDevice(std::string name, bool& drained) : name_(std::move(name)), drained_(drained) {}
  [[nodiscard]] std::string_view name() const noexcept override { return name_; }
  [[nodiscard]] const Capabilities& capabilities() const noexcept override { return can; }
  [[nodiscard]] std::string describe() const override { return name_; }
  Result<Registration> register_memory(const MemoryDescriptor&) override { return Registration{}; }
  void deregister(const Registration&) noexcept override {}
  Result<Grant> grant(const MemoryDescriptor&) override { return Grant{}; }
  void revoke(const Grant&) noexcept override {}
  Result<std::unique_ptr<MemoryDomain>> open_domain() override {
    return std::unique_ptr<MemoryDomain>(std::make_unique<FakeDevice>(name_, drained_));
  }
  [[nodiscard]] DeviceUsage usage() const noexcept override { return {}; }
  Result<std::unique_ptr<Endpoint>> open_endpoint() override {
    return std::unique_ptr<Endpoint>(std::make_unique<FakeEndpoint>(broken, drained_));
  }

  Capabilities can;
  bool broken = false;

 private:
  std::string name_;
  bool& drained_;
};

/// One end, with two transports of one kind, whose peer is the test.
class End final : public PathHost, public PathUser {
 public:
  explicit End(bool active, bool failover = true)
      : paths(*this, *this, active, {failover, milliseconds(300)}), active(active) {
    for (const char* name : {"fake:0", "fake:1"}) {
      auto made = std::make_unique<FakeDevice>(name, drained);
      fakes.push_back(made.get());
      OpenTransport open;
      open.endpoint = std::move(*made->open_endpoint());
      open.probe = std::move(*Probe::make(*made));
      open.device = std::move(made);
      open.offer = {name, "fake", false};
      open_.push_back(std::move(open));
    }
    if (!active) paths.expect({{"fake:0", "fake", false}, {"fake:1", "fake", false}});
  }
  ~End() {
    paths.shut();
    paths.drop_all();
    for (const OpenTransport& open : open_) EXPECT_EQ(open.paths, 0u) << "paths are counted down";
  }

  // PathHost and PathUser
  PathEvents& path_events() noexcept override { return nobody; }
  std::vector<OpenTransport>& transports() noexcept override { return open_; }
  Result<DomainBook*> domain_at(std::size_t) override { return nullptr; }
  bool linked() const noexcept override { return link; }
  PathConfig path_config() override {
    EXPECT_TRUE(link);
    return {};
  }
  Clock::time_point now() const noexcept override { return time; }
  std::string who() const override { return "peer"; }
  void send_frame(const control::Frame& frame) override { sent.push_back(frame); }
  void fail(Status status) override {
    failed = std::move(status);
    paths.shut();
  }
  void no_path(Status why) override { fail(std::move(why)); }
  void path_in_use() override { ++used; }
  void path_lost() override { ++lost; }
  void path_gone(InFlight& held) override {
    while (!held.empty()) std::ignore = held.end_oldest();
  }
  std::uint64_t received() const noexcept override { return 7; }
  std::uint64_t acknowledged() const noexcept override { return 3; }
  bool apply_received(std::uint64_t received, std::string& why) override {
    applied.push_back(received);
    why = "says nonsense";
    return received != 666;
  }
  void path_event(PathState state, PathEvent event) noexcept override { seen.insert({state, event}); }

  // What the peer does.
  void begin() { paths.begin({{0, 0, "best"}, {1, 1, "next"}}); }
  void offer(std::uint64_t number, std::uint32_t theirs = 0, std::uint32_t ours = 0, const char* text = "theirs") {
    if (paths.handle(control::PathOffer{.epoch = number,
                                        .active_transport = theirs,
                                        .passive_transport = ours,
                                        .description = text,
                                        .probe = control::Key{.address = 0, .key = 1}})) {
      epoch = std::max(epoch, number);
    }
  }
  void answer(const char* text = "theirs") {
    EXPECT_TRUE(paths.handle(
        control::PathAnswer{.epoch = epoch, .description = text, .probe = control::Key{.address = 0, .key = 1}}));
  }
  void ready() { EXPECT_TRUE(paths.handle(control::PathReady{.epoch = epoch})); }
  void says_down(Code code = Code::kUnavailable) {
    EXPECT_TRUE(
        paths.handle(control::PathDown{.epoch = epoch, .code = static_cast<std::uint32_t>(code), .reason = "cable"}));
  }
  void fence(std::uint64_t got = 0) { EXPECT_TRUE(paths.handle(control::Fence{.epoch = epoch, .received = got})); }
  void fence_ack(std::uint64_t got = 0) {
    EXPECT_TRUE(paths.handle(control::FenceAck{.epoch = epoch, .received = got}));
  }
  void pass(milliseconds span) {
    time += span;
    paths.advance(time);
  }

  /// All that is to be seen of a path before it is used, but the peer's word.
  void prove(PathSlot& slot) {
    if (active) answer();
    paths.on_ready(slot);
    pass(milliseconds(1));
    slot.on_probe(Code::kOk);
    slot.on_hello(slot.epoch);
    pass(milliseconds(1));
  }
  /// The shortest way there.
  void reach(State state) {
    if (state == State::kNone) return;
    epoch = 1;
    if (active) {
      begin();
    } else {
      offer(1);
    }
    if (state == State::kSettingUp) return;
    prove(*paths.slot());
    if (state == State::kProved) return;
    ready();
    if (state == State::kInUse) return;
    paths.on_down(*paths.slot(), Code::kUnavailable, "the test says so");
    pass(milliseconds(5));
    if (state == State::kClosing) return;
    drained = true;
    pass(milliseconds(1));
  }
  /// Lets it happen, and the little time that a decision takes. False: it cannot, without a path.
  bool happens(What what) {
    const bool path = paths.slot() != nullptr;
    switch (what) {
      case What::kOffer:
        return offer(epoch + 1), true;
      case What::kAnswer:
        return answer(), true;
      case What::kConnected:
        return path && (paths.on_ready(*paths.slot()), true);
      case What::kPeerReady:
        return ready(), true;
      case What::kPeerDown:
        return says_down(), true;
      case What::kDown:
        return path && (paths.on_down(*paths.slot(), Code::kUnavailable, "cable"), pass(milliseconds(5)), true);
      case What::kTimeout:
        return pass(milliseconds(5000)), true;
      case What::kFence:
        return fence(), true;
      case What::kFenceAck:
        return fence_ack(), true;
      case What::kDrained:
        drained = true;
        return pass(milliseconds(1)), true;
      case What::kShut:
        return paths.shut(), true;
      case What::kBetter:  // takes another path (Beside, below)
        return false;
    }
    return false;
  }
  template <typename Body>
  bool last_is() const {
    return std::holds_alternative<Body>(sent.back());
  }
  template <typename Body>
  const Body& last() const {
    return std::get<Body>(sent.back());
  }

  bool drained = false, link = true;
  Clock::time_point time{std::chrono::seconds(1)};
  std::vector<FakeDevice*> fakes;
  std::vector<control::Frame> sent;
  std::vector<std::uint64_t> applied;
  Status failed;
  int used = 0, lost = 0;
  std::uint64_t epoch = 0;
  std::set<std::pair<PathState, PathEvent>> seen;

 private:
  std::vector<OpenTransport> open_;

 public:
  PathSet paths;
  const bool active;
};

}  // namespace fairlead::datapath::path_test
