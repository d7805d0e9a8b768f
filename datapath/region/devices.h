// The devices of an engine, and what each of them is to know: every range and every publication.
//
// Devices come one by one, also while memory is registered and published, and then learn what is there already. All
// calls to them, which map and pin memory and may take seconds, are made outside of every lock: an entry that comes
// goes from device to device until none is left, and only then into the table; a device that comes goes from entry to
// entry, and only then into the list. Who takes an entry away waits for the one call that a device which comes has
// under way for it.
//
// Locks: `mutex_`, for a few instructions, taken by everybody; `calling_`, shared by who calls devices, alone by who
// ends that. The latter is taken alone only to shut down, or when a device could not be attached. Threads: add
// and remove from any thread; attach and detach_all from one at a time.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "fairlead/status.h"
#include "transport/memory_domain.h"

namespace fairlead::datapath {

class Devices {
 public:
  /// What every device is to know. Of one entry, one call at a time.
  class Entry {
   public:
    virtual ~Entry() = default;
    /// Tells the next device; they come in the order of their numbers, from 0.
    virtual Status introduce(MemoryDomain& device) = 0;
    /// Undoes the last introduce().
    virtual void withdraw(MemoryDomain& device) noexcept = 0;
  };
  using Ticket = std::uint64_t;

  /// Tells all devices. Those that come later are told until remove(). Errors: the device's, with its name; then no
  /// device knows the entry.
  Result<Ticket> add(Entry& entry);
  /// No device knows the entry any more. False: none did, since detach_all().
  bool remove(Ticket ticket) noexcept;

  /// The next number, from 0, is this device's: it is told all entries. Errors: its own; then it knows none.
  Status attach(MemoryDomain& device);
  /// Takes all entries back from all devices, and forgets both. Waits for calls that are under way.
  void detach_all() noexcept;

 private:
  struct Slot {
    Entry* entry = nullptr;
    std::size_t known = 0;  // to so many devices
    bool busy = false;      // attach() is at it
  };
  using Entries = std::map<Ticket, Slot>;  // in the order of coming: ranges before what is published of them

  [[nodiscard]] MemoryDomain& device(std::size_t number);
  void withdraw(Entry& entry, std::size_t known) noexcept;
  /// attach: the next entry behind `after` is ours until let_go(); null at the end, when `device` joins the list.
  Entry* take_next(Ticket& after, MemoryDomain& device);
  void let_go(Ticket ticket, std::size_t known);

  std::shared_mutex calling_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable let_go_;
  std::vector<MemoryDomain*> devices_;
  MemoryDomain* coming_ = nullptr;  // attach() is telling it
  Entries entries_;
  Ticket last_ticket_ = 0;
};

}  // namespace fairlead::datapath
