// What all lanes of an engine share. Owner: the engine, which outlives its lanes. Threads: as each part says; the
// configuration is constant once the engine stands.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "datapath/engine/open_devices.h"
#include "datapath/engine/session_register.h"
#include "datapath/identity/known_principals.h"
#include "datapath/lane/waiters.h"
#include "datapath/placement/placement.h"
#include "datapath/region/regions.h"
#include "fairlead/config.h"

namespace fairlead::datapath {

struct EngineCommons {
  explicit EngineCommons(EngineConfig with) : config(std::move(with)) {}

  EngineConfig config;
  const std::uint64_t id = random_u64();  // no other engine has it
  const std::shared_ptr<RegionTable> regions = std::make_shared<RegionTable>(config.principal);
  SessionRegister sessions{config};
  OpenDevices devices{*regions};
  Placement placement;
  KnownPrincipals principals;  // lanes have copies
  Waiters waiters;             // for what comes in any of several lanes
  std::atomic<bool> stopped{false};
};

}  // namespace fairlead::datapath
