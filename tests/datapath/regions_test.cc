#include "datapath/region/regions.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <future>
#include <latch>
#include <thread>

#include "datapath/engine/engine_cache.h"
#include "datapath/region/region_codec.h"
#include "tests/datapath/counting_device.h"

namespace fairlead::datapath {
namespace {

constexpr std::chrono::seconds kPatience{20};

struct Regions : testing::Test {
  std::shared_ptr<RegionTable> table = std::make_shared<RegionTable>();
  CountingDevice first, second;
  std::array<std::byte, 4096> bytes{};

  ~Regions() override {
    table->shutdown();  // as the engine does; published regions hold the table
    for (const CountingDevice* device : {&first, &second}) {
      EXPECT_EQ(device->registered.size() + device->granted.size(), 0u);
      EXPECT_EQ(device->unknown, 0u);
    }
  }

  std::shared_ptr<RegionImpl> region(Access access = Access::kRemoteReadWrite) {
    auto range = table->add({.bytes = bytes, .access = access});
    EXPECT_TRUE(range);
    return std::make_shared<RegionImpl>(*range, bytes, access, nullptr);
  }
  Status publish(std::string_view name, const std::shared_ptr<RegionImpl>& what) {
    return table->publish(name, what, bytes, Access::kRemoteRead, std::nullopt);
  }
  std::vector<Grant> grants_of(std::string_view name) {
    std::vector<Grant> grants;
    EXPECT_TRUE(
        table->seen_by("").find(name, [&](const Publication& publication) { grants = publication.grants; }).ok());
    return grants;
  }
};

TEST_F(Regions, AreRegisteredOnceWithEveryDeviceAlsoWithLaterOnes) {
  ASSERT_TRUE(table->attach(first).ok());
  auto one = region();
  EXPECT_EQ(first.registered.size(), 1u);
  ASSERT_TRUE(publish("one", one).ok());
  EXPECT_EQ(first.registered.size(), 1u);
  ASSERT_EQ(first.granted.size(), 1u);
  EXPECT_EQ(first.granted.begin()->second.access, Access::kRemoteRead);
  ASSERT_TRUE(table->attach(second).ok());
  EXPECT_EQ(second.registered.size(), 1u);
  EXPECT_EQ(second.granted.size(), 1u);
  EXPECT_TRUE(first.registered.contains(one->range().local_key(0)));
  EXPECT_TRUE(second.registered.contains(one->range().local_key(1)));
  EXPECT_EQ(grants_of("one").size(), 2u);
  EXPECT_EQ(table->registered_bytes(), 4096u);
  ASSERT_TRUE(table->unpublish("one").has_value());
  EXPECT_EQ(first.granted.size(), 0u);
  EXPECT_EQ(second.granted.size(), 0u);
  one.reset();
  EXPECT_EQ(first.registered.size(), 0u);
  EXPECT_EQ(second.registered.size(), 0u);
  EXPECT_EQ(table->registered_bytes(), 0u);
}

TEST_F(Regions, TensorsOfOneModelAreOneRegistration) {
  constexpr std::size_t kTensors = 100, kBytes = 40;
  ASSERT_TRUE(table->attach(first).ok());
  auto model = region();
  const auto name = [](std::size_t i) { return "tensor" + std::to_string(i); };
  for (std::size_t i = 0; i < kTensors; ++i) {
    const std::span<std::byte> tensor = std::span(bytes).subspan(i * kBytes, kBytes);
    ASSERT_TRUE(table->publish(name(i), model, tensor, Access::kRemoteWrite, std::nullopt).ok());
  }
  EXPECT_EQ(first.registered_ever, 1u);
  ASSERT_EQ(first.granted.size(), kTensors);
  // Of each its own key, over its own bytes; withdrawn alone.
  const Grant gone = grants_of(name(7)).at(0);
  EXPECT_EQ(gone.address, reinterpret_cast<std::uintptr_t>(bytes.data() + 7 * kBytes));
  EXPECT_EQ(first.granted.at(gone.key).bytes.size(), kBytes);
  ASSERT_TRUE(table->unpublish(name(7)).has_value());
  EXPECT_FALSE(first.granted.contains(gone.key));
  EXPECT_EQ(first.granted.size(), kTensors - 1);
  EXPECT_EQ(first.registered.size(), 1u);
}

TEST_F(Regions, KnowMoreThanEightDevices) {
  std::vector<std::unique_ptr<CountingDevice>> devices;
  auto early = region();
  ASSERT_TRUE(publish("early", early).ok());
  for (int i = 0; i < 20; ++i) {
    devices.push_back(std::make_unique<CountingDevice>());
    ASSERT_TRUE(table->attach(*devices.back()).ok());
  }
  auto late = region();
  ASSERT_TRUE(publish("late", late).ok());
  for (std::size_t i = 0; i < 20; ++i) {
    for (const RegionImpl* each : {early.get(), late.get()}) {
      EXPECT_TRUE(devices[i]->registered.contains(each->range().local_key(i)));
    }
    for (const char* name : {"early", "late"}) EXPECT_TRUE(devices[i]->granted.contains(grants_of(name).at(i).key));
  }
  table->shutdown();
  for (const auto& device : devices) EXPECT_EQ(device->registered.size() + device->granted.size(), 0u);
}

TEST_F(Regions, AFileKeepsItsPlaceInTheFile) {
  ASSERT_TRUE(table->attach(first).ok());
  auto range = table->add({bytes, FileMemory{.fd = -1, .offset = 4096}, Access::kRemoteRead});
  ASSERT_TRUE(range);
  auto whole = std::make_shared<RegionImpl>(*range, bytes, Access::kRemoteRead, nullptr);
  ASSERT_TRUE(table->publish("part", whole, std::span(bytes).subspan(100, 10), Access::kRemoteRead, std::nullopt).ok());
  EXPECT_EQ(std::get<FileMemory>(first.granted.begin()->second.kind).offset, 4196u);
}

TEST_F(Regions, ARefusalLeavesNothingBehind) {
  ASSERT_TRUE(table->attach(first).ok());
  ASSERT_TRUE(table->attach(second).ok());
  auto one = region();
  second.refuse = true;
  const auto range = table->add({.bytes = bytes});
  ASSERT_FALSE(range);
  EXPECT_EQ(range.error().message(), "counting: RLIMIT_MEMLOCK");
  EXPECT_EQ(publish("one", one).message(), "cannot publish 'one': counting: no keys");
  EXPECT_EQ(first.registered.size(), 1u);
  EXPECT_EQ(first.granted.size(), 0u);
  EXPECT_EQ(table->registered_bytes(), 4096u);
  EXPECT_EQ(table->seen_by("").find("one", [](const Publication&) {}).code(), Code::kNotFound);
}

TEST_F(Regions, ADeviceThatRefusesIsNotAttached) {
  ASSERT_TRUE(table->attach(first).ok());
  auto one = region();
  auto two = region();
  ASSERT_TRUE(publish("one", one).ok());
  second.on_grant = [this](const MemoryDescriptor&) { second.refuse = true; };
  const Status attached = table->attach(second);
  EXPECT_EQ(attached.message(), "counting: no keys");
  EXPECT_EQ(second.registered_ever, 2u);
  EXPECT_EQ(second.registered.size() + second.granted.size(), 0u);
  EXPECT_EQ(grants_of("one").size(), 1u);
  second.refuse = false;
  second.on_grant = nullptr;
  ASSERT_TRUE(table->attach(second).ok());
  EXPECT_TRUE(second.registered.contains(two->range().local_key(1)));
  EXPECT_EQ(second.registered.size(), 2u);
}

TEST_F(Regions, ANameIsGivenOnceAlsoToTwoAtATime) {
  ASSERT_TRUE(table->attach(first).ok());
  auto one = region();
  // The second comes while the first is at the device.
  Status second_came;
  bool alone = true;
  first.on_grant = [&](const MemoryDescriptor&) {
    if (std::exchange(alone, false)) std::jthread([&] { second_came = publish("name", one); }).join();
  };
  EXPECT_EQ(publish("name", one).code(), Code::kAlreadyExists);
  EXPECT_TRUE(second_came.ok());
  EXPECT_EQ(first.granted.size(), 1u);
  EXPECT_TRUE(first.granted.contains(grants_of("name").at(0).key));
}

TEST_F(Regions, GrantNoMoreThanWasRegistered) {
  auto read_only = region(Access::kRemoteRead | Access::kLocalReadOnly);
  EXPECT_EQ(table->publish("x", read_only, bytes, Access::kRemoteWrite, std::nullopt).code(), Code::kPermissionDenied);
  EXPECT_TRUE(table->publish("x", read_only, bytes, Access::kRemoteRead, std::nullopt).ok());
  EXPECT_EQ(table->publish("x", read_only, bytes, Access::kRemoteRead, std::nullopt).code(), Code::kAlreadyExists);
  EXPECT_EQ(table->publish("", read_only, bytes, Access::kRemoteRead, std::nullopt).code(), Code::kInvalidArgument);
  EXPECT_EQ(table->unpublish("y").status().code(), Code::kNotFound);
  const std::int64_t shape[] = {2000};
  auto tensor = TensorSpec::contiguous(DType::kF32, shape);
  EXPECT_FALSE(table->publish("t", read_only, bytes, Access::kRemoteRead, *tensor).ok());
}

TEST_F(Regions, StagedAccessIsCheckedToTheByte) {
  auto whole = region();
  ASSERT_TRUE(table->publish("w", whole, std::span(bytes).subspan(96, 1000), Access::kRemoteWrite, std::nullopt).ok());
  std::uint64_t id = 0;
  ASSERT_TRUE(table->seen_by("").find("w", [&](const Publication& p) { id = p.id; }).ok());
  const auto write = [&](std::uint64_t offset, std::uint64_t length, Access want = Access::kRemoteWrite) {
    return table->seen_by("").with_bytes(id, offset, length, want, [&](std::span<std::byte> at) {
      EXPECT_EQ(at.size(), length);
      EXPECT_EQ(at.data(), bytes.data() + 96 + offset);
      return true;
    });
  };
  EXPECT_EQ(write(0, 1000), Code::kOk);
  EXPECT_EQ(write(1000, 0), Code::kOk);
  EXPECT_EQ(write(1, 1000), Code::kProtectionError);
  EXPECT_EQ(write(UINT64_MAX, 2), Code::kProtectionError);
  EXPECT_EQ(write(2, UINT64_MAX), Code::kProtectionError);
  EXPECT_EQ(write(0, 1, Access::kRemoteRead), Code::kProtectionError);
  ASSERT_TRUE(table->unpublish("w").has_value());
  EXPECT_EQ(write(0, 1), Code::kProtectionError);
}

TEST_F(Regions, ShutDownMakesHandlesInert) {
  ASSERT_TRUE(table->attach(first).ok());
  auto one = region();
  ASSERT_TRUE(publish("one", one).ok());
  table->shutdown();
  EXPECT_EQ(first.registered.size() + first.granted.size(), 0u);
  EXPECT_EQ(table->registered_bytes(), 0u);
  EXPECT_EQ(publish("two", one).code(), Code::kUnavailable);
  EXPECT_EQ(table->unpublish("one").status().code(), Code::kNotFound);
  one.reset();
  EXPECT_EQ(first.unknown, 0u);
}

TEST_F(Regions, DescriptionsSurviveTheWireAndBadOnesDoNot) {
  ASSERT_TRUE(table->attach(first).ok());
  auto one = region();
  const std::int64_t shape[] = {4, 8};
  ASSERT_TRUE(
      table->publish("one", one, bytes, Access::kRemoteRead, *TensorSpec::contiguous(DType::kBF16, shape)).ok());
  control::Region region;
  ASSERT_TRUE(table->seen_by("").find("one", [&](const Publication& p) { region = encode_region(p, p.grants); }).ok());
  const auto back = decode_region(region, 42);
  ASSERT_NE(back, nullptr);
  EXPECT_EQ(back->name, "one");
  EXPECT_EQ(back->size, 4096u);
  EXPECT_EQ(back->session, 42u);
  EXPECT_EQ(back->key(0).address, reinterpret_cast<std::uintptr_t>(bytes.data()));
  EXPECT_TRUE(first.granted.contains(back->key(0).key));
  EXPECT_EQ(back->key(1).key, 0u) << "of a transport that its owner does not have";
  ASSERT_TRUE(back->tensor);
  EXPECT_EQ(back->tensor->to_string(), "BF16[4,8]");
  control::Region broken = region;
  broken.access = 9;
  EXPECT_EQ(decode_region(broken, 1), nullptr);
  broken = region;
  broken.tensor->dtype = 99;
  EXPECT_EQ(decode_region(broken, 1), nullptr);
  broken = region;
  broken.tensor->shape[0] = INT64_MAX;
  EXPECT_EQ(decode_region(broken, 1), nullptr);
  broken = region;
  broken.tensor->shape.push_back(1);
  EXPECT_EQ(decode_region(broken, 1), nullptr);
  broken = region;
  broken.keys.resize(kMaxOffers + 1);
  EXPECT_EQ(decode_region(broken, 1), nullptr);
}

// ---- a device that takes its time: 64 GiB are pinned in about 10 s

/// The device is in the middle of a call, made by another thread, until go_on().
struct SlowRegions : Regions {
  std::latch inside{1}, leave{1};
  std::jthread other;

  SlowRegions() {
    EXPECT_TRUE(table->attach(first).ok());
    EXPECT_TRUE(publish("there", there = region()).ok());
  }
  ~SlowRegions() override { there.reset(); }
  auto held() {
    return [this](const MemoryDescriptor&) {
      inside.count_down();
      leave.wait();
    };
  }
  void go_on() {
    if (!std::exchange(gone_on, true)) leave.count_down();
    if (other.joinable()) other.join();
  }
  // What drives, and what programs do meanwhile. Not by this thread, so that a failure is no deadlock.
  void expect_free() {
    auto done = std::async(std::launch::async, [this] {
      std::uint64_t id = 0;
      EXPECT_TRUE(table->seen_by("").find("there", [&](const Publication& publication) { id = publication.id; }).ok());
      std::string after;
      std::size_t left = 1000;
      EXPECT_TRUE(table->seen_by("").list("", after, left, [](const Publication&) { return true; }));
      EXPECT_EQ(table->seen_by("").with_bytes(id, 0, 8, Access::kRemoteRead, [](std::span<std::byte>) { return true; }),
                Code::kOk);
      EXPECT_TRUE(table->unpublish("there").has_value());
      return table->registered_bytes();
    });
    const bool free = done.wait_for(kPatience) == std::future_status::ready;
    EXPECT_TRUE(free) << "somebody holds a lock";
    if (!free) go_on();
  }

  std::shared_ptr<RegionImpl> there;
  bool gone_on = false;
};

TEST_F(SlowRegions, RegisteringDelaysNobody) {
  first.on_register = held();
  std::shared_ptr<RegionImpl> slow;
  other = std::jthread([&] { slow = region(); });
  inside.wait();
  expect_free();
  EXPECT_EQ(table->registered_bytes(), 4096u);
  there.reset();  // deregistered at the device that is busy
  EXPECT_EQ(first.registered.size(), 0u);
  go_on();
  EXPECT_EQ(first.registered.size(), 1u);
}

TEST_F(SlowRegions, PublishingDelaysNobody) {
  first.on_grant = held();
  other = std::jthread([&] { EXPECT_TRUE(publish("slow", there).ok()); });
  inside.wait();
  expect_free();
  EXPECT_EQ(table->seen_by("").find("slow", [](const Publication&) {}).code(), Code::kNotFound);
  go_on();
  EXPECT_EQ(grants_of("slow").size(), 1u);
}

TEST_F(SlowRegions, ADeviceThatComesMeanwhileIsToldAsWell) {
  first.on_register = held();
  std::shared_ptr<RegionImpl> slow;
  other = std::jthread([&] { slow = region(); });
  inside.wait();
  ASSERT_TRUE(table->attach(second).ok());
  EXPECT_EQ(second.registered.size(), 1u) << "what is there; not what comes";
  go_on();
  EXPECT_EQ(second.registered.size(), 2u);
  EXPECT_TRUE(second.registered.contains(slow->range().local_key(1)));
}

TEST_F(SlowRegions, AttachingDelaysNobody) {
  second.on_register = held();
  other = std::jthread([&] { EXPECT_TRUE(table->attach(second).ok()); });
  inside.wait();
  // Not look-ups: attaching and they are the driver's.
  auto added = std::async(std::launch::async, [this] { return region(); });
  ASSERT_EQ(added.wait_for(kPatience), std::future_status::ready);
  const auto mine = added.get();
  EXPECT_EQ(second.registered_ever, 0u);
  go_on();
  EXPECT_TRUE(second.registered.contains(mine->range().local_key(1)));
  EXPECT_EQ(second.registered.size(), 2u);
}

// The memory is its owner's when the last handle is gone: not while a device that comes is told of it.
TEST_F(SlowRegions, LettingGoWaitsForTheDeviceThatComes) {
  ASSERT_TRUE(table->unpublish("there").has_value());
  second.on_register = held();
  other = std::jthread([&] { EXPECT_TRUE(table->attach(second).ok()); });
  inside.wait();
  auto gone = std::async(std::launch::async, [this] {
    there.reset();
    return second.registered_ever;
  });
  EXPECT_EQ(gone.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  go_on();
  EXPECT_EQ(gone.get(), 1u);
  EXPECT_EQ(first.registered.size() + second.registered.size(), 0u);
}

TEST_F(SlowRegions, ShuttingDownWaitsForWhoIsAtADevice) {
  first.on_register = held();
  std::shared_ptr<RegionImpl> slow;
  other = std::jthread([&] { slow = region(); });
  inside.wait();
  auto down = std::async(std::launch::async, [this] {
    table->shutdown();
    return first.registered_ever;
  });
  EXPECT_EQ(down.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  go_on();
  EXPECT_EQ(down.get(), 2u);
  EXPECT_EQ(first.registered.size() + first.granted.size(), 0u);
}

TEST_F(Regions, WithdrawingWaitsForWhoCopies) {
  ASSERT_TRUE(table->attach(first).ok());
  auto one = region();
  ASSERT_TRUE(publish("one", one).ok());
  std::uint64_t id = 0;
  ASSERT_TRUE(table->seen_by("").find("one", [&](const Publication& publication) { id = publication.id; }).ok());
  std::future<Result<std::uint64_t>> withdrawn;
  EXPECT_EQ(table->seen_by("").with_bytes(
                id, 0, 8, Access::kRemoteRead,
                [&](std::span<std::byte>) {
                  withdrawn = std::async(std::launch::async, [this] { return table->unpublish("one"); });
                  return withdrawn.wait_for(std::chrono::milliseconds(20)) == std::future_status::timeout;
                }),
            Code::kOk);
  EXPECT_TRUE(withdrawn.get().has_value());
  EXPECT_EQ(first.granted.size(), 0u);
}

// Programs add, publish and let go while the driver attaches devices, fails to attach one, and looks up.
TEST_F(Regions, AllAtOnce) {
  constexpr int kThreads = 3, kRounds = 60;
  constexpr std::size_t kDevices = 12;
  std::vector<std::unique_ptr<CountingDevice>> devices;
  std::array<std::vector<std::shared_ptr<RegionImpl>>, kThreads> kept;
  std::atomic<int> running{kThreads};
  std::vector<std::jthread> programs;
  for (int p = 0; p < kThreads; ++p) {
    programs.emplace_back([&, p] {
      for (int i = 0; i < kRounds; ++i) {
        auto mine = region();
        const std::string name = std::to_string(p) + "/" + std::to_string(i);
        EXPECT_TRUE(publish(name, mine).ok());
        if (i % 3 == 0) {
          kept[static_cast<std::size_t>(p)].push_back(mine);
        } else {
          EXPECT_TRUE(table->unpublish(name).has_value());
        }
      }
      --running;
    });
  }
  for (int attempt = 1; devices.size() < kDevices || running > 0; ++attempt) {
    if (devices.size() < kDevices) {
      devices.push_back(std::make_unique<CountingDevice>());
      CountingDevice& device = *devices.back();
      const auto coming = std::make_shared<std::atomic<bool>>(attempt % 3 == 0);
      device.on_grant = [&device, coming](const MemoryDescriptor&) {
        if (*coming) device.refuse = device.registered_ever > 2;
      };
      const bool attached = table->attach(device).ok();
      *coming = false;
      if (!attached) {
        EXPECT_EQ(device.registered.size() + device.granted.size(), 0u);
        EXPECT_EQ(device.unknown, 0u);
        devices.pop_back();
      }
    }
    std::size_t missing = 0;
    std::string after;
    std::size_t left = 10'000;
    EXPECT_TRUE(table->seen_by("").list("", after, left, [&](const Publication& publication) {
      for (std::size_t d = 0; d < publication.grants.size(); ++d) {
        missing += publication.region->range().local_key(d) == 0 ? 1 : 0;
      }
      return true;
    }));
    EXPECT_EQ(missing, 0u);
  }
  programs.clear();
  constexpr std::size_t kKept = kThreads * kRounds / 3;
  for (std::size_t d = 0; d < devices.size(); ++d) {
    EXPECT_EQ(devices[d]->registered.size(), kKept);
    EXPECT_EQ(devices[d]->granted.size(), kKept);
    for (const auto& each : kept) {
      for (const auto& one : each) EXPECT_TRUE(devices[d]->registered.contains(one->range().local_key(d)));
    }
  }
  EXPECT_EQ(table->registered_bytes(), kKept * bytes.size());
  table->shutdown();
  for (const auto& device : devices) {
    EXPECT_EQ(device->registered.size() + device->granted.size(), 0u);
    EXPECT_EQ(device->unknown, 0u);
  }
}

TEST_F(Regions, ShuttingDownInTheMiddle) {
  for (int round = 0; round < 20; ++round) {
    auto mine = std::make_shared<RegionTable>();
    CountingDevice device;
    ASSERT_TRUE(mine->attach(device).ok());
    std::atomic<int> added{0};
    std::jthread program([&] {
      for (int i = 0; i < 200; ++i) {
        auto range = mine->add({.bytes = bytes, .access = Access::kRemoteRead});
        ASSERT_TRUE(range);
        auto all = std::make_shared<RegionImpl>(*range, bytes, Access::kRemoteRead, nullptr);
        const Status published = mine->publish(std::to_string(i), all, bytes, Access::kRemoteRead, std::nullopt);
        EXPECT_TRUE(published.ok() || published.code() == Code::kUnavailable) << published.to_string();
        ++added;
      }
    });
    while (added < 5 * round) std::this_thread::yield();
    mine->shutdown();
    EXPECT_EQ(device.usage().registrations + device.usage().grants, 0u);
    program.join();
    EXPECT_EQ(device.usage().registrations + device.usage().grants, 0u);
    EXPECT_EQ(device.unknown, 0u);
  }
}

TEST_F(Regions, TheLargestRangeIsWhatEveryDeviceTakes) {
  EXPECT_GT(table->largest_range(), std::uint64_t{1} << 60);
  CountingDevice small(true, 5 << 20), smaller(true, 3 << 20), any;
  for (CountingDevice* each : {&small, &smaller, &any}) ASSERT_TRUE(table->attach(*each).ok());
  EXPECT_EQ(table->largest_range(), 3u << 20);
  std::vector<std::byte> memory(8 << 20);
  {
    EngineCache cache(*table, 0);
    ASSERT_TRUE(cache.declare(memory, true).ok());
    EXPECT_EQ(any.registered.size(), 4u) << "pieces of whole huge pages";
    std::size_t bytes = 0;
    for (const auto& [key, registered] : smaller.registered) {
      EXPECT_LE(registered.bytes.size(), 3u << 20);
      bytes += registered.bytes.size();
    }
    EXPECT_EQ(bytes, memory.size());
  }
  table->shutdown();
}

}  // namespace
}  // namespace fairlead::datapath
