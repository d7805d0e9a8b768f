// A push, as the server drives it: announced, described, received, checked, kept.
#include <fmt/format.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "bench/base/sizes.h"
#include "cli/push_client.h"
#include "cli/push_server.h"

namespace fairlead::cli {

using bench::format_bytes;

namespace {

// Of a push or a model that the store does not take.
Refused no_room(const Status& status) {
  return status.code() == Code::kUnavailable ? Refused::kNoRoom : Refused::kTooLarge;
}

}  // namespace

void PushServer::handle(Client& client, PushBegin message) {
  if (client.push != nullptr) return misbehaved(client, "a push within a push");
  client.files_to_skip = message.files;
  client.tensors_to_skip = message.tensors;
  if (const Status wrong = draining_ ? ending() : check_model_name(message.model); !wrong.ok()) {
    ++counters_->pushes_refused;
    return refuse(client, wrong, draining_ ? Refused::kDraining : Refused::kMisbehaved);
  }
  console_->line(fmt::format("{}: push of {}: {} tensors, {}", client.who, message.model, message.tensors,
                             format_bytes(message.bytes)));
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

// Pushes in which nothing has arrived for long give way, the longest silent first: an announcement costs nothing. A
// tensor that is long under way has moved since it was looked at last, which was for another push that needed room. For
// who has used up what is his, only his own give way.
Status PushServer::reserve(Client& client, std::uint64_t bytes) {
  const std::string& model = client.push->begin.model;
  while (true) {
    const std::string principal = client.peer.principal();
    bool own_pushes = false;
    Status status = store_->reserve(client.push->room, bytes, model, principal, &own_pushes);
    if (status.code() != Code::kUnavailable) return status;
    Client* silent = nullptr;
    for (const auto& other : clients_) {
      if (other.get() == &client || other->push == nullptr || other->push->works()) continue;
      if (own_pushes && other->peer.principal() != principal) continue;
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
    if (push.begin.sums && stop.stop_possible()) push.sum_arrivals(stop);  // in a thread: who waits tells of none
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

void PushServer::on_notification(Client& client, std::uint64_t index) {
  if (client.dismissed) return;
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
    console_->warning(fmt::format("model {} of {} dropped: it made room for {}", model->name,
                                  format_bytes(model->bytes), push.begin.model));
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
  const bool checked = push->model->entries.empty() || push->model->entries.front().crc;
  (checked ? counters_->tensors_verified : counters_->tensors_unchecked) += result.verified;
  counters_->tensors_failed += result.failed;
  console_->line(fmt::format("{}: push of {}: {} tensors {}, {} failed, {} in {:.3f} s", client.who, push->begin.model,
                             result.verified, checked ? "verified" : "received without checksums", result.failed,
                             format_bytes(push->model->bytes), push->seconds));
  if (Refused why = Refused::kOther; result.failed == 0) {
    if (Status kept = keep(*push, &why); !kept.ok()) {
      ++counters_->pushes_refused;
      return refuse(client, kept, why);
    }
  }
  ++(result.failed != 0 ? counters_->pushes_failed
     : checked          ? counters_->pushes_verified
                        : counters_->pushes_unchecked);
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

void PushServer::hand_back(Push& push) {
  push.waiting.store(true, std::memory_order_release);
  ::eventfd_write(wake_.get(), 1);
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

// A thread that allocates, or has a file synced, may take long and cannot be cut short: no client waits for that.
bool PushServer::abandon(std::unique_ptr<Push> push) {
  push->thread.request_stop();
  if (push->phase == Push::Phase::kReceiving && push->sums_arrivals.load(std::memory_order_acquire)) push->thread = {};
  if (push->ended.load(std::memory_order_acquire)) return true;
  abandoned_.push_back(std::move(push));
  return false;
}

}  // namespace fairlead::cli
