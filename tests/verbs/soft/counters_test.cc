// Counters: named in the order in which they lie, and readable from outside while their device lives.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <memory>

#include "tests/verbs/soft/endpoint.h"
#include "verbs/soft/device/live_devices.h"
#include "verbs/soft/observe/counter_page.h"

namespace fairlead::soft::test {
namespace {

const LiveDevice* find(const std::vector<LiveDevice>& devices, std::uint32_t process, std::string_view name) {
  const auto found = std::find_if(devices.begin(), devices.end(), [&](const LiveDevice& device) {
    return device.process == process && device.name == name;
  });
  return found == devices.end() ? nullptr : &*found;
}

std::uint64_t value_of(const LiveDevice& device, std::string_view name) {
  for (const auto& [counter, value] : device.counters) {
    if (counter == name) return value;
  }
  ADD_FAILURE() << "no counter " << name;
  return 0;
}

std::uint32_t own() { return static_cast<std::uint32_t>(::getpid()); }

class LiveDevices : public testing::Test {
 protected:
  LiveDevices() : directory_(testing::TempDir() + "fairlead_run_" + std::to_string(::getpid())) {
    std::filesystem::create_directory(directory_);
    ::setenv("XDG_RUNTIME_DIR", directory_.c_str(), 1);
  }
  ~LiveDevices() override {
    ::unsetenv("XDG_RUNTIME_DIR");
    std::filesystem::remove_all(directory_);
  }
  [[nodiscard]] std::size_t files() const {
    const auto entries = std::filesystem::directory_iterator(directory_ + "/fairlead");
    return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
  }
  [[nodiscard]] std::filesystem::path only_file() const {
    return std::filesystem::directory_iterator(directory_ + "/fairlead")->path();
  }
  std::string directory_;
};

TEST(Counters, EveryCounterHasItsNameInOrder) {
  std::array<std::uint64_t, kMostCounters> raw{};
  for (std::size_t i = 0; i < raw.size(); ++i) raw[i] = i + 1;
  Counters counters;
  std::memcpy(static_cast<void*>(&counters), raw.data(), sizeof(raw));
  const auto values = read(counters);
  ASSERT_EQ(values.size(), kMostCounters);
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(values[i].value, i + 1) << values[i].name;
    EXPECT_LT(values[i].name.size(), kCounterNameBytes);
  }
}

TEST_F(LiveDevices, AnOpenDeviceIsListedWithWhatItCounts) {
  {
    Endpoint a(open_on_wire());
    Endpoint b(open_on_wire());
    connect(a, b);
    ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, 1, 0, 5000, &b, 0), 0);
    ASSERT_TRUE(drive(a, b, [&] { return a.done.size() == 1; }));
    const auto devices = live_devices();
    ASSERT_EQ(devices.size(), 2U);
    std::uint64_t sent = 0, sent_bytes = 0;
    for (const LiveDevice& device : devices) {
      EXPECT_TRUE(device.name.starts_with("test")) << device.name;
      EXPECT_EQ(device.process, own());
      EXPECT_EQ(device.program, std::string(::program_invocation_short_name).substr(0, 15));
      EXPECT_TRUE(device.address == to_string(Gid::from_verbs(a.gid())) ||
                  device.address == to_string(Gid::from_verbs(b.gid())))
          << device.address;
      sent += value_of(device, "sent_pkts");
      sent_bytes += value_of(device, "sent_bytes");
    }
    EXPECT_EQ(sent, a.counter("sent_pkts") + b.counter("sent_pkts"));
    EXPECT_EQ(sent_bytes, a.counter("sent_bytes") + b.counter("sent_bytes"));
    EXPECT_GT(a.counter("sent_bytes"), 5000U + 12 + 16 + 4);
    // On a machine that has no time for an answer the packets leave more often than once.
    EXPECT_LT(a.counter("sent_bytes") / a.counter("sent_pkts"), 5000U + 200);
    EXPECT_GE(a.counter("sent_bytes"), b.counter("rcvd_bytes"));
    EXPECT_GE(b.counter("sent_bytes"), a.counter("rcvd_bytes"));
  }
  EXPECT_TRUE(live_devices().empty());
  EXPECT_EQ(files(), 0U);
}

TEST_F(LiveDevices, AnotherProcessIsSeenAndItsRemainsAreRemoved) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    CounterPage page;
    page.publish("soft7", "10.1.2.3");
    page.counters().rcvd_pkts.add(42);
    [[maybe_unused]] const ssize_t written = ::write(ready[1], "", 1);
    ::pause();
  }
  char byte = 1;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  const auto devices = live_devices();
  const LiveDevice* seen = find(devices, static_cast<std::uint32_t>(child), "soft7");
  ASSERT_NE(seen, nullptr);
  EXPECT_EQ(seen->address, "10.1.2.3");
  EXPECT_EQ(value_of(*seen, "rcvd_pkts"), 42U);
  ::kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(files(), 1U);
  EXPECT_TRUE(live_devices().empty());
  EXPECT_EQ(files(), 0U);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_F(LiveDevices, AForkedChildNeitherListsNorRemovesItsParentsPage) {
  const auto page = std::make_unique<CounterPage>();
  page->publish("soft0", "127.0.0.1");
  const pid_t child = ::fork();
  if (child == 0) {
    page->~CounterPage();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_NE(find(live_devices(), own(), "soft0"), nullptr);
}

// A number says nothing: in another PID namespace the process has another.
TEST_F(LiveDevices, APageIsThereForAsLongAsItIsLockedWhateverItsNumber) {
  CounterPage page;
  page.publish("soft0", "127.0.0.1");
  const pid_t gone = ::fork();
  if (gone == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(gone, nullptr, 0), gone);
  const auto number = static_cast<std::uint32_t>(gone);
  {
    std::fstream file(only_file(), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(offsetof(CounterPageHeader, process));
    file.write(reinterpret_cast<const char*>(&number), sizeof(number));
  }
  EXPECT_NE(find(live_devices(), number, "soft0"), nullptr);
  EXPECT_EQ(files(), 1U);
}

TEST_F(LiveDevices, OneOfAnotherPidNamespaceHasNoNumberHere) {
  CounterPage page;
  page.publish("soft0", "127.0.0.1");
  const std::filesystem::path here = only_file();
  const std::string mine = std::to_string(pid_namespace());
  std::string name = here.filename();
  ASSERT_NE(name.find("-" + mine + "."), std::string::npos) << name;
  name.replace(name.find(mine), mine.size(), mine + "7");
  std::filesystem::rename(here, here.parent_path() / name);
  const auto devices = live_devices();
  EXPECT_EQ(find(devices, own(), "soft0"), nullptr);
  EXPECT_NE(find(devices, 0, "soft0"), nullptr);
}

TEST_F(LiveDevices, AForkedChildThatOutlivesItsParentDoesNotKeepItsPage) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    CounterPage page;
    page.publish("soft7", "10.1.2.3");
    if (::fork() == 0) {
      ::alarm(60);
      const pid_t self = ::getpid();
      [[maybe_unused]] const ssize_t written = ::write(ready[1], &self, sizeof(self));
    }
    ::pause();
  }
  pid_t child = 0;
  ASSERT_EQ(::read(ready[0], &child, sizeof(child)), static_cast<ssize_t>(sizeof(child)));
  EXPECT_NE(find(live_devices(), static_cast<std::uint32_t>(parent), "soft7"), nullptr);
  ::kill(parent, SIGKILL);
  ASSERT_EQ(::waitpid(parent, nullptr, 0), parent);
  EXPECT_TRUE(live_devices().empty());
  EXPECT_EQ(files(), 0U);
  ::kill(child, SIGKILL);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_F(LiveDevices, ForeignFilesAreIgnored) {
  ASSERT_FALSE(counter_directory().empty());
  std::ofstream(directory_ + "/fairlead/counters.1.0") << "short";
  std::ofstream(directory_ + "/fairlead/counters.1.1") << std::string(kCounterPageBytes, '\xff');
  CounterPageHeader lies{};
  lies.magic = kCounterPageMagic;
  lies.version = kCounterPageVersion;
  lies.count = 0x40000000;
  std::ofstream(directory_ + "/fairlead/counters.1.2").write(reinterpret_cast<const char*>(&lies), sizeof(lies));
  EXPECT_TRUE(live_devices().empty());
}

}  // namespace
}  // namespace fairlead::soft::test
