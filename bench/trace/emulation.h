// What emulator.cc simulates with: the program and its client (emulator.cc), the service and its device
// (emulated_service.cc), and the link between them. Times in ns, sizes in bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "bench/trace/emulator.h"

namespace fairlead::bench::emulation {

// Of the wire (datapath/command/wire.h), bytes.
inline constexpr std::uint64_t kMessageHeader = 16, kRecordHeader = 8, kReplyBody = 24, kDataItem = 16;
inline constexpr std::uint64_t kLaunchBody = 40, kCopyBody = 24, kFenceBody = 16;
inline constexpr std::uint64_t kMaxInline = 1024, kMaxPayload = 128 << 10, kShortCopy = 16 << 10, kReplyBytes = 3584;
// Of the client and the service, as they are unless they are told otherwise.
inline constexpr std::uint64_t kFlushBytes = 4000, kFlushCommands = 64, kCredits = 2048;
inline constexpr std::uint64_t kPayloadCredit = std::uint64_t{8} << 20;
inline constexpr double kFlushAfter = 20'000, kOldestUnsaid = 50'000;  // ns
inline constexpr std::uint64_t kCommandsPerReply = 64;

[[nodiscard]] constexpr std::uint64_t padded(std::uint64_t bytes) { return (bytes + 7) / 8 * 8; }

struct Command {
  TraceOp op = TraceOp::kLaunch;
  double takes_ns = 0;  // at the device
  std::uint64_t sequence = 0;
  std::uint64_t payload = 0;  // bytes that cross beside it as bulk, there
  std::uint64_t result = 0;   // bytes that it copies out
  std::uint8_t on = 0;        // of a fence: the stream,
  std::uint64_t mark = 0;     // and what it waits for there
};

struct Stream {
  // The client's.
  std::vector<Command> buffer;
  std::uint64_t buffer_bytes = 0, buffer_number = 0;
  std::uint64_t appended = 0, known_executed = 0, mark = 0;
  std::uint64_t payload_under_way = 0;
  std::deque<std::pair<std::uint64_t, std::uint64_t>> payloads;  // sequence, bytes: not known to be executed
  std::deque<std::uint64_t> results;                             // sequences of copies whose bytes are not here
  // The service's.
  struct Arrived {
    Command command;
    std::uint64_t order;  // over all streams
  };
  std::deque<Arrived> queue;
  std::uint64_t executed = 0, payload_arrived = 0;  // the last command whose payload is there
  std::uint64_t unsaid = 0, unsaid_bytes = 0;
  std::vector<std::uint64_t> unsaid_results;  // whose bytes go along with the reply
  double oldest_unsaid = 0;
};

enum class Kind : std::uint8_t { kProgram, kTimer, kCommands, kPayload, kDevice, kReply, kResult };

struct Event {
  double at = 0;
  std::uint64_t order = 0;
  Kind kind = Kind::kProgram;
  std::uint8_t stream = 0;
  std::uint64_t value = 0;  // of a timer: the buffer; else a sequence
  std::uint64_t batch = 0;  // of commands: where they lie
  bool operator>(const Event& other) const { return std::pair(at, order) > std::pair(other.at, other.order); }
};

/// One direction of the link. Bulk gives way to commands, and pays for them.
class Wire {
 public:
  explicit Wire(const TraceLink& link)
      : half_(link.rtt_ns / 2), ns_per_byte_(link.bits_per_second > 0 ? 8e9 / link.bits_per_second : 0) {}
  /// When the last byte is there.
  double send(double now, std::uint64_t bytes, bool bulk) {
    const double takes = static_cast<double>(bytes) * ns_per_byte_;
    double& free = bulk ? bulk_free_ : commands_free_;
    free = std::max(free, now) + takes;
    if (!bulk) bulk_free_ = std::max(bulk_free_, now) + takes;
    return free + half_;
  }

 private:
  double half_, ns_per_byte_;
  double commands_free_ = 0, bulk_free_ = 0;
};

class Emulation {
 public:
  Emulation(const Trace& trace, const TraceLink& link, const EmulatedDevice& device, bool local)
      : trace_(trace),
        local_(local),
        copy_ns_per_byte_(8e9 / device.copy_bits_per_second),
        there_(link),
        back_(link),
        streams_(totals_of(trace).streams) {}
  EmulatedStep run();

 private:
  void at(double when, Kind kind, std::uint8_t stream = 0, std::uint64_t value = 0, std::uint64_t batch = 0);
  void handle(const Event& event);

  // The program and the client.
  [[nodiscard]] bool is_complete(const Stream& stream, std::uint64_t sequence) const;
  void wake();
  /// Goes on from where the program stands, until it computes or waits.
  void program();
  void wait(std::function<bool()> condition);
  /// Bytes of the next command of this call, which may be the last of several.
  [[nodiscard]] std::uint64_t piece(const TraceRecord& record) const;
  [[nodiscard]] bool has_room(const TraceRecord& record) const;
  /// Appends what the call is made of. False: there is no room for all of it yet.
  bool call(const TraceRecord& record);
  void append(const TraceRecord& record, std::uint64_t bytes);
  void flush(std::uint8_t number);

  // The service and its device.
  [[nodiscard]] bool can_run(const Stream& stream) const;
  void work();
  /// The first command of the stream is done.
  void executed(std::uint8_t number);
  void reply(std::uint8_t number);

  const Trace& trace_;
  const bool local_;
  const double copy_ns_per_byte_;
  Wire there_, back_;
  std::vector<Stream> streams_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<std::vector<Command>> batches_;  // that are, or were, on their way
  std::uint64_t order_ = 0, arrivals_ = 0;
  double now_ = 0;
  EmulatedStep step_;

  // Of the program.
  enum class Part : std::uint8_t { kGap, kCall, kWait } part_ = Part::kGap;  // of the call at place_
  std::size_t place_ = 0;
  std::uint64_t copied_ = 0;  // of a copy that is several commands
  bool waiting_ = false, is_over_ = false;
  std::function<bool()> can_go_on_;
  double waits_since_ = 0;

  bool busy_ = false;  // the device
};

}  // namespace fairlead::bench::emulation
