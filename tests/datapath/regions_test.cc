#include "datapath/region/regions.h"

#include <gtest/gtest.h>

#include "datapath/region/region_codec.h"

namespace fairlead::datapath {
namespace {

/// Counts registrations; refuses when told to.
class CountingTransport final : public Transport {
 public:
  std::string_view name() const noexcept override { return "counting"; }
  const Capabilities& capabilities() const noexcept override { return capabilities_; }
  std::string describe() const override { return "counting"; }
  Result<Registration> register_region(std::span<std::byte> bytes, Access access) override {
    if (refuse) return Status(Code::kResourceExhausted, "RLIMIT_MEMLOCK");
    ++live;
    last_access = access;
    const std::uint64_t n = ++next_;
    return Registration{n, reinterpret_cast<std::uint64_t>(bytes.data()), 1000 + n, n};
  }
  void deregister_region(const Registration&) noexcept override { --live; }
  Result<std::unique_ptr<Path>> open_path(const PathConfig&) override { return Status(Code::kUnimplemented, "no"); }
  bool poll(PathEvents&) noexcept override { return false; }
  bool arm() noexcept override { return true; }
  int wait_fd() const noexcept override { return -1; }
  int wait_timeout_us() const noexcept override { return -1; }

  int live = 0;
  bool refuse = false;
  Access last_access = Access::kNone;

 private:
  Capabilities capabilities_;
  std::uint64_t next_ = 0;
};

struct Regions : testing::Test {
  std::shared_ptr<RegionTable> table = std::make_shared<RegionTable>();
  CountingTransport first, second;
  std::array<std::byte, 4096> bytes{};

  ~Regions() override { table->shutdown(); }  // as the engine does; published regions hold the table

  std::shared_ptr<RegionImpl> region(Access access = Access::kRemoteReadWrite) {
    auto range = table->add(bytes, access);
    EXPECT_TRUE(range);
    return std::make_shared<RegionImpl>(*range, bytes, access, nullptr);
  }
};

TEST_F(Regions, AreRegisteredOnceWithEveryTransportAlsoWithLaterOnes) {
  ASSERT_TRUE(table->attach(0, first).ok());
  auto one = region();
  EXPECT_EQ(first.live, 1);
  ASSERT_TRUE(table->publish("one", one, bytes, Access::kRemoteRead, std::nullopt).ok());
  EXPECT_EQ(first.live, 2);
  EXPECT_EQ(first.last_access, Access::kRemoteRead);
  ASSERT_TRUE(table->attach(1, second).ok());
  EXPECT_EQ(second.live, 2);
  EXPECT_EQ(table->registered_bytes(), 4096u);
  ASSERT_TRUE(table->unpublish("one").ok());
  EXPECT_EQ(first.live, 1);
  one.reset();
  EXPECT_EQ(first.live, 0);
  EXPECT_EQ(second.live, 0);
  EXPECT_EQ(table->registered_bytes(), 0u);
}

TEST_F(Regions, ARefusalLeavesNothingBehind) {
  ASSERT_TRUE(table->attach(0, first).ok());
  ASSERT_TRUE(table->attach(1, second).ok());
  second.refuse = true;
  auto range = table->add(bytes, Access::kNone);
  ASSERT_FALSE(range);
  EXPECT_NE(range.error().message().find("counting: RLIMIT_MEMLOCK"), std::string::npos);
  EXPECT_EQ(first.live, 0);
}

TEST_F(Regions, GrantNoMoreThanWasRegistered) {
  auto read_only = region(Access::kRemoteRead | Access::kLocalReadOnly);
  EXPECT_EQ(table->publish("x", read_only, bytes, Access::kRemoteWrite, std::nullopt).code(), Code::kPermissionDenied);
  EXPECT_TRUE(table->publish("x", read_only, bytes, Access::kRemoteRead, std::nullopt).ok());
  EXPECT_EQ(table->publish("x", read_only, bytes, Access::kRemoteRead, std::nullopt).code(), Code::kAlreadyExists);
  EXPECT_EQ(table->publish("", read_only, bytes, Access::kRemoteRead, std::nullopt).code(), Code::kInvalidArgument);
  EXPECT_EQ(table->unpublish("y").code(), Code::kNotFound);
  const std::int64_t shape[] = {2000};
  auto tensor = TensorSpec::contiguous(DType::kF32, shape);
  EXPECT_FALSE(table->publish("t", read_only, bytes, Access::kRemoteRead, *tensor).ok());
}

TEST_F(Regions, StagedAccessIsCheckedToTheByte) {
  auto whole = region();
  ASSERT_TRUE(table->publish("w", whole, std::span(bytes).subspan(96, 1000), Access::kRemoteWrite, std::nullopt).ok());
  std::uint64_t id = 0;
  ASSERT_TRUE(table->find("w", [&](const Publication& p) { id = p.id; }).ok());
  const auto write = [&](std::uint64_t offset, std::uint64_t length, Access want = Access::kRemoteWrite) {
    return table->with_bytes(id, offset, length, want, [&](std::span<std::byte> at) {
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
  ASSERT_TRUE(table->unpublish("w").ok());
  EXPECT_EQ(write(0, 1), Code::kProtectionError);
}

TEST_F(Regions, ShutDownMakesHandlesInert) {
  ASSERT_TRUE(table->attach(0, first).ok());
  auto one = region();
  ASSERT_TRUE(table->publish("one", one, bytes, Access::kRemoteRead, std::nullopt).ok());
  table->shutdown();
  EXPECT_EQ(first.live, 0);
  one.reset();
  EXPECT_EQ(first.live, 0);
}

TEST_F(Regions, DescriptionsSurviveTheWireAndBadOnesDoNot) {
  auto one = region();
  const std::int64_t shape[] = {4, 8};
  ASSERT_TRUE(
      table->publish("one", one, bytes, Access::kRemoteRead, *TensorSpec::contiguous(DType::kBF16, shape)).ok());
  control::Region region;
  ASSERT_TRUE(table->find("one", [&](const Publication& p) { region = encode_region(p); }).ok());
  const auto back = decode_region(region, 42);
  ASSERT_NE(back, nullptr);
  EXPECT_EQ(back->name, "one");
  EXPECT_EQ(back->size, 4096u);
  EXPECT_EQ(back->session, 42u);
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
  broken.keys.resize(9);
  EXPECT_EQ(decode_region(broken, 1), nullptr);
}

}  // namespace
}  // namespace fairlead::datapath
