#include "two_ends.h"

#include <algorithm>

#include "tests/datapath/framed.h"

namespace fairlead::simulation {

using datapath::OpKind;
using datapath::TransferImpl;

Habits device(const char* name) {
  Habits made;
  made.name = name;
  made.can.max_message = 4096;
  made.can.max_segments = 4;
  made.can.max_outstanding = 16;
  return made;
}

TwoEnds::TwoEnds(std::uint64_t seed, const std::vector<Habits>& transports, EngineConfig config)
    : TwoEnds(seed, transports, transports, std::move(config)) {}

TwoEnds::TwoEnds(std::uint64_t seed, const std::vector<Habits>& active, const std::vector<Habits>& passive,
                 EngineConfig config, std::vector<datapath::Place> places, const std::string& keys)
    : world(seed) {
  config.connect_timeout = milliseconds(30'000);
  for (int i = 0; i < 2; ++i) {
    config.name = i == 0 ? "active" : "passive";
    if (i == 1) config.principal.clear();
    hosts[i] = std::make_shared<SimHost>(world, wire, config, i == 0 ? active : passive, keys);
    regions_[i] = std::make_shared<datapath::RegionImpl>(*hosts[i]->regions().add({.bytes = memory[i]}), memory[i],
                                                         Access::kRemoteReadWrite, nullptr);
    publish(i);
  }
  if (!places.empty()) hosts[0]->places = std::move(places);
  SimStream::Pair streams = SimStream::pair(world);
  line = streams.line;
  hosts[0]->dial_again = [this](const datapath::Place& place) -> Result<std::unique_ptr<datapath::ControlStream>> {
    if (!reachable || (!is_at.empty() && place.address != is_at)) return Status(Code::kUnavailable, "no route to host");
    SimStream::Pair again = SimStream::pair(world, "10.0.0.1", place.address);
    line = again.line;
    hosts[1]->start(std::move(again.ends[1]), false);
    return std::unique_ptr<datapath::ControlStream>(std::move(again.ends[0]));
  };
  session[0] = hosts[0]->start(std::move(streams.ends[0]), true);
  session[1] = hosts[1]->start(std::move(streams.ends[1]), false);
}

bool TwoEnds::end() {
  for (const auto& each : session) each->request_close(milliseconds(100));
  if (!run([&] { return session[0]->finished() && session[1]->finished(); })) return false;
  run([left = 20]() mutable { return left-- == 0; });
  return std::all_of(posted.begin(), posted.end(), [](const TransferImpl* t) { return t->finished.load(); });
}

void TwoEnds::slip_frame(int hearer, const datapath::control::Frame& frame) {
  line.slip(hearer, datapath::framed(frame));
}

void TwoEnds::slip_message(int hearer, std::span<const std::byte> bytes) {
  for (std::size_t t = 0; t < hosts[hearer]->transports().size(); ++t) {
    for (FakePath* path : hosts[hearer]->fake(t).paths()) {
      if (path->alive()) path->slip_message(bytes);
    }
  }
}

void TwoEnds::slip_notification(int hearer, std::uint32_t value) {
  for (std::size_t t = 0; t < hosts[hearer]->transports().size(); ++t) {
    for (FakePath* path : hosts[hearer]->fake(t).paths()) {
      if (path->alive()) path->slip_notification(value);
    }
  }
}

TwoEnds::~TwoEnds() {
  for (TransferImpl* t : posted) drop_reference(*t);
  for (int i = 0; i < 2; ++i) {
    session[i].reset();
    remote[i].reset();
    hosts[i]->release();
    withdraw(i);
    regions_[i].reset();
    hosts[i]->regions().shutdown();
  }
}

bool TwoEnds::meet() {
  if (!run([&] { return session[0]->state() == PeerState::kReady && session[1]->state() == PeerState::kReady; })) {
    return false;
  }
  return look_up(0) && look_up(1);
}

bool TwoEnds::look_up(int end) {
  const auto lookup = session[end]->start_lookup("r", false);
  if (!run([&] { return lookup->finished.load(); }) || lookup->regions.size() != 1) return false;
  remote[end] = lookup->regions.front();
  return true;
}

void TwoEnds::publish(int end) {
  (void)hosts[end]->regions().publish("r", regions_[end], memory[end], Access::kRemoteReadWrite | Access::kRemoteAtomic,
                                      std::nullopt);
}

void TwoEnds::withdraw(int end) { (void)hosts[end]->regions().unpublish("r"); }

FakePath* TwoEnds::path(int end) {
  FakePath* found = nullptr;
  for (std::size_t t = 0; t < hosts[end]->transports().size(); ++t) {
    for (FakePath* each : hosts[end]->fake(t).paths()) {
      if (found != nullptr) return nullptr;
      found = each;
    }
  }
  return found;
}

void TwoEnds::pass(microseconds time, microseconds step) {
  for (const Clock::time_point until = world.now() + time; world.now() < until;) {
    for (const auto& host : hosts) host->step();
    world.advance(step);
  }
}

bool TwoEnds::run(const std::function<bool()>& done) {
  for (int round = 0; round < 2'000'000; ++round) {
    if (done()) return true;
    const bool did = static_cast<int>(hosts[0]->step()) | static_cast<int>(hosts[1]->step());
    world.advance(microseconds(did ? 1 : 100));
  }
  return false;
}

TransferImpl& TwoEnds::submit(int from, TransferImpl& t) {
  posted.push_back(&t);
  session[from]->submit(t);
  return t;
}

TransferImpl& TwoEnds::one_sided(int from, OpKind kind, std::uint64_t offset, std::uint64_t length) {
  TransferImpl& t = *datapath::acquire_transfer();
  t.own.kind = kind;
  t.own.ops.push_back({memory[from].data() + offset, length, &regions_[from]->range(), remote[from].get(), offset});
  t.own.keep = {regions_[from], remote[from]};
  t.own.bytes = t.bytes = length;
  t.list = &t.own;
  return t;
}

TransferImpl& TwoEnds::write(int from, std::uint64_t offset, std::uint64_t length, bool notify, microseconds deadline) {
  TransferImpl& t = one_sided(from, OpKind::kWrite, offset, length);
  t.has_message = notify;
  if (deadline != microseconds::max()) t.deadline = world.now() + deadline;
  return submit(from, t);
}

TransferImpl& TwoEnds::read(int from, std::uint64_t offset, std::uint64_t length) {
  return submit(from, one_sided(from, OpKind::kRead, offset, length));
}

TransferImpl& TwoEnds::send(int from, std::size_t length, TrafficClass traffic, TransferImpl* after,
                            microseconds deadline) {
  TransferImpl& t = *datapath::acquire_transfer();
  t.message.resize(length);
  t.is_send = t.has_message = true;
  t.traffic = traffic;
  if (after != nullptr) datapath::follow(t, *after);
  if (deadline != microseconds::max()) t.deadline = world.now() + deadline;
  t.bytes = length;
  return submit(from, t);
}

}  // namespace fairlead::simulation
