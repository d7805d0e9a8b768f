#include "datapath/command/process/confinement.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "base/unique_fd.h"

namespace fairlead::datapath::command {

namespace {

// Headers of older kernels do not know these (uapi/linux/landlock.h).
struct RulesetOfVersion6 {
  std::uint64_t handled_access_fs = 0;
  std::uint64_t handled_access_net = 0;
  std::uint64_t scoped = 0;
};
constexpr std::uint64_t kScopeSignal = std::uint64_t{1} << 1;
constexpr std::uint64_t kAccessRefer = std::uint64_t{1} << 13;
constexpr long kReferVersion = 2;
constexpr unsigned kAskVersion = 1;

/// A ruleset that is handled by name must forbid something. Nobody without privileges makes block devices; version 1
/// also forbids to move files from one directory to another, which later ones are told to let be.
struct Wish {
  RulesetOfVersion6 rules;
  std::size_t size = 0;
};
Wish wish_of(long version) noexcept {
  if (version >= kSignalsVersion) return {{.scoped = kScopeSignal}, sizeof(RulesetOfVersion6)};
  const std::uint64_t access = version >= kReferVersion ? kAccessRefer : LANDLOCK_ACCESS_FS_MAKE_BLOCK;
  return {{.handled_access_fs = access}, sizeof(std::uint64_t)};
}

/// In a domain of its own, beyond which a process is let into no other as a debugger is, privileged or not: not by
/// ptrace(), process_vm_readv(), pidfd_getfd(), nor /proc/PID/mem and fd.
void enter_domain() noexcept {
  const long version = landlock_version();
  if (version < 1) return;
  const Wish wish = wish_of(version);
  const UniqueFd ruleset(static_cast<int>(::syscall(SYS_landlock_create_ruleset, &wish.rules, wish.size, 0)));
  if (!ruleset) return;
  if (wish.rules.handled_access_fs == kAccessRefer) {
    const UniqueFd root(::open("/", O_PATH | O_CLOEXEC));
    landlock_path_beneath_attr everywhere{};
    everywhere.allowed_access = kAccessRefer;
    everywhere.parent_fd = root.get();
    (void)::syscall(SYS_landlock_add_rule, ruleset.get(), LANDLOCK_RULE_PATH_BENEATH, &everywhere, 0);
  }
  (void)::syscall(SYS_landlock_restrict_self, ruleset.get(), 0);
}

}  // namespace

long landlock_version() noexcept {
  const long version = ::syscall(SYS_landlock_create_ruleset, nullptr, 0, kAskVersion);
  return version > 0 ? version : 0;
}

void keep_to_itself() noexcept {
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);  // else Landlock is for the privileged
  ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  enter_domain();
}

}  // namespace fairlead::datapath::command
