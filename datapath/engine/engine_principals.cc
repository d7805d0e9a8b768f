// Whom the engine knows: the keys file, read when it is created and when it has changed.
#include <fmt/format.h>

#include <mutex>
#include <utility>

#include "datapath/engine/engine_impl.h"
#include "datapath/session/session.h"
#include "fairlead/log.h"

namespace fairlead::datapath {

Result<Principals> EngineImpl::known_by(const EngineConfig& config) {
  if (config.keys_file.empty()) return Principals();
  Result<Principals> known = Principals::load(config.keys_file);
  if (known && !config.principal.empty() && known->key_of(config.principal) == nullptr) {
    return {Code::kNotFound,
            fmt::format("keys file {} has no line for '{}' (principal)", config.keys_file, config.principal)};
  }
  return known;
}

namespace {

/// Ends the lane's sessions with those whose key was taken back, or changed.
void end_revoked(const EngineLane& lane, const Principals& before, const Principals& now) {
  const auto is_revoked = [&](const std::string& name) {
    const Principals::Key *had = before.key_of(name), *has = now.key_of(name);
    return had != nullptr && (has == nullptr || *has != *had);
  };
  for (const auto& session : std::vector(lane.sessions())) {
    const SessionImpl::Description who = session->description();
    if (session->finished() || !is_revoked(who.principal)) continue;
    log(LogLevel::kWarning, fmt::format("ending the session with {}: the keys file has another key for '{}', or none",
                                        who.address, who.principal));
    session->fail(
        {Code::kPermissionDenied, fmt::format("'{}' has another key in the keys file now, or none", who.principal)});
  }
}

}  // namespace

Status EngineImpl::reload_keys() {
  if (config().keys_file.empty()) {
    return {Code::kInvalidArgument, "this engine was created without a keys file; create it with one (keys_file)"};
  }
  const std::lock_guard one_at_a_time(reloading_keys_);
  Result<Principals> known = known_by(config());
  if (!known) return known.error();
  const Principals before = commons_.principals.replace(*known);
  for (const auto& lane : lanes_) {
    lane->lane().call([&] {
      lane->use_keys(*known);
      end_revoked(*lane, before, *known);
    });
  }
  return {};
}

}  // namespace fairlead::datapath
