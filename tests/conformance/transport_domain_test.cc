// Domains of a device: a path reaches what is granted in its own, whoever holds which key, and nothing else.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "tests/conformance/transport_fixture.h"

namespace fairlead::conformance {
namespace {

using datapath::MemoryDomain;

/// The passive end has two domains beside its device's, with the same memory granted in all three, and its path is of
/// the first. So is the active end's, of a domain of its own device.
class TransportDomainTest : public TransportTest {
 protected:
  enum Of : std::size_t { kOwn, kOther, kDevice };
  static constexpr std::size_t kBytes = 1000;

  void SetUp() override {
    TransportTest::SetUp();
    if (HasFatalFailure()) return;
    for (auto* domain : {&own_, &other_, &from_}) {
      End& end = domain == &from_ ? a : b;
      auto opened = end.device->open_domain();
      ASSERT_TRUE(opened.has_value()) << opened.status().to_string();
      *domain = std::move(*opened);
      EXPECT_EQ((*domain)->name(), end.device->name());
    }
    MemoryDomain* const all[] = {own_.get(), other_.get(), b.device.get()};
    for (std::size_t i = 0; i < 3; ++i) {
      registrations_[i] = *all[i]->register_memory({.bytes = target_, .access = Access::kRemoteReadWrite});
      grants_[i] = *all[i]->grant({.bytes = target_, .access = Access::kRemoteReadWrite});
    }
    source_key_ = *from_->register_memory({.bytes = source_, .access = Access::kRemoteReadWrite});
    a.path.reset();
    b.path.reset();
    a.domain = from_.get();
    b.domain = own_.get();
    a.open_path(PathRole::kActive, GetParam().host);
    b.open_path(PathRole::kPassive, GetParam().host);
    connect();
  }
  void TearDown() override {
    for (End* end : {&a, &b}) end->path.reset();
    MemoryDomain* const all[] = {own_.get(), other_.get(), b.device.get()};
    for (std::size_t i = 0; i < 3 && all[i] != nullptr; ++i) {
      all[i]->revoke(grants_[i]);
      all[i]->deregister(registrations_[i]);
    }
    if (from_ != nullptr) from_->deregister(source_key_);
    // Its paths are gone, but for what the endpoint lets go of with the next poll.
    for (End* end : {&a, &b}) {
      if (end->endpoint != nullptr) end->poll();
      end->endpoint.reset();
      if (end->device == nullptr) continue;
      EXPECT_EQ(end->device->usage().registrations + end->device->usage().grants, 0u);
    }
    for (auto* domain : {&own_, &other_, &from_}) domain->reset();
    TransportTest::TearDown();
  }

  Code run(OpKind kind, const Grant& at) {
    const LocalSegment segment{source_.data(), kBytes, source_key_.local};
    const std::uint64_t id = a.posted + 1;
    a.post({.id = id, .kind = kind, .local = {&segment, 1}, .remote_address = at.address, .remote_key = at.key});
    EXPECT_TRUE(pump([&] { return a.code_of(id).has_value(); }));
    return a.code_of(id).value_or(Code::kInternal);
  }
  /// Another path where a refusal ended this one.
  void connect_again() {
    a.path.reset();
    b.path.reset();
    a.ready = b.ready = a.downs = b.downs = 0;
    a.open_path(PathRole::kActive, GetParam().host);
    b.open_path(PathRole::kPassive, GetParam().host);
    connect();
  }
  bool holds(std::byte value) const {
    return std::all_of(target_.begin(), target_.end(), [value](std::byte each) { return each == value; });
  }

  std::vector<std::byte> target_ = std::vector<std::byte>(kBytes);
  std::vector<std::byte> source_ = std::vector<std::byte>(kBytes, std::byte{7});
  std::unique_ptr<MemoryDomain> own_, other_, from_;
  std::array<Registration, 3> registrations_{};
  std::array<Grant, 3> grants_{};
  Registration source_key_;
};

TEST_P(TransportDomainTest, APathReachesWhatItsOwnGrants) {
  EXPECT_EQ(run(OpKind::kWrite, grants_[kOwn]), Code::kOk);
  EXPECT_TRUE(holds(std::byte{7}));
  std::fill(target_.begin(), target_.end(), std::byte{9});
  EXPECT_EQ(run(OpKind::kRead, grants_[kOwn]), Code::kOk);
  EXPECT_EQ(source_.back(), std::byte{9});
}

TEST_P(TransportDomainTest, KeysOfOthersOpenNothing) {
  // linux_rxe loses the answer to such a refusal; the domains are the kernel's there.
  if (GetParam().linux_rxe) GTEST_SKIP() << "this device does not say that it refused";
  for (const Of of : {kOther, kDevice}) {
    for (const OpKind kind : {OpKind::kWrite, OpKind::kRead}) {
      EXPECT_NE(grants_[of].key, grants_[kOwn].key);
      EXPECT_EQ(run(kind, grants_[of]), Code::kProtectionError);
      EXPECT_TRUE(holds(std::byte{0})) << "nothing was written";
      EXPECT_EQ(source_.front(), std::byte{7}) << "nothing was read";
      connect_again();
    }
  }
  EXPECT_EQ(run(OpKind::kWrite, grants_[kOwn]), Code::kOk);
  EXPECT_TRUE(holds(std::byte{7}));
}

TEST_P(TransportDomainTest, AGrantIsWithdrawnInItsDomainAlone) {
  if (GetParam().linux_rxe) GTEST_SKIP() << "this device does not say that it refused";
  other_->revoke(grants_[kOther]);
  EXPECT_EQ(run(OpKind::kWrite, grants_[kOwn]), Code::kOk);
  own_->revoke(grants_[kOwn]);
  EXPECT_EQ(run(OpKind::kWrite, grants_[kOwn]), Code::kProtectionError);
  grants_[kOwn] = *own_->grant({.bytes = target_, .access = Access::kRemoteReadWrite});
  grants_[kOther] = *other_->grant({.bytes = target_, .access = Access::kRemoteReadWrite});
  connect_again();
  EXPECT_EQ(run(OpKind::kWrite, grants_[kOwn]), Code::kOk);
}

INSTANTIATE_TEST_SUITE_P(Transports, TransportDomainTest, testing::ValuesIn(transport_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fairlead::conformance
