#include "verbs/provider/system_api.h"

#include <gtest/gtest.h>

#include "verbs/discovery/device_list.h"

namespace fairlead::verbs {
namespace {

TEST(SystemApi, IsWholeOrAbsentWithAReason) {
  const auto api = system_api();
  if (!api) {
    EXPECT_FALSE(api.error().message().empty());
    GTEST_SKIP() << api.error().to_string();
  }
  EXPECT_STREQ((*api)->source, "libibverbs.so.1");
  // Every pointer of the table stands behind `source`.
  const auto* entries = reinterpret_cast<void* const*>(*api);
  for (std::size_t i = 1; i < sizeof(VerbsApi) / sizeof(void*); ++i) EXPECT_NE(entries[i], nullptr) << "entry " << i;
}

TEST(SystemApi, ListsDevicesWithoutCrashingWhereThereAreNone) {
  const auto api = system_api();
  if (!api) GTEST_SKIP() << api.error().to_string();
  for (const std::string& name : device_names(**api)) {
    auto context = open_by_name(**api, name);
    if (!context) continue;  // no permission, for example
    const auto port = query_port_facts(**api, context->get(), name, 1);
    ASSERT_TRUE(port) << port.error().to_string();
    EXPECT_FALSE(explain_device(*port, nullptr, VerbsConfig{}, "test").empty());
  }
  const auto missing = open_by_name(**api, "no such device");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), Code::kNotFound);
}

TEST(SystemApi, KnowsWhichKernelsCopyPinnedPagesForChildren) {
  for (const char* const release : {"5.12.0", "5.15.0-91-generic", "6.1.0-18-amd64", "6.18.44", "10.0"}) {
    EXPECT_TRUE(copies_pinned_pages(release)) << release;
  }
  for (const char* const release :
       {"5.11.22", "5.4.0-150-generic", "4.18.0-553.el8.x86_64", "3.10.0", "", "five", "6"}) {
    EXPECT_FALSE(copies_pinned_pages(release)) << release;
  }
}

}  // namespace
}  // namespace fairlead::verbs
