#include "memreg/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace fairlead::memreg {
namespace {

using testing::HasSubstr;

class MappedFileTest : public testing::Test {
 protected:
  MappedFileTest() {
    std::string name = (std::filesystem::temp_directory_path() / "fairlead-memreg-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  ~MappedFileTest() override { std::filesystem::remove_all(folder_); }

  std::string path(const char* name) const { return (folder_ / name).string(); }
  std::string write(const char* name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }
  static std::string read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::filesystem::path folder_;
};

TEST_F(MappedFileTest, ReadOnlyShowsTheContent) {
  const auto file = MappedFile::open(write("a", "hello"), MappedFile::Mode::kReadOnly);
  ASSERT_TRUE(file.has_value()) << file.status().to_string();
  ASSERT_EQ(file->bytes().size(), 5u);
  EXPECT_EQ(static_cast<char>(file->bytes()[4]), 'o');
  EXPECT_EQ(file->path(), path("a"));
}

TEST_F(MappedFileTest, ReadWriteReachesTheFile) {
  const std::string name = write("a", "hello");
  {
    const auto file = MappedFile::open(name, MappedFile::Mode::kReadWrite);
    ASSERT_TRUE(file.has_value());
    file->bytes()[0] = std::byte{'j'};
    EXPECT_TRUE(file->sync().ok());
  }
  EXPECT_EQ(read(name), "jello");
}

TEST_F(MappedFileTest, CreateReservesAndReplaces) {
  const std::string name = write("a", std::string(10'000, 'x'));
  {
    const auto file = MappedFile::create(name, 4097);
    ASSERT_TRUE(file.has_value()) << file.status().to_string();
    ASSERT_EQ(file->bytes().size(), 4097u);
    EXPECT_EQ(file->bytes()[4096], std::byte{0});
    file->bytes()[4096] = std::byte{'z'};
  }
  const std::string content = read(name);
  EXPECT_EQ(content.size(), 4097u);
  EXPECT_EQ(content.back(), 'z');
}

TEST_F(MappedFileTest, EmptyFilesAreEmpty) {
  const auto file = MappedFile::open(write("a", ""), MappedFile::Mode::kReadOnly);
  ASSERT_TRUE(file.has_value());
  EXPECT_TRUE(file->bytes().empty());
  EXPECT_TRUE(MappedFile::create(path("b"), 0).has_value());
}

TEST_F(MappedFileTest, MovesItsBytes) {
  auto file = MappedFile::open(write("a", "hello"), MappedFile::Mode::kReadOnly);
  ASSERT_TRUE(file.has_value());
  const MappedFile moved = std::move(*file);
  EXPECT_TRUE(file->bytes().empty());
  EXPECT_EQ(static_cast<char>(moved.bytes()[0]), 'h');
}

TEST_F(MappedFileTest, ErrorsNameTheFile) {
  const auto missing = MappedFile::open(path("none"), MappedFile::Mode::kReadOnly);
  EXPECT_EQ(missing.status().code(), Code::kNotFound);
  EXPECT_THAT(missing.status().message(), HasSubstr(path("none")));
  EXPECT_EQ(MappedFile::open(folder_.string(), MappedFile::Mode::kReadOnly).status().code(), Code::kInvalidArgument);
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  EXPECT_EQ(MappedFile::open(path("fifo"), MappedFile::Mode::kReadOnly).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(MappedFile::create(path("no/such"), 1).status().code(), Code::kNotFound);
}

TEST_F(MappedFileTest, NoRoomIsAnErrorAndLeavesNothing) {
  const auto file = MappedFile::create(path("big"), std::size_t{1} << 62);
  EXPECT_EQ(file.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(file.status().message(), HasSubstr(path("big")));
  EXPECT_FALSE(std::filesystem::exists(path("big")));
  EXPECT_EQ(MappedFile::create(path("big"), ~std::size_t{0}).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace fairlead::memreg
