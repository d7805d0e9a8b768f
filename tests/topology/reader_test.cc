#include <gmock/gmock.h>

#include <random>

#include "tests/topology/machines.h"

namespace fairlead::topology {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kMachines[] = {"4-socket-pci", "aws-g5.48xl", "aws-p4d.24xl", "aws-p5en.48xl",
                                     "nvidia-dgx2",  "vm-vnuma",    "far-nics",     "one-node-vm"};

// Whatever was read must hold together: every index points at something, and every list is in order.
void expect_sound(const Machine& machine) {
  ASSERT_FALSE(machine.packages.empty());
  ASSERT_FALSE(machine.cores.empty());
  ASSERT_FALSE(machine.memories.empty());
  const auto cores_exist = [&machine](const std::vector<std::size_t>& cores) {
    return std::is_sorted(cores.begin(), cores.end()) && (cores.empty() || cores.back() < machine.cores.size());
  };
  for (const Core& core : machine.cores) ASSERT_LT(core.package, machine.packages.size());
  for (const Memory& memory : machine.memories) ASSERT_TRUE(cores_exist(memory.cores));
  for (std::size_t i = 0; i < machine.bridges.size(); ++i) {
    ASSERT_TRUE(cores_exist(machine.bridges[i].cores));
    if (machine.bridges[i].parent) {
      ASSERT_LT(*machine.bridges[i].parent, i);
    }
    ASSERT_GE(machine.bridges[i].link, 0);
  }
  for (const Device& device : machine.devices) {
    ASSERT_TRUE(cores_exist(device.cores));
    ASSERT_FALSE(device.name.empty());
    ASSERT_GE(device.link, 0);
    if (device.bridge) {
      ASSERT_LT(*device.bridge, machine.bridges.size());
    }
  }
  if (!machine.numa_latency.empty()) {
    ASSERT_EQ(machine.numa_latency.size(), machine.memories.size() * machine.memories.size());
  }
  const MachineGraph made = build_graph(machine, BandwidthTable());
  for (const std::vector<Pair>& pairs : {memory_pairs(machine, "peer"), gpu_pairs(machine, "peer")}) {
    ASSERT_EQ(make_plan(machine, made, pairs).placements.size(), pairs.size());
  }
}

TEST(Reader, ReadsTheP4d) {
  const Machine machine = read_machine("aws-p4d.24xl");
  expect_sound(machine);
  EXPECT_EQ(machine.name, "aws-p4d.24xl.xml");
  EXPECT_FALSE(machine.this_machine);
  EXPECT_EQ(machine.packages.size(), 2u);
  EXPECT_EQ(machine.cores.size(), 48u);  // the file lists none: by the sets
  EXPECT_THAT(machine.remarks[0], HasSubstr("No cores are listed"));
  EXPECT_EQ(count_of(machine, DeviceKind::kGpu), 8u);
  EXPECT_EQ(count_of(machine, DeviceKind::kNic), 8u);
  const auto found = std::find_if(machine.devices.begin(), machine.devices.end(),
                                  [](const Device& device) { return device.bus_id == "0000:10:1b.0"; });
  ASSERT_NE(found, machine.devices.end());
  const Device& nic = *found;
  EXPECT_EQ(nic.name, "rdmap16s27");
  EXPECT_EQ(nic.vendor, 0x1d0f);
  EXPECT_EQ(nic.device, 0xefa0);
  EXPECT_EQ(nic.link, 0);
  EXPECT_EQ(packages_of(machine, nic.cores), std::vector<std::size_t>{0});
  EXPECT_NEAR(machine.devices[find_endpoint(machine, "gpu0")->index].link, 31.507692e9, 1e4);
}

TEST(Reader, ReadsXmlOfHwloc3) {
  const Machine machine = read_machine("4-socket-pci");
  expect_sound(machine);
  ASSERT_EQ(machine.packages.size(), 4u);  // its sixteen sockets share four memories
  EXPECT_EQ(machine.packages[1].sockets.size(), 4u);
  EXPECT_EQ(count_of(machine, DeviceKind::kNic), 8u);
  EXPECT_EQ(count_of(machine, DeviceKind::kGpu), 0u);  // its VGA is the screen's
  EXPECT_EQ(machine.numa_latency.size(), 16u);
  EXPECT_EQ(machine.name, "IBM 3850 M2 / x3950 M2 -[72336SG]-");
}

TEST(Reader, SaysThatGpusWereIdle) {
  const Machine machine = read_machine("aws-g5.48xl");
  expect_sound(machine);
  EXPECT_EQ(count_of(machine, DeviceKind::kGpu), 8u);  // and not the VGA that hwloc gave an OpenCL device to
  EXPECT_THAT(machine.remarks, ::testing::Contains(HasSubstr("2.5 or 5 GT/s")));
  for (const Device& device : machine.devices) EXPECT_FALSE(locality_is_known(machine, device));
}

TEST(Reader, ReadsThisMachine) {
  const Result<Machine> machine = read_this_machine();
  ASSERT_TRUE(machine) << machine.error().to_string();
  expect_sound(*machine);
  EXPECT_TRUE(machine->this_machine);
  // Whoever runs this test runs on a core that it may use.
  EXPECT_TRUE(std::any_of(machine->cores.begin(), machine->cores.end(),
                          [](const Core& core) { return !core.usable_pus.empty(); }));
  EXPECT_GT(machine->memories[0].bytes, 0u);
}

TEST(Reader, ReadsSyntheticMachines) {
  const Result<Machine> machine = read_synthetic("package:2 [numa(memory=1GB)] core:4 pu:2");
  ASSERT_TRUE(machine) << machine.error().to_string();
  expect_sound(*machine);
  EXPECT_EQ(machine->packages.size(), 2u);
  EXPECT_EQ(machine->cores.size(), 8u);
  EXPECT_EQ(machine->memories.size(), 2u);
  EXPECT_EQ(machine->cores[1].pus.size(), 2u);
  const Result<Machine> bare = read_synthetic("pu:3");  // neither sockets nor cores
  ASSERT_TRUE(bare);
  expect_sound(*bare);
  EXPECT_EQ(bare->packages.size(), 1u);
  EXPECT_EQ(bare->cores.size(), 3u);
}

TEST(Reader, RefusesSyntheticMachinesThatAreNoneOrWouldFillTheMemory) {
  for (const char* const text : {"", " ", "hello", "package:-1", "package:0", "core:2 package:2 x", "pu:99999999",
                                 "package:1000 core:1000 pu:1000", "1000 1000 1000", "package:18446744073709551617"}) {
    const Result<Machine> machine = read_synthetic(text);
    ASSERT_FALSE(machine) << text;
    EXPECT_EQ(machine.error().code(), Code::kInvalidArgument) << text;
  }
}

TEST(Reader, FilesThatCannotBeReadSayWhy) {
  EXPECT_EQ(read_xml_file("/nonexistent/x.xml").status().code(), Code::kNotFound);
  EXPECT_THAT(read_xml_file("/nonexistent/x.xml").status().message(), HasSubstr("No such file"));
  EXPECT_FALSE(read_xml_file("/").status().ok());
  EXPECT_FALSE(read_xml_file("/dev/null").status().ok());
}

TEST(Reader, XmlThatIsNoTopologySaysSo) {
  EXPECT_EQ(read_xml("<html/>", "x.xml").status().code(), Code::kInvalidArgument);
  EXPECT_THAT(read_xml("<html/>", "x.xml").status().message(), HasSubstr("x.xml: the root element is <html>"));
  EXPECT_EQ(read_xml("<topology version='2.0'/>", "x.xml").status().code(), Code::kDataLoss);
  EXPECT_EQ(read_xml("<topology version='2.0'><object type='Machine'/></topology>", "x.xml").status().code(),
            Code::kDataLoss);
}

// Every file cut off anywhere is refused, and names itself.
TEST(Reader, CutFilesAreRefused) {
  for (const char* const name : kMachines) {
    const std::string text = file_text(test_file(std::string("machines/") + name + ".xml"));
    const std::size_t whole = text.find_last_of('>');
    for (std::size_t length = 0; length < whole; length += 1 + whole / 61) {
      const Result<Machine> machine = read_xml(text.substr(0, length), "cut.xml");
      ASSERT_FALSE(machine) << name << " cut after " << length;
      EXPECT_EQ(machine.error().code(), Code::kDataLoss);
      EXPECT_THAT(machine.error().message(), HasSubstr("cut.xml"));
    }
  }
}

// Files of which lines are gone, doubled or swapped, and numbers changed: refused, or read to something that holds
// together.
TEST(Reader, BrokenFilesAreRefusedOrSound) {
  std::mt19937 random(11);
  for (const char* const name : kMachines) {
    const std::string text = file_text(test_file(std::string("machines/") + name + ".xml"));
    for (int round = 0; round < 25; ++round) {
      std::string broken = text;
      for (std::size_t edits = 1 + random() % 3; edits > 0; --edits) {
        const std::size_t digit = broken.find_first_of("0123456789", random() % broken.size());
        if (digit == std::string::npos) continue;
        const std::size_t begin = broken.rfind('\n', digit) + 1,
                          end = std::min(broken.find('\n', digit), broken.size() - 1) + 1;
        const std::string line = broken.substr(begin, end - begin);
        switch (random() % 4) {
          case 0:
            broken[digit] = static_cast<char>('0' + random() % 10);
            break;
          case 1:
            broken.insert(digit, "99999");
            break;
          case 2:
            broken.erase(begin, end - begin);
            break;
          default:
            broken.insert(begin, line);
            break;
        }
      }
      const Result<Machine> machine = read_xml(broken, "broken.xml");
      if (machine) expect_sound(*machine);
      if (HasFatalFailure()) FAIL() << name << ", round " << round;
    }
  }
}

constexpr const char* kOneCore =
    "<topology version='2.0'><object type='Machine' os_index='0' cpuset='0x1' complete_cpuset='0x1' nodeset='0x1' "
    "complete_nodeset='0x1' allowed_cpuset='0x1' allowed_nodeset='0x1' gp_index='1'>";
constexpr const char* kOnePu =
    "<object type='PU' os_index='0' cpuset='0x1' complete_cpuset='0x1' nodeset='0x1' complete_nodeset='0x1' "
    "gp_index='3'/>";
constexpr const char* kOneNode =
    "<object type='NUMANode' os_index='0' cpuset='0x1' complete_cpuset='0x1' nodeset='0x1' complete_nodeset='0x1' "
    "gp_index='2' local_memory='1024'/>";

std::string one_core(const std::string& devices) {
  return std::string(kOneCore) + kOneNode + kOnePu + devices + "</object></topology>";
}

TEST(Reader, XmlWithoutPciHasNoNicsAndPlansNothing) {
  const Result<Machine> machine = read_xml(one_core(""), "bare.xml");
  ASSERT_TRUE(machine) << machine.error().to_string();
  expect_sound(*machine);
  EXPECT_EQ(count_of(*machine, DeviceKind::kNic), 0u);
  const Plan plan = make_plan(*machine, build_graph(*machine, BandwidthTable()), memory_pairs(*machine, "peer"));
  EXPECT_EQ(plan.placements[0].rate, 0);
  EXPECT_THAT(plan.remarks, ::testing::Contains(HasSubstr("No NIC")));
}

TEST(Reader, XmlWithoutMemoryIsRefusedOrGivenOneNode) {
  const Result<Machine> machine = read_xml(std::string(kOneCore) + kOnePu + "</object></topology>", "bare.xml");
  if (machine) {
    expect_sound(*machine);
  } else {
    EXPECT_THAT(machine.error().message(), HasSubstr("bare.xml"));
  }
}

TEST(Reader, NicsWithoutPciAndFunctionsWithSeveralNamesCountOnce) {
  const Result<Machine> machine = read_xml(
      one_core("<object type='Bridge' gp_index='5' bridge_type='0-1' depth='0' bridge_pci='0000:[01-01]'>"
               "<object type='PCIDev' gp_index='6' pci_busid='0000:01:00.0' pci_type='0207 [15b3:1003] [0000:0000] 00' "
               "pci_link_speed='-3'><object type='OSDev' gp_index='7' name='ib0' osdev_type='2'/>"
               "<object type='OSDev' gp_index='8' name='ib1' osdev_type='2'/><object type='OSDev' gp_index='9' "
               "name='mlx4_0' "
               "osdev_type='3'><info name='Rate' value='56 Gb/sec (4X FDR)'/></object></object></object>"
               "<object type='OSDev' gp_index='10' name='eth0' osdev_type='2'/>"),
      "two.xml");
  ASSERT_TRUE(machine) << machine.error().to_string();
  expect_sound(*machine);
  ASSERT_EQ(count_of(*machine, DeviceKind::kNic), 2u);
  EXPECT_EQ(machine->devices[0].name, "mlx4_0");
  EXPECT_THAT(machine->devices[0].net_devices, ElementsAre("ib0", "ib1"));
  EXPECT_EQ(machine->devices[0].rate, 7e9);
  EXPECT_EQ(machine->devices[0].link, 0);  // a negative speed is none
  EXPECT_EQ(machine->devices[1].name, "eth0");
  EXPECT_TRUE(machine->devices[1].bus_id.empty());
}

}  // namespace
}  // namespace fairlead::topology
