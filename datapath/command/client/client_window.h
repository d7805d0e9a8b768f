// Copies that go straight from the caller's memory to where the service's executor takes them, and back: by one-sided
// writes into memory of the service's, the session's window, and reads from there. It is asked for with the first large
// copy. As messages they would be copied on the way five times.
//
// The window is divided into slots; a piece of a copy takes some that follow each other. A slot is free when its
// command was executed and its write, or read, is at its end; which is which is the client's affair alone. Who finds
// none takes a message instead, so nobody waits for one for long.
// Threads: any.
#pragma once

#include <atomic>
#include <chrono>
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

/// Some that follow each other.
struct Slots {
  std::size_t first = 0, count = 0;
};

/// One copy on its way: the caller's memory until finish().
class Placing {
 public:
  Placing(ClientWindow& window, Memory from) noexcept;
  Placing(Placing&&) = default;
  ~Placing() { (void)finish(); }
  /// How much of it goes by one command: less of a small copy, so that its parts are under way together.
  [[nodiscard]] std::size_t piece_bytes() const noexcept { return piece_bytes_; }
  /// For how many of so many bytes, at most a piece, there is room, which is the next command's then.
  [[nodiscard]] std::size_t take(std::size_t bytes);
  /// Writes the bytes of that command there, which are of the copy's, and has the service notified. False: nothing was
  /// done, and they may be sent instead. What is too large for that is the copy's end, as finish() says.
  [[nodiscard]] bool place(const ClientChannel& channel, std::uint64_t sequence, Bytes piece);
  /// What could not be written is not sent either.
  [[nodiscard]] bool has_failed() const noexcept { return !failed_.ok(); }
  [[nodiscard]] std::span<Transfer> posted() noexcept { return posted_; }
  /// Waits until the caller's memory is its own again. Not ok: not all of it arrived.
  Status finish();

 private:
  ClientWindow& window_;
  const Memory from_;
  const std::size_t piece_bytes_;
  Slots taken_;
  std::vector<Transfer> posted_;
  Status failed_;
};

class ClientWindow {
 public:
  /// What is smaller goes by messages: the caller would wait for longer than it takes to copy that.
  static constexpr std::size_t kLeast = 256 << 10;
  using Clock = std::chrono::steady_clock;

  using Read = std::function<Result<Memory>(std::span<const std::byte>)>;
  using Write = std::function<Result<Memory>(std::span<std::byte>)>;
  /// Where memory of the caller's is to be had for transfers, and what the session may; without it all goes by
  /// messages. Before the session is used.
  void begin(Read read, Write write, const Peer& peer, const fairlead::command::Limits& limits);
  /// The service's answer. False: it makes no sense.
  [[nodiscard]] bool on_opened(const MessageHeader& header, Bytes body);
  /// Nothing: the copy goes by messages. The first large one has the service asked for a window.
  [[nodiscard]] std::optional<Placing> place(Bytes from);
  /// The memory of a copy out that is to be read from the window; nothing: it comes by messages.
  [[nodiscard]] std::optional<Memory> fetch(std::span<std::byte> to);
  /// The device is to copy so much of it there, by that command.
  void expect(Memory to, Slots from, ClientChannel& channel, std::uint64_t sequence);
  /// It has.
  void is_there(Slots from);
  /// Whether some is there that was not collected. Any thread, without a lock.
  [[nodiscard]] bool is_fetching() const noexcept { return fetching_.load(std::memory_order_acquire); }
  /// Reads what is there, and tells channels what has come. By who reads for the session. Not ok: some cannot be had.
  Status collect();
  /// All reads are at their end when it returns, and nothing keeps memory of copies out. By who reads for the session,
  /// which collects no more.
  void stop() noexcept;
  /// What was written is at its end: nothing of it keeps the callers' memory.
  void let_go() noexcept;
  /// Of a copy of so many bytes, what goes by one command.
  [[nodiscard]] std::size_t piece_of(std::size_t bytes) const noexcept;
  /// For so many bytes, or as many of them as there is room for; of none there are none.
  [[nodiscard]] Slots take_slots(std::size_t bytes);
  [[nodiscard]] bool has_slot();
  /// Whether it is worth to wait for one: nobody has done so in vain, as stands() says, for a second.
  [[nodiscard]] bool moves(Clock::time_point now) const noexcept {
    return now.time_since_epoch().count() >= stands_until_.load(std::memory_order_relaxed);
  }
  void stands(Clock::time_point now) noexcept;
  /// They were taken, and nothing goes there, or is read from there.
  void give(Slots slots) noexcept;
  /// One piece of a copy to where it was given room, which is posted then. Not ok: it was not, and the room is given
  /// back.
  [[nodiscard]] Status write(const Memory& from, Slots to, const ClientChannel& channel, std::uint64_t sequence,
                             std::vector<Transfer>& posted);
  [[nodiscard]] std::size_t slot_bytes() const noexcept { return slot_bytes_; }
  [[nodiscard]] std::size_t bytes_of(Slots slots) const noexcept { return slots.count * slot_bytes_; }
  /// In the window.
  [[nodiscard]] std::size_t offset_of(Slots slots) const noexcept { return slots.first * slot_bytes_; }

 private:
  enum class State : std::uint8_t { kNone, kClosed, kAsked, kGiven, kOpen };
  struct Slot {
    const ClientChannel* channel = nullptr;
    std::uint64_t sequence = 0;
    Transfer written;
    bool is_taken = false;  // by who has yet to write, or to read
    [[nodiscard]] bool is_free() const noexcept;
  };
  struct Fetch {
    Memory to;
    Slots from;
    ClientChannel* channel = nullptr;
    std::uint64_t sequence = 0;
    bool is_there = false;
    Transfer read{};
  };
  [[nodiscard]] bool open();
  [[nodiscard]] bool takes(std::size_t bytes);
  [[nodiscard]] Slots free_slots(std::size_t bytes) const noexcept;
  void occupy(Slots slots, const Slot& slot) noexcept;

  Read read_;
  Write write_;
  std::size_t slot_bytes_ = 0, most_bytes_ = 0;
  std::atomic<State> state_{State::kNone};
  std::atomic<bool> fetching_{false};
  std::atomic<Clock::rep> stands_until_{0};
  std::mutex mutex_;  // guards what follows
  Peer peer_;
  std::uint64_t bytes_ = 0;
  bool is_for_reads_ = false;  // alone
  std::string capability_;
  RemoteMemory memory_;
  std::vector<Slot> slots_;

  std::mutex fetches_mutex_;  // guards
  std::vector<Fetch> fetches_;
};

}  // namespace fairlead::datapath::command
