// A channel at the client: the buffer that commands are written into, credits, and how far the server got.
//
// Threads: any. What appends write is under lock_; how far the channel got is atomic, written by whoever reads the
// session's replies. A lock is never held while waiting, or while the session's is taken; the window's is
// taken behind it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/spin_lock.h"
#include "datapath/command/bodies.h"
#include "datapath/command/client/client_window.h"
#include "datapath/command/codec.h"
#include "datapath/command/resume/kept_batches.h"
#include "datapath/command/wire.h"
#include "fairlead/command.h"
#include "fairlead/peer.h"

namespace fairlead::datapath::command {

class ClientSession;

/// In words.
[[nodiscard]] std::string describe(const fairlead::command::Failure& failure, std::uint16_t channel);

class ClientChannel : public fairlead::command::ChannelBody {
 public:
  using Clock = std::chrono::steady_clock;

  /// `peer`: of the session's now. `max_message_bytes`: of its engine.
  ClientChannel(ClientSession& session, std::uint16_t number, Peer peer, std::size_t max_message_bytes,
                const fairlead::command::ChannelOptions& options = {});

  [[nodiscard]] std::uint16_t number() const noexcept { return number_; }
  [[nodiscard]] const fairlead::command::ChannelOptions& options() const noexcept { return options_; }
  /// Of its device.
  [[nodiscard]] const fairlead::command::Limits& limits() const noexcept;
  /// Of the session's channels, by priority; the session sets it.
  [[nodiscard]] ClientChannel* next() const noexcept { return next_.load(std::memory_order_acquire); }
  [[nodiscard]] std::atomic<ClientChannel*>& next_in_order() noexcept { return next_; }
  [[nodiscard]] ClientSession& session() const noexcept { return session_; }

  /// What is to be appended: a body of a fixed size, and bytes behind it.
  struct Command {
    std::uint16_t opcode = 0;
    std::uint16_t flags = 0;
    Bytes body, tail;
  };
  /// `behind`: the piece before it, of what is one to the caller; 0: it is the first. Where that one is known not to
  /// have run this is none, also once the channel has recovered: kAborted.
  Result<std::uint64_t> append(const Command& command, std::uint64_t behind = 0);
  Result<std::uint64_t> launch(const fairlead::command::Launch& launch, Bytes parameters);
  /// Of the bytes that go with it, up to a piece of a copy: if they are few they are its tail, else payload. Payloads
  /// are sent in the order of their records, beside them.
  /// `more`: of the same copy comes at once.
  Result<std::uint64_t> append_with_bytes(Command command, Bytes from, std::uint64_t behind = 0, bool more = false);
  /// From `from`, in pieces; the last one's sequence.
  Result<std::uint64_t> copy_in(fairlead::command::Handle to, std::uint64_t offset, Bytes from);
  /// To `to`, in the same way.
  Result<std::uint64_t> copy_out(std::span<std::byte> to, fairlead::command::Handle from, std::uint64_t offset);
  /// The image is kept until the command is executed: the server may ask for it.
  Result<std::uint64_t> load_module(const ModuleBody& body, Bytes image);
  Status recover();

  void flush() noexcept;
  struct Due {
    bool was_sent = false;
    std::optional<Clock::duration> left;  // until it is; nothing: the buffer is empty
  };
  /// Sends the buffer if its first command is that old.
  [[nodiscard]] Due flush_if_due(Clock::time_point now, Clock::duration age) noexcept;

  [[nodiscard]] std::uint64_t last() const noexcept { return last_.load(std::memory_order_acquire); }
  [[nodiscard]] std::uint64_t reached(fairlead::command::Stage stage) const noexcept;
  [[nodiscard]] std::optional<fairlead::command::Failure> failure() const;
  /// Whether waiting for that command is over.
  [[nodiscard]] bool is_settled(std::uint64_t sequence, fairlead::command::Stage stage) const noexcept;
  /// ok, or the failure that it is, or was passed over for.
  [[nodiscard]] Status verdict(std::uint64_t sequence) const;

  // Who reads the session's messages. False: the server broke the protocol.
  [[nodiscard]] bool on_reply(const Reply& reply);
  [[nodiscard]] bool on_result(std::uint64_t sequence, Bytes bytes);
  [[nodiscard]] bool on_wanted(std::uint64_t sequence, const WantedBody& wanted);

  // The same, of a session that outlives its peers.
  /// What is here of what the service said.
  [[nodiscard]] HeardBody heard() const;
  /// From now on the service is heard over this peer; what it has not is said again. False: it cannot have that.
  [[nodiscard]] bool resume(const Peer& peer, const KeptBody& has);

 private:
  static constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();

  struct Output {
    std::uint64_t sequence = 0;
    std::span<std::byte> to;
    bool done = false;
    Slots slots{};  // of the window, which it is read from; none: a message brings it
  };
  struct Input {
    std::uint64_t sequence = 0;
    std::uint64_t bytes = 0;
    std::shared_ptr<const std::vector<std::byte>> message;  // in a session that outlives its peers
  };
  struct ModuleImage {
    std::uint64_t sequence = 0;
    std::vector<std::byte> bytes;
  };
  struct Piece {
    std::uint64_t sequence = 0;
    std::size_t bytes = 0;
  };
  /// The first of these bytes, which go by messages, or by the session's window if there is room. `behind`: as
  /// append().
  Result<Piece> copy_piece(fairlead::command::Handle to, std::uint64_t offset, Bytes from, std::uint64_t behind);
  /// The first of them out of the device; `memory`: of the whole copy, if the session's window is to be read.
  Result<Piece> copy_piece_out(std::span<std::byte> to, CopyBody from, const Memory* memory, std::size_t most,
                               std::uint64_t behind);
  Result<Piece> place_piece(fairlead::command::Handle to, std::uint64_t offset, Bytes from, Placing& placing,
                            std::uint64_t behind);
  /// Under lock_, with room for one more command and `payload` bytes; else why there is none.
  template <typename Write>
  Result<std::uint64_t> with_room(std::uint64_t payload, std::uint64_t behind, Write write);
  /// Under lock_. Null: it ran, or may yet.
  [[nodiscard]] const fairlead::command::Failure* passed_over(std::uint64_t sequence) const noexcept;
  enum class Room : std::uint8_t { kYes, kNo, kFailed };
  [[nodiscard]] inline Room room(std::uint64_t payload) const noexcept;
  [[nodiscard]] std::uint64_t under_way() const noexcept {
    return last_.load(std::memory_order_relaxed) - executed_.load(std::memory_order_acquire);
  }
  [[nodiscard]] bool has_failed() const noexcept { return failed_.load(std::memory_order_relaxed) != kNone; }
  [[nodiscard]] Status failed_status() const;
  // Under lock_, one after the other: the buffer's next `length` bytes, which begin with the record's header; they are
  // written, and the sequence.
  [[nodiscard]] inline std::byte* next_record(std::uint16_t opcode, std::uint16_t flags, std::size_t length);
  inline std::uint64_t written(std::size_t length);
  std::uint64_t write(const Command& command);
  std::uint64_t add_input(std::size_t bytes, std::shared_ptr<const std::vector<std::byte>> message);
  [[nodiscard]] inline bool is_full(std::size_t bytes) const noexcept;
  void flush_locked() noexcept;
  /// Of its priority and device, before its first commands.
  void tell() noexcept;
  void post(std::uint64_t sequence, Bytes payload) noexcept;
  [[nodiscard]] bool place(std::uint64_t sequence, Bytes bytes);
  void let_go_of_outputs() noexcept;

  ClientSession& session_;
  const std::uint16_t number_;
  const fairlead::command::ChannelOptions options_;
  std::atomic<ClientChannel*> next_{nullptr};
  const std::size_t most_bytes_;  // in a buffer

  std::mutex paying_;  // taken before lock_; guards
  std::vector<std::byte> payload_;
  std::mutex posting_;        // taken before lock_, never while waiting; guards
  std::uint64_t posted_ = 0;  // the last payload that was sent
  mutable SpinLock lock_;     // guards what follows
  Peer to_;                   // written under posting_, too
  bool told_ = false;         // the service was, of these
  bool said_again_ = false;   // the session went on over another peer: results may come twice
  KeptBatches kept_;
  struct {
    std::uint64_t sequence = 0;
    fairlead::command::Scope scope = fairlead::command::Scope::kCommand;
  } told_of_;  // the last failure that came
  std::vector<std::byte> buffer_;
  std::size_t used_ = 0;
  std::uint32_t buffered_ = 0;  // commands
  std::uint64_t sent_ = 0;      // buffers
  Clock::time_point since_{};   // that the first of them waits, if age counts
  std::deque<Input> inputs_;    // payload that is on its way
  std::deque<Output> outputs_;
  std::uint64_t heard_ = 0;         // up to which command all that is copied out is here
  std::deque<ModuleImage> images_;  // of modules that are not loaded yet
  std::optional<fairlead::command::Failure> failure_;
  struct Gap {
    fairlead::command::Failure why;
    std::uint64_t end = 0;
  };
  std::deque<Gap> gaps_;  // the latest commands that were passed over

  std::atomic<std::uint64_t> last_{0};
  std::atomic<std::uint64_t> input_bytes_{0};  // of inputs_
  alignas(64) std::atomic<std::uint64_t> accepted_{0};
  std::atomic<std::uint64_t> executed_{0};
  std::atomic<std::uint64_t> complete_{0};
  std::atomic<std::uint64_t> output_{kNone};  // the first command whose bytes are not here
  std::atomic<std::uint64_t> failed_{kNone};  // the first that failed
};

}  // namespace fairlead::datapath::command
