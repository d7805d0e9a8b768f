// Five machines that are made up, with every check's verdict and advice, compared with golden/. To write them anew:
//   FAIRLEAD_UPDATE_GOLDEN=1 build/release/tests/doctor_test --gtest_filter='*Golden*'
#include "tests/golden.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <optional>
#include <string>

#include "doctor/doctor.h"
#include "tests/made_machine.h"

namespace fairlead::doctor {
namespace {

struct Case {
  std::string name;
  void (*make)(made::Machine& machine);
  int userfaultfd;
  std::optional<std::uint8_t> pfc;
};

class Golden : public ::testing::TestWithParam<Case> {};

TEST_P(Golden, Findings) {
  made::Machine machine;
  GetParam().make(machine);
  const Probes probes{.userfaultfd = [] { return GetParam().userfaultfd; },
                      .pfc = [](const std::string&) { return GetParam().pfc; }};
  const Subject subject = read_subject(machine.files(), probes);
  expect_golden(std::string(FAIRLEAD_DOCTOR_TESTS) + "/golden/" + GetParam().name + ".txt",
                render_text(examine(subject)));
}

INSTANTIATE_TEST_SUITE_P(Machines, Golden,
                         ::testing::Values(Case{"small_guest", made::make_small_guest, 0, std::nullopt},
                                           Case{"tuned_server", made::make_tuned_server, 0, 1 << 3},
                                           Case{"untuned_gpu_server", made::make_untuned_gpu_server, ENOSYS, 0},
                                           Case{"pvrdma_guest", made::make_pvrdma_guest, 0, std::nullopt},
                                           Case{"container", made::make_container, EPERM, std::nullopt}),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace fairlead::doctor
