#include "datapath/command/server_modules.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace fairlead::datapath::command {

using fairlead::command::Scope;

namespace {

constexpr std::uint64_t kPiecesAtOnce = 2;

bool same(const fairlead::command::Place& one, const fairlead::command::Place& other) noexcept {
  return one.channel == other.channel && one.sequence == other.sequence;
}

}  // namespace

bool ServerModules::is_ready(const Place& place, const ModuleBody& body) {
  if (body.bytes == 0 || body.bytes > most_) return true;
  if (coming_ && same(coming_->place, place)) return coming_->bytes.size() == coming_->all;
  // While another one comes there is no use in asking again and again; when it has come, this may be the same.
  if (coming_ && same(missed_, place)) return false;
  if (cache_ != nullptr) found_ = cache_->find(body.sha256);
  if (found_ != nullptr) return true;
  missed_ = place;
  if (!coming_) coming_ = Coming{place, {}, body.bytes, 0};
  return false;
}

bool ServerModules::is_behind(const Place& place) const noexcept { return coming_ && !same(coming_->place, place); }

std::optional<WantedBody> ServerModules::wanted(const Place& place) {
  if (!coming_ || !same(coming_->place, place)) return std::nullopt;
  if (coming_->bytes.size() != coming_->asked || coming_->asked == coming_->all) return std::nullopt;
  const WantedBody wants{coming_->asked, std::min(coming_->all - coming_->asked, kPiecesAtOnce * piece_)};
  coming_->asked += wants.bytes;
  return wants;
}

void ServerModules::forget(const Place& place) noexcept {
  if (coming_ && same(coming_->place, place)) coming_.reset();
}

bool ServerModules::take(const Place& place, std::uint64_t offset, Bytes bytes) {
  if (!coming_ || !same(coming_->place, place) || offset != coming_->bytes.size() || bytes.empty() ||
      bytes.size() > coming_->asked - offset) {
    return false;
  }
  coming_->bytes.insert(coming_->bytes.end(), bytes.begin(), bytes.end());
  return true;
}

ServerModules::Given ServerModules::give(const ModuleBody& body) {
  if (body.bytes == 0 || body.bytes > most_) {
    return {nullptr,
            {fairlead::command::kOutOfMemory, Scope::kCommand,
             fmt::format("an image of {} bytes; this service takes 1 to {} (ServiceConfig::module_bytes)", body.bytes,
                         most_)}};
  }
  if (found_ != nullptr) {
    ImageStore::Image found = std::exchange(found_, nullptr);
    if (found->size() == body.bytes + 1) return {std::move(found)};
    return {nullptr,
            {fairlead::command::kInvalidValue, Scope::kCommand,
             fmt::format("the image of that SHA-256 has {} bytes, not {}", found->size() - 1, body.bytes)}};
  }
  std::vector<std::byte> bytes = std::move(coming_->bytes);
  coming_.reset();
  if (sha256_of(bytes) != body.sha256) {
    return {nullptr,
            {fairlead::command::kInvalidValue, Scope::kCommand,
             fmt::format("the {} bytes that were sent have another SHA-256 than was said", bytes.size())}};
  }
  bytes.push_back(std::byte{0});
  auto image = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  if (cache_ != nullptr) cache_->add(body.sha256, image);
  return {std::move(image)};
}

}  // namespace fairlead::datapath::command
