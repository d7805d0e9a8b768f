// Principals with domains of their own: what each domain is told, and when that ends.
#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "datapath/region/region_codec.h"
#include "datapath/region/regions.h"
#include "tests/datapath/counting_device.h"
#include "tests/no_threads.h"

namespace fairlead::datapath {
namespace {

using testing::HasSubstr;

struct Tenants : testing::Test {
  std::shared_ptr<RegionTable> table = std::make_shared<RegionTable>();
  CountingDevice device;
  CountingDevice nic{false};  // where grants are no entries: told on another thread
  std::array<std::byte, 4096> bytes{};
  std::shared_ptr<RegionImpl> region;

  void SetUp() override {
    ASSERT_TRUE(table->attach(device).ok());
    ASSERT_TRUE(table->attach(nic).ok());
    auto range = table->add({.bytes = bytes, .access = Access::kRemoteReadWrite});
    ASSERT_TRUE(range);
    region = std::make_shared<RegionImpl>(*range, bytes, Access::kRemoteReadWrite, nullptr);
  }
  ~Tenants() override {
    region.reset();
    table->shutdown();
    EXPECT_EQ(device.unknown + nic.unknown, 0u);
  }

  Status publish(std::string_view name, std::vector<std::string> audience = {}) {
    return table->publish(name, region, bytes, Access::kRemoteRead, std::nullopt, std::move(audience));
  }
  /// The domain of `principal` at the first device, and what was told of it.
  struct Domain {
    std::shared_ptr<Tenant> tenant;
    DomainBook* book = nullptr;
    CountingDevice* at = nullptr;
  };
  Domain domain_of(std::string_view principal, std::size_t number = 0) {
    CountingDevice& of = number == 0 ? device : nic;
    Domain found{.tenant = table->tenant(principal)};
    const Result<DomainBook*> book = table->domain(*found.tenant, number, of);
    EXPECT_TRUE(book) << book.status().to_string();
    if (book) found.book = *book;
    found.at = dynamic_cast<CountingDevice*>(&found.book->domain());
    return found;
  }
  /// The keys by which `domain`'s principal reaches it; none: it is not there for it.
  std::vector<Grant> keys(const Domain& domain, std::string_view name) {
    std::vector<Grant> keys;
    const auto view = table->seen_by(domain.tenant->principal, domain.tenant.get());
    (void)view.find(name, [&](const Publication& publication) { keys = view.keys(publication); });
    return keys;
  }
  static constexpr std::size_t kProbe = 1;  // of each domain: a registration, and a grant
};

TEST_F(Tenants, AreToldWhatIsForThemAndHaveKeysOfTheirOwn) {
  ASSERT_TRUE(publish("all").ok());
  ASSERT_TRUE(publish("store", {"store"}).ok());
  const Domain trainer = domain_of("trainer"), store = domain_of("store");
  EXPECT_EQ(trainer.at->registered.size(), 1 + kProbe);
  EXPECT_EQ(trainer.at->granted.size(), 1 + kProbe);
  EXPECT_EQ(store.at->granted.size(), 2 + kProbe);
  ASSERT_EQ(keys(trainer, "all").size(), 1u);
  EXPECT_TRUE(trainer.at->granted.contains(keys(trainer, "all")[0].key));
  EXPECT_TRUE(keys(trainer, "store").empty()) << "it is not there";

  // What comes later.
  ASSERT_TRUE(publish("late", {"*"}).ok());
  ASSERT_TRUE(publish("late store", {"store"}).ok());
  EXPECT_EQ(trainer.at->granted.size(), 2 + kProbe);
  EXPECT_EQ(store.at->granted.size(), 4 + kProbe);
  const auto range = table->add({.bytes = std::span(bytes).first(64)});
  ASSERT_TRUE(range);
  EXPECT_TRUE(trainer.book->local_key(range->get()));
  EXPECT_TRUE(trainer.at->registered.contains(*trainer.book->local_key(&region->range())));
  EXPECT_EQ(domain_of("trainer").book, trainer.book) << "made once";
  EXPECT_EQ(device.domains.size(), 2u);
}

// Sessions of the engine's own principal, here anonymous ones, use the device's own domain: what is for others has no
// key there that they might guess.
TEST_F(Tenants, ADevicesOwnDomainHasNoKeyForWhatIsForOthers) {
  ASSERT_TRUE(publish("secret", {"alice"}).ok());
  EXPECT_TRUE(device.granted.empty());
  const Domain alices = domain_of("alice");
  ASSERT_NE(alices.at, nullptr);
  EXPECT_EQ(alices.at->granted.size(), 2U) << "hers, and what proves a path";
  ASSERT_TRUE(publish("open").ok());
  EXPECT_EQ(device.granted.size(), 1U);
  ASSERT_TRUE(table->unpublish("secret"));
  EXPECT_EQ(device.granted.size(), 1U);
  ASSERT_TRUE(table->unpublish("open"));
  EXPECT_TRUE(device.granted.empty());
}

TEST_F(Tenants, LoseWhatIsWithdrawn) {
  ASSERT_TRUE(publish("one").ok());
  const Domain trainer = domain_of("trainer");
  ASSERT_TRUE(publish("two").ok());
  ASSERT_TRUE(table->unpublish("one"));
  EXPECT_EQ(trainer.at->granted.size(), 1 + kProbe);
  ASSERT_TRUE(table->unpublish("two"));
  EXPECT_EQ(trainer.at->granted.size(), kProbe);
  EXPECT_EQ(publish("one").ok(), true);
  EXPECT_EQ(publish("one").code(), Code::kAlreadyExists);
  EXPECT_EQ(trainer.at->granted.size(), 1 + kProbe) << "what could not be published is granted nowhere";
  ASSERT_TRUE(table->unpublish("one"));
  region.reset();
  EXPECT_EQ(trainer.at->registered.size(), kProbe);
  EXPECT_EQ(trainer.at->unknown, 0u);
}

TEST_F(Tenants, ListingsMakeNoDomains) {
  ASSERT_TRUE(publish("all").ok());
  const std::shared_ptr<Tenant> tenant = table->tenant("trainer");
  const auto view = table->seen_by("trainer", tenant.get());
  std::size_t seen = 0;
  std::string after;
  std::size_t left = 10;
  EXPECT_TRUE(view.list("", after, left, [&](const Publication& publication) {
    EXPECT_TRUE(encode_region(publication, view.keys(publication)).keys.empty());
    return ++seen != 0;
  }));
  EXPECT_EQ(seen, 1u);
  EXPECT_TRUE(device.domains.empty());
}

TEST_F(Tenants, ADomainThatPinsIsToldBesideAndGoesByMessageTillThen) {
  ASSERT_TRUE(publish("all").ok());
  std::latch begun(1), may_go_on(1);
  std::atomic<bool> first{true};
  nic.on_register = [&](const MemoryDescriptor& memory) {
    if (memory.bytes.data() != bytes.data() || !first.exchange(false)) return;  // the probe's
    begun.count_down();
    may_go_on.wait();
  };
  const Domain trainer = domain_of("trainer", 1);  // and does not wait
  begun.wait();
  ASSERT_EQ(keys(trainer, "all").size(), 2u);
  EXPECT_EQ(keys(trainer, "all")[1].key, 0u) << "by message";
  EXPECT_FALSE(trainer.book->local_key(&region->range()));
  // What is withdrawn before the domain is told of it never gets there; who withdraws what it is being told waits.
  std::thread withdraws([&] { EXPECT_TRUE(table->unpublish("all")); });
  withdraws.join();
  may_go_on.count_down();
  ASSERT_TRUE(publish("late").ok());  // told by now, or soon
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  const auto knows_all = [&] {
    return trainer.book->local_key(&region->range()) && keys(trainer, "late").at(1).key != 0;
  };
  while (!knows_all() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_TRUE(knows_all());
  ASSERT_TRUE(table->unpublish("late"));
  EXPECT_EQ(trainer.at->granted.size(), kProbe);
}

TEST_F(Tenants, WithoutAThreadADomainThatPinsGoesByMessageTillTheNext) {
  ASSERT_TRUE(publish("all").ok());
  std::optional<test::NoThreads> none(std::in_place);
  const Domain trainer = domain_of("trainer", 1);
  ASSERT_EQ(keys(trainer, "all").size(), 2u);
  EXPECT_EQ(keys(trainer, "all")[1].key, 0u) << "by message";
  none.reset();
  const Domain store = domain_of("store", 1);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  const auto both_know = [&] { return keys(trainer, "all").at(1).key != 0 && keys(store, "all").at(1).key != 0; };
  while (!both_know() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_TRUE(both_know());
}

TEST_F(Tenants, WhatADomainRefusesGoesByMessage) {
  const Domain trainer = domain_of("trainer");
  trainer.at->refuse = true;
  ASSERT_TRUE(publish("all").ok()) << "others reach it";
  EXPECT_EQ(keys(trainer, "all").at(0).key, 0u);
  const auto range = table->add({.bytes = std::span(bytes).first(64)});
  ASSERT_TRUE(range);
  EXPECT_FALSE(trainer.book->local_key(range->get()));
  EXPECT_TRUE(table->unpublish("all"));
  EXPECT_EQ(trainer.at->unknown, 0u);
}

TEST_F(Tenants, ADeviceThatHasNoMoreDomainsSaysSo) {
  device.refuse = true;
  const std::shared_ptr<Tenant> tenant = table->tenant("trainer");
  const Result<DomainBook*> none = table->domain(*tenant, 0, device);
  EXPECT_EQ(none.status().code(), Code::kResourceExhausted);
  device.refuse = false;
  EXPECT_TRUE(table->domain(*tenant, 0, device)) << "asked again";
}

TEST_F(Tenants, AfterTheEndThereAreNone) {
  const Domain trainer = domain_of("trainer");
  table->shutdown();
  EXPECT_EQ(table->domain(*trainer.tenant, 0, device).status().code(), Code::kUnavailable);
  EXPECT_TRUE(table->seen_by("trainer", trainer.tenant.get()).find("all", [](const Publication&) {}).code() ==
              Code::kNotFound);
}

// ---- exports

TEST_F(Tenants, AnExportIsThereForWhoHasItsCapability) {
  const Domain trainer = domain_of("trainer");
  const auto made = table->export_region(region, bytes, Access::kRemoteRead, {"trainer"});
  ASSERT_TRUE(made);
  EXPECT_EQ(trainer.at->granted.size(), 1 + kProbe);
  std::unordered_set<std::uint64_t> told;
  const auto view = table->seen_by("trainer", trainer.tenant.get(), &told);
  std::string after;
  std::size_t left = 10;
  EXPECT_TRUE(view.list("", after, left, [](const Publication&) {
    ADD_FAILURE() << "it has no name";
    return false;
  }));
  const auto read = [&](const RegionTable::View& by) {
    return by.with_bytes(made->region, 0, 8, Access::kRemoteRead, [](std::span<std::byte>) { return true; });
  };
  EXPECT_EQ(read(view), Code::kProtectionError) << "its number alone is worth nothing";
  const auto import = [](const RegionTable::View& by, const std::string& text) {
    return by.import(text, [](const Publication&) {});
  };
  const std::string text = to_text(*made);
  std::uint64_t found = 0;
  ASSERT_TRUE(view.import(text,
                          [&](const Publication& publication) {
                            found = publication.id;
                            EXPECT_EQ(view.keys(publication).size(), 1u);
                            EXPECT_NE(view.keys(publication)[0].key, 0u);
                          })
                  .ok());
  EXPECT_EQ(found, made->region);
  told.insert(found);
  EXPECT_EQ(read(view), Code::kOk);

  Capability wrong = *made;
  wrong.secret[31] = static_cast<char>(wrong.secret[31] ^ 1);
  Capability more = *made;
  more.access = Access::kRemoteReadWrite;
  Capability unknown = *made;
  unknown.region ^= 1;
  for (const Capability& each : {wrong, more, unknown}) {
    const Status refused = import(view, to_text(each));
    EXPECT_EQ(refused.code(), Code::kPermissionDenied);
    EXPECT_THAT(refused.message(), HasSubstr("the capability opens nothing here"));
  }
  EXPECT_EQ(import(view, "nonsense").code(), Code::kPermissionDenied);
  EXPECT_EQ(import(table->seen_by("store"), text).code(), Code::kPermissionDenied) << "it is for another";
  EXPECT_EQ(read(table->seen_by("store", nullptr, &told)), Code::kProtectionError);

  EXPECT_EQ(table->unexport(wrong).code(), Code::kNotFound);
  ASSERT_TRUE(table->unexport(*made).ok());
  EXPECT_EQ(table->unexport(*made).code(), Code::kNotFound);
  EXPECT_EQ(trainer.at->granted.size(), kProbe);
  EXPECT_EQ(import(view, text).code(), Code::kPermissionDenied);
  EXPECT_EQ(read(view), Code::kProtectionError);
}

TEST_F(Tenants, MoreThanWasRegisteredIsNotExported) {
  auto range = table->add({.bytes = bytes, .access = Access::kRemoteRead});
  ASSERT_TRUE(range);
  const auto reads = std::make_shared<RegionImpl>(*range, bytes, Access::kRemoteRead, nullptr);
  EXPECT_EQ(table->export_region(reads, bytes, Access::kRemoteWrite).status().code(), Code::kPermissionDenied);
}

// Domains come, and things come and go, from several threads: each domain ends with what is there, and no more.
TEST_F(Tenants, ComeWhileOthersPublish) {
  constexpr int kRounds = 200, kNames = 4;
  std::latch go(3);
  std::atomic<int> made{0};
  std::thread publishes([&] {
    go.arrive_and_wait();
    for (int i = 0; i < kRounds; ++i) {
      const std::string name = "r" + std::to_string(i % kNames);
      EXPECT_TRUE(publish(name).ok());
      if (i >= kRounds - kNames) continue;
      EXPECT_TRUE(table->unpublish(name));
    }
  });
  std::thread registers([&] {
    go.arrive_and_wait();
    for (int i = 0; i < kRounds; ++i) EXPECT_TRUE(table->add({.bytes = std::span(bytes).first(64)}));
  });
  std::thread comes([&] {
    go.arrive_and_wait();
    for (int i = 0; i < 20; ++i) {
      domain_of("tenant" + std::to_string(i));
      ++made;
    }
  });
  for (std::thread* each : {&publishes, &registers, &comes}) each->join();
  ASSERT_EQ(device.domains.size(), 20u);
  for (const CountingDevice* domain : device.domains) {
    EXPECT_EQ(domain->granted.size(), kNames + kProbe);
    EXPECT_EQ(domain->registered.size(), 1 + kProbe);
    EXPECT_EQ(domain->unknown, 0u);
  }
}

}  // namespace
}  // namespace fairlead::datapath
