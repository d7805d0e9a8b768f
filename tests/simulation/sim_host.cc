#include "sim_host.h"

#include <sys/epoll.h>

namespace fairlead::simulation {
using datapath::SessionImpl;

SimHost::SimHost(World& world, Wire& wire, EngineConfig config, const std::vector<Habits>& transports,
                 const std::string& keys)
    : world_(world),
      id_(++wire.engines),
      config_(std::move(config)),
      principals_(keys.empty() ? datapath::Principals() : *datapath::Principals::parse(keys, "simulated")),
      lane_(*this, Progress::kApplication, microseconds(0)) {
  for (const Habits& habits : transports) {
    auto device = std::make_unique<FakeTransport>(wire, habits);
    datapath::OpenTransport open;
    open.offer = {habits.name, habits.name.substr(0, habits.name.find(':')), habits.can.software};
    open.probe = std::move(*datapath::Probe::make(*device));
    (void)regions_->attach(*device);
    open.endpoint = std::move(*device->open_endpoint());
    open.device = std::move(device);
    transports_.push_back(std::move(open));
  }
}

SimHost::~SimHost() {
  lane_.stop();
  regions_->shutdown();  // before the transports go
}

void SimHost::release() {
  for (const auto& session : sessions_) {
    if (session->id() == 0) session->abandon();  // it connected, and said no more
  }
  std::erase_if(sessions_, [](const auto& session) { return session->finished(); });
  queues_.clear([](datapath::Submission& each) { drop_reference(static_cast<datapath::TransferImpl&>(each)); });
  for (datapath::OpenTransport& each : transports_) each.probe.reset();
}

std::shared_ptr<SessionImpl> SimHost::start(std::unique_ptr<datapath::ControlStream> stream, bool active) {
  auto session = std::make_shared<SessionImpl>(shared_from_this(), active, "simulated");
  sessions_.push_back(session);
  if (active) {
    to_dial_ = std::move(stream);
    session->connect_to(places);
  } else {
    session->start_passive(std::make_unique<datapath::ControlChannel>(std::move(stream), false));
  }
  return session;
}

Result<std::unique_ptr<datapath::ControlStream>> SimHost::dial(const std::string& address, std::uint16_t port) {
  if (to_dial_ != nullptr) {
    if (address != places[1 % places.size()].address) return Status(Code::kUnavailable, "no route to host");
    return std::move(to_dial_);
  }
  if (!dial_again) return Status(Code::kNotFound, "connection refused");
  return dial_again({address, port});
}

void SimHost::resume_here(std::unique_ptr<datapath::ControlChannel> channel, const datapath::control::Resume& resume) {
  ++moved_here;
  auto session = std::make_shared<SessionImpl>(shared_from_this(), false, "simulated");
  sessions_.push_back(session);
  session->start_passive(std::move(channel), &resume);
}

std::shared_ptr<SessionImpl> SimHost::find_session(std::uint64_t id) {
  if (std::shared_ptr<SessionImpl> here = find_here(id)) return here;
  const std::shared_ptr<SimHost> other = other_lane.lock();
  return other != nullptr ? other->find_here(id) : nullptr;
}

std::shared_ptr<SessionImpl> SimHost::find_here(std::uint64_t id) {
  const auto at = std::ranges::find_if(sessions_, [&](const auto& session) {
    return !session->is_active() && session->id() == id && !session->finished();
  });
  return at != sessions_.end() ? *at : nullptr;
}

std::vector<datapath::Offer> SimHost::offers() const {
  std::vector<datapath::Offer> offers;
  for (const datapath::OpenTransport& open : transports_) offers.push_back(open.offer);
  return offers;
}

Status SimHost::watch_control(const datapath::ControlStream& stream, datapath::ControlLink& link, std::uint32_t events,
                              bool) {
  const auto at = std::ranges::find(watched_, &stream, &Watched::stream);
  if (at != watched_.end()) {
    at->events = events;
  } else {
    watched_.push_back({&stream, &link, events});
  }
  return {};
}

void SimHost::die(const Status& why) {
  for (const auto& session : sessions_) session->abandon(why);
  sessions_.clear();
}

// As EngineLane's, but that every source is looked at in every round.
bool SimHost::progress() noexcept {
  bool did = false;
  for (const auto& session : sessions_) {
    did |= session->wants_advance();
    session->advance(world_.now());
  }
  std::erase_if(sessions_, [](const auto& session) { return session->finished(); });
  for (const datapath::OpenTransport& open : transports_) did |= open.endpoint->poll();
  for (std::size_t i = watched_.size(); i-- != 0;) {  // one that ends is watched no more
    if (i < watched_.size()) watched_[i].link->on_ready(watched_[i].events);
  }
  for (const auto& session : sessions_) did |= session->wants_advance();
  return did;
}

}  // namespace fairlead::simulation
