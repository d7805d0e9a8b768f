// Machines and their plans as text and picture, compared byte for byte with golden/. To write them anew, and look at
// the difference before it is committed:
//   FAIRLEAD_UPDATE_GOLDEN=1 build/release/tests/topology_test --gtest_filter='*Golden*'
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <span>
#include <string>

#include "tests/topology/machines.h"
#include "topology/render.h"

namespace fairlead::topology {
namespace {

void expect_golden(const std::string& name, const std::string& text) {
  fairlead::expect_golden(test_file("golden/" + name), text);
}

std::size_t count(const std::string& text, const std::string& words) {
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find(words, at)) != std::string::npos; ++at) ++found;
  return found;
}

/// Ways from an endpoint to a NIC.
std::size_t uses(const Plan& plan) {
  std::size_t sum = 0;
  for (const Placement& placement : plan.placements) sum += placement.nics.size();
  return sum;
}

/// Printed on a page of A4 within margins of a centimetre, upright or across, its text is at least 6 points high, as
/// the smallest print of newspapers is.
void expect_readable_on_paper(const std::string& drawing) {
  constexpr double kShort = 190, kLong = 277, kPixel = 25.4 / 96;  // mm
  constexpr double kPoint = 25.4 / 72;
  double width = 0, height = 0, pixels = 0;
  ASSERT_EQ(std::sscanf(drawing.c_str() + drawing.find("viewBox="), "viewBox=\"0 0 %lf %lf\"", &width, &height), 2);
  ASSERT_EQ(std::sscanf(drawing.c_str() + drawing.find("text { font: "), "text { font: %lfpx", &pixels), 1);
  const double upright = std::min(kShort / width, kLong / height), across = std::min(kLong / width, kShort / height);
  const double scale = std::min(kPixel, std::max(upright, across));  // mm of a pixel
  EXPECT_GE(pixels * scale / kPoint, 6) << width << " x " << height << " pixels";
}

class Golden : public ::testing::TestWithParam<const char*> {};

TEST_P(Golden, MachineAndPlans) {
  const Machine machine = read_machine(GetParam());
  const MachineGraph made = build_graph(machine, BandwidthTable());
  const Plan memories = make_plan(machine, made, memory_pairs(machine, "peer"));
  const Plan gpus = make_plan(machine, made, gpu_pairs(machine, "peer"));
  std::string text = render_tree(machine, made) + "\n" + render_plan(machine, memories, "Memory:");
  if (!gpus.placements.empty()) text += "\n" + render_plan(machine, gpus, "GPUs:");
  const bool has_gpus = !gpus.placements.empty();
  const std::array plans = {&memories, &gpus};
  text += render_remarks(std::span(plans).first(has_gpus ? 2 : 1));
  text += "\n" + render_explanation(machine, made, (has_gpus ? gpus : memories).placements.front());
  expect_golden(std::string(GetParam()) + ".txt", text);
  const std::array drawn = {&gpus, &memories};
  const std::string drawing = render_svg(machine, made, std::span(drawn).subspan(has_gpus ? 0 : 1));
  expect_golden(std::string(GetParam()) + ".svg", drawing);
  EXPECT_EQ(count(drawing, "<path class=\"way\""), uses(has_gpus ? gpus : memories));
  EXPECT_EQ(count(drawing, "<path class=\"way dashed\""), has_gpus ? uses(memories) : 0);
  expect_readable_on_paper(drawing);
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
