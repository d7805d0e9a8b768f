// Copies that go straight from the caller's memory to where the service's executor takes them: by one-sided writes into
// memory of the service's, the session's window, which is asked for with the first large copy. As messages they would
// be copied on the way five times.
//
// The window is divided into slots of a piece each. A slot is free when its command was executed and its write is at
// its end; which is which is the client's affair alone. Who finds none sends a message, so nobody waits for a slot.
// Threads: any.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "datapath/command/codec.h"
#include "fairlead/engine.h"
#include "fairlead/memory.h"
#include "fairlead/peer.h"
#include "fairlead/transfer.h"

namespace fairlead::datapath::command {

class ClientChannel;
class ClientWindow;

/// One copy on its way: the caller's memory until finish().
class Placing {
 public:
  Placing(ClientWindow& window, Memory from) noexcept : window_(window), from_(std::move(from)) {}
  Placing(Placing&&) = default;
  ~Placing() { (void)finish(); }
  /// Writes the bytes of that command, which are of the copy's, and has the service notified. False: nothing was done.
  [[nodiscard]] bool place(const ClientChannel& channel, std::uint64_t sequence, Bytes piece);
  [[nodiscard]] std::span<Transfer> posted() noexcept { return posted_; }
  /// Waits until the caller's memory is its own again. Not ok: not all of it arrived.
  Status finish();

 private:
  ClientWindow& window_;
  const Memory from_;
  std::vector<Transfer> posted_;
};

class ClientWindow {
 public:
  /// What is smaller goes by messages: the caller would wait for longer than it takes to copy that.
  static constexpr std::size_t kLeast = 256 << 10;

  using Read = std::function<Result<Memory>(std::span<const std::byte>)>;
  /// Where memory of the caller's is to be had for transfers, and the size of a slot; without it all goes by messages.
  /// Before the session is used.
  void begin(Read read, const Peer& peer, std::size_t slot_bytes);
  /// The service's answer. False: it makes no sense.
  [[nodiscard]] bool on_opened(Bytes body);
  /// Nothing: the copy goes by messages. The first large one has the service asked for a window.
  [[nodiscard]] std::optional<Placing> place(Bytes from);
  /// What was written is at its end: nothing of it keeps the callers' memory.
  void let_go() noexcept;
  /// One piece of it, which is posted then. False: it was not.
  [[nodiscard]] bool write(const Memory& from, const ClientChannel& channel, std::uint64_t sequence,
                           std::vector<Transfer>& posted);

 private:
  enum class State : std::uint8_t { kNone, kClosed, kAsked, kGiven, kOpen };
  struct Slot {
    const ClientChannel* channel = nullptr;
    std::uint64_t sequence = 0;
    Transfer written;
  };
  [[nodiscard]] bool open();
  /// Under mutex_: the number of one that is free; of as many as there are: none is.
  [[nodiscard]] std::size_t free_slot() const noexcept;

  Read read_;
  std::size_t slot_bytes_ = 0;
  std::atomic<State> state_{State::kNone};
  std::mutex mutex_;  // guards what follows
  Peer peer_;
  std::uint64_t bytes_ = 0;
  std::string capability_;
  RemoteMemory memory_;
  std::vector<Slot> slots_;
};

}  // namespace fairlead::datapath::command
