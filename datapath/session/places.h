// Where a peer may be reached: what connect() was given, as numeric addresses, and what is known of each.
//
// Of several that were named ("a:7471,b:7471") all lead to one engine: it has more than one way in, or it moves from
// one to another. Which engine that is shows with its first answer; one that is found at another place later is not the
// peer (session_resume.cc). Pure. Threads: the driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fairlead::datapath {

struct Place {
  std::string address;  // numeric
  std::uint16_t port = 0;
  std::size_t named = 0;  // which of the places that were named it is, or is an address of

  /// Whichever name led there.
  [[nodiscard]] bool operator==(const Place& other) const noexcept {
    return address == other.address && port == other.port;
  }
};
/// "10.0.0.1:7471", "[2001:db8::1]:7471".
[[nodiscard]] std::string to_string(const Place& place);

class Places {
 public:
  static constexpr std::size_t kMost = 32;

  /// In the order in which they are to be tried. What comes twice counts once, and of more than kMost the first.
  void set(std::vector<Place> places);
  [[nodiscard]] const std::vector<Place>& all() const noexcept { return all_; }
  /// Whether more than one was named.
  [[nodiscard]] bool several() const noexcept;

  /// The peer is there.
  void found(const Place& place) noexcept;
  /// Another engine is.
  void taken(const Place& place) noexcept;
  /// Where to look for the peer again, in order: where it was last; if several were named, all others as they were
  /// given, but behind them those where another engine was found. Empty: it was found nowhere.
  [[nodiscard]] std::vector<Place> to_look_at() const;
  /// Addresses at which the peer may be besides the one where it was found, if several places were named.
  [[nodiscard]] std::vector<std::string> other_addresses() const;

 private:
  [[nodiscard]] std::size_t index_of(const Place& place) const noexcept;

  std::vector<Place> all_;
  std::vector<bool> taken_;
  std::size_t at_ = kMost;  // kMost: nowhere
};

}  // namespace fairlead::datapath
