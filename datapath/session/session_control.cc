// What a session hears of its control connection: the greeting, and what frames mean.
#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/tally.h"
#include "datapath/protocol/peer_text.h"
#include "datapath/session/session.h"
#include "fairlead/log.h"

namespace fairlead::datapath {
namespace {

constexpr std::size_t kMaxAddresses = 16;             // of a transport, that are looked at
constexpr std::size_t kMaxTransportName = 128;        // that is kept of who has shown no key
constexpr std::chrono::milliseconds kLastWords{100};  // of a path whose peer said goodbye

/// What is an address at all.
std::vector<std::string> usable(const std::vector<std::string>& addresses) {
  std::vector<std::string> found;
  for (const std::string& address : addresses) {
    std::array<unsigned char, sizeof(in6_addr)> binary{};
    if (found.size() == kMaxAddresses || address.size() >= INET6_ADDRSTRLEN) continue;
    const bool is_one = inet_pton(AF_INET, address.c_str(), binary.data()) == 1 ||
                        inet_pton(AF_INET6, address.c_str(), binary.data()) == 1;
    if (is_one && address.find('\0') == std::string::npos) found.push_back(address);
  }
  return found;
}

/// What greet() looks at, of who has shown no key yet: a hello may be as large as a frame.
control::Hello kept_of(const control::Hello& hello) {
  control::Hello kept;
  kept.version_min = hello.version_min;
  kept.version_max = hello.version_max;
  for (const control::TransportOffer& offer : hello.transports) {
    kept.transports.push_back({.name = offer.name.substr(0, kMaxTransportName),
                               .kind = offer.kind.substr(0, kMaxTransportName),
                               .software = offer.software,
                               .describe = {}});
  }
  kept.max_message_bytes = hello.max_message_bytes;
  kept.event_window = hello.event_window;
  kept.event_window_bytes = hello.event_window_bytes;
  return kept;
}

/// What this end may use, what became of it, and what would do.
std::string nothing_in_common(const EngineConfig& config, const std::vector<Offer>& ours,
                              const std::vector<Offer>& theirs, const std::vector<std::string>& rejected) {
  std::string text = fmt::format("transport is '{}'", config.transport);
  for (const auto& [name, words] : {std::pair{"require", &config.require}, std::pair{"forbid", &config.forbid}}) {
    if (!words->empty()) text += fmt::format(", {} is '{}'", name, fmt::join(*words, ","));
  }
  for (const std::string& each : rejected) text += "; " + each;
  const auto is_verbs = [](const Offer& offer) { return offer.kind == "verbs"; };
  const Offer software{"verbs:soft0", "verbs", true, {}};
  const bool would_do = config.transport == "auto" && std::ranges::any_of(theirs, is_verbs) &&
                        std::ranges::none_of(ours, is_verbs) && why_not(policy_of(config), software).empty();
  return would_do ? text + "; verbs:soft0 would work: --transport verbs:soft0" : text;
}

}  // namespace

void SessionImpl::link_up() {
  saw(SessionEvent::kConnected);
  if (link_.is_cut()) return link_.say(resumption_.ask(id(), link_.heard(), nonce()));
  phase_ = Phase::kHello;
  goodbye_seen_ = false;  // that was said at another place
  {
    const std::lock_guard lock(mutex_);
    description_.address = link_.stream().peer_address();
  }
  send_hello();
}

void SessionImpl::link_refused(const Status& why) {
  if (link_.is_cut()) return end_cut(fmt::format("connecting again: {}", why.message()));
  const Code code = why.code() == Code::kNotFound ? Code::kUnavailable : why.code();
  fail({code, fmt::format("cannot connect to {}: {}", target_, why.message())});
}

void SessionImpl::link_lost(const Status& why) {
  saw(SessionEvent::kHungUp);
  if (phase_ == Phase::kConnecting) return;  // its place is being left already
  if (why.code() == Code::kPeerDied && may_resume()) return await_resumption(why);
  if (phase_ == Phase::kDraining || farewell_until_ ||
      (phase_ == Phase::kClosing && bulk_.paths().in_use() != nullptr)) {
    for_paths([](PathSet& paths) { paths.stay(); });
    goodbye_seen_ = dirty_ = true;  // there is nobody left to say it
    return;
  }
  if (id() == 0) handshake_refused(why.code());
  if (try_elsewhere(why)) return;
  fail({why.code(), fmt::format("lost {}: {}", who(), why.message())});
}

/// Whether another of the peer's places is to be tried, since who answered at this one is of no use.
bool SessionImpl::try_elsewhere(const Status& why) {
  const bool may = active_ && phase_ == Phase::kHello && close_deadline_ == Clock::time_point::max();
  if (!may || !link_.is_useless(why)) return false;
  log(LogLevel::kInfo, fmt::format("{}: {}; trying another of its places", who(), why.message()));
  phase_ = Phase::kConnecting;
  return true;
}

void SessionImpl::send_hello() {
  control::Hello hello{.version_min = kOldestVersion,
                       .version_max = kNewestVersion,
                       .engine_name = host_->config().name,
                       .session_id = id(),
                       .transports = {},
                       .max_message_bytes = host_->config().max_message_bytes,
                       .event_window = static_cast<std::uint32_t>(window().events),
                       .event_window_bytes = window().bytes,
                       .principal = {},
                       .nonce = {},
                       .proof = {},
                       .resume = {},
                       .engine = host_->engine_id()};
  for (const Offer& offer : host_->offers()) {
    hello.transports.push_back({.name = offer.name,
                                .kind = offer.kind,
                                .software = offer.software,
                                .describe = {},
                                .addresses = offer.addresses});
  }
  if (active_) {
    greeting_.introduce(hello, nonce());
  } else {
    greeting_.confirm(hello);
    if (peer_version_ >= kResumes) hello.resume = nonce();
  }
  send_frame(hello);
  if (!active_) (void)begin_keeping(hello.resume);
}

std::string SessionImpl::nonce() {
  std::string bytes;
  while (bytes.size() < Greeting::kNonceBytes) {
    const std::uint64_t random = host_->random();
    bytes.append(reinterpret_cast<const char*>(&random), sizeof random);
  }
  return bytes;
}

void SessionImpl::link_heard(const control::Frame& frame) {
  if (link_.is_cut()) return hear_resuming(frame);
  if (phase_ == Phase::kConnecting) return;  // its place is being left: it has said why
  const bool greeted = id() != 0;
  const auto* goodbye = std::get_if<control::Goodbye>(&frame);
  if (goodbye != nullptr) {
    saw(SessionEvent::kGoodbye);
    goodbye_seen_ = dirty_ = true;
  }
  if (phase_ == Phase::kDraining) return;  // it heard what it waits for, or goes on waiting
  if (!greeted) {
    if (const auto* hello = std::get_if<control::Hello>(&frame)) return handle_hello(*hello);
    if (const auto* refused = std::get_if<control::Refused>(&frame)) {
      return turned_away(refused->code, "refused us", refused->reason);
    }
    if (goodbye != nullptr && active_) {
      return turned_away(goodbye->code, "ended the session before its hello", goodbye->reason);
    }
    if (goodbye != nullptr) {  // it thought better of it
      const Code said = code_from_wire(goodbye->code);
      handshake_refused(said != Code::kOk ? said : Code::kCancelled);
      if (said == Code::kOk) return begin_drain({}, Code::kUnavailable);
      return begin_drain({said, fmt::format("{} gave up before its hello: {}", who(), clipped(goodbye->reason))}, said);
    }
    const auto* challenge = std::get_if<control::Challenge>(&frame);
    if (challenge != nullptr && active_) return handle_challenge(*challenge);
    const auto* proof = std::get_if<control::Proof>(&frame);
    if (proof != nullptr && unproved_) return handle_proof(*proof);
    if (proof != nullptr && asked_ && !asked_->proof && !asked_->elsewhere) {
      asked_->proof = *proof;
      dirty_ = true;  // the connection cannot be handed over from within its own call
      return;
    }
    const auto* resume = std::get_if<control::Resume>(&frame);
    if (resume != nullptr && !active_ && !unproved_ && !asked_) return handle_resume(*resume);
    handshake_refused(Code::kDataLoss);
    return fail({Code::kDataLoss, fmt::format("{} spoke before its hello", who())});
  }
  if (goodbye != nullptr) return handle_goodbye(*goodbye);
  const auto* heard = std::get_if<control::Heard>(&frame);
  if (heard != nullptr && link_.heard_there(heard->count)) return;
  if (const auto* lookup = std::get_if<control::Lookup>(&frame)) return lookups_.answer(*lookup, seen_by_peer());
  if (const auto* regions = std::get_if<control::Regions>(&frame)) return lookups_.on_regions(*regions, who());
  if (const auto* withdrawn = std::get_if<control::Withdrawn>(&frame)) return lookups_.on_withdrawn(withdrawn->id);
  if (const auto* ping = std::get_if<control::Ping>(&frame)) {
    if (ping->reply) return for_paths([](PathSet& paths) { paths.peer_answered(); });
    return send_frame(control::Ping{.nonce = ping->nonce, .reply = true});
  }
  handle_path_frame(frame);
}

/// The peer says so in place of its hello.
void SessionImpl::turned_away(std::uint32_t code, std::string_view what, const std::string& reason) {
  const Code said = code_from_wire(code);
  const Code why = said != Code::kOk ? said : Code::kUnavailable;  // it goes in order
  const std::string words = reason.empty() ? std::string(what) : fmt::format("{}: {}", what, clipped(reason));
  if (try_elsewhere({why, "it " + words})) return;
  if (!active_) handshake_refused(why);
  fail({why, fmt::format("{} {}", who(), words)});
}

void SessionImpl::handshake_refused(Code why) noexcept {
  tally().handshakes_refused.add(why);
  host_->handshake_refused();
}

void SessionImpl::refuse(const Status& why) {
  send_frame(control::Refused{
      .code = static_cast<std::uint32_t>(why.code()), .reason = why.message(), .engine = host_->engine_id()});
  handshake_refused(why.code());
  fail({why.code(), fmt::format("refused {}: {}", who(), why.message())});
}

void SessionImpl::handle_hello(const control::Hello& hello) {
  saw(SessionEvent::kHello);
  {
    const std::lock_guard lock(mutex_);
    description_.name = clipped(hello.engine_name);
  }
  if (hello.version_min > kNewestVersion || hello.version_max < kOldestVersion) {
    return refuse(
        {Code::kVersionMismatch,
         fmt::format("protocol versions {}..{} offered, {}..{} spoken here; run the same release at both ends",
                     hello.version_min, hello.version_max, kOldestVersion, kNewestVersion)});
  }
  if (hello.transports.size() > kMaxOffers || hello.event_window == 0) {
    return refuse({Code::kInvalidArgument, fmt::format("{} transports (limit {}), event window {} (at least 1)",
                                                       hello.transports.size(), kMaxOffers, hello.event_window)});
  }
  if (active_) {
    if (hello.session_id == 0) return refuse({Code::kDataLoss, "the hello names no session"});
    if (const Status shown = greeting_.check(hello); !shown.ok()) return refuse(shown);
    return greet(hello);
  }
  if (unproved_ || asked_) return refuse({Code::kDataLoss, "a second hello"});
  const Status heard = greeting_.hear(hello);
  if (heard.ok()) return admit(hello);
  if (heard.code() != Code::kUnavailable) return refuse(heard);
  unproved_ = kept_of(hello);
  send_frame(greeting_.challenge(nonce()));
}

void SessionImpl::handle_challenge(const control::Challenge& challenge) {
  const Result<control::Proof> proof = greeting_.answer(challenge);
  if (!proof) return fail({proof.error().code(), fmt::format("{} {}", who(), proof.error().message())});
  send_frame(*proof);
}

void SessionImpl::handle_proof(const control::Proof& proof) {
  const control::Hello hello = *std::exchange(unproved_, std::nullopt);
  if (const Status shown = greeting_.check(proof); !shown.ok()) return refuse(shown);
  admit(hello);
}

/// Of a peer that connected, and is who it says.
void SessionImpl::admit(const control::Hello& hello) {
  CreditWindow::Limits window = this->window();
  if (const Status may = host_->admit_peer(*this, greeting_.principal(), window); !may.ok()) return refuse(may);
  window_events_.store(window.events, std::memory_order_relaxed);
  window_bytes_.store(window.bytes, std::memory_order_relaxed);
  for_flows([&window](Flow& flow) { flow.set_window(window); });
  greet(hello);
}

void SessionImpl::greet(const control::Hello& hello) {
  std::vector<Offer> theirs;
  for (const control::TransportOffer& t : hello.transports) {
    Offer& offer = theirs.emplace_back(clipped(t.name), clipped(t.kind), t.software);
    if (active_ && offer.kind == "verbs") offer.addresses = usable(t.addresses);  // tcp is where the session is
  }
  CreditWindow::Limits window{.events = hello.event_window};
  if (hello.event_window_bytes != 0) window.bytes = hello.event_window_bytes;
  limits_ = {window, hello.max_message_bytes};
  {
    const std::lock_guard lock(mutex_);
    description_.principal = greeting_.principal();
  }
  peer_version_ = hello.version_max;
  if (active_) {
    if (const Status keeps = begin_keeping(hello.resume); !keeps.ok()) return refuse(keeps);
    open_domains(theirs);
    id_.store(hello.session_id, std::memory_order_release);
    peer_engine_ = hello.engine;
  } else {
    host_->open_for_peer(theirs);
    open_domains(theirs);
    id_.store(host_->random(), std::memory_order_release);
    send_hello();
  }
  phase_ = close_deadline_ == Clock::time_point::max() ? Phase::kOpen : Phase::kClosing;
  lookups_.open(id());
  if (active_) {
    const EngineConfig& config = host_->config();
    Choice choice = choose(config.transport, config.failover, host_->offers(), theirs, policy_of(config));
    if (choice.candidates.empty()) {
      return fail(
          {Code::kUnavailable, fmt::format("no transport in common with {}: {}", who(),
                                           nothing_in_common(config, host_->offers(), theirs, choice.rejected))});
    }
    candidates_ = by_way_of(std::move(choice.candidates), link_.places().other_addresses());
    rejected_ = std::move(choice.rejected);
  }
  peer_offers_ = std::move(theirs);
  begin(bulk_);
  begin_commands();
}

void SessionImpl::handle_goodbye(const control::Goodbye& goodbye) {
  const Code code = code_from_wire(goodbye.code);
  if (code == Code::kOk) {
    if (!farewell_until_) farewell_until_ = host_->now() + kLastWords;  // said again it is not put off
    for_flows([](Flow& flow) { flow.stop_posting(); });
    for_paths([](PathSet& paths) { paths.stay(); });
    return;
  }
  begin_drain({code, fmt::format("{} ended the session: {}", who(), clipped(goodbye.reason))}, code);
}

}  // namespace fairlead::datapath
