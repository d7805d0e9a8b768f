// What the process of a session may do to others of its user, once somebody has taken it over: a program of the test's
// that tries.
#include "datapath/command/process/confinement.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <utility>

#include "datapath/command/codec.h"
#include "datapath/command/meter.h"
#include "datapath/command/process/frames.h"
#include "datapath/command/process/inherited.h"
#include "datapath/command/process/shared_page.h"
#include "fairlead/command_service.h"

namespace fairlead::datapath::command {
namespace {

int secret = 0;  // at the same address in the process that is forked

bool reads_memory_of(pid_t process) {
  int copy = 0;
  const iovec here{&copy, sizeof copy}, there{&secret, sizeof secret};
  return ::process_vm_readv(process, &here, 1, &there, 1, 0) == static_cast<ssize_t>(sizeof secret);
}

enum Did : int {
  kRead = 1,
  kOpenedMemory = 2,
  kTookDescriptor = 4,
  kTraced = 8,
  kSignalled = 16,
  kIsOpenToOthers = 32,
  kLostItself = 64
};

/// What of it goes.
int try_all(pid_t other) {
  int did = reads_memory_of(other) ? kRead : 0;
  const std::string memory = fmt::format("/proc/{}/mem", other);
  if (UniqueFd(::open(memory.c_str(), O_RDWR | O_CLOEXEC))) did |= kOpenedMemory;
  const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, other, 0)));
  if (UniqueFd(static_cast<int>(::syscall(SYS_pidfd_getfd, process.get(), 0, 0)))) did |= kTookDescriptor;
  if (::ptrace(PTRACE_SEIZE, other, nullptr, nullptr) == 0) did |= kTraced;
  if (::kill(other, 0) == 0) did |= kSignalled;
  if (::prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) != 0) did |= kIsOpenToOthers;
  if (!reads_memory_of(::getpid()) || ::kill(::getpid(), 0) != 0) did |= kLostItself;
  return did;
}

/// Runs a session by `executors` in another process, until that ends, and gives its exit code.
int code_of_session(const fairlead::command::ExecutorFactory& executors) {
  constexpr int kNotThatOne = 255, kApart = 100;
  int ends[2], unused[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return kNotThatOne;
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, unused) != 0) return kNotThatOne;
  const UniqueFd ours(ends[0]), theirs(ends[1]), gives(unused[0]), takes(unused[1]);
  const SharedPage<TenantMeter> tenant = *SharedPage<TenantMeter>::create();
  const SharedPage<SessionMeter> own = *SharedPage<SessionMeter>::create();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    const std::pair<int, int> gifts[] = {{kInheritedSocket, ::fcntl(theirs.get(), F_DUPFD, kApart)},
                                         {kInheritedTenant, ::fcntl(tenant.fd.get(), F_DUPFD, kApart)},
                                         {kInheritedSession, ::fcntl(own.fd.get(), F_DUPFD, kApart)},
                                         {kInheritedMemory, ::fcntl(takes.get(), F_DUPFD, kApart)}};
    for (const auto& [number, fd] : gifts) ::dup2(fd, number);
    (void)fairlead::command::serve_session(executors);
    ::_exit(kNotThatOne);
  }
  FramePipe pipe(ours.get());
  pipe.put_value(FrameType::kBegin, Begin{{}, DeviceMeter::kThreads + 1});
  pipe.put(FrameType::kMessage, hello_message({}));
  if (!pipe.flush()) ADD_FAILURE() << "it has gone";
  int status = 0;
  if (::waitpid(child, &status, 0) != child || !WIFEXITED(status)) return kNotThatOne;
  return WEXITSTATUS(status);
}

TEST(SessionsProcess, ReachesNoOtherOfItsUser) {
  if (landlock_version() < 1) GTEST_SKIP() << "this kernel has no Landlock, or does not let it be used";
  const pid_t other = ::getpid();
  int did = code_of_session(
      [other](const Peer&) -> Result<std::unique_ptr<fairlead::command::Executor>> { ::_exit(try_all(other)); });
  if (landlock_version() < kSignalsVersion) did &= ~kSignalled;
  EXPECT_EQ(did, 0);
}

// Where there is no Landlock they are all that it might look into.
TEST(SessionsProcess, IsOpenToNoOther) {
  const int did = code_of_session([](const Peer&) -> Result<std::unique_ptr<fairlead::command::Executor>> {
    ::_exit(::prctl(PR_GET_DUMPABLE, 0, 0, 0, 0));
  });
  EXPECT_EQ(did, 0);
}

}  // namespace
}  // namespace fairlead::datapath::command
