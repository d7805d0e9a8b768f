#include "datapath/region/domain_book.h"

#include <fmt/format.h>

#include <cassert>
#include <utility>

#include "fairlead/log.h"

namespace fairlead::datapath {

// ---- entries

/// What is refused is done without: the rest goes on, so it is no error.
Status DomainBook::Entry::introduce(MemoryDomain& domain) {
  std::optional<Registration> registration;
  std::optional<Grant> grant;
  Status refused;
  if (kind_ == Kind::kRange) {
    Result<Registration> got = domain.register_memory(memory_);
    if (got) registration = *got;
    refused = got.status();
  } else {
    Result<Grant> got = domain.grant(memory_);
    if (got) grant = *got;
    refused = got.status();
  }
  if (!refused.ok()) {
    log(LogLevel::kWarning, fmt::format("{}: {} bytes go by message for a principal: {}", domain.name(),
                                        memory_.bytes.size(), refused.message()));
  }
  const std::lock_guard lock(book_);
  registration_ = registration;
  grant_ = grant;
  return {};
}

void DomainBook::Entry::withdraw(MemoryDomain& domain) noexcept {
  std::optional<Registration> registration;
  std::optional<Grant> grant;
  {
    const std::lock_guard lock(book_);
    registration = std::exchange(registration_, std::nullopt);
    grant = std::exchange(grant_, std::nullopt);
  }
  if (registration) domain.deregister(*registration);
  if (grant) domain.revoke(*grant);
}

// ---- the book

Result<std::shared_ptr<DomainBook>> DomainBook::make(Device& device) {
  Result<std::unique_ptr<MemoryDomain>> domain = device.open_domain();
  if (!domain) return domain.error();
  const std::shared_ptr<DomainBook> book(new DomainBook(std::move(*domain)));
  Result<std::unique_ptr<Probe>> probe = Probe::make(*book->domain_);
  if (!probe) return probe.error();
  book->probe_ = std::move(*probe);
  return book;
}

DomainBook::~DomainBook() = default;

void DomainBook::add(const void* thing, const MemoryDescriptor& memory, Kind kind) {
  auto entry = std::make_unique<Entry>(mutex_, memory, kind);
  const Result<Devices::Ticket> ticket = told_.add(*entry);
  assert(ticket);  // no entry refuses
  const std::lock_guard lock(mutex_);
  entry->ticket = *ticket;
  entries_.try_emplace(thing, std::move(entry));
}

void DomainBook::remove(const void* thing) noexcept {
  std::unique_ptr<Entry> gone;
  {
    const std::lock_guard lock(mutex_);
    const auto at = entries_.find(thing);
    if (at == entries_.end()) return;
    gone = std::move(at->second);
    entries_.erase(at);
  }
  told_.remove(gone->ticket);
}

void DomainBook::open() {
  const Status told = told_.attach(*domain_);
  assert(told.ok());
  static_cast<void>(told);
}

void DomainBook::shut() noexcept {
  told_.detach_all();
  probe_.reset();
  domain_.reset();
}

std::optional<std::uint64_t> DomainBook::local_key(const void* range) const noexcept {
  const std::lock_guard lock(mutex_);
  const auto at = entries_.find(range);
  if (at == entries_.end() || !at->second->registration()) return std::nullopt;
  return at->second->registration()->local;
}

Grant DomainBook::grant_of(const void* publication) const noexcept {
  const std::lock_guard lock(mutex_);
  const auto at = entries_.find(publication);
  return at != entries_.end() ? at->second->grant().value_or(Grant()) : Grant();
}

}  // namespace fairlead::datapath
