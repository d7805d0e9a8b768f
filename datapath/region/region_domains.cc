// The region table: principals with domains of their own, and which of them are told of what.
//
// What comes goes from domain to domain until none is left, and then into the table; a domain that comes is told what
// is in the table. So each knows all that it should, once, and no domain is called under the table's lock.
#include <algorithm>
#include <utility>

#include "datapath/identity/principals.h"
#include "datapath/region/regions.h"

namespace fairlead::datapath {

std::shared_ptr<Tenant> RegionTable::tenant(std::string_view principal) {
  const std::lock_guard lock(mutex_);
  const auto at = tenants_.find(principal);
  if (at != tenants_.end()) return at->second;
  auto made = std::make_shared<Tenant>(std::string(principal));
  return tenants_.emplace(made->principal, made).first->second;
}

Result<DomainBook*> RegionTable::domain(Tenant& tenant, std::size_t number, Device& device) {
  const std::lock_guard one_at_a_time(opening_domains_);
  {
    const std::lock_guard lock(mutex_);
    if (shut_) return Status(Code::kUnavailable, "the engine is shut down");
    if (number < tenant.books.size() && tenant.books[number] != nullptr) return tenant.books[number].get();
  }
  Result<std::shared_ptr<DomainBook>> made = DomainBook::make(device);
  if (!made) return made.error();
  const std::shared_ptr<DomainBook> book = *made;
  {
    const std::lock_guard lock(mutex_);
    if (shut_) {
      book->shut();
      return Status(Code::kUnavailable, "the engine is shut down");
    }
    if (tenant.books.size() <= number) tenant.books.resize(number + 1);
    tenant.books[number] = book;
    books_.push_back({&tenant, book});
    // Nothing is told yet, so this calls no device.
    for (const RegisteredRange* range : ranges_) book->add(range, range->memory(), DomainBook::Kind::kRange);
    for (const auto& [id, publication] : by_id_) {
      if (!is_among(tenant.principal, publication->audience)) continue;
      book->add(publication, publication->memory, DomainBook::Kind::kGrant);
    }
  }
  if (device.capabilities().grants_are_entries) {
    book->open();  // a table's entries
  } else {
    opener_.open(book);
  }
  return book.get();
}

Status RegionTable::tell_domains(const void* thing, const MemoryDescriptor& memory, DomainBook::Kind kind,
                                 const std::function<bool(const Tenant&)>& is_for,
                                 const std::function<Status()>& enter) {
  std::vector<std::shared_ptr<DomainBook>> told;
  Status entered;
  for (std::size_t seen = 0;;) {
    const std::size_t before = told.size();
    {
      const std::lock_guard lock(mutex_);
      for (; seen < books_.size(); ++seen) {
        if (is_for(*books_[seen].tenant)) told.push_back(books_[seen].book);
      }
      if (told.size() == before) {  // no domain has come meanwhile
        entered = enter();
        break;
      }
    }
    for (std::size_t i = before; i < told.size(); ++i) told[i]->add(thing, memory, kind);
  }
  if (!entered.ok()) {
    for (const auto& book : told) book->remove(thing);
  }
  return entered;
}

std::vector<std::shared_ptr<DomainBook>> RegionTable::all_books() const {
  std::vector<std::shared_ptr<DomainBook>> books;
  books.reserve(books_.size());
  for (const TenantBook& each : books_) books.push_back(each.book);
  return books;
}

std::vector<Grant> RegionTable::View::keys(const Publication& publication) const {
  if (tenant_ == nullptr) return publication.grants;
  std::vector<Grant> keys;
  keys.reserve(tenant_->books.size());
  for (const auto& book : tenant_->books) keys.push_back(book != nullptr ? book->grant_of(&publication) : Grant());
  return keys;
}

}  // namespace fairlead::datapath
