#include "datapath/session/dialer.h"

#include <fmt/format.h>

namespace fairlead::datapath {

const std::string* Dialer::next(Clock::time_point now) noexcept {
  if (tried_ == addresses_.size()) return nullptr;
  const auto left = static_cast<Clock::rep>(addresses_.size() - tried_);
  until_ = now + (deadline_ - now) / left;
  return &addresses_[tried_++];
}

void Dialer::failed(const Status& why) {
  code_ = why.code();
  if (!reasons_.empty()) reasons_ += "; ";
  if (addresses_.size() > 1) reasons_ += fmt::format("{}: ", addresses_[tried_ - 1]);
  reasons_ += why.message();
}

}  // namespace fairlead::datapath
