#include "datapath/engine/open_devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/words.h"
#include "datapath/engine/factory.h"
#include "datapath/region/remote_region.h"
#include "fairlead/log.h"

namespace fairlead::datapath {
namespace {

constexpr std::chrono::seconds kFailedFor{5};  // what could not be opened for a peer is not tried for the next

/// Names what was left out: of what `transport` names, or of all that this host has.
Status none_left(const EngineConfig& config) {
  std::vector<std::string> reasons;
  const auto add = [&](const std::string& name, const std::string& otherwise) {
    const Offer offer{name, name.substr(0, name.find(':')), name.starts_with("verbs:soft"), {}};
    const std::string why = why_not(policy_of(config), offer);
    std::string reason = why.empty() ? fmt::format("{}: {}", name, otherwise) : fmt::format("{} is {}", name, why);
    if (std::ranges::count(reasons, reason) == 0) reasons.push_back(std::move(reason));  // a device has several lines
  };
  std::string remedy;
  if (config.transport == "auto") {
    for (const DeviceInfo& device : list_devices(config, {})) add(device.transport, device.reason);
    remedy = "; `fairlead devices` shows all that this host has";
  } else {
    for (const std::string& word : words_of(config.transport)) add(word, "");
    if (config.failover) add("tcp", "");
  }
  return {Code::kInvalidArgument, fmt::format("no transport is left to use: {}{}", fmt::join(reasons, "; "), remedy)};
}

/// Others must find what was asked for: a transport by its name, tcp by its port. tcp behind another transport, or one
/// device of several, need not be there.
bool must_be_there(const std::string& name, const EngineConfig& config, bool is_first) {
  if (name == "tcp" && config.tcp.port != 0) return true;
  if (config.transport == "auto") return name == "tcp" && is_first;
  return is_first || std::ranges::count(words_of(config.transport), name) != 0;
}

}  // namespace

Status OpenDevices::open_all(const EngineConfig& config) {
  const std::vector<std::string> names = transports_to_open(config);
  if (names.empty()) return none_left(config);
  const std::lock_guard lock(opening_);
  for (const std::string& name : names) {
    Status opened = open(name, config);
    if (opened.ok()) continue;
    if (must_be_there(name, config, open_.empty())) return opened;
    log(LogLevel::kWarning, fmt::format("{} is not used: {}", name, opened.message()));
  }
  return {};
}

// Every lane has its endpoint before the table tells the device anything, and before any lane uses it.
Status OpenDevices::open(const std::string& name, const EngineConfig& config) {
  if (open_.size() == kMaxOffers) {
    return {
        Code::kResourceExhausted,
        fmt::format("{} transports are open, as many as a peer may be told of; {} is one too many", kMaxOffers, name)};
  }
  Result<std::unique_ptr<Device>> opened = open_device(name, config);
  if (!opened) return opened.error();
  const std::shared_ptr<Device> device = std::move(*opened);
  const Offer offer = offer_of(*device);
  if (const std::string why = why_not(policy_of(config), offer); !why.empty()) {
    return {Code::kUnavailable, fmt::format("{} is {}", offer.name, why)};
  }
  std::vector<OpenTransport> coming;
  Status ready;
  for (Transports* const lane : lanes_) {
    auto prepared = lane->prepare(device, offer);
    ready = prepared.status();
    if (!ready.ok()) break;
    coming.push_back(std::move(*prepared));
  }
  if (ready.ok()) ready = regions_.attach(*device);
  if (!ready.ok()) return ready;
  for (std::size_t i = 0; i < lanes_.size(); ++i) lanes_[i]->hand_over(std::move(coming[i]));
  open_.push_back({device, offer});
  return {};
}

// On a driver, which registers all that is there with the device: softroce maps nothing for it.
void OpenDevices::open_for_peer(const std::vector<Offer>& theirs, const EngineConfig& config) {
  const auto is_verbs = [](const Offer& offer) { return offer.kind == "verbs"; };
  if (config.transport != "auto" || std::none_of(theirs.begin(), theirs.end(), is_verbs)) return;
  const std::lock_guard lock(opening_);
  if (std::any_of(open_.begin(), open_.end(), [&](const Open& open) { return is_verbs(open.offer); })) return;
  const LineLimit::Clock::time_point now = LineLimit::Clock::now();
  if (failed_at_ && now - *failed_at_ < kFailedFor) return;
  // The policy is asked before anything is opened: whoever says hello may come again and again.
  const Offer software{"verbs:soft0", "verbs", true, {}};
  const std::string why = why_not(policy_of(config), software);
  const Status opened = why.empty() ? open(software.name, config)
                                    : Status(Code::kUnavailable, fmt::format("{} is {}", software.name, why));
  if (opened.ok()) return;
  failed_at_ = now;
  if (const std::optional<std::uint64_t> before = failures_said_.take(now)) {
    log(LogLevel::kWarning,
        fmt::format("a peer offers verbs, but here {}{}", opened.message(), LineLimit::others(*before)));
  }
}

std::vector<Offer> OpenDevices::offers() {
  const std::lock_guard lock(opening_);
  std::vector<Offer> offers;
  for (const Open& each : open_) offers.push_back(each.offer);
  return offers;
}

void OpenDevices::close() {
  regions_.shutdown();
  const std::lock_guard lock(opening_);
  open_.clear();
}

}  // namespace fairlead::datapath
