// Any bytes as what a client says once it was greeted, and as what a service says: what is read is written the same
// again, and the session of the service runs it or ends, with the host for its device, and with a device that works by
// itself.
//
// An input is messages: each two bytes of length (little-endian), whose top bit says bulk, and so many bytes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "datapath/command/codec.h"
#include "datapath/command/server_session.h"
#include "fairlead/command_service.h"
#include "fairlead/host_executor.h"
#include "fairlead/peer.h"

namespace {

using namespace fairlead::datapath::command;  // NOLINT(google-build-using-namespace): a program of one file
using fairlead::TrafficClass;

/// Replies must be such as a client reads.
class Reader final : public Outlet {
 public:
  void send(TrafficClass, Bytes message) override {
    Bytes body = message;
    const auto header = take<MessageHeader>(body);
    if (!header) std::abort();
    if (header->type == static_cast<std::uint8_t>(MessageType::kReply) && !read_reply(*header, body)) std::abort();
    if (header->type == static_cast<std::uint8_t>(MessageType::kWanted) && !take<WantedBody>(body)) std::abort();
  }
  [[nodiscard]] std::uint64_t untaken() override { return 0; }
};

/// The host, as if it worked by itself: what is handed over is complete when its channel was looked at twice, and bytes
/// go out then. It takes modules, puts some copies off, and loses all at the user's command 0x8002.
class Late final : public fairlead::command::Executor {
 public:
  using Outcome = fairlead::command::Outcome;
  using Handle = fairlead::command::Handle;
  explicit Late(std::unique_ptr<fairlead::command::Executor> host) : host_(std::move(host)) {}

  [[nodiscard]] fairlead::command::ExecutorLimits limits() const override {
    fairlead::command::ExecutorLimits limits = host_->limits();
    limits.modules = 4;
    return limits;
  }
  Outcome allocate(Handle h, std::uint64_t n) override { return host_->allocate(h, n); }
  Outcome release(Handle h) override { return host_->release(h); }
  Outcome fill(Handle h, std::uint64_t at, std::uint64_t n, std::uint8_t v) override {
    return host_->fill(h, at, n, v);
  }
  Outcome copy_in(Handle h, std::uint64_t at, Bytes from) override {
    return is_put_off() ? put_off() : host_->copy_in(h, at, from);
  }
  Outcome copy_out(std::span<std::byte> to, Handle h, std::uint64_t at) override {
    if (is_put_off()) return put_off();
    std::vector<std::byte> bytes(to.size());
    Outcome outcome = host_->copy_out(bytes, h, at);
    if (outcome.ok()) out_[place_.channel].push_back({place_.sequence, to, std::move(bytes)});
    return outcome;
  }
  Outcome copy_within(Handle a, std::uint64_t i, Handle b, std::uint64_t j, std::uint64_t n) override {
    return host_->copy_within(a, i, b, j, n);
  }
  Outcome load(Handle h, std::string_view name) override { return host_->load(h, name); }
  Outcome launch(const fairlead::command::Launch& l, Bytes p) override { return host_->launch(l, p); }
  Outcome user(std::uint16_t opcode, Bytes b) override {
    lost_ |= opcode == 0x8002;
    return opcode == 0x8002 ? Outcome() : host_->user(opcode, b);
  }
  [[nodiscard]] bool is_short(Handle h) const noexcept override { return host_->is_short(h); }
  Outcome load_module(Handle, Bytes image) override {
    if (image.empty() || *(image.data() + image.size()) != std::byte{0}) std::abort();
    return {};
  }
  Outcome load_from(Handle, Handle, std::string_view,
                    std::span<const fairlead::command::Parameter> parameters) override {
    if (parameters.size() > kMaxLayout) std::abort();
    return {};
  }
  fairlead::Result<fairlead::command::AddressRange> reserve(std::uint64_t bytes, std::uint64_t wish) override {
    return host_->reserve(bytes, wish);
  }
  Outcome allocate_at(Handle h, std::uint64_t at, std::uint64_t n) override { return host_->allocate_at(h, at, n); }
  Outcome make_graph(Handle h, std::span<const fairlead::command::GraphCommand> commands,
                     std::uint64_t bytes) override {
    if (commands.empty() || bytes < sizeof(RecordHeader) * commands.size()) std::abort();
    return host_->make_graph(h, commands, bytes);
  }
  Outcome launch_graph(Handle h) override { return host_->launch_graph(h); }
  Outcome release_graph(Handle h) override { return host_->release_graph(h); }
  [[nodiscard]] bool is_asynchronous() const noexcept override { return true; }
  void begin(const fairlead::command::Place& place) noexcept override {
    begun_[place.channel] = (place_ = place).sequence;
  }
  Outcome fence(const fairlead::command::Place& mark) override {
    if (mark.sequence > begun_[mark.channel] && mark.channel == place_.channel) std::abort();
    return {};
  }
  fairlead::command::Progress progress(std::uint32_t channel) override {
    if (lost_) return {complete_[channel], {fairlead::command::kLaunchFailed, fairlead::command::Scope::kContext, "x"}};
    complete_[channel] = std::exchange(looked_at_[channel], begun_[channel]);
    for (auto& out = out_[channel]; !out.empty() && out.front().sequence <= complete_[channel]; out.pop_front()) {
      if (!out.front().bytes.empty())
        std::memcpy(out.front().to.data(), out.front().bytes.data(), out.front().bytes.size());
    }
    return {complete_[channel], {}};
  }

 private:
  struct Out {
    std::uint64_t sequence = 0;
    std::span<std::byte> to;
    std::vector<std::byte> bytes;
  };
  bool is_put_off() { return ++copies_ % 3 == 0; }
  Outcome put_off() {
    --begun_[place_.channel];
    return {fairlead::command::kNotReady, fairlead::command::Scope::kCommand, "not now"};
  }

  std::unique_ptr<fairlead::command::Executor> host_;
  fairlead::command::Place place_;
  std::map<std::uint32_t, std::uint64_t> begun_, looked_at_, complete_;
  std::map<std::uint32_t, std::deque<Out>> out_;
  std::size_t copies_ = 0;
  bool lost_ = false;
};

void read_as_reply(const MessageHeader& header, Bytes body, Bytes whole) {
  const std::optional<Reply> reply = read_reply(header, body);
  if (!reply || header.type != static_cast<std::uint8_t>(MessageType::kReply) || header.flags != 0) return;
  if (reply->failure && reply->failure->text.size() > kMaxText) return;
  const std::vector<std::byte> again = reply_message(header.channel, *reply);
  // Padding is whatever the sender had there.
  if (again.size() != whole.size() || std::memcmp(again.data(), whole.data(), sizeof(MessageHeader)) != 0) std::abort();
  Bytes data = reply->data;
  while (take_data(data)) {
  }
}

void run(bool late, const std::uint8_t* data, std::size_t size) {
  static const fairlead::command::ExecutorFactory executors = [] {
    fairlead::command::HostExecutorConfig config;
    config.memory_bytes = 1 << 16;  // so that no kernel takes long
    return fairlead::command::host_executors(std::move(config));
  }();
  Reader reader;
  using Made = fairlead::Result<std::unique_ptr<fairlead::command::Executor>>;
  ServerSession session(reader, {}, [late](std::uint32_t) -> Made {
    Made host = executors(fairlead::Peer());
    if (!late || !host) return host;
    return std::unique_ptr<fairlead::command::Executor>(std::make_unique<Late>(*std::move(host)));
  });
  // Where inputs of the corpus place what they have.
  constexpr HelloMore kRange{1 << 16, std::uint64_t{0x2000} << 32};
  session.take(hello_message({.payload_bytes = kMaxPayload}, kRange), TrafficClass::kCommands);
  if (!session.is_welcome()) std::abort();
  // The client writes there what it sends, too.
  std::vector<std::byte> window(1 << 12);
  session.take_window(window, "its capability");
  while (size >= 2) {
    const std::size_t said = data[0] | (data[1] & 0x7fu) << 8;
    const TrafficClass traffic = (data[1] & 0x80) != 0 ? TrafficClass::kBulk : TrafficClass::kCommands;
    const std::size_t length = said < size - 2 ? said : size - 2;
    const Bytes message(reinterpret_cast<const std::byte*>(data + 2), length);
    Bytes body = message;
    if (const auto header = take<MessageHeader>(body)) {
      read_as_reply(*header, body, message);
      (void)refusal_in(body);
    }
    std::ranges::copy(message.first(std::min(message.size(), window.size())), window.begin());
    session.take({message.begin(), message.end()}, traffic);
    for (int turns = 0; turns < 100 && (session.run() || session.is_pending()); ++turns) {
    }
    data += 2 + length;
    size -= 2 + length;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  run(false, data, size);
  run(true, data, size);
  return 0;
}
