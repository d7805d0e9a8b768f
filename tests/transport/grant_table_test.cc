#include "transport/grant_table.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

namespace fairlead::datapath {
namespace {

struct Fixture {
  GrantTable table;
  GrantReader reader{table};
  std::vector<std::byte> memory = std::vector<std::byte>(1000);

  bool finds(std::uint64_t key, std::uint64_t address, std::uint64_t length, Access want = Access::kRemoteWrite) {
    const GrantReader::Section section(reader);
    return reader.find(0, key, address, length, want).has_value();
  }
};

TEST(GrantTableFind, KeepsToTheBounds) {
  Fixture f;
  const auto grant = f.table.grant(f.memory, Access::kRemoteReadWrite);
  EXPECT_TRUE(f.finds(grant.key, 0, 1000));
  EXPECT_TRUE(f.finds(grant.key, 999, 1));
  EXPECT_TRUE(f.finds(grant.key, 1000, 0));
  EXPECT_FALSE(f.finds(grant.key, 0, 1001));
  EXPECT_FALSE(f.finds(grant.key, 1000, 1));
  EXPECT_FALSE(f.finds(grant.key, 1001, 0));
  EXPECT_FALSE(f.finds(grant.key, 1, ~std::uint64_t{0}));
  EXPECT_FALSE(f.finds(grant.key, ~std::uint64_t{0}, 2));
  EXPECT_FALSE(f.finds(grant.key + 1, 0, 1));
  EXPECT_FALSE(f.finds(0, 0, 0));
  const GrantReader::Section section(f.reader);
  EXPECT_EQ(f.reader.find(0, grant.key, 10, 20, Access::kRemoteRead)->data(), f.memory.data() + 10);
}

TEST(GrantTableFind, KeepsToTheDomain) {
  Fixture f;
  const auto of_one = f.table.grant(f.memory, Access::kRemoteReadWrite, 1).key;
  const auto of_none = f.table.grant(f.memory, Access::kRemoteReadWrite).key;
  const GrantReader::Section section(f.reader);
  EXPECT_TRUE(f.reader.find(1, of_one, 0, 10, Access::kRemoteRead));
  EXPECT_TRUE(f.reader.find(0, of_none, 0, 10, Access::kRemoteRead));
  for (const auto& [domain, key] : {std::pair(DomainNumber{0}, of_one), {2, of_one}, {1, of_none}, {2, of_none}}) {
    EXPECT_FALSE(f.reader.find(domain, key, 0, 10, Access::kRemoteRead)) << domain;
  }
}

TEST(GrantTableFind, KeepsToTheGrant) {
  Fixture f;
  const auto read = f.table.grant(f.memory, Access::kRemoteRead).key;
  const auto write = f.table.grant(f.memory, Access::kRemoteWrite).key;
  const auto none = f.table.grant(f.memory, Access::kNone).key;
  EXPECT_TRUE(f.finds(read, 0, 1, Access::kRemoteRead));
  EXPECT_FALSE(f.finds(read, 0, 1, Access::kRemoteWrite));
  EXPECT_TRUE(f.finds(write, 0, 1, Access::kRemoteWrite));
  EXPECT_FALSE(f.finds(write, 0, 1, Access::kRemoteRead));
  EXPECT_FALSE(f.finds(none, 0, 1, Access::kRemoteRead));
  EXPECT_FALSE(f.finds(none, 0, 1, Access::kRemoteWrite));
}

TEST(GrantTableGrant, KeysAreNeverReused) {
  Fixture f;
  std::set<std::uint64_t> keys;
  for (int i = 0; i < 1000; ++i) {
    const auto grant = f.table.grant(f.memory, Access::kRemoteRead);
    keys.insert(grant.key);
    f.table.revoke(grant);
    EXPECT_FALSE(f.finds(grant.key, 0, 1, Access::kRemoteRead));
  }
  EXPECT_EQ(keys.size(), 1000u);
}

// The owner clears its memory after revoke(); the drivers write only inside Sections that still find it.
TEST(GrantTableRevoke, WaitsForTheSection) {
  for (int round = 0; round < 40; ++round) {
    Fixture f;
    const auto grant = f.table.grant(f.memory, Access::kRemoteWrite);
    std::atomic<int> started{0};
    const auto drive = [&](GrantReader& reader, std::size_t from) {
      for (bool found = true, first = true; found; first = false) {
        const GrantReader::Section section(reader);
        const auto bytes = reader.find(0, grant.key, from, f.memory.size() / 2, Access::kRemoteWrite);
        found = bytes.has_value();
        if (found) std::fill(bytes->begin(), bytes->end(), std::byte{1});
        started += first ? 1 : 0;
      }
    };
    GrantReader other(f.table);
    std::jthread driver([&] { drive(f.reader, 0); });
    std::jthread second([&] { drive(other, f.memory.size() / 2); });
    while (started != 2) std::this_thread::yield();
    f.table.revoke(grant);
    std::fill(f.memory.begin(), f.memory.end(), std::byte{2});
    driver.join();
    second.join();
    ASSERT_TRUE(std::all_of(f.memory.begin(), f.memory.end(), [](std::byte b) { return b == std::byte{2}; }));
  }
}

}  // namespace
}  // namespace fairlead::datapath
