#include "verbs/provider/registration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "tests/made_machine.h"

namespace fairlead::verbs {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::uint64_t kMi = std::uint64_t{1} << 20;

ibv_device_attr device_of(std::uint64_t largest, int regions) {
  ibv_device_attr attributes{};
  attributes.max_mr_size = largest;
  attributes.max_mr = regions;
  return attributes;
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
      registration_limit(std::nullopt, 3 * kMi, ENOMEM, machine.files()),
      AllOf(HasSubstr("RLIMIT_MEMLOCK is 8.0 MiB, of which devices have pinned 6.0 MiB"), HasSubstr("ulimit -l")));
  EXPECT_THAT(registration_limit(std::nullopt, 2 * kMi, ENOMEM, machine.files()),
              HasSubstr("RLIMIT_MEMLOCK is 8.0 MiB, which is enough; the device or its driver"));
  made::set_status(machine, {.pinned = 6 * 1024, .capabilities = "0000000000004000"});
  EXPECT_THAT(registration_limit(std::nullopt, 3 * kMi, ENOMEM, machine.files()), HasSubstr("does not bind"));
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

// A table that has nothing but a registration that fails.
TEST(Registration, OfADoubleWithoutQueryDevice) {
  VerbsApi api{};
  api.reg_mr = [](ibv_pd*, void*, std::size_t, int) -> ibv_mr* {
    errno = ENOMEM;
    return nullptr;
  };
  std::array<std::byte, 64> bytes{};
  ibv_pd pd{};
  for (ibv_pd* const each : {&pd, static_cast<ibv_pd*>(nullptr)}) {
    const auto refused = register_memory(api, each, "double0", bytes, 0);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code(), Code::kResourceExhausted);
    EXPECT_THAT(refused.error().message(),
                HasSubstr("cannot register 64 bytes with double0: Cannot allocate memory; "));
  }
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
