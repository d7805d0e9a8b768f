// Two processes that share memory, and what becomes of one when the other is killed, stopped or another user's.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>

#include "base/unique_fd.h"
#include "shm/factory.h"
#include "tests/shm/end.h"
#include "tests/shm/other_end.h"
#include "tests/shm/own_directory.h"
#include "transport/device.h"

namespace fairlead::shm {
namespace {

using datapath::LocalSegment;
using datapath::OpKind;
using datapath::PathRole;
using datapath::WorkRequest;

constexpr std::size_t kBytes = End::kBytes;

enum class Way : std::uint8_t { kPulled, kMapped, kThroughRings };

class ShmProcesses : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    config_ = directory_.config();
    config_.pull = GetParam() == Way::kPulled;
    config_.arenas = GetParam() == Way::kMapped;
    other_.emplace(config_, config_.arenas);
    ASSERT_TRUE(end_.open(config_, PathRole::kActive, config_.arenas));
    ASSERT_TRUE(other_->meet(end_));
    ASSERT_EQ(end_.ready, 1);
  }
  void TearDown() override {
    if (end_.device == nullptr) return;
    end_.device->revoke(end_.granted);
    end_.path.reset();
  }
  /// A write is under way, and something has come of those before it.
  void begin_stream() {
    for (int i = 0; i < 8; ++i) ASSERT_TRUE(end_.post(OpKind::kWrite, other_->key()));
    ASSERT_TRUE(end_.poll_until([&] { return !end_.codes.empty(); }));
  }
  bool is_down() {
    return end_.poll_until([&] { return end_.downs == 1 && end_.path->drained(); });
  }

  OwnDirectory directory_;
  ShmConfig config_;
  std::optional<OtherEnd> other_;
  End end_;
};

TEST_P(ShmProcesses, MoveDataBothWays) {
  std::memset(end_.memory.data(), 7, kBytes);
  ASSERT_TRUE(end_.post(OpKind::kWrite, other_->key()));
  ASSERT_TRUE(end_.poll_until([&] { return end_.codes.size() == 1; }));
  std::memset(end_.memory.data(), 0, kBytes);
  ASSERT_TRUE(end_.post(OpKind::kRead, other_->key()));
  ASSERT_TRUE(end_.poll_until([&] { return end_.codes.size() == 2; }));
  EXPECT_EQ(end_.codes, (std::vector<Code>{Code::kOk, Code::kOk}));
  EXPECT_TRUE(std::all_of(end_.memory.begin(), end_.memory.end(), [](std::byte each) { return each == std::byte{7}; }));
  const std::string says = end_.path->describe();
  constexpr std::array kSaid = {"process_vm_readv", "one copy from memory that both map", "two copies through rings"};
  EXPECT_NE(says.find(kSaid[static_cast<std::size_t>(GetParam())]), std::string::npos) << says;
  EXPECT_NE(says.find(std::to_string(other_->process())), std::string::npos) << says;
}

TEST_P(ShmProcesses, AKilledPeerIsNoticedAndLeavesNothing) {
  begin_stream();
  other_->end();
  ASSERT_TRUE(is_down());
  EXPECT_EQ(end_.down, Code::kUnavailable);
  EXPECT_EQ(end_.codes.size(), 8u);
  EXPECT_TRUE(std::all_of(end_.codes.begin(), end_.codes.end(),
                          [](Code code) { return code == Code::kOk || code == Code::kAborted; }));
  EXPECT_EQ(directory_.entries(), 2u) << "its socket's name stays,";
  const auto next = open_device(config_);
  ASSERT_TRUE(next);
  const auto endpoint = (*next)->open_endpoint();
  ASSERT_TRUE(endpoint);
  EXPECT_EQ(directory_.entries(), 2u) << "until the next one comes";
}

TEST_P(ShmProcesses, AStoppedPeerHoldsNothingUp) {
  begin_stream();
  other_->signal(SIGSTOP);
  int status = 0;
  ASSERT_EQ(::waitpid(other_->process(), &status, WUNTRACED), other_->process());
  while (end_.endpoint->poll()) {
  }
  EXPECT_EQ(end_.downs, 0) << "it lives";
  ASSERT_TRUE(end_.endpoint->arm()) << "there is nothing to do: who drives may sleep";
  end_.device->revoke(end_.granted);
  end_.path->close();
  EXPECT_TRUE(end_.poll_until([&] { return end_.path->drained(); }));
  EXPECT_EQ(end_.codes.size(), 8u);
  // It wakes up, finds that what it was to copy has been let go of, and ends.
  other_->signal(SIGCONT);
  ASSERT_EQ(::waitpid(other_->process(), &status, 0), other_->process());
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

// A child of the peer's has copies of what it had open, and keeps nothing of it alive.
TEST_P(ShmProcesses, AForkedChildDoesNotStandInForItsParent) {
  std::array<int, 2> gate{};
  ASSERT_EQ(::pipe2(gate.data(), O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(50);
    char byte = 0;
    (void)!::read(gate[0], &byte, 1);
    end_.path.reset();  // touches nothing of the parent's
    ::_exit(0);
  }
  ASSERT_TRUE(end_.post(OpKind::kWrite, other_->key()));
  ASSERT_TRUE(end_.poll_until([&] { return end_.codes.size() == 1; }));
  EXPECT_EQ(::write(gate[1], "g", 1), 1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_TRUE(end_.post(OpKind::kRead, other_->key()));
  ASSERT_TRUE(end_.poll_until([&] { return end_.codes.size() == 2; }));
  EXPECT_EQ(end_.codes, (std::vector<Code>{Code::kOk, Code::kOk}));
  EXPECT_EQ(end_.downs, 0);
}

TEST_P(ShmProcesses, AnotherUserReadsNothing) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root becomes another user";
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(50);
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(1);
    std::byte byte{};
    const iovec here{&byte, 1}, there{end_.memory.data(), 1};
    if (::process_vm_readv(parent, &here, 1, &there, 1, 0) >= 0 || errno != EPERM) ::_exit(2);
    if (::access(directory_.path().c_str(), X_OK) == 0) ::_exit(3);
    // Nor can it have a device there.
    ::_exit(open_device(directory_.config()).has_value() ? 4 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

std::string name_of(const testing::TestParamInfo<Way>& each) {
  constexpr std::array kNames = {"Pulled", "Mapped", "ThroughRings"};
  return kNames[static_cast<std::size_t>(each.param)];
}
INSTANTIATE_TEST_SUITE_P(Copies, ShmProcesses, testing::Values(Way::kPulled, Way::kMapped, Way::kThroughRings),
                         name_of);

// Memory that the CPU can read and the kernel does not pin: no peer can copy it.
TEST(ShmOfTheCpuAlone, GoesThroughTheRings) {
  const UniqueFd secret(static_cast<int>(::syscall(SYS_memfd_secret, 0)));
  constexpr std::size_t kSecret = 64 * 1024;
  if (!secret || ::ftruncate(secret.get(), kSecret) != 0) GTEST_SKIP() << "no memfd_secret: " << std::strerror(errno);
  void* const mapped = ::mmap(nullptr, kSecret, PROT_READ | PROT_WRITE, MAP_SHARED, secret.get(), 0);
  if (mapped == MAP_FAILED) GTEST_SKIP() << "no secret memory: " << std::strerror(errno);
  const std::span<std::byte> bytes(static_cast<std::byte*>(mapped), kSecret);
  std::ranges::fill(bytes, std::byte{5});
  const OwnDirectory directory;
  Ends ends;
  ASSERT_TRUE(ends.meet(directory.config()));
  End &one = ends.one, &other = ends.other;
  const auto registration = one.device->register_memory({.bytes = bytes, .access = Access::kRemoteReadWrite});
  ASSERT_TRUE(registration);
  const auto granted = other.device->grant({.bytes = bytes, .access = Access::kRemoteReadWrite});
  ASSERT_TRUE(granted);
  const auto carry_out = [&](OpKind kind, const LocalSegment& local, std::uint64_t key) {
    const std::size_t before = one.codes.size();
    const WorkRequest work{.kind = kind, .local = {&local, 1}, .remote_key = key};
    if (one.path->post({&work, 1}) != 1 || !ends.both_until([&] { return one.codes.size() > before; }))
      return Code::kInternal;
    return one.codes.back();
  };
  EXPECT_EQ(carry_out(OpKind::kWrite, {bytes.data(), kSecret, registration->local}, other.granted.key), Code::kOk);
  EXPECT_EQ(std::memcmp(other.memory.data(), bytes.data(), kSecret), 0);
  EXPECT_EQ(carry_out(OpKind::kRead, {one.memory.data(), kSecret, 0}, granted->key), Code::kOk);
  EXPECT_EQ(std::memcmp(one.memory.data(), bytes.data(), kSecret), 0);
  std::ranges::fill(one.memory, std::byte{6});
  EXPECT_EQ(carry_out(OpKind::kWrite, {one.memory.data(), kSecret, 0}, granted->key), Code::kOk) << "it can be written";
  EXPECT_EQ(bytes[kSecret - 1], std::byte{6});
  other.device->revoke(*granted);
  ::munmap(mapped, kSecret);
}

// As of a process that has dropped privileges, or under a Yama that lets nobody trace.
TEST(ShmNotTraced, GoesThroughTheRings) {
  if (::geteuid() == 0) {
    // Root may read every process: become somebody else in a child.
    const OwnDirectory directory;
    ASSERT_EQ(::chown(directory.path().c_str(), 65533, 65533), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(100);
      // Who changes its user is not dumpable, so that its own kind may not read it.
      if (::setgid(65533) != 0 || ::setuid(65533) != 0 || ::prctl(PR_SET_DUMPABLE, 0) != 0) ::_exit(1);
      OtherEnd other(directory.config());
      End end;
      if (!end.open(directory.config(), PathRole::kActive) || !other.meet(end) || end.ready != 1) ::_exit(2);
      if (end.path->describe().find("two copies through rings") == std::string::npos) ::_exit(3);
      if (!end.post(OpKind::kWrite, other.key()) || !end.post(OpKind::kRead, other.key())) ::_exit(4);
      if (!end.poll_until([&] { return end.codes.size() == 2; })) ::_exit(5);
      ::_exit(end.codes == std::vector<Code>{Code::kOk, Code::kOk} ? 0 : 6);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status)) << status;
    EXPECT_EQ(WEXITSTATUS(status), 0);
    return;
  }
  GTEST_SKIP() << "only root becomes another user";
}

}  // namespace
}  // namespace fairlead::shm
