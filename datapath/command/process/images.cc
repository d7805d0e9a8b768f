#include "datapath/command/process/images.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace fairlead::datapath::command {

namespace {

constexpr std::size_t kPart = std::size_t{1} << 20;

/// All but the byte 0 at its end.
void put_image(FramePipe& pipe, FrameType type, const Sha256& digest, const ImageStore::Image& image) {
  const Bytes bytes = image != nullptr ? Bytes(*image).first(image->size() - 1) : Bytes();
  pipe.put_value(type, ImageFrame{digest, bytes.size()});
  for (Bytes rest = bytes; !rest.empty(); rest = rest.subspan(std::min(rest.size(), kPart))) {
    pipe.put(FrameType::kImagePart, rest.first(std::min(rest.size(), kPart)));
  }
}

/// What follows such a frame; null: it has not that digest, or there is none. Nothing: that makes no sense.
std::optional<ImageStore::Image> read_image(FramePipe& pipe, const ImageFrame& said, std::uint64_t most) {
  if (said.bytes > most) return std::nullopt;
  std::vector<std::byte> bytes;
  bytes.reserve(said.bytes + 1);
  while (bytes.size() != said.bytes) {
    const std::optional<FramePipe::Frame> part = pipe.read();
    if (!part || part->header.type != FrameType::kImagePart || part->bytes.empty() ||
        part->bytes.size() > said.bytes - bytes.size()) {
      return std::nullopt;
    }
    bytes.insert(bytes.end(), part->bytes.begin(), part->bytes.end());
  }
  if (bytes.empty() || sha256_of(bytes) != said.digest) return ImageStore::Image();
  bytes.push_back(std::byte{0});
  return std::make_shared<const std::vector<std::byte>>(std::move(bytes));
}

}  // namespace

bool ImageDesk::answer(FramePipe& pipe, const FramePipe::Frame& frame) {
  const auto asked = value_of<ImageFrame>(frame);
  if (!asked) return false;
  if (frame.header.type == FrameType::kFindImage) {
    put_image(pipe, FrameType::kFoundImage, asked->digest, images_ != nullptr ? images_->find(asked->digest) : nullptr);
    return pipe.flush();
  }
  if (frame.header.type != FrameType::kAddImage) return false;
  std::optional<ImageStore::Image> image = read_image(pipe, *asked, most_);
  if (image && *image != nullptr && images_ != nullptr) images_->add(asked->digest, *std::move(image));
  return image.has_value();
}

// A service that has gone, or talks nonsense, shows when the run ends.
ImageStore::Image RemoteImages::find(const Sha256& digest) {
  pipe_.put_value(FrameType::kFindImage, ImageFrame{digest, 0});
  const std::optional<FramePipe::Frame> frame = pipe_.flush() ? pipe_.read() : std::nullopt;
  const auto said = frame && frame->header.type == FrameType::kFoundImage ? value_of<ImageFrame>(*frame) : std::nullopt;
  if (!said || said->digest != digest) return nullptr;
  return read_image(pipe_, *said, most_).value_or(nullptr);
}

void RemoteImages::add(const Sha256& digest, Image image) {
  put_image(pipe_, FrameType::kAddImage, digest, image);
  (void)pipe_.flush();
}

}  // namespace fairlead::datapath::command
