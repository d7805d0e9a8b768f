#include "cli/push_server.h"

#include <fmt/format.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "bench/base/cpu_time.h"
#include "bench/base/sizes.h"
#include "cli/server/push.h"
#include "fairlead/log.h"

namespace fairlead::cli {

namespace {

constexpr std::size_t kMaxRefusals = 16;                      // then a client is trying something
constexpr std::uint64_t kMaxUnread = std::uint64_t{1} << 20;  // bytes of answers that a client may leave unread
constexpr std::chrono::seconds kNotices{1};  // for the word that the server drains to reach who has nothing under way

}  // namespace

struct PushServer::Client {
  Peer peer;
  std::string who;
  struct Pull {
    std::string model;
    std::uint64_t bytes = 0;
    bench::Stopwatch watch;
  };
  std::unique_ptr<Push> push;
  std::optional<Pull> pull;
  std::uint64_t arrived = 0;       // bytes of its push
  std::uint64_t arrived_ever = 0;  // and of all before it
  bool path_shown = false;
  std::size_t refusals = 0;
  std::uint64_t files_to_skip = 0, tensors_to_skip = 0;   // of a push that was refused while it was described
  std::deque<std::pair<Transfer, std::uint64_t>> unread;  // answers on their way, with their bytes
  std::uint64_t unread_bytes = 0;
  std::optional<Transfer> notice;  // that the server is draining, on its way
  bool came_late = false;          // when it was: it was refused as it came

  [[nodiscard]] bool reads_nothing() {
    for (; !unread.empty() && unread.front().first.done(); unread.pop_front()) unread_bytes -= unread.front().second;
    return unread_bytes > kMaxUnread;
  }
};

namespace {
std::string human(std::uint64_t bytes) { return bench::format_bytes(static_cast<double>(bytes)); }

// Of a push or a model that the store does not take.
Refused no_room(const Status& status) {
  return status.code() == Code::kUnavailable ? Refused::kNoRoom : Refused::kTooLarge;
}

Status ending() {
  return {Code::kUnavailable, "this server is draining: it finishes what is under way; try another, or again later"};
}
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
    client.peer.close();
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

void PushServer::on_message(Client& client, const Event& event) {
  // Answers can be a thousand times as long as the question, and wait here for a client that takes no events.
  if (client.reads_nothing()) return misbehaved(client, "a request without reading the answers before it");
  Result<PushMessage> message = decode(event.data);
  if (!message) {
    refuse(client, message.error(), Refused::kMisbehaved);
    client.peer.close();
    return;
  }
  std::visit([&](auto& m) { handle(client, std::move(m)); }, *message);
}

void PushServer::on_notification(Client& client, std::uint64_t index) {
  Push* const push = client.push.get();
  if (push == nullptr || push->phase != Push::Phase::kReceiving || index >= push->arrived.size()) {
    return misbehaved(client, fmt::format("a notification of tensor {}, which it is not pushing", index));
  }
  push->since_sign.restart();
  if (push->arrived[index]) {
    push->wrong[index] = "its notification came twice";
    return;
  }
  push->arrived[index] = true;
  {
    const std::scoped_lock lock(mutex_);
    client.arrived += push->model->entries[index].tensor.bytes;
  }
  counters_->arrived_bytes += push->model->entries[index].tensor.bytes;
  if (!push->crc_on_arrival.empty()) push->crc_on_arrival[index] = push->crc_of(index);
  if (push->begin.sums) push->arrive(index);
  if (--push->missing == 0) push->cpu_seconds = push->since_ready.cpu_seconds();
}

void PushServer::handle(Client& client, PushBegin message) {
  if (client.push != nullptr) return misbehaved(client, "a push within a push");
  client.files_to_skip = message.files;
  client.tensors_to_skip = message.tensors;
  if (draining_) return refuse(client, ending(), Refused::kDraining);
  if (Status status = check_model_name(message.model); !status.ok()) {
    return refuse(client, status, Refused::kMisbehaved);
  }
  console_->line(
      fmt::format("{}: push of {}: {} tensors, {}", client.who, message.model, message.tensors, human(message.bytes)));
  {
    const std::scoped_lock lock(mutex_);
    client.push = std::make_unique<Push>();
    client.push->begin = std::move(message);
    client.arrived_ever += std::exchange(client.arrived, 0);
  }
  ++counters_->pushing;
  if (client.push->begin.files == 0) misbehaved(client, "a model without files");
}

void PushServer::handle(Client& client, ModelFile message) {
  Push* const push = client.push.get();
  if (push == nullptr && client.files_to_skip > 0) {
    --client.files_to_skip;
    return;
  }
  if (push == nullptr || push->phase != Push::Phase::kDescribed) return misbehaved(client, "a file without a push");
  if (push->files_seen == push->begin.files) return misbehaved(client, "more files than announced");
  ++push->files_seen;
  for (const auto& [key, value] : message.metadata) push->metadata += key.size() + value.size();
  if (push->metadata > kMaxMetadata) return misbehaved(client, "more metadata than a model may have");
  if (Status status = reserve(client, description_bytes(message)); !status.ok()) {
    return refuse(client, status, no_room(status));
  }
  push->files.push_back(std::move(message));
  prepare_if_described(client);
}

void PushServer::handle(Client& client, TensorBatch message) {
  Push* const push = client.push.get();
  if (push == nullptr && message.entries.size() <= client.tensors_to_skip) {
    client.tensors_to_skip -= message.entries.size();
    return;
  }
  if (push == nullptr || push->phase != Push::Phase::kDescribed) return misbehaved(client, "tensors without a push");
  if (push->described + message.entries.size() > push->begin.tensors) {
    return misbehaved(client, "more tensors than announced");
  }
  push->described += message.entries.size();
  for (TensorEntry& entry : message.entries) {
    Status status = reserve(client, entry.tensor.bytes + kTensorAlignment + description_bytes(entry));
    if (!status.ok()) return refuse(client, status, no_room(status));
    push->entries.push_back(std::move(entry));
  }
  prepare_if_described(client);
}

std::string PushServer::owner_for(const Client& client) const {
  return settings_.shared ? std::string() : client.peer.principal();
}

// Pushes in which nothing has arrived for long give way, the longest silent first: an announcement costs nothing. A
// tensor that is long under way has moved since it was looked at last, which was for another push that needed room.
Status PushServer::reserve(Client& client, std::uint64_t bytes) {
  const std::string& model = client.push->begin.model;
  while (true) {
    Status status = store_->reserve(client.push->room, bytes, model, client.peer.principal());
    if (status.code() != Code::kUnavailable) return status;
    Client* silent = nullptr;
    for (const auto& other : clients_) {
      if (other.get() == &client || other->push == nullptr || other->push->works()) continue;
      const double seconds = other->push->since_sign.seconds();
      if (std::chrono::duration<double>(seconds) < settings_.stalled) continue;
      if (other->push->phase == Push::Phase::kReceiving && other->push->moves()) {
        other->push->since_sign.restart();
        continue;
      }
      if (silent == nullptr || seconds > silent->push->since_sign.seconds()) silent = other.get();
    }
    if (silent == nullptr) return status;
    silent->push->thread = {};  // clears memory at most, which ends at once: its room is wanted now
    refuse(*silent,
           Status(Code::kUnavailable,
                  fmt::format("push of {}: nothing arrived for {:.0f} s, and another push needs its room",
                              silent->push->begin.model, silent->push->since_sign.seconds())),
           Refused::kSilent);
  }
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

// Once the last file and tensor are known. The client may write as soon as the memory is registered; its pages are
// cleared ahead of the data.
void PushServer::prepare_if_described(Client& client) {
  Push& push = *client.push;
  if (push.files_seen != push.begin.files || push.described != push.begin.tensors) return;
  std::set<std::string_view> names;
  std::uint64_t tensors = 0;
  for (const ModelFile& file : push.files) {
    tensors += file.tensors;
    if (!names.insert(file.name).second) return misbehaved(client, fmt::format("two files named {}", file.name));
  }
  if (tensors != push.begin.tensors) return misbehaved(client, "files that do not add up to the tensors announced");
  Result<std::shared_ptr<Model>> model =
      ModelStore::lay_out(push.begin.model, std::move(push.files), std::move(push.entries));
  if (!model) return refuse(client, model.error(), Refused::kMisbehaved);
  push.model = *std::move(model);
  push.model->owner = owner_for(client);
  push.phase = Push::Phase::kPreparing;
  // Never used twice, so that a client cannot write into a later push by mistake.
  push.prefix = fmt::format("push/{}/", next_push_++);
  run(push, [this, &push, pusher = client.peer.principal()](const std::stop_token& stop) {
    push.prepared = store_->allocate(*push.model);
    if (push.prepared.ok()) {
      Result<Publication> names = store_->open_for_writing(*push.model, push.prefix, pusher);
      if (names) push.names = *std::move(names);
      push.prepared = names.status();
    }
    hand_back(push);
    push.populate(settings_.populate, stop);
    if (push.begin.sums) push.sum_arrivals(stop);
  });
}

void PushServer::begin_receiving(Client& client) {
  Push& push = *client.push;
  if (!push.prepared.ok()) return refuse(client, push.prepared, Refused::kOther);
  push.wrong.resize(push.model->entries.size());
  push.sums.resize(push.model->entries.size());
  for (const TensorEntry& entry : push.model->entries) {
    push.arrived.push_back(entry.tensor.bytes == 0);
    push.missing += entry.tensor.bytes == 0 ? 0 : 1;
  }
  if (settings_.check == Check::kOnArrival) push.crc_on_arrival.resize(push.arrived.size());
  push.phase = Push::Phase::kReceiving;
  push.since_ready.restart();
  push.since_sign.restart();
  send(client, PushReady{push.prefix});
}

void PushServer::handle(Client& client, PushFinish message) {
  Push* const push = client.push.get();
  if (push == nullptr || push->phase != Push::Phase::kReceiving) return misbehaved(client, "the end of no push");
  if (!message.crcs.empty() && message.crcs.size() != push->arrived.size()) {
    return misbehaved(client, "checksums of some tensors only");
  }
  for (std::size_t i = 0; i < message.crcs.size(); ++i) push->model->entries[i].crc = message.crcs[i];
  push->phase = Push::Phase::kChecking;
  push->seconds = push->since_ready.seconds();
  if (!push->cpu_seconds) push->cpu_seconds = push->since_ready.cpu_seconds();
  run(*push, [this, push](const std::stop_token& stop) {
    push->names.withdraw();  // from here on the bytes stand still
    for (std::size_t i = 0; i < push->arrived.size() && !stop.stop_requested(); ++i) {
      push->check(i, stop);
    }
    const bool right = std::ranges::all_of(push->wrong, [](const std::string& what) { return what.empty(); });
    if (right && settings_.disk != nullptr && !stop.stop_requested()) {
      const bench::Stopwatch watch;
      Result<ModelDisk::Draft> draft = settings_.disk->write(*push->model, stop);
      push->drafted = draft.status();
      if (draft) push->draft = *std::move(draft);
      push->disk_seconds = watch.seconds();
    }
    hand_back(*push);
  });
}

// On the disk it is before the client hears that it is kept, and before what it takes the place of is gone.
Status PushServer::keep(Push& push, Refused* why) {
  ModelDisk* const disk = settings_.disk;
  *why = Refused::kDisk;
  if (!push.drafted.ok()) {
    ++counters_->store_failed;
    return push.drafted;
  }
  const auto dropped = store_->keep(push.model);
  if (!dropped) {
    *why = no_room(dropped.error());
    return dropped.error();
  }
  const Status named = disk == nullptr ? Status() : disk->name(std::move(push.draft), *push.model);
  for (const std::shared_ptr<const Model>& model : *dropped) {
    ++counters_->models_evicted;
    console_->warning(
        fmt::format("model {} of {} dropped: it made room for {}", model->name, human(model->bytes), push.begin.model));
    const Status removed = disk == nullptr ? Status() : disk->remove(*model);
    if (!removed.ok()) console_->error(removed);
  }
  if (!named.ok()) {
    ++counters_->store_failed;
    return {named.code(), named.message() + "; the model is kept in memory alone"};
  }
  if (disk != nullptr) {
    counters_->store_written_bytes += push.model->size;
    counters_->store_seconds.observe(push.disk_seconds);
  }
  return {};
}

void PushServer::finish(Client& client) {
  std::unique_ptr<Push> push;
  {
    const std::scoped_lock lock(mutex_);
    push = std::move(client.push);
  }
  --counters_->pushing;
  PushResult result;
  result.cpu_seconds = push->cpu_seconds.value_or(0);
  for (std::size_t i = 0; i < push->wrong.size(); ++i) {
    if (push->wrong[i].empty()) {
      ++result.verified;
      continue;
    }
    if (++result.failed > kMaxFailuresNamed) continue;
    const std::string& name = push->model->entries[i].tensor.name;
    console_->error(fmt::format("{}: tensor {}: {}", client.who, name, push->wrong[i]));
    result.failures.emplace_back(name, push->wrong[i]);
  }
  counters_->received_bytes += push->model->bytes;
  counters_->tensors_verified += result.verified;
  counters_->tensors_failed += result.failed;
  const bool checked = push->model->entries.empty() || push->model->entries.front().crc;
  console_->line(fmt::format("{}: push of {}: {} tensors {}, {} failed, {} in {:.3f} s", client.who, push->begin.model,
                             result.verified, checked ? "verified" : "received without checksums", result.failed,
                             human(push->model->bytes), push->seconds));
  if (Refused why = Refused::kOther; result.failed == 0) {
    if (Status kept = keep(*push, &why); !kept.ok()) {
      ++counters_->pushes_refused;
      return refuse(client, kept, why);
    }
  }
  ++(result.failed == 0 ? counters_->pushes_verified : counters_->pushes_failed);
  counters_->push_seconds.observe(push->seconds);
  send(client, result);
}

void PushServer::run(Push& push, std::function<void(const std::stop_token&)> work) {
  push.thread = {};  // what it did before must be over
  push.ended.store(false, std::memory_order_relaxed);
  const auto all = [this, &push, work = std::move(work)](const std::stop_token& stop) {
    work(stop);
    push.ended.store(true, std::memory_order_release);
    ::eventfd_write(wake_.get(), 1);
  };
  try {
    push.thread = std::jthread(all);
  } catch (const std::system_error&) {
    all({});  // no more threads to be had: slowly, then
  }
}

// A thread that allocates, or has a file synced, may take long and cannot be cut short: no client waits for that.
bool PushServer::abandon(std::unique_ptr<Push> push) {
  push->thread.request_stop();
  if (push->phase == Push::Phase::kReceiving && push->sums_arrivals.load(std::memory_order_acquire)) push->thread = {};
  if (push->ended.load(std::memory_order_acquire)) return true;
  abandoned_.push_back(std::move(push));
  return false;
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

void PushServer::hand_back(Push& push) {
  push.waiting.store(true, std::memory_order_release);
  ::eventfd_write(wake_.get(), 1);
}

bool PushServer::busy() {
  const bool waits_for_notices = draining_ && std::chrono::steady_clock::now() < notices_by_;
  return std::any_of(clients_.begin(), clients_.end(), [waits_for_notices](const auto& client) {
    static_cast<void>(client->reads_nothing());  // forgets the answers that have arrived
    const bool unnoticed = waits_for_notices && client->notice && !client->notice->done();
    return client->push != nullptr || client->pull || !client->unread.empty() || unnoticed;
  });
}

void PushServer::progress() {
  eventfd_t wakes = 0;
  ::eventfd_read(wake_.get(), &wakes);
  std::erase_if(abandoned_, [](const auto& push) { return push->ended.load(std::memory_order_acquire); });
  for (std::size_t i = 0; i < clients_.size(); ++i) {
    Client& client = *clients_[i];
    if (client.push == nullptr || !client.push->waiting.exchange(false, std::memory_order_acquire)) continue;
    if (client.push->phase == Push::Phase::kPreparing) {
      begin_receiving(client);
    } else {
      finish(client);
    }
  }
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
  client.pull.emplace(model->name, model->bytes, bench::Stopwatch());
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
  if (++client.refusals == kMaxRefusals) client.peer.close();
}

void PushServer::count_refusal(const Client& client, const Status& status, Refused why) {
  ++counters_->refused[static_cast<std::size_t>(why)];
  console_->error(fmt::format("{}: refused: {}", client.who, status.to_string()));
}

void PushServer::misbehaved(Client& client, std::string_view what) {
  refuse(client, Status(Code::kInvalidArgument, fmt::format("the client sent {}", what)), Refused::kMisbehaved);
  client.peer.close();
}

}  // namespace fairlead::cli
