// A path alone, which comes to a socket of the test's: what goes wrong in the meeting, and what is said of it.
#include "shm/path.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/out_of_descriptors.h"
#include "tests/shm/own_directory.h"

namespace fairlead::shm {
namespace {

/// What is reported of the path.
struct Told : datapath::PathEvents {
  void on_ready(datapath::Path&) noexcept override { ++ready; }
  void on_completion(datapath::Path&, const datapath::Ended&) noexcept override {}
  void on_message(datapath::Path&, std::span<const std::byte>) noexcept override {}
  void on_notification(datapath::Path&, std::uint32_t) noexcept override {}
  void on_down(datapath::Path&, Code code, std::string_view reason) noexcept override {
    down.emplace(code, std::string(reason));
  }

  int ready = 0;
  std::optional<Status> down;
};

class ShmPathMeeting : public testing::Test {
 protected:
  static constexpr std::uint64_t kNumber = 7;

  ShmPathMeeting() {
    auto listening = listen_at(socket_path(place_.directory, kNumber));
    EXPECT_TRUE(listening) << listening.status().to_string();
    if (listening) listening_ = std::move(*listening);
    context_.epoll = PrivateFd(UniqueFd(::epoll_create1(EPOLL_CLOEXEC)));
  }
  void dial_by(ShmPath& path) {
    const Description there{.place = place_.number, .socket = kNumber, .token = random_token()};
    ASSERT_TRUE(path.connect(encode(there)).ok());
    path.advance();
  }
  /// As many as may wait to be accepted.
  std::vector<PrivateFd> fill() {
    EXPECT_EQ(::listen(listening_.get(), 0), 0);
    std::vector<PrivateFd> waiting;
    for (;;) {
      auto next = dial(socket_path(place_.directory, kNumber));
      if (!next) return waiting;
      waiting.push_back(std::move(*next));
    }
  }
  [[nodiscard]] Context context_at(const Place& place) {
    return {.config = config_,
            .place = place,
            .clock = clock_,
            .grants = reader_,
            .reads = reads_,
            .arenas = arenas_,
            .traffic = traffic_,
            .socket = kNumber};
  }
  [[nodiscard]] bool says(std::string_view part) const {
    return told_.down && told_.down->message().find(part) != std::string::npos;
  }

  OwnDirectory directory_;
  const ShmConfig config_ = directory_.config();
  const Place place_{.directory = directory_.path(), .number = 1};
  ManualClock clock_;
  PrivateFd listening_;
  datapath::GrantTable grants_;
  datapath::GrantReader reader_{grants_};
  PulledReads reads_;
  OwnArenas arenas_;
  datapath::Traffic traffic_;
  Context context_ = context_at(place_);
  Told told_;
  const datapath::PathConfig active_{
      .role = datapath::PathRole::kActive, .peer_host = {}, .local_host = {}, .events = &told_};
  const datapath::PathConfig passive_{
      .role = datapath::PathRole::kPassive, .peer_host = {}, .local_host = {}, .events = &told_};
};

TEST_F(ShmPathMeeting, WithoutADescriptorItEndsAtOnceAndNamesTheLimit) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UndefinedBehaviorSanitizer makes a pipe to look at an object";
#endif
  ShmPath path(context_, active_);
  {
    const fairlead::test::OutOfDescriptors limit;
    dial_by(path);
  }
  ASSERT_TRUE(told_.down);
  EXPECT_EQ(told_.down->code(), Code::kResourceExhausted);
  EXPECT_TRUE(says("ulimit -n")) << told_.down->message();
}

TEST_F(ShmPathMeeting, WhereTheDirectoryIsNoneItEndsAtOnce) {
  const Place elsewhere{.directory = "/proc/self/exe", .number = 1};
  Context context = context_at(elsewhere);
  ShmPath path(context, active_);
  dial_by(path);
  ASSERT_TRUE(told_.down);
  EXPECT_EQ(told_.down->code(), Code::kUnavailable);
  EXPECT_TRUE(says("Not a directory")) << told_.down->message();
}

TEST_F(ShmPathMeeting, WhereTooManyWaitItTriesAgain) {
  const std::vector<PrivateFd> waiting = fill();
  ShmPath late(context_, active_);
  dial_by(late);
  EXPECT_FALSE(told_.down);
  EXPECT_TRUE(late.deadline());
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    ASSERT_TRUE(UniqueFd(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
  }
  late.advance();
  EXPECT_TRUE(UniqueFd(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)));
}

TEST_F(ShmPathMeeting, WhereTooManyWaitForLongItSaysSo) {
  const std::vector<PrivateFd> waiting = fill();
  ShmPath late(context_, active_);
  dial_by(late);
  clock_.advance(10 * kSecond);
  late.advance();
  ASSERT_TRUE(told_.down);
  EXPECT_EQ(told_.down->code(), Code::kDeadlineExceeded);
  EXPECT_TRUE(says("no room")) << told_.down->message();
}

// Whoever drives the path is woken for that again and again.
TEST_F(ShmPathMeeting, APeerThatEndedEndsItThoughAnotherProcessHoldsItsSocket) {
  const UniqueFd inherited(::dup(listening_.get()));  // the other is not
  const pid_t peer = ::fork();
  if (peer == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::listen(inherited.get(), 1) != 0) ::_exit(1);  // it is the peer of who connects from now on
    ::raise(SIGSTOP);
    ::_exit(2);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(peer, &status, WUNTRACED), peer);
  ASSERT_TRUE(WIFSTOPPED(status)) << status;
  ShmPath path(context_, active_);
  dial_by(path);
  EXPECT_FALSE(told_.down);
  ASSERT_EQ(::kill(peer, SIGKILL), 0);
  ASSERT_EQ(::waitpid(peer, &status, 0), peer);
  epoll_event event{};
  ASSERT_EQ(::epoll_wait(context_.epoll.get(), &event, 1, 0), 1);
  ASSERT_EQ(event.data.ptr, &path);
  path.mark_readable();
  path.advance();
  ASSERT_TRUE(told_.down);
  EXPECT_EQ(told_.down->code(), Code::kUnavailable);
  EXPECT_TRUE(says(std::to_string(peer) + " has ended")) << told_.down->message();
}

TEST_F(ShmPathMeeting, AnActiveEndThatCannotWatchItsSocketEnds) {
  context_.epoll.reset();
  ShmPath path(context_, active_);
  dial_by(path);
  ASSERT_TRUE(told_.down);
  EXPECT_EQ(told_.down->code(), Code::kResourceExhausted);
}

TEST_F(ShmPathMeeting, APassiveEndThatCannotWatchItsSocketEnds) {
  context_.epoll.reset();
  ShmPath path(context_, passive_);
  const auto own = decode_description(path.local_description());
  ASSERT_TRUE(own);
  ASSERT_TRUE(path.connect(encode(Description{.place = place_.number, .socket = kNumber})).ok());
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
  const UniqueFd peer(ends[0]);
  Guest guest{.socket = PrivateFd(UniqueFd(ends[1])), .process = {}, .greeting = {.token = own->token}, .segment = {}};
  const auto made = Segment::make(guest.segment);
  ASSERT_TRUE(made);
  EXPECT_TRUE(path.adopt(guest));
  path.advance();
  ASSERT_TRUE(told_.down);
  EXPECT_EQ(told_.down->code(), Code::kResourceExhausted);
  EXPECT_EQ(told_.ready, 0);
}

}  // namespace
}  // namespace fairlead::shm
