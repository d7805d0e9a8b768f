#include "cli/push_server.h"

#include <fmt/format.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <utility>

#include "cli/push_client.h"
#include "fairlead/log.h"

namespace fairlead::cli {

namespace {

constexpr std::size_t kMaxRefusals = 16;     // then a client is trying something
constexpr std::chrono::seconds kNotices{1};  // for the word that the server drains to reach who has nothing under way

}  // namespace

PushServer::PushServer(ModelStore* store, Console* console, ServeCounters* counters, Settings settings)
    : store_(store),
      console_(console),
      counters_(counters),
      settings_(settings),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

PushServer::~PushServer() = default;

PushServer::Client& PushServer::client_of(const Peer& peer) {
  for (const auto& client : clients_) {
    if (client->peer == peer) return *client;
  }
  auto made = std::make_unique<Client>();
  made->peer = peer;
  Client& client = *made;
  {
    const std::scoped_lock lock(mutex_);
    clients_.push_back(std::move(made));
  }
  counters_->clients.store(clients_.size(), std::memory_order_relaxed);
  ++counters_->clients_total;
  client.who = peer.name();
  if (!peer.principal().empty()) client.who += fmt::format(" ('{}')", peer.principal());
  const std::string path = peer.explain();  // not known yet if a message overtook the news that the path is ready
  client.path_shown = !path.empty();
  console_->line(fmt::format("{} connected{}{}", client.who, path.empty() ? "" : ": ", path));
  if (beyond_sessions(client)) {
    refuse(client,
           {Code::kResourceExhausted, fmt::format("'{}' has the {} sessions of its quota; end one, or raise it in the "
                                                  "file of --quotas",
                                                  peer.principal(), store_->quotas().of(peer.principal()).sessions)},
           Refused::kSessions);
    dismiss(client);
  }
  if (draining_) {
    client.came_late = true;
    count_refusal(client, ending(), Refused::kDraining);  // it may hear and go before what it asks for is read
    tell_draining(client);
  }
  return client;
}

bool PushServer::beyond_sessions(const Client& client) const {
  const std::string who = client.peer.principal();
  const std::uint64_t most = store_->quotas().of(who).sessions;
  if (most == kNoQuota) return false;
  const auto same = [&who](const auto& other) { return other->peer.principal() == who; };
  return static_cast<std::uint64_t>(std::ranges::count_if(clients_, same)) > most;
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
  const bool pushed = client.push != nullptr;
  if (pushed) {
    line += fmt::format("; push of {} abandoned, its memory is free ", client.push->begin.model);
    ++counters_->pushes_abandoned;
    --counters_->pushing;
  }
  if (client.pull) {
    ++counters_->pulls_abandoned;
    --counters_->pulling;
  }
  // The client goes first, so that the line is true when it is read.
  std::unique_ptr<Client> gone;  // what it held is let go outside of the lock
  {
    const std::scoped_lock lock(mutex_);
    const auto at = std::ranges::find(clients_, &client, [](const auto& other) { return other.get(); });
    gone = std::move(*at);
    clients_.erase(at);
  }
  if (pushed) line += abandon(std::move(gone->push)) ? "again" : "as soon as its thread has ended";
  gone.reset();
  counters_->clients.store(clients_.size(), std::memory_order_relaxed);
  ++ended_;
  console_->line(line);
}

/// What it says from now on is not heard.
void PushServer::dismiss(Client& client) {
  client.dismissed = true;
  client.peer.close();
}

void PushServer::on_message(Client& client, const Event& event) {
  if (client.dismissed) return;
  // Answers can be a thousand times as long as the question, and wait here for a client that takes no events.
  if (client.reads_nothing()) return misbehaved(client, "a request without reading the answers before it");
  Result<PushMessage> message = decode(event.data);
  if (!message) {
    refuse(client, message.error(), Refused::kMisbehaved);
    return dismiss(client);
  }
  std::visit([&](auto& m) { handle(client, std::move(m)); }, *message);
}

std::string PushServer::owner_for(const Client& client) const {
  return settings_.shared ? std::string() : client.peer.principal();
}

std::vector<ClientView> PushServer::clients() const {
  const std::scoped_lock lock(mutex_);
  std::vector<ClientView> all;
  for (const auto& client : clients_) {
    const Peer& peer = client->peer;
    ClientView& view = all.emplace_back();
    view = {.name = peer.name(),
            .principal = peer.principal(),
            .address = peer.address(),
            .transport = peer.transport(),
            .path = peer.explain(),
            .doing = {},
            .model = {}};
    view.arrived_ever = client->arrived_ever + client->arrived;
    view.lane = peer.lane();
    if (client->push != nullptr) {
      view.doing = "push";
      view.model = client->push->begin.model;
      view.bytes = client->push->begin.bytes;
      view.arrived = client->arrived;
    } else if (client->pull) {
      view.doing = "pull";
      view.model = client->pull->model;
      view.bytes = client->pull->bytes;
    }
  }
  return all;
}

Status PushServer::ending() {
  return {Code::kUnavailable, "this server is draining: it finishes what is under way; try another, or again later"};
}

void PushServer::drain() {
  draining_ = true;
  notices_by_ = std::chrono::steady_clock::now() + kNotices;
  for (const auto& client : clients_) tell_draining(*client);
}

/// Who has nothing under way hears now, before its session ends, why what it is about to ask for is refused.
void PushServer::tell_draining(Client& client) {
  if (client.push != nullptr || client.pull) return;
  client.notice = client.peer.send(encode(Refusal{ending()}));
}

bool PushServer::busy() {
  const bool waits_for_notices = draining_ && std::chrono::steady_clock::now() < notices_by_;
  return std::any_of(clients_.begin(), clients_.end(), [waits_for_notices](const auto& client) {
    static_cast<void>(client->reads_nothing());  // forgets the answers that have arrived
    const bool unnoticed = waits_for_notices && client->notice && !client->notice->done();
    return client->push != nullptr || client->pull || !client->unread.empty() || unnoticed;
  });
}

void PushServer::handle(Client& client, const PullBegin& message) {
  if (client.pull) return misbehaved(client, "a pull within a pull");
  const auto turn_away = [&](const Status& status, Refused why) {
    ++counters_->pulls_refused;
    refuse(client, status, why);
  };
  if (draining_) return turn_away(ending(), Refused::kDraining);
  const std::shared_ptr<const Model> model = store_->find(message.model, owner_for(client));
  if (model == nullptr) {
    return turn_away(Status(Code::kNotFound, fmt::format("no model '{}' here; see fairlead pull HOST:PORT --list",
                                                         message.model.substr(0, kMaxModelName))),
                     Refused::kUnknown);
  }
  send(client, PullReady{ModelStore::read_prefix(*model), model->files.size(), model->entries.size(), model->bytes});
  for (const ModelFile& file : model->files) send(client, file);
  for (const TensorBatch& batch : make_batches(model->entries)) send(client, batch);
  const std::scoped_lock lock(mutex_);
  client.pull.emplace(model->name, model->bytes, bench::CpuStopwatch());
  ++counters_->pulling;
}

void PushServer::handle(Client& client, const PullFinish&) {
  if (!client.pull) return misbehaved(client, "the end of no pull");
  send(client, PullResult{client.pull->watch.cpu_seconds()});
  ++counters_->pulls_completed;
  --counters_->pulling;
  counters_->pulled_bytes += client.pull->bytes;
  counters_->pull_seconds.observe(client.pull->watch.seconds());
  const std::scoped_lock lock(mutex_);
  client.pull.reset();
}

void PushServer::handle(Client& client, const ListModels&) { send(client, Models{store_->list(owner_for(client))}); }

void PushServer::send(Client& client, const PushMessage& message) {
  const std::vector<std::byte> bytes = encode(message);
  // A failure means that the session is ending, which comes as an event of its own.
  constexpr std::uint64_t kEach = 256;  // what a message takes beside its bytes
  client.unread.emplace_back(client.peer.send(bytes), bytes.size() + kEach);
  client.unread_bytes += bytes.size() + kEach;
}

// `status` is a copy: it may be the push's, which goes here.
void PushServer::refuse(Client& client, Status status, Refused why) {
  if (why != Refused::kDraining || !client.came_late) count_refusal(client, status, why);
  if (client.push != nullptr) {
    ++counters_->pushes_refused;
    client.files_to_skip = client.push->begin.files - client.push->files_seen;
    client.tensors_to_skip = client.push->begin.tensors - client.push->described;
    std::unique_ptr<Push> gone;  // outside of the lock
    {
      const std::scoped_lock lock(mutex_);
      gone = std::move(client.push);
    }
    abandon(std::move(gone));
    --counters_->pushing;
  }
  send(client, Refusal{std::move(status)});
  if (++client.refusals == kMaxRefusals) dismiss(client);
}

void PushServer::count_refusal(const Client& client, const Status& status, Refused why) {
  ++counters_->refused[static_cast<std::size_t>(why)];
  console_->error(fmt::format("{}: refused: {}", client.who, status.to_string()));
}

void PushServer::misbehaved(Client& client, std::string_view what) {
  refuse(client, Status(Code::kInvalidArgument, fmt::format("the client sent {}", what)), Refused::kMisbehaved);
  dismiss(client);
}

}  // namespace fairlead::cli
