// An engine over tcp, for tests of what commands say.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "fairlead/engine.h"

namespace fairlead::datapath::command {

/// `listen`: "" is for one that connects.
inline Engine engine_at(std::string listen) {
  EngineConfig config;
  config.transport = "tcp";
  config.listen = std::move(listen);
  Result<Engine> made = Engine::create(config);
  EXPECT_TRUE(made) << made.error().to_string();
  return *std::move(made);
}

}  // namespace fairlead::datapath::command
