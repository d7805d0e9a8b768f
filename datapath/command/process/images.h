// Images of modules that a service's processes share: the service has them, and each process asks it, in the middle of
// a run, and gives it what its client sent.
//
// Neither believes the other: the service keeps under a digest only what has it, and a process loads nothing else, so
// what one tenant's process says is nothing to another's. An image crosses as a copy: nobody writes where another
// reads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "datapath/command/module_cache.h"
#include "datapath/command/process/frames.h"

namespace fairlead::datapath::command {

/// Of kFindImage, kFoundImage and kAddImage. In the last two so many bytes of parts follow; 0: there is no such image.
struct ImageFrame {
  Sha256 digest{};
  std::uint64_t bytes = 0;
};

/// The service's side. Threads: one at a time.
class ImageDesk {
 public:
  /// `images`: null, there are none. One has at most `most` bytes.
  ImageDesk(std::shared_ptr<ImageStore> images, std::uint64_t most) : images_(std::move(images)), most_(most) {}
  /// Does what that frame asks for. False: it is none of these, or what follows makes no sense, or the other has gone.
  [[nodiscard]] bool answer(FramePipe& pipe, const FramePipe::Frame& frame);

 private:
  const std::shared_ptr<ImageStore> images_;
  const std::uint64_t most_;
};

/// The process's side. Threads: the one that runs the session.
class RemoteImages final : public ImageStore {
 public:
  RemoteImages(FramePipe& pipe, std::uint64_t most) noexcept : pipe_(pipe), most_(most) {}
  [[nodiscard]] Image find(const Sha256& digest) override;
  void add(const Sha256& digest, Image image) override;

 private:
  FramePipe& pipe_;
  const std::uint64_t most_;
};

}  // namespace fairlead::datapath::command
