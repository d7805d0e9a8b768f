// Machines and their plans as text and picture, compared byte for byte with golden/. To write them anew, and look at
// the difference before it is committed:
//   FAIRLEAD_UPDATE_GOLDEN=1 build/release/tests/topology_test --gtest_filter='*Golden*'
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>

#include "tests/topology/machines.h"
#include "topology/render.h"

namespace fairlead::topology {
namespace {

void expect_golden(const std::string& name, const std::string& text) {
  fairlead::expect_golden(test_file("golden/" + name), text);
}

class Golden : public ::testing::TestWithParam<const char*> {};

TEST_P(Golden, MachineAndPlans) {
  const Machine machine = read_machine(GetParam());
  const MachineGraph made = build_graph(machine, BandwidthTable());
  const Plan memories = make_plan(machine, made, memory_pairs(machine, "peer"));
  const Plan gpus = make_plan(machine, made, gpu_pairs(machine, "peer"));
  std::string text = render_tree(machine, made) + "\n" + render_plan(machine, memories, "Memory:");
  if (!gpus.placements.empty()) text += "\n" + render_plan(machine, gpus, "GPUs:");
  const std::array plans = {&memories, &gpus};
  text += render_remarks(std::span(plans).first(gpus.placements.empty() ? 1 : 2));
  const Plan& drawn = gpus.placements.empty() ? memories : gpus;
  text += "\n" + render_explanation(machine, made, drawn.placements.front());
  expect_golden(std::string(GetParam()) + ".txt", text);
  const std::string drawing = render_svg(machine, made, drawn);
  expect_golden(std::string(GetParam()) + ".svg", drawing);
  std::size_t uses = 0, ways = 0;
  for (const Placement& placement : drawn.placements) uses += placement.nics.size();
  for (std::size_t at = 0; (at = drawing.find("<path class=\"way\"", at)) != std::string::npos; ++at) ++ways;
  EXPECT_EQ(ways, uses);
  for (const Device& device : machine.devices) {
    if (device.kind == DeviceKind::kOther) continue;
    EXPECT_NE(drawing.find(">" + device.name + "<"), std::string::npos) << device.name << " is not drawn";
    EXPECT_NE(text.find(device.name), std::string::npos) << device.name << " is not told of";
  }
}

INSTANTIATE_TEST_SUITE_P(Machines, Golden,
                         ::testing::Values("4-socket-pci", "aws-g5.48xl", "aws-p4d.24xl", "aws-p5en.48xl",
                                           "nvidia-dgx2", "vm-vnuma", "far-nics", "one-node-vm"),
                         [](const auto& machine) {
                           std::string name = machine.param;
                           std::replace_if(name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
                           return name;
                         });

}  // namespace
}  // namespace fairlead::topology
