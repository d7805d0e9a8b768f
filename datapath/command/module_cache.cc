#include "datapath/command/module_cache.h"

#include <openssl/evp.h>

namespace fairlead::datapath::command {

std::optional<Sha256> sha256_of(Bytes bytes) {
  Sha256 digest{};
  unsigned length = 0;
  const int made = ::EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(digest.data()), &length,
                                ::EVP_sha256(), nullptr);
  if (made != 1 || length != digest.size()) return std::nullopt;
  return digest;
}

ImageStore::Image ModuleCache::find(const Sha256& digest) {
  const std::lock_guard lock(mutex_);
  const auto place = places_.find(digest);
  if (place == places_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, place->second);
  return place->second->second;
}

void ModuleCache::add(const Sha256& digest, Image image) {
  const std::lock_guard lock(mutex_);
  ++added_;
  if (image->size() > most_ || places_.contains(digest)) return;
  bytes_ += image->size();
  entries_.emplace_front(digest, std::move(image));
  places_[digest] = entries_.begin();
  for (; bytes_ > most_; entries_.pop_back()) {
    bytes_ -= entries_.back().second->size();
    places_.erase(entries_.back().first);
  }
}

std::uint64_t ModuleCache::count() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

std::uint64_t ModuleCache::added() const {
  const std::lock_guard lock(mutex_);
  return added_;
}

}  // namespace fairlead::datapath::command
