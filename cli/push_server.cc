#include "cli/push_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "bench/base/cpu_time.h"
#include "bench/base/sizes.h"
#include "datapath/base/crc.h"
#include "fairlead/log.h"

namespace fairlead::cli {

// A push in progress: first its tensors are described (model is null), then they arrive.
struct PushServer::Push {
  PushBegin begin;
  std::vector<TensorEntry> entries;
  std::shared_ptr<Model> model;
  Publication names;
  std::vector<bool> arrived;
  std::vector<std::string> wrong;  // per tensor; empty: nothing
  std::size_t missing = 0;         // tensors that have not arrived
  bench::Stopwatch since_ready;
  std::optional<double> cpu_seconds;  // when the last tensor arrived

  void check(std::size_t index, std::string_view when) {
    const std::uint32_t crc = crc32(model->tensor(index).bytes());
    const std::uint32_t expected = entries_of()[index].crc;
    if (crc != expected && wrong[index].empty()) {
      wrong[index] = fmt::format("CRC-32 is {:08x} {}, expected {:08x}", crc, when, expected);
    }
  }
  [[nodiscard]] const std::vector<TensorEntry>& entries_of() const { return model->entries; }
};

struct PushServer::Client {
  Peer peer;
  std::string who;
  std::unique_ptr<Push> push;
  std::optional<bench::Stopwatch> pull;
  bool path_shown = false;
};

namespace {
std::string human(std::uint64_t bytes) { return bench::format_bytes(static_cast<double>(bytes)); }
}  // namespace

PushServer::PushServer(ModelStore* store, Console* console, ServeCounters* counters, Check check)
    : store_(store), console_(console), counters_(counters), check_(check) {}

PushServer::~PushServer() = default;

PushServer::Client& PushServer::client_of(const Peer& peer) {
  for (const auto& client : clients_) {
    if (client->peer == peer) return *client;
  }
  clients_.push_back(std::make_unique<Client>(Client{peer, peer.name(), nullptr, std::nullopt, false}));
  counters_->clients.store(clients_.size(), std::memory_order_relaxed);
  Client& client = *clients_.back();
  const std::string path = peer.explain();  // not known yet if a message overtook the news that the path is ready
  client.path_shown = !path.empty();
  console_->line(fmt::format("{} connected{}{}", client.who, path.empty() ? "" : ": ", path));
  return client;
}

void PushServer::show_path(Client& client) {
  if (client.path_shown) return;
  client.path_shown = true;
  console_->line(fmt::format("{}: path: {}", client.who, client.peer.explain()));
}

void PushServer::on_connected(const Peer& peer) {
  // Its events may have come first, its end among them: that one must not come back.
  if (peer.state() != PeerState::kClosed) show_path(client_of(peer));
}

void PushServer::on_event(const Peer& peer, const Event& event) {
  Client& client = client_of(peer);
  switch (event.kind) {
    case Event::Kind::kMessage:
      return on_message(client, event);
    case Event::Kind::kNotification:
      return on_notification(client, event.value);
    case Event::Kind::kPathChanged:
      // The library's log has said so already, unless it was told not to.
      if (!log_enabled(LogLevel::kWarning)) console_->line(fmt::format("{}: path changed: {}", client.who, event.text));
      return;
    case Event::Kind::kClosed:
      return on_closed(client, event.status);
    case Event::Kind::kConnected:
      return show_path(client);
    case Event::Kind::kNone:
      return;
  }
}

void PushServer::on_closed(Client& client, const Status& status) {
  std::string line = fmt::format("{} {}", client.who, status.ok() ? "disconnected" : "lost: " + status.to_string());
  if (client.push != nullptr) {
    line += fmt::format("; push of {} abandoned, its memory is free again", client.push->begin.model);
    ++counters_->pushes_abandoned;
  }
  // The client goes first, so that the line is true when it is read.
  std::erase_if(clients_, [&client](const auto& other) { return other.get() == &client; });
  counters_->clients.store(clients_.size(), std::memory_order_relaxed);
  ++ended_;
  console_->line(line);
}

void PushServer::on_message(Client& client, const Event& event) {
  Result<PushMessage> message = decode(event.data);
  if (!message) {
    refuse(client, message.error());
    client.peer.close();
    return;
  }
  std::visit([&](auto& m) { handle(client, std::move(m)); }, *message);
}

void PushServer::on_notification(Client& client, std::uint64_t index) {
  Push* const push = client.push.get();
  if (push == nullptr || push->model == nullptr || index >= push->arrived.size()) {
    return misbehaved(client, fmt::format("a notification of tensor {}, which it is not pushing", index));
  }
  if (push->arrived[index]) {
    push->wrong[index] = "its notification came twice";
    return;
  }
  push->arrived[index] = true;
  if (check_ == Check::kOnArrival) push->check(index, "on arrival");
  if (--push->missing == 0) push->cpu_seconds = push->since_ready.cpu_seconds();
}

void PushServer::handle(Client& client, PushBegin message) {
  if (client.push != nullptr) return misbehaved(client, "a push within a push");
  if (Status status = check_model_name(message.model); !status.ok()) return refuse(client, status);
  console_->line(
      fmt::format("{}: push of {}: {} tensors, {}", client.who, message.model, message.tensors, human(message.bytes)));
  client.push = std::make_unique<Push>();
  client.push->begin = std::move(message);
  if (client.push->begin.tensors == 0) begin_receiving(client);
}

void PushServer::handle(Client& client, TensorBatch message) {
  Push* const push = client.push.get();
  if (push == nullptr || push->model != nullptr) return misbehaved(client, "tensors without a push");
  if (push->entries.size() + message.entries.size() > push->begin.tensors) {
    return misbehaved(client, "more tensors than announced");
  }
  std::move(message.entries.begin(), message.entries.end(), std::back_inserter(push->entries));
  if (push->entries.size() == push->begin.tensors) begin_receiving(client);
}

void PushServer::begin_receiving(Client& client) {
  Push& push = *client.push;
  Result<std::shared_ptr<Model>> model =
      store_->create(push.begin.model, std::move(push.begin.metadata), std::move(push.entries));
  if (!model) return refuse(client, model.error());
  push.model = *std::move(model);
  // Never used twice, so that a client cannot write into a later push by mistake.
  const std::string prefix = fmt::format("push/{}/", next_push_++);
  Result<Publication> names = store_->open_for_writing(*push.model, prefix);
  if (!names) return refuse(client, names.error());
  push.names = *std::move(names);
  push.wrong.resize(push.model->entries.size());
  for (const TensorEntry& entry : push.model->entries) {
    push.arrived.push_back(entry.tensor.bytes == 0);
    push.missing += entry.tensor.bytes == 0 ? 0 : 1;
  }
  push.since_ready.restart();
  send(client, PushReady{prefix});
}

void PushServer::handle(Client& client, const PushFinish&) {
  if (client.push == nullptr || client.push->model == nullptr) return misbehaved(client, "the end of no push");
  const std::unique_ptr<Push> push = std::move(client.push);
  PushResult result;
  result.cpu_seconds = push->cpu_seconds.value_or(push->since_ready.cpu_seconds());
  const double seconds = push->since_ready.seconds();
  push->names.withdraw();  // from here on the bytes stand still
  for (std::size_t i = 0; i < push->arrived.size(); ++i) {
    if (!push->arrived[i]) push->wrong[i] = "its notification did not come";
    push->check(i, "at the end");
    if (push->wrong[i].empty()) {
      ++result.verified;
      continue;
    }
    ++result.failed;
    const std::string& name = push->model->entries[i].tensor.name;
    console_->error(fmt::format("{}: tensor {}: {}", client.who, name, push->wrong[i]));
    if (result.failures.size() < kMaxFailuresNamed) result.failures.emplace_back(name, push->wrong[i]);
  }
  counters_->received_bytes += push->model->bytes;
  counters_->tensors_verified += result.verified;
  counters_->tensors_failed += result.failed;
  console_->line(fmt::format("{}: push of {}: {} tensors verified, {} failed, {} in {:.3f} s", client.who,
                             push->begin.model, result.verified, result.failed, human(push->model->bytes), seconds));
  if (result.failed == 0) {
    if (const Status status = store_->keep(push->model); !status.ok()) {
      ++counters_->pushes_refused;
      return refuse(client, status);
    }
  }
  ++(result.failed == 0 ? counters_->pushes_verified : counters_->pushes_failed);
  send(client, result);
}

void PushServer::handle(Client& client, const PullBegin& message) {
  const std::shared_ptr<const Model> model = store_->find(message.model);
  if (model == nullptr) {
    return refuse(client, Status(Code::kNotFound, fmt::format("no model '{}' here; see fairlead pull HOST:PORT --list",
                                                              message.model.substr(0, kMaxModelName))));
  }
  send(client, PullReady{ModelStore::read_prefix(model->name), model->metadata, model->entries.size(), model->bytes});
  for (const TensorBatch& batch : make_batches(model->entries)) send(client, batch);
  client.pull.emplace();
}

void PushServer::handle(Client& client, const PullFinish&) {
  if (!client.pull) return misbehaved(client, "the end of no pull");
  send(client, PullResult{client.pull->cpu_seconds()});
  client.pull.reset();
}

void PushServer::handle(Client& client, const ListModels&) { send(client, Models{store_->list()}); }

void PushServer::send(Client& client, const PushMessage& message) {
  // A failure means that the session is ending, which comes as an event of its own.
  static_cast<void>(client.peer.send(encode(message)));
}

void PushServer::refuse(Client& client, const Status& status) {
  console_->error(fmt::format("{}: refused: {}", client.who, status.to_string()));
  if (client.push != nullptr) ++counters_->pushes_refused;
  client.push.reset();
  send(client, Refusal{status});
}

void PushServer::misbehaved(Client& client, std::string_view what) {
  refuse(client, Status(Code::kInvalidArgument, fmt::format("the client sent {}", what)));
  client.peer.close();
}

}  // namespace fairlead::cli
