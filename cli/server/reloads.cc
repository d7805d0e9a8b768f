#include "cli/server/reloads.h"

namespace fairlead::cli {

metrics::Metric Reloads::metric() const {
  return {"fairlead_serve_reloads_total",
          "Times that keys, quotas and tenants were read again (SIGHUP), by whether they could be.",
          metrics::Kind::kCounter,
          {{static_cast<double>(done), {{"result", "done"}}}, {static_cast<double>(failed), {{"result", "failed"}}}}};
}

}  // namespace fairlead::cli
