#include "shm/meeting/place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "tests/shm/own_directory.h"

namespace fairlead::shm {
namespace {

TEST(ShmPlace, IsTheSameForWhoNamesTheSame) {
  const OwnDirectory one, other;
  const auto first = find_place(one.config()), again = find_place(one.config()), second = find_place(other.config());
  ASSERT_TRUE(first && again && second);
  EXPECT_EQ(first->name(), again->name());
  EXPECT_EQ(first->name().size(), 16u);
  EXPECT_NE(first->name(), second->name());
  EXPECT_EQ(first->directory, one.path());
}

// The application may go elsewhere between two engines, or before peers come.
TEST(ShmPlace, ARelativeDirectoryIsMeantFromWhereItWasNamed) {
  const OwnDirectory directory;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(std::filesystem::path(directory.path()).parent_path());
  const auto place = find_place({.directory = std::filesystem::path(directory.path()).filename()});
  std::filesystem::current_path(before);
  ASSERT_TRUE(place) << place.error().to_string();
  EXPECT_EQ(place->directory, directory.path());
}

TEST(ShmPlace, DirectoriesThatTheEnvironmentNamesAreDifferentPlaces) {
  const OwnDirectory one, other;
  ::setenv("FAIRLEAD_SOFT_DIRECTORY", one.path().c_str(), 1);
  const auto first = find_place({}), again = find_place({});
  ::setenv("FAIRLEAD_SOFT_DIRECTORY", other.path().c_str(), 1);
  const auto second = find_place({});
  ::unsetenv("FAIRLEAD_SOFT_DIRECTORY");
  ASSERT_TRUE(first && again && second);
  EXPECT_EQ(first->name(), again->name());
  EXPECT_NE(first->name(), second->name());
}

TEST(ShmPlace, AnUnnamedDirectoryIsTheUsersAndClosed) {
  const auto place = find_place({});
  ASSERT_TRUE(place) << place.error().to_string();
  struct stat info{};
  ASSERT_EQ(::stat(place->directory.c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, ::geteuid());
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

// Sockets in the file system cross network namespaces; what has no name of an operator's must not.
TEST(ShmPlace, AnotherNetworkNamespaceIsAnotherPlaceUnlessTheDirectoryIsNamed) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root makes network namespaces";
  const OwnDirectory named;
  const auto here = find_place({}), here_named = find_place(named.config());
  ASSERT_TRUE(here && here_named);
  Result<Place> there = Status(Code::kInternal, ""), there_named = there;
  bool moved = false;
  std::thread([&] {
    moved = ::unshare(CLONE_NEWNET) == 0;
    there = find_place({});
    there_named = find_place(named.config());
  }).join();
  if (!moved) GTEST_SKIP() << "this system does not let root make network namespaces";
  ASSERT_TRUE(there && there_named);
  EXPECT_EQ(there->directory, here->directory);
  EXPECT_NE(there->name(), here->name());
  EXPECT_EQ(there_named->name(), here_named->name());
}

TEST(ShmPlace, WhatOthersMayUseIsRefused) {
  const OwnDirectory directory;
  const std::string open = directory.path() + "/open", file = directory.path() + "/file",
                    link = directory.path() + "/link";
  ASSERT_EQ(::mkdir(open.c_str(), 0700), 0);
  ASSERT_EQ(::chmod(open.c_str(), 0750), 0);
  ASSERT_EQ(::symlink(directory.path().c_str(), link.c_str()), 0);
  for (const std::string& path : {open, link}) {
    const Status refused = find_place({.directory = path}).status();
    EXPECT_EQ(refused.code(), Code::kPermissionDenied) << refused.to_string();
    EXPECT_THAT(refused.message(), testing::HasSubstr(path));
  }
  if (::geteuid() == 0) {
    const std::string theirs = directory.path() + "/theirs";
    ASSERT_EQ(::mkdir(theirs.c_str(), 0700), 0);
    ASSERT_EQ(::chown(theirs.c_str(), 65534, 65534), 0);
    EXPECT_EQ(find_place({.directory = theirs}).status().code(), Code::kPermissionDenied);
  }
  EXPECT_EQ(find_place({.directory = directory.path() + "/none/there"}).status().code(), Code::kUnavailable);
}

}  // namespace
}  // namespace fairlead::shm
