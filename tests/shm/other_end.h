// The other end of a path over shm, in a process of its own.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>
#include <thread>
#include <utility>

#include "base/unique_fd.h"
#include "tests/shm/end.h"

namespace fairlead::shm {

/// The passive end, in a process of its own, which polls until it is killed. It was forked before there was any device.
class OtherEnd {
 public:
  explicit OtherEnd(const ShmConfig& config, bool gives = false) {
    std::array<int, 2> to{}, from{};
    EXPECT_EQ(::pipe2(to.data(), O_CLOEXEC) | ::pipe2(from.data(), O_CLOEXEC), 0);
    to_ = UniqueFd(to[1]);
    from_ = UniqueFd(from[0]);
    const UniqueFd in(to[0]), out(from[1]);
    child_ = ::fork();
    if (child_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::alarm(100);
    serve(config, gives, in.get(), out.get());
    ::_exit(0);
  }
  OtherEnd(const OtherEnd&) = delete;
  OtherEnd& operator=(const OtherEnd&) = delete;
  ~OtherEnd() { end(); }

  /// The two descriptions cross.
  bool meet(End& end) {
    const std::string ours = end.path->local_description();
    std::string theirs(ours.size(), '\0');
    if (::write(to_.get(), ours.data(), ours.size()) != static_cast<ssize_t>(ours.size())) return false;
    if (::read(from_.get(), theirs.data(), theirs.size()) != static_cast<ssize_t>(theirs.size())) return false;
    if (::read(from_.get(), &key_, sizeof key_) != static_cast<ssize_t>(sizeof key_)) return false;
    return end.path->connect(theirs).ok() && end.poll_until([&] { return end.ready == 1 || end.downs == 1; });
  }
  [[nodiscard]] std::uint64_t key() const { return key_; }
  [[nodiscard]] pid_t process() const { return child_; }
  void signal(int number) const { ::kill(child_, number); }
  void end() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(std::exchange(child_, -1), nullptr, 0);
  }

 private:
  static void serve(const ShmConfig& config, bool gives, int in, int out) {
    End end;
    if (!end.open(config, datapath::PathRole::kPassive, gives)) ::_exit(1);
    const std::string ours = end.path->local_description();
    std::string theirs(ours.size(), '\0');
    if (::read(in, theirs.data(), theirs.size()) != static_cast<ssize_t>(theirs.size())) ::_exit(2);
    if (!end.path->connect(theirs).ok()) ::_exit(3);
    if (::write(out, ours.data(), ours.size()) < 0 || ::write(out, &end.granted.key, sizeof end.granted.key) < 0) {
      ::_exit(4);
    }
    while (end.downs == 0) {
      if (!end.endpoint->poll()) std::this_thread::yield();
    }
  }

  UniqueFd to_, from_;
  pid_t child_ = -1;
  std::uint64_t key_ = 0;
};

}  // namespace fairlead::shm
