// Images of modules that a service keeps, found by their SHA-256 (FIPS 180-4): a client sends only what is not here.
//
// The images that were wanted last stay, up to a number of bytes. A digest is a secret's worth: whoever can name an
// image may use it. Ownership: shared, an image outlives its place here while somebody uses it. Threads: any.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "datapath/command/codec.h"

namespace fairlead::datapath::command {

using Sha256 = std::array<std::byte, 32>;
/// Nothing: libcrypto refuses.
[[nodiscard]] std::optional<Sha256> sha256_of(Bytes bytes);

/// Where images are.
class ImageStore {
 public:
  /// With a byte 0 behind the last one.
  using Image = std::shared_ptr<const std::vector<std::byte>>;

  virtual ~ImageStore() = default;
  /// Null: it is not here.
  [[nodiscard]] virtual Image find(const Sha256& digest) = 0;
  /// One that a client sent, and that has this digest.
  virtual void add(const Sha256& digest, Image image) = 0;
};

class ModuleCache final : public ImageStore {
 public:
  explicit ModuleCache(std::uint64_t most) : most_(most) {}
  [[nodiscard]] Image find(const Sha256& digest) override;
  /// Those that nobody asked for the longest go; one that is too large does not stay.
  void add(const Sha256& digest, Image image) override;
  [[nodiscard]] std::uint64_t count() const;
  /// Images that were added, ever.
  [[nodiscard]] std::uint64_t added() const;

 private:
  using Entry = std::pair<Sha256, Image>;

  const std::uint64_t most_;
  mutable std::mutex mutex_;  // guards what follows
  std::list<Entry> entries_;  // the last that was wanted first
  std::map<Sha256, std::list<Entry>::iterator> places_;
  std::uint64_t bytes_ = 0, added_ = 0;
};

}  // namespace fairlead::datapath::command
