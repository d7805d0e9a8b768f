#include "cli/tenants/tenants_file.h"

#include <gmock/gmock.h>

#include <cstdio>
#include <fstream>

namespace fairlead::cli {
namespace {

using command::Tenant;
using testing::HasSubstr;

std::string error_of(std::string_view text) {
  const Result<std::vector<Tenant>> read = parse_tenants(text, "tenants");
  return read ? "" : read.error().message();
}

TEST(TenantsFile, SettingsInAnyOrderAndComments) {
  const Result<std::vector<Tenant>> read = parse_tenants(
      "# who may come\n"
      "trainer memory=8G share=25% sessions=4\n"
      "\n"
      "  store\tdevices=2,0 share=0.5 bandwidth=1M channels=2 commands=64 # no more\r\n"
      "*",
      "tenants");
  ASSERT_TRUE(read) << read.error().to_string();
  ASSERT_EQ(read->size(), 3u);
  EXPECT_EQ((*read)[0].name, "trainer");
  EXPECT_EQ((*read)[0].memory_bytes, std::uint64_t{8} << 30);
  EXPECT_EQ((*read)[0].sessions, 4u);
  EXPECT_DOUBLE_EQ((*read)[0].share, 0.25);
  EXPECT_TRUE((*read)[0].devices.empty());
  EXPECT_THAT((*read)[1].devices, testing::ElementsAre(2, 0));
  EXPECT_EQ((*read)[0].channels, 0u);
  EXPECT_EQ((*read)[1].bytes_per_second, std::uint64_t{1} << 20);
  EXPECT_EQ((*read)[1].channels, 2u);
  EXPECT_EQ((*read)[1].credits, 64u);
  EXPECT_EQ((*read)[2].name, "*");
}

TEST(TenantsFile, WhatIsWrongIsSaidWithItsLine) {
  EXPECT_THAT(error_of(""), HasSubstr("tenants names no tenant"));
  EXPECT_THAT(error_of("a\nb memory\n"), HasSubstr("tenants, line 2: 'memory' is no setting"));
  EXPECT_THAT(error_of("a memory =8G"), HasSubstr("without blanks"));
  EXPECT_THAT(error_of("a memory=0"), HasSubstr("line 1: memory: '0' is not legal here"));
  EXPECT_THAT(error_of("a memory="), HasSubstr("line 1: memory:"));
  EXPECT_THAT(error_of("a sessions=-1"), HasSubstr("a whole number from 1 to"));
  EXPECT_THAT(error_of("a commands=63"), HasSubstr("from 64 to 65536"));
  EXPECT_THAT(error_of("a channels=4097"), HasSubstr("from 1 to 4096"));
  EXPECT_THAT(error_of("a colour=red"), HasSubstr("there is no 'colour' (legal: memory,"));
  EXPECT_THAT(error_of("a/b memory=1"), HasSubstr("a name has"));
  EXPECT_THAT(error_of("a memory=8G memory=1M"), HasSubstr("line 1: memory: it is set twice"));
  for (const char* const devices : {"", ",", "0,", "16", "-1", "x"}) {
    EXPECT_THAT(error_of(std::string("a devices=") + devices), HasSubstr("line 1: devices:")) << devices;
  }
  for (const char* const share : {"0", "0%", "1e-12", "0.05%", "1.1", "101%", "-0.5", "nan", "half", "", "%", "0.5x"}) {
    EXPECT_THAT(error_of(std::string("a share=") + share), HasSubstr("is no share")) << share;
  }
}

TEST(TenantsFile, AFileThatCannotBeRead) {
  EXPECT_EQ(load_tenants("/nowhere/tenants").error().code(), Code::kNotFound);
  EXPECT_THAT(load_tenants("/nowhere/tenants").error().message(), HasSubstr("No such file"));
  EXPECT_FALSE(load_tenants("/"));
  EXPECT_THAT(load_tenants("/dev/zero").error().message(), HasSubstr("more than 1048576 bytes"));
}

}  // namespace
}  // namespace fairlead::cli
