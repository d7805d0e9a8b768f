#include "datapath/command/process/frames.h"

#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>

namespace fairlead::datapath::command {

namespace {

constexpr std::size_t kRead = 64 << 10;         // at least, at once
constexpr std::size_t kKept = 4 << 20;          // of what is to be said, after a burst
constexpr std::chrono::microseconds kSpin{50};  // how long it looks before it sleeps

}  // namespace

void FramePipe::put(FrameType type, Bytes bytes, std::uint32_t traffic) {
  command::put(out_, FrameHeader{type, traffic, bytes.size()});
  out_.insert(out_.end(), bytes.begin(), bytes.end());
}

bool FramePipe::flush() {
  Bytes left = out_;
  while (!left.empty()) {
    const ssize_t sent = ::send(fd_, left.data(), left.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    left = left.subspan(static_cast<std::size_t>(sent));
  }
  out_.clear();
  if (out_.capacity() > kKept) std::vector<std::byte>().swap(out_);
  return true;
}

bool FramePipe::fill(std::size_t bytes) {
  if (end_ - begin_ >= bytes) return true;
  if (in_.size() - begin_ < bytes + kRead) {
    if (end_ != begin_) std::memmove(in_.data(), in_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    if (in_.size() < bytes + kRead) in_.resize(bytes + kRead);
  }
  auto look_until = std::chrono::steady_clock::now() + kSpin;
  while (end_ - begin_ < bytes) {
    const ssize_t came = ::recv(fd_, in_.data() + end_, in_.size() - end_, MSG_DONTWAIT);
    if (came > 0) {
      end_ += static_cast<std::size_t>(came);
      continue;
    }
    if (came == 0 || (errno != EAGAIN && errno != EINTR)) return false;
    if (std::chrono::steady_clock::now() < look_until) {
      ::sched_yield();  // the other may share the core
      continue;
    }
    pollfd fd{fd_, POLLIN, 0};
    ::poll(&fd, 1, -1);
  }
  return true;
}

std::optional<FramePipe::Frame> FramePipe::read() {
  if (!fill(sizeof(FrameHeader))) return std::nullopt;
  Frame frame;
  std::memcpy(&frame.header, in_.data() + begin_, sizeof frame.header);
  if (frame.header.bytes > kMostFrame || frame.header.traffic >= kTrafficClasses) return std::nullopt;
  const std::size_t whole = sizeof(FrameHeader) + frame.header.bytes;
  if (!fill(whole)) return std::nullopt;
  frame.bytes = Bytes(in_).subspan(begin_ + sizeof(FrameHeader), frame.header.bytes);
  begin_ += whole;
  return frame;
}

}  // namespace fairlead::datapath::command
