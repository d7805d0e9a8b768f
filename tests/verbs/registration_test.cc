#include "verbs/provider/registration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "tests/made_machine.h"

namespace fairlead::verbs {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::uint64_t kMi = std::uint64_t{1} << 20;

RegionLimits device_of(std::uint64_t largest, int regions) {
  ibv_device_attr attributes{};
  attributes.max_mr_size = largest;
  attributes.max_mr = regions;
  return region_limits(attributes);
}

TEST(RegistrationLimit, TheLargestRegionOfTheDevice) {
  made::Machine machine;
  made::make_tuned_server(machine);
  EXPECT_EQ(registration_limit(device_of(64 * kMi, 100), 64 * kMi + 1, EINVAL, machine.files()),
            "the device's max_mr_size is 64.0 MiB: register pieces of at most so much");
  EXPECT_EQ(registration_limit(device_of(64 * kMi, 100), 64 * kMi, EINVAL, machine.files()), "");
  EXPECT_EQ(registration_limit(device_of(0, 0), 64 * kMi, EINVAL, machine.files()), "");  // it does not say
}

TEST(RegistrationLimit, LockedMemoryWithWhatIsPinnedAlready) {
  made::Machine machine;
  made::make_pvrdma_guest(machine);
  made::set_limits(machine, {.locked = "8388608"});
  made::set_status(machine, {.pinned = 6 * 1024});
  EXPECT_THAT(
      registration_limit({}, 3 * kMi, ENOMEM, machine.files()),
      AllOf(HasSubstr("RLIMIT_MEMLOCK is 8.0 MiB, of which devices have pinned 6.0 MiB"), HasSubstr("ulimit -l")));
  EXPECT_THAT(registration_limit({}, 2 * kMi, ENOMEM, machine.files()),
              HasSubstr("RLIMIT_MEMLOCK is 8.0 MiB, which is enough; the device or its driver"));
  made::set_status(machine, {.pinned = 6 * 1024, .capabilities = "0000000000004000"});
  EXPECT_THAT(registration_limit({}, 3 * kMi, ENOMEM, machine.files()), HasSubstr("does not bind"));
}

TEST(RegistrationLimit, TheControlGroupAndTheNumberOfRegions) {
  made::Machine machine;
  made::make_container(machine);
  made::set_limits(machine, {.locked = "unlimited"});
  EXPECT_THAT(registration_limit(device_of(~std::uint64_t{0}, 100), 1024 * kMi, ENOMEM, machine.files()),
              HasSubstr("/sys/fs/cgroup/memory.max, is 512.0 MiB, which pinned memory cannot leave"));
  EXPECT_THAT(registration_limit(device_of(~std::uint64_t{0}, 100), kMi, ENOMEM, machine.files()),
              HasSubstr("max_mr = 100 regions"));
}

TEST(RegistrationBar, IsWhatWouldBeMet) {
  made::Machine machine;
  made::make_pvrdma_guest(machine);
  made::set_limits(machine, {.locked = "8388608"});
  made::set_status(machine, {.pinned = 6 * 1024});
  RegionLimits limits = device_of(64 * kMi, 100);
  EXPECT_EQ(registration_bar(limits, 64 * kMi, machine.files()), "") << "it pins nothing";
  EXPECT_EQ(registration_bar(limits, 64 * kMi + 1, machine.files()),
            "the device's max_mr_size is 64.0 MiB: register pieces of at most so much");
  limits.held = 99;
  EXPECT_EQ(registration_bar(limits, 1, machine.files()), "");
  limits.held = 100;
  EXPECT_EQ(registration_bar(limits, 1, machine.files()),
            "the device takes max_mr = 100 regions, and this process holds 100: register fewer, larger ranges");
  limits = {.pins = true};
  EXPECT_EQ(registration_bar(limits, 2 * kMi, machine.files()), "");
  EXPECT_THAT(
      registration_bar(limits, 2 * kMi + 1, machine.files()),
      AllOf(HasSubstr("RLIMIT_MEMLOCK is 8.0 MiB, of which devices have pinned 6.0 MiB"), HasSubstr("ulimit -l")));
  made::set_status(machine, {.pinned = 6 * 1024, .capabilities = "0000000000004000"});
  EXPECT_EQ(registration_bar(limits, 3 * kMi, machine.files()), "") << "the limit does not bind";
}

int g_asked = 0;
VerbsApi asked() {
  g_asked = 0;
  VerbsApi api{};
  api.reg_mr = [](ibv_pd*, void*, std::size_t, int) -> ibv_mr* {
    static ibv_mr region{};
    ++g_asked;
    return &region;
  };
  return api;
}

TEST(Registration, TheDeviceIsNotAskedForWhatItCannotTake) {
  const VerbsApi api = asked();
  std::array<std::byte, 64> bytes{};
  RegionLimits limits = device_of(64, 2);
  EXPECT_TRUE(register_memory(api, nullptr, "double0", bytes, 0, limits));
  limits.largest = 63;
  EXPECT_EQ(
      register_memory(api, nullptr, "double0", bytes, 0, limits).error().message(),
      "cannot register 64 bytes with double0: the device's max_mr_size is 63 bytes: register pieces of at most so "
      "much");
  limits = device_of(64, 2);
  limits.held = 2;
  EXPECT_EQ(register_memory(api, nullptr, "double0", bytes, 0, limits).error().code(), Code::kResourceExhausted);
  EXPECT_EQ(g_asked, 1);
}

// In a child, as somebody whom the limit binds. 0: as it should be; else the number of what was not.
int with_little_locked_memory() {
  const rlimit little{.rlim_cur = 4096, .rlim_max = 4096};
  if (::setrlimit(RLIMIT_MEMLOCK, &little) != 0) return 1;
  constexpr uid_t kNobody = 65534;
  if (::geteuid() == 0 && ::setresuid(kNobody, kNobody, kNobody) != 0) return 2;
  const VerbsApi api = asked();
  static std::array<std::byte, 8192> bytes{};
  const std::span<std::byte> all(bytes);
  if (!register_memory(api, nullptr, "double0", all, 0, {.pins = false})) return 3;
  if (!register_memory(api, nullptr, "double0", all.first(4096), 0, {.pins = true})) return 4;
  const auto refused = register_memory(api, nullptr, "double0", all, 0, {.pins = true});
  if (refused || refused.error().code() != Code::kResourceExhausted) return 5;
  if (refused.error().message().find("RLIMIT_MEMLOCK is 4.0 KiB") == std::string::npos) return 6;
  return g_asked == 2 ? 0 : 7;
}

TEST(Registration, TheDeviceIsNotAskedForMoreThanMayBeLocked) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(with_little_locked_memory());
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// A table that has nothing but a registration that fails.
TEST(Registration, WhereNothingIsKnownOfTheDevice) {
  VerbsApi api{};
  api.reg_mr = [](ibv_pd*, void*, std::size_t, int) -> ibv_mr* {
    errno = ENOMEM;
    return nullptr;
  };
  std::array<std::byte, 64> bytes{};
  const auto refused = register_memory(api, nullptr, "double0", bytes, 0);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.error().message(), HasSubstr("cannot register 64 bytes with double0: Cannot allocate memory; "));
}

// One in user space has words of its own, and pins nothing that a limit could forbid.
TEST(Registration, TheDevicesOwnWordsGoFirst) {
  static std::string refusal;
  VerbsApi api{};
  api.reg_mr = [](ibv_pd*, void*, std::size_t, int) -> ibv_mr* {
    refusal = "all keys are in use";
    errno = ENOMEM;
    return nullptr;
  };
  api.take_refusal = [] { return std::exchange(refusal, {}); };
  refusal = "something earlier";
  std::array<std::byte, 64> bytes{};
  EXPECT_EQ(register_memory(api, nullptr, "soft0", bytes, 0).error().message(),
            "cannot register 64 bytes with soft0: Cannot allocate memory; all keys are in use");
}

}  // namespace
}  // namespace fairlead::verbs
