// One principal's domain at one device: which ranges are registered there, which publications are granted, and the
// bytes that prove a path of it.
//
// What it is to know is entered at once; the domain is told by open(), which may take as long as to pin all of that,
// and from then on with each entry, as devices.h has it. What it does not know yet it has no key for: such data goes by
// message. A domain that refuses an entry goes without it, with a line in the log, and by message in its place.
//
// Locks: its own, for a few instructions; none while the domain is called. Threads: any.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "datapath/region/devices.h"
#include "datapath/region/probe.h"
#include "fairlead/status.h"
#include "transport/device.h"
#include "transport/path.h"

namespace fairlead::datapath {

class DomainBook {
 public:
  /// A new domain of the device, which outlives it, or shut(). Errors: the device's.
  static Result<std::shared_ptr<DomainBook>> make(Device& device);
  ~DomainBook();
  DomainBook(const DomainBook&) = delete;
  DomainBook& operator=(const DomainBook&) = delete;

  [[nodiscard]] MemoryDomain& domain() noexcept { return *domain_; }
  /// Until shut().
  [[nodiscard]] Probe& probe() noexcept { return *probe_; }

  enum class Kind : bool { kRange, kGrant };
  /// `thing` is to be known, and names it: a range or a publication. It stays until removed, or shut().
  void add(const void* thing, const MemoryDescriptor& memory, Kind kind);
  /// When it returns nobody reaches it by this domain. One that is not there is none.
  void remove(const void* thing) noexcept;
  /// Tells the domain all that was entered; once.
  void open();
  /// Takes all back, and lets the domain go. No path of it is left.
  void shut() noexcept;

  /// Of a range: LocalSegment::key. Nothing: it is not registered there.
  [[nodiscard]] std::optional<std::uint64_t> local_key(const void* range) const noexcept;
  /// Of a publication. Key 0: it is not granted there.
  [[nodiscard]] Grant grant_of(const void* publication) const noexcept;

 private:
  /// A range or a grant, and what the domain gave for it.
  class Entry final : public Devices::Entry {
   public:
    Entry(std::mutex& book, const MemoryDescriptor& memory, Kind kind) : book_(book), memory_(memory), kind_(kind) {}
    Status introduce(MemoryDomain& domain) override;
    void withdraw(MemoryDomain& domain) noexcept override;

    // Under the book's lock.
    [[nodiscard]] const std::optional<Registration>& registration() const noexcept { return registration_; }
    [[nodiscard]] const std::optional<Grant>& grant() const noexcept { return grant_; }
    Devices::Ticket ticket = 0;

   private:
    std::mutex& book_;
    const MemoryDescriptor memory_;
    const Kind kind_;
    std::optional<Registration> registration_;
    std::optional<Grant> grant_;
  };

  explicit DomainBook(std::unique_ptr<MemoryDomain> domain) noexcept : domain_(std::move(domain)) {}

  std::unique_ptr<MemoryDomain> domain_;
  std::unique_ptr<Probe> probe_;
  Devices told_;
  mutable std::mutex mutex_;  // guards what follows, and what entries hold
  std::unordered_map<const void*, std::unique_ptr<Entry>> entries_;
};

}  // namespace fairlead::datapath
