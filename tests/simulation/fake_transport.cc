#include "tests/simulation/fake_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "transport/check_memory.h"

namespace fairlead::simulation {

using datapath::OpKind;

// ---- transport

namespace {

class FakeEndpoint final : public datapath::Endpoint {
 public:
  explicit FakeEndpoint(FakeTransport& transport) noexcept : transport_(transport) {}
  Result<std::unique_ptr<datapath::Path>> open_path(const datapath::PathConfig& config) override {
    return transport_.open_path(config);
  }
  bool poll() noexcept override { return transport_.poll(); }
  bool arm() noexcept override { return true; }
  int wait_fd() const noexcept override { return -1; }
  int wait_timeout_us() const noexcept override { return -1; }

 private:
  FakeTransport& transport_;
};

}  // namespace

Result<std::unique_ptr<datapath::Endpoint>> FakeTransport::open_endpoint() {
  return std::unique_ptr<datapath::Endpoint>(std::make_unique<FakeEndpoint>(*this));
}

namespace {

/// Beside the transport's own; what it holds the transport keeps.
class FakeDomain final : public datapath::MemoryDomain {
 public:
  explicit FakeDomain(FakeTransport& transport) : transport_(transport) { transport_.count_domain(true); }
  ~FakeDomain() override { transport_.count_domain(false); }
  std::string_view name() const noexcept override { return transport_.name(); }
  Result<datapath::Registration> register_memory(const datapath::MemoryDescriptor& memory) override {
    if (Status good = datapath::check_host_memory(memory, name()); !good.ok()) return good;
    const std::uint64_t key = transport_.keep(this, memory, false);
    return datapath::Registration{.local = key, .handle = key};
  }
  void deregister(const datapath::Registration& registration) noexcept override { transport_.deregister(registration); }
  Result<datapath::Grant> grant(const datapath::MemoryDescriptor& part) override {
    const std::uint64_t key = transport_.keep(this, part, true);
    return datapath::Grant{reinterpret_cast<std::uintptr_t>(part.bytes.data()), key, key};
  }
  void revoke(const datapath::Grant& grant) noexcept override { transport_.revoke(grant); }

 private:
  FakeTransport& transport_;
};

}  // namespace

Result<std::unique_ptr<datapath::MemoryDomain>> FakeTransport::open_domain() {
  return std::unique_ptr<datapath::MemoryDomain>(std::make_unique<FakeDomain>(*this));
}

std::uint64_t FakeTransport::keep(const datapath::MemoryDomain* domain, const datapath::MemoryDescriptor& memory,
                                  bool grant) {
  const std::uint64_t key = ++wire_.next;
  (grant ? granted_ : registered_)[key] = {domain, memory};
  return key;
}

Result<datapath::Registration> FakeTransport::register_memory(const datapath::MemoryDescriptor& memory) {
  if (Status good = datapath::check_host_memory(memory, habits_.name); !good.ok()) return good;
  const std::uint64_t key = keep(nullptr, memory, false);
  return datapath::Registration{.local = key, .handle = key};
}

void FakeTransport::deregister(const datapath::Registration& registration) noexcept {
  registered_.erase(registration.handle);
}

Result<datapath::Grant> FakeTransport::grant(const datapath::MemoryDescriptor& part) {
  const std::uint64_t key = keep(nullptr, part, true);
  return datapath::Grant{reinterpret_cast<std::uintptr_t>(part.bytes.data()), key, key};
}

void FakeTransport::revoke(const datapath::Grant& grant) noexcept { granted_.erase(grant.handle); }

std::byte* FakeTransport::granted(const datapath::MemoryDomain* domain, std::uint64_t key, std::uint64_t address,
                                  std::uint64_t length, bool write) const {
  const auto found = granted_.find(key);
  if (found == granted_.end()) return nullptr;
  if (found->second.domain != domain) {
    ++wire_.foreign;
    return nullptr;
  }
  const std::span<std::byte> bytes = found->second.memory.bytes;
  const Access access = found->second.memory.access;
  const std::uint64_t offset = address - reinterpret_cast<std::uintptr_t>(bytes.data());
  if (offset > bytes.size() || length > bytes.size() - offset) return nullptr;
  return allows(access, write ? Access::kRemoteWrite : Access::kRemoteRead) ? bytes.data() + offset : nullptr;
}

bool FakeTransport::registered(const datapath::MemoryDomain* domain, const datapath::LocalSegment& segment) const {
  const auto found = registered_.find(segment.key);
  if (found == registered_.end() || found->second.domain != domain) return false;
  const std::span<std::byte> bytes = found->second.memory.bytes;
  return segment.data >= bytes.data() && segment.data + segment.length <= bytes.data() + bytes.size();
}

Result<std::unique_ptr<datapath::Path>> FakeTransport::open_path(const datapath::PathConfig& config) {
  if (unplugged_) return Status(Code::kUnavailable, "its cable is out");
  return std::unique_ptr<datapath::Path>(std::make_unique<FakePath>(*this, config));
}

bool FakeTransport::poll() noexcept {
  bool did = false;
  for (std::size_t i = 0; i < paths_.size(); ++i) did |= paths_[i]->poll();
  return did;
}

// ---- path

FakePath::FakePath(FakeTransport& transport, const datapath::PathConfig& config)
    : Path(*config.events),
      transport_(transport),
      domain_(config.domain),
      world_(transport.wire_.world),
      name_(fmt::format("path {}", ++transport.wire_.next)),
      role_(config.role) {
  transport_.wire_.paths[name_] = this;
  transport_.paths_.push_back(this);
}

void FakePath::leave() noexcept {
  *alive_ = false;
  transport_.wire_.paths.erase(name_);
  std::erase(transport_.paths_, this);
}

FakePath* FakePath::peer() const {
  const auto found = transport_.wire_.paths.find(peer_name_);
  return found == transport_.wire_.paths.end() ? nullptr : found->second;
}

Status FakePath::connect(std::string_view peer) {
  peer_name_ = peer;
  FakePath* const other = this->peer();
  if (other == nullptr) return {};
  peer_max_message_ = other->transport_.habits_.can.max_message;  // as verbs does
  if (other->peer_name_ != name_) return {};                      // its turn comes
  if (transport_.habits_.swallows == Habits::Swallows::kConnections) return {};
  for (FakePath* each : {this, other}) {
    world_.in(microseconds(10 + world_.below(300)), [each, alive = each->alive_] {
      if (!*alive || each->closed_ || each->down_) return;
      each->ready_ = true;
      each->reports_.push_back({});
    });
  }
  return {};
}

bool FakePath::deaf() const noexcept {
  const bool passive = role_ == datapath::PathRole::kPassive;
  return transport_.habits_.swallows == (passive ? Habits::Swallows::kTowardPassive : Habits::Swallows::kTowardActive);
}

Clock::time_point FakePath::next_time(Chain chain) {
  const auto latency = static_cast<std::uint64_t>(transport_.habits_.latency.count());
  microseconds delay(1 + world_.below(2 * latency));
  if (world_.chance(0.02)) delay *= 20;
  Clock::time_point& last = chains_[chain];
  last = std::max({last, world_.now() + delay, stalled_until_});
  return last;
}

/// When the link has carried so much more.
Clock::time_point FakePath::carried(Chain chain, std::uint64_t bytes) {
  const double speed = transport_.habits_.bytes_per_us;
  if (speed == 0) return {};
  Clock::time_point& until = carries_until_[chain];
  until = std::max({until, world_.now(), stalled_until_}) +
          microseconds(static_cast<std::int64_t>(static_cast<double>(bytes) / speed));
  return until;
}

Clock::time_point FakePath::landing_time(const Packet& packet) {
  const Habits& habits = transport_.habits_;
  const Clock::time_point here = carried(kLand, packet.bytes.size());
  const bool message = packet.kind == OpKind::kMessage;
  if (!habits.reorders || message || packet.notify) chains_[kLand] = std::max(chains_[kLand], here);
  while (habits.loss != 0 && world_.chance(habits.loss)) {
    ++transport_.wire_.sent_again;
    chains_[kLand] = std::max(chains_[kLand], world_.now()) + 8 * habits.latency;
  }
  if (!habits.reorders) return next_time(kLand);
  if (message || packet.notify) {
    if (packet.notify || habits.can.write_then_message_ordered) {
      chains_[kLand] = std::max(chains_[kLand], writes_landed_);
    }
    return next_time(kLand);
  }
  const auto most = 6 * static_cast<std::uint64_t>(habits.latency.count());
  const Clock::time_point at = std::max({world_.now(), stalled_until_, here}) + microseconds(1 + world_.below(most));
  if (packet.kind == OpKind::kWrite) writes_landed_ = std::max(writes_landed_, at);
  return at;
}

std::size_t FakePath::post(std::span<const datapath::WorkRequest> requests) noexcept {
  if (!ready_ || closed_ || down_) return 0;
  std::size_t taken = 0;
  for (const datapath::WorkRequest& request : requests) {
    if (outstanding_.size() >= transport_.habits_.can.max_outstanding) break;
    Operation operation;
    operation.number = ++next_number_;
    operation.id = request.id;
    operation.kind = request.kind;
    operation.address = request.remote_address;
    operation.key = request.remote_key;
    operation.notify = request.notify;
    operation.refusals = refusals_known_;
    if (request.kind == OpKind::kMessage) {
      for (const datapath::LocalSegment& segment : request.local) {
        operation.bytes.insert(operation.bytes.end(), segment.data, segment.data + segment.length);
      }
      if (operation.bytes.size() > std::min(transport_.habits_.can.max_message, peer_max_message_)) break;
    } else {
      operation.local.assign(request.local.begin(), request.local.end());
      for (const datapath::LocalSegment& segment : request.local) {
        const bool known = segment.length == 0 || transport_.registered(domain_, segment);
        transport_.wire_.unregistered += known ? 0 : 1;
      }
    }
    const bool overtakes = request.kind == OpKind::kMessage && !transport_.habits_.can.write_then_message_ordered;
    const Chain chain = overtakes ? kSendMessage : kSend;
    to_send_[chain].push_back(operation.number);
    world_.at(next_time(chain), [this, alive = alive_, chain] {
      if (*alive) send(chain);
    });
    outstanding_.push_back(std::move(operation));
    ++taken;
  }
  if (taken != 0) ++doorbells_;
  return taken;
}

FakePath::Operation* FakePath::find(std::uint64_t number) {
  const auto at = std::find_if(outstanding_.begin(), outstanding_.end(),
                               [number](const Operation& operation) { return operation.number == number; });
  return at == outstanding_.end() ? nullptr : &*at;
}

// From here to the wire, the oldest of the chain: the operation's bytes are read now.
void FakePath::send(Chain chain) {
  if (world_.now() < stalled_until_) {
    world_.at(stalled_until_, [this, alive = alive_, chain] {
      if (*alive) send(chain);
    });
    return;
  }
  const std::uint64_t number = to_send_[chain].front();
  to_send_[chain].pop_front();
  Operation* operation = find(number);
  if (operation == nullptr || operation->ended || closed_ || down_ || cut_) return;
  Packet packet{number, operation->kind,   operation->address, operation->key,
                0,      operation->notify, operation->bytes,   operation->refusals};
  for (const datapath::LocalSegment& segment : operation->local) {
    packet.length += segment.length;
    if (operation->kind == OpKind::kWrite) {
      packet.bytes.insert(packet.bytes.end(), segment.data, segment.data + segment.length);
    }
  }
  // On the wire it is nobody's: our end may be closed or gone when it lands.
  const Clock::time_point lands_at = landing_time(packet);
  world_.at(lands_at, [&wire = transport_.wire_, to = peer_name_, packet = std::move(packet)] {
    const auto found = wire.paths.find(to);
    if (found != wire.paths.end()) found->second->land(packet);
  });
}

void FakePath::land(const Packet& packet) {
  if (deaf()) return;
  const std::uint64_t most = transport_.habits_.swallows_above;
  if (most != 0 && (packet.bytes.size() > most || packet.length > most)) return;
  if (closed_ || down_ || cut_) {
    ++transport_.wire_.landed_after_close;
    return;
  }
  Code code = Code::kOk;
  std::vector<std::byte> read;
  if (packet.refusals < refusals_made_ && (packet.kind == OpKind::kMessage || packet.notify)) {
    code = Code::kAborted;
  } else if (packet.kind == OpKind::kMessage) {
    Report report;
    report.kind = Report::Kind::kMessage;
    report.bytes = packet.bytes;
    reports_.push_back(std::move(report));
  } else if (!transport_.habits_.writes_arrive) {
    return;  // what a gateway swallows
  } else {
    const bool write = packet.kind == OpKind::kWrite;
    std::byte* memory = transport_.granted(domain_, packet.key, packet.address, packet.length, write);
    if (memory == nullptr && packet.length != 0) {
      code = Code::kProtectionError;
      ++transport_.wire_.refused;
      refusals_made_ += write ? 1 : 0;
      if (transport_.habits_.refusal_ends_path) {  // a responder that refuses is in error itself
        cut_ = true;
        world_.in(microseconds(world_.below(500)), [this, alive = alive_] {
          if (*alive) go_down(Code::kAborted, "it refused the peer an access");
        });
      }
    } else if (write) {
      if (packet.length != 0) std::memcpy(memory, packet.bytes.data(), packet.length);
      if (packet.notify) {
        Report report;
        report.kind = Report::Kind::kNotification;
        report.value = *packet.notify;
        reports_.push_back(std::move(report));
      }
    } else {
      read.assign(memory, memory + packet.length);
    }
  }
  FakePath* from = peer();
  if (from == nullptr) return;
  const Chain chain = packet.kind == OpKind::kRead ? kReadAck : kAck;
  if (chain == kReadAck) from->chains_[chain] = std::max(from->chains_[chain], from->carried(chain, read.size()));
  world_.at(from->next_time(chain), [from, alive = from->alive_, number = packet.number, code, read = std::move(read)] {
    if (*alive) from->acknowledge(number, code, read);
  });
}

void FakePath::acknowledge(std::uint64_t number, Code code, const std::vector<std::byte>& read) {
  Operation* operation = find(number);
  if (operation == nullptr || operation->ended || closed_ || down_ || cut_ || deaf()) return;
  std::size_t at = 0;
  for (const datapath::LocalSegment& segment : operation->local) {
    if (code != Code::kOk || operation->kind != OpKind::kRead) break;
    if (segment.length == 0) continue;
    std::memcpy(segment.data, read.data() + at, segment.length);
    at += segment.length;
  }
  operation->ended = true;
  operation->code = code;
  if (code == Code::kProtectionError && transport_.habits_.refusal_ends_path) {
    go_down(Code::kProtectionError, "the peer refused the access");
  }
}

void FakePath::go_down(Code code, const std::string& reason) {
  if (down_ || closed_) return;
  down_ = true;
  Report report;
  report.kind = Report::Kind::kDown;
  report.code = code;
  report.reason = reason;
  reports_.push_back(std::move(report));
}

void FakePath::close() noexcept { closed_ = true; }

void FakePath::cut(std::optional<microseconds> notice) {
  cut_ = true;
  if (!notice) return;
  world_.in(*notice, [this, alive = alive_] {
    if (*alive) go_down(Code::kUnavailable, "the wire was cut");
  });
}

void FakePath::slip_message(std::span<const std::byte> bytes) {
  Report report;
  report.kind = Report::Kind::kMessage;
  report.bytes.assign(bytes.begin(), bytes.end());
  reports_.push_back(std::move(report));
}

void FakePath::slip_notification(std::uint32_t value) {
  Report report;
  report.kind = Report::Kind::kNotification;
  report.value = value;
  reports_.push_back(std::move(report));
}

void FakePath::stall(microseconds time) { stalled_until_ = std::max(stalled_until_, world_.now() + time); }

bool FakePath::poll() {
  bool did = false;
  while (!reports_.empty() && !world_.chance(0.2)) {  // the rest shows in a later poll
    const Report report = std::move(reports_.front());
    reports_.pop_front();
    did = true;
    switch (report.kind) {
      case Report::Kind::kReady:
        events().on_ready(*this);
        break;
      case Report::Kind::kMessage:
        events().on_message(*this, report.bytes);
        break;
      case Report::Kind::kNotification:
        events().on_notification(*this, report.value);
        break;
      case Report::Kind::kDown:
        told_down_ = true;
        if (!closed_) events().on_down(*this, report.code, report.reason);
    }
  }
  // Within a kind in the order of posting; what a notifying write ends, it ends in order with both.
  // That the path is dead is told before what it takes along.
  // Behind what the death aborted nothing of its kind ends well, though it may have been placed.
  const bool over = closed_ || told_down_;
  const auto is_first = [this](std::size_t i) {
    const Operation& operation = outstanding_[i];
    return std::none_of(outstanding_.begin(), outstanding_.begin() + static_cast<std::ptrdiff_t>(i),
                        [&](const Operation& before) {
                          return before.kind == operation.kind || (operation.notify && before.kind != OpKind::kRead) ||
                                 (before.notify && operation.kind != OpKind::kRead);
                        });
  };
  for (std::size_t i = 0; i < outstanding_.size();) {
    const Operation& operation = outstanding_[i];
    if (!is_first(i) || (!operation.ended && !over)) {
      ++i;
      continue;
    }
    const std::uint64_t id = operation.id;
    bool& aborted = aborted_[static_cast<std::size_t>(operation.kind)];
    aborted |= !operation.ended;
    const Code code = aborted ? Code::kAborted : operation.code;
    // Known when the user is told, not before.
    refusals_known_ += code == Code::kProtectionError && operation.kind == OpKind::kWrite ? 1 : 0;
    outstanding_.erase(outstanding_.begin() + static_cast<std::ptrdiff_t>(i));
    did = true;
    datapath::Ended row{id, code};
    const auto follows = [&] {
      if (row.code != Code::kOk || i == outstanding_.size()) return false;
      const Operation& next = outstanding_[i];
      return next.id == row.first + row.count && next.ended && next.code == Code::kOk &&
             !aborted_[static_cast<std::size_t>(next.kind)] && is_first(i);
    };
    for (; follows(); ++row.count) outstanding_.erase(outstanding_.begin() + static_cast<std::ptrdiff_t>(i));
    events().on_completion(*this, row);
    i = 0;  // whatever it led to
  }
  return did;
}

}  // namespace fairlead::simulation
