// One schedule: a plan is carried out. One server and one or two clients in one thread, a session between each client
// and the server, an application and a judge at each end (app.h).
#pragma once

#include "outcome.h"
#include "plan.h"

namespace fairlead::simulation {

[[nodiscard]] Outcome run_plan(const Plan& plan);

}  // namespace fairlead::simulation
