#include "cli/session.h"

#include <fmt/format.h>

#include <deque>

#include "base/system/prefetch.h"
#include "bench/base/cpu_time.h"
#include "cli/base/unreachable.h"
#include "fairlead/log.h"

namespace fairlead::cli {
namespace {

constexpr std::uint64_t kMaxBytesInFlight = std::uint64_t{256} << 20;
constexpr std::size_t kMaxMessages = 1024;  // kept at a time, whatever the server sends
constexpr std::size_t kMaxMessageBytes = 16 * kMaxPushMessage;

}  // namespace

std::string device_of(const Engine& engine, const std::string& transport) {
  for (const DeviceInfo& info : engine.devices()) {
    // A device stands there once per GID, and which of them a path uses depends on the peer: explain() says that.
    if (info.transport == transport && !info.detail.empty()) return info.detail.substr(0, info.detail.find(", GID "));
  }
  return transport;
}

Result<Session> Session::open(Engine engine, const std::string& host_port, Console* console) {
  Result<Peer> peer = engine.connect(host_port);
  if (!peer) return peer.error();
  const Status ready = peer->wait_ready(engine.config().connect_timeout + std::chrono::seconds(1));
  if (!ready.ok()) return unreachable(host_port, ready, "fairlead serve");
  Session session(std::move(engine), *std::move(peer), console);
  console->line(fmt::format("connected to {}: {}", session.peer_.name(), session.peer_.explain()));
  return session;
}

Status Session::take_events(std::chrono::nanoseconds timeout) {
  while (ended_.ok() && messages_.size() < kMaxMessages && message_bytes_ < kMaxMessageBytes) {
    Event event = peer_.next_event(timeout);
    timeout = std::chrono::nanoseconds(0);
    switch (event.kind) {
      case Event::Kind::kNone:
        return ended_;
      case Event::Kind::kMessage:
        message_bytes_ += event.data.size();
        messages_.push_back(std::move(event.data));
        break;
      case Event::Kind::kPathChanged:
        // The library's log has said so already, unless it was told not to.
        if (!log_enabled(LogLevel::kWarning)) console_->line("path changed: " + event.text);
        path_changes_.push_back(std::move(event.text));
        break;
      case Event::Kind::kClosed:
        ended_ = event.status.ok() ? Status(Code::kUnavailable, "the server closed the session")
                                   : Status(event.status.code(), "lost the server: " + event.status.message());
        break;
      case Event::Kind::kConnected:
      case Event::Kind::kNotification:
        break;
    }
  }
  return ended_;
}

Status Session::send(const PushMessage& message) {
  const std::vector<std::byte> bytes = encode(message);
  if (bytes.size() > kMaxPushMessage) {
    return {Code::kOutOfRange,
            fmt::format("message {} has {} bytes; the limit is {}", type_name(message), bytes.size(), kMaxPushMessage)};
  }
  const Transfer sent = peer_.send(bytes);
  return sent.done() ? reason_for(sent.status()) : Status();
}

Status Session::reason_for(Status failure) {
  if (failure.ok()) return failure;
  static_cast<void>(take_events(std::chrono::nanoseconds(0)));
  for (const std::vector<std::byte>& bytes : messages_) {
    const Result<PushMessage> message = decode(bytes);
    if (!message) break;
    if (const auto* refusal = std::get_if<Refusal>(&*message)) return refusal->status;
  }
  return failure;
}

Result<PushMessage> Session::next_message() {
  while (messages_.empty()) {
    const Status status = take_events(std::chrono::seconds(1));
    if (messages_.empty() && !status.ok()) return status;
  }
  const std::vector<std::byte> bytes = std::move(messages_.front());
  messages_.pop_front();
  message_bytes_ -= bytes.size();
  return decode(bytes);
}

Result<std::vector<ModelFile>> Session::expect_files(std::uint64_t count, std::uint64_t tensors) {
  std::vector<ModelFile> files;
  while (files.size() < count) {
    Result<ModelFile> file = expect<ModelFile>();
    if (!file) return file.error();
    if (file->tensors > tensors) break;
    tensors -= file->tensors;
    files.push_back(*std::move(file));
  }
  if (!files.empty() && files.size() == count && tensors == 0) return files;
  return Status(Code::kDataLoss, "the server described files that do not add up to the model");
}

Result<std::vector<TensorEntry>> Session::expect_tensors(std::uint64_t count) {
  std::vector<TensorEntry> entries;
  while (entries.size() < count) {
    Result<TensorBatch> batch = expect<TensorBatch>();
    if (!batch) return batch.error();
    if (batch->entries.empty() || entries.size() + batch->entries.size() > count) {
      return Status(Code::kDataLoss, fmt::format("the server described more or fewer than {} tensors", count));
    }
    std::move(batch->entries.begin(), batch->entries.end(), std::back_inserter(entries));
  }
  return entries;
}

Status Session::finish(const Transfer& transfer, const std::string& name) {
  Transfer waiting = transfer;
  while (true) {
    static_cast<void>(waiting.wait(std::chrono::milliseconds(100)));
    Status session = take_events(std::chrono::nanoseconds(0));
    if (!waiting.done() && session.ok()) continue;
    // A session's end is told behind that of its transfers.
    if (session.ok() && waiting.code() == Code::kPeerDied) session = take_events(std::chrono::seconds(1));
    const Status status = waiting.done() ? waiting.status() : session;
    // A lost session ends every transfer; its own reason says more than theirs.
    if (status.ok() || !session.ok()) return status.ok() ? status : reason_for(session);
    return {status.code(), fmt::format("tensor {}: {}", name, status.message())};
  }
}

Transfer Session::post(Direction direction, const Move& one) {
  if (direction == Direction::kRead) return peer_.read(one.local, one.remote);
  // Over shm the peer's driver copies: it is not to wait for our disk. What is gone, the transfer says.
  (void)prefetch(one.local.bytes().data(), one.local.size(), false);
  return peer_.write(one.local, one.remote, {.notify = one.notify});
}

Result<MoveFigures> Session::move(Direction direction, std::span<const Move> moves,
                                  const std::function<void(const Move&)>& moved) {
  MoveFigures figures;
  std::uint64_t total = 0;
  for (const Move& one : moves) total += one.local.size();
  Progress progress(*console_, total);
  const bench::CpuStopwatch watch;
  std::deque<std::pair<const Move*, Transfer>> in_flight;
  std::uint64_t bytes_in_flight = 0;
  std::size_t next = 0;
  while (next < moves.size() || !in_flight.empty()) {
    const bool room = in_flight.size() < kMaxInFlight && (in_flight.empty() || bytes_in_flight < kMaxBytesInFlight);
    if (next < moves.size() && room) {
      const Move& one = moves[next++];
      in_flight.emplace_back(&one, post(direction, one));
      bytes_in_flight += one.local.size();
      continue;
    }
    const auto& [oldest, transfer] = in_flight.front();
    if (const Status status = finish(transfer, oldest->name); !status.ok()) return status;
    figures.bytes += oldest->local.size();
    bytes_in_flight -= oldest->local.size();
    if (moved) moved(*oldest);
    in_flight.pop_front();
    progress.update(figures.bytes);
  }
  figures.seconds = watch.seconds();
  figures.cpu_seconds = watch.cpu_seconds();
  return figures;
}

void Session::describe(bench::Json::Object& report) const {
  const std::string transport = peer_.transport();
  report.emplace_back("transport", transport);
  report.emplace_back("device", device_of(engine_, transport));
  report.emplace_back("path", peer_.explain());
  report.emplace_back("path_changes", bench::Json::Array(path_changes_.begin(), path_changes_.end()));
}

void Session::close() {
  peer_.close();
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (peer_.state() != PeerState::kClosed && std::chrono::steady_clock::now() < give_up) {
    static_cast<void>(peer_.next_event(std::chrono::milliseconds(20)));
  }
}

}  // namespace fairlead::cli
