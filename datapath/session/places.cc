#include "datapath/session/places.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace fairlead::datapath {

std::string to_string(const Place& place) {
  return place.address.find(':') == std::string::npos ? fmt::format("{}:{}", place.address, place.port)
                                                      : fmt::format("[{}]:{}", place.address, place.port);
}

void Places::set(std::vector<Place> places) {
  all_.clear();
  for (Place& place : places) {
    if (all_.size() < kMost && std::ranges::find(all_, place) == all_.end()) all_.push_back(std::move(place));
  }
  taken_.assign(all_.size(), false);
  at_ = kMost;
}

bool Places::several() const noexcept {
  return std::ranges::any_of(all_, [this](const Place& place) { return place.named != all_.front().named; });
}

std::size_t Places::index_of(const Place& place) const noexcept {
  const auto at = std::ranges::find(all_, place);
  return at != all_.end() ? static_cast<std::size_t>(at - all_.begin()) : kMost;
}

void Places::found(const Place& place) noexcept {
  at_ = index_of(place);
  if (at_ != kMost) taken_[at_] = false;
}

void Places::taken(const Place& place) noexcept {
  if (const std::size_t at = index_of(place); at != kMost) taken_[at] = true;
}

std::vector<Place> Places::to_look_at() const {
  if (at_ == kMost) return {};
  std::vector<Place> order{all_[at_]};
  if (!several()) return order;
  for (const bool taken : {false, true}) {
    for (std::size_t i = 0; i < all_.size(); ++i) {
      if (i != at_ && taken_[i] == taken) order.push_back(all_[i]);
    }
  }
  if (taken_[at_]) std::rotate(order.begin(), order.begin() + 1, order.end());
  return order;
}

std::vector<std::string> Places::other_addresses() const {
  std::vector<std::string> others;
  if (at_ == kMost || !several()) return others;
  for (const Place& place : all_) {
    const bool known = place.address == all_[at_].address || std::ranges::count(others, place.address) != 0;
    if (!known) others.push_back(place.address);
  }
  return others;
}

}  // namespace fairlead::datapath
