#include "cli/serve_status.h"

namespace fairlead::cli {

using bench::Json;

void add_serve_status(Json::Object& document, const PushServer& server, const ServeCounters& counters,
                      const ModelStore& store) {
  Json::Array clients, models;
  for (const ClientView& client : server.clients()) {
    clients.push_back(Json::Object{{"name", client.name},
                                   {"principal", client.principal},
                                   {"address", client.address},
                                   {"transport", client.transport},
                                   {"lane", client.lane},
                                   {"path", client.path},
                                   {"doing", client.doing},
                                   {"model", client.model},
                                   {"bytes", client.bytes},
                                   {"arrived_bytes", client.arrived},
                                   {"arrived_bytes_total", client.arrived_ever}});
  }
  for (const ModelStore::KeptModel& model : store.kept()) {
    models.push_back(
        Json::Object{{"name", model.name}, {"owner", model.owner}, {"tensors", model.tensors}, {"bytes", model.bytes}});
  }
  document.emplace_back("clients", std::move(clients));
  document.emplace_back("models", std::move(models));
  document.emplace_back("model_bytes", store.bytes_held());
  document.emplace_back("model_bytes_limit", store.max_bytes());
  document.emplace_back("pushes_verified", counters.pushes_verified.load());
  document.emplace_back("pushes_unchecked", counters.pushes_unchecked.load());
  document.emplace_back("pulls_completed", counters.pulls_completed.load());
  document.emplace_back("arrived_bytes", counters.arrived_bytes.load());
  document.emplace_back("pulled_bytes", counters.pulled_bytes.load());
}

}  // namespace fairlead::cli
