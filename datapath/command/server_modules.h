// The images of a session's modules: what the service has, and what the client is asked for, one image at a time and
// some pieces of it at once. Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "datapath/command/module_cache.h"
#include "datapath/command/wire.h"
#include "fairlead/command_service.h"

namespace fairlead::datapath::command {

class ServerModules {
 public:
  /// `cache` may be null. An image has at most `most` bytes, a piece of it at most `piece`.
  ServerModules(std::shared_ptr<ImageStore> cache, std::uint64_t most, std::uint32_t piece)
      : cache_(std::move(cache)), most_(most), piece_(piece) {}

  using Place = fairlead::command::Place;
  /// Whether the command there can run: its image is here, or is refused.
  [[nodiscard]] bool is_ready(const Place& place, const ModuleBody& body);
  /// Of the image that is ready: how many bytes the client has sent for it.
  [[nodiscard]] std::uint64_t came() const noexcept { return found_ == nullptr && coming_ ? coming_->bytes.size() : 0; }
  /// Whether another command's image is to come first.
  [[nodiscard]] bool is_behind(const Place& place) const noexcept;
  /// What the client is to be asked for now, if anything.
  [[nodiscard]] std::optional<WantedBody> wanted(const Place& place);
  /// What was asked for and has not come is lost.
  void ask_again() noexcept {
    if (coming_) coming_->asked = coming_->bytes.size();
  }
  /// The command there is over: an image that was to come for it is none any more.
  void forget(const Place& place) noexcept;
  /// Bytes of the image that was asked for. False: they were not.
  [[nodiscard]] bool take(const Place& place, std::uint64_t offset, Bytes bytes);
  /// The image of a command that is ready; else why there is none.
  struct Given {
    ImageStore::Image image;
    fairlead::command::Outcome why{};
  };
  [[nodiscard]] Given give(const ModuleBody& body);

 private:
  struct Coming {
    Place place;
    std::vector<std::byte> bytes;
    std::uint64_t all = 0, asked = 0;
  };

  const std::shared_ptr<ImageStore> cache_;
  const std::uint64_t most_;
  const std::uint32_t piece_;
  std::optional<Coming> coming_;
  Place missed_;             // the last command whose image was not in the cache
  ImageStore::Image found_;  // of the command that is ready
};

}  // namespace fairlead::datapath::command
