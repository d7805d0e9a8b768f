// Any bytes as what a client says once it was greeted, and as what a service says: what is read is written the same
// again, and the session of the service runs it or ends, with the host for its device.
//
// An input is messages: each two bytes of length (little-endian), whose top bit says bulk, and so many bytes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
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
  }
  [[nodiscard]] std::uint64_t untaken() override { return 0; }
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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fairlead::command::ExecutorFactory executors = [] {
    fairlead::command::HostExecutorConfig config;
    config.memory_bytes = 1 << 16;  // so that no kernel takes long
    return fairlead::command::host_executors(std::move(config));
  }();
  Reader reader;
  ServerSession session(reader, {}, [] { return executors(fairlead::Peer()); });
  session.take(hello_message({.payload_bytes = kMaxPayload}), TrafficClass::kCommands);
  if (!session.is_welcome()) std::abort();
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
    session.take({message.begin(), message.end()}, traffic);
    for (int turns = 0; turns < 100 && session.run(); ++turns) {
    }
    data += 2 + length;
    size -= 2 + length;
  }
  return 0;
}
