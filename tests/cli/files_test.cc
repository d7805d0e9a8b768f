// The files that push reads and pull writes: shards, checksums, and what stands on the disk when.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/crc.h"
#include "base/guarded.h"
#include "base/unique_fd.h"
#include "bench/base/file_output.h"
#include "cli/models/file_checksums.h"
#include "cli/models/model_files.h"
#include "cli/models/output_file.h"

namespace {
// The calls that decide what is left after a crash, in order, with the file's name.
std::vector<std::string> g_calls;

std::string name_of(int fd) {
  return std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", fd)).filename().string();
}
}  // namespace

// In front of the C library's.
extern "C" int fsync(int fd) {
  g_calls.push_back("fsync " + name_of(fd));
  return static_cast<int>(::syscall(SYS_fsync, fd));
}
extern "C" int rename(const char* from, const char* to) noexcept {
  g_calls.push_back("rename " + std::filesystem::path(to).filename().string());
  return static_cast<int>(::syscall(SYS_rename, from, to));
}

namespace fairlead::cli {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

class FilesTest : public testing::Test {
 protected:
  FilesTest() : folder_(fs::path(testing::TempDir()) / fmt::format("fairlead-files-{}", ::getpid())) {
    fs::create_directory(folder_);
    g_calls.clear();
  }
  ~FilesTest() override { fs::remove_all(folder_); }

  [[nodiscard]] std::string path(std::string_view name) const { return (folder_ / name).string(); }
  void write(std::string_view name, std::string_view text) const {
    std::ofstream(path(name), std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
  }
  // One tensor of 4 bytes.
  void write_shard(std::string_view name, std::string_view tensor) const {
    const std::vector<FileTensor> tensors{{std::string(tensor), "U8", {4}, 0, 4}};
    write(name, safetensors_prefix(tensors, {}) + "data");
  }
  [[nodiscard]] std::string read(std::string_view name) const {
    std::ifstream in(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : fs::directory_iterator(folder_)) all.push_back(entry.path().filename().string());
    std::sort(all.begin(), all.end());
    return all;
  }

  const fs::path folder_;
};

// ---- checksums

TEST_F(FilesTest, ChecksumsAreInTheOrderOfTheirRanges) {
  const std::string text(3'000'000, 'x');
  write("f", text + "tail");
  const UniqueFd fd(::open(path("f").c_str(), O_RDONLY | O_CLOEXEC));
  const std::string name = path("f");
  FileChecksums checksums;
  checksums.add({fd.get(), &name, text.size(), 4});
  checksums.add({fd.get(), &name, 0, text.size()});
  checksums.add({fd.get(), &name, 7, 0});
  const auto crcs = checksums.finish();
  ASSERT_TRUE(crcs) << crcs.error().to_string();
  EXPECT_THAT(*crcs, ElementsAre(crc32(std::as_bytes(std::span("tail", 4))), crc32(std::as_bytes(std::span(text))), 0));
}

TEST_F(FilesTest, AFileThatIsCutIsAnErrorThatNamesIt) {
  write("f", std::string(10'000, 'x'));
  const UniqueFd fd(::open(path("f").c_str(), O_RDONLY | O_CLOEXEC));
  const std::string name = path("f");
  fs::resize_file(path("f"), 5000);
  FileChecksums checksums;
  checksums.add({fd.get(), &name, 0, 10'000});
  const auto crcs = checksums.finish();
  ASSERT_FALSE(crcs);
  EXPECT_THAT(crcs.error().message(), AllOf(HasSubstr(name), HasSubstr("ends at byte 5000")));
}

TEST_F(FilesTest, BytesThatAreMappedAreSummedThereAndACutIsFoundAllTheSame) {
  constexpr std::size_t kBytes = 3'000'000;
  const std::string text(kBytes, 'x');
  install_fault_handlers();  // as registering memory does
  for (const std::size_t left : {kBytes, kBytes - 1, kBytes / 2, std::size_t{0}}) {
    write("f", text);
    const UniqueFd fd(::open(path("f").c_str(), O_RDONLY | O_CLOEXEC));
    const std::string name = path("f");
    void* const mapped = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd.get(), 0);
    ASSERT_NE(mapped, MAP_FAILED);
    static_cast<char*>(mapped)[0] = 'y';  // what is mapped alone
    fs::resize_file(path("f"), left);
    {
      FileChecksums checksums;
      checksums.add({fd.get(), &name, 0, kBytes, static_cast<const std::byte*>(mapped)});
      const auto crcs = checksums.finish();
      EXPECT_EQ(static_cast<bool>(crcs), left == kBytes) << left;
      if (crcs) {
        const std::string there = 'y' + text.substr(1);
        EXPECT_THAT(*crcs, ElementsAre(crc32(std::as_bytes(std::span(there)))));
      } else {
        EXPECT_THAT(crcs.error().message(), AllOf(HasSubstr(name), HasSubstr("somebody cut it")));
      }
    }
    ::munmap(mapped, kBytes);
  }
}

// ---- models of several files

TEST_F(FilesTest, AnIndexBringsItsShardsAndItself) {
  write_shard("m-00001-of-00002.safetensors", "a");
  write_shard("m-00002-of-00002.safetensors", "b");
  write_shard("stranger.safetensors", "c");
  write("m.safetensors.index.json", R"({"metadata":{"total_size":8},"weight_map":{"b":"m-00002-of-00002.safetensors",)"
                                    R"("a":"m-00001-of-00002.safetensors"}})");
  for (const std::string& what : {path("m.safetensors.index.json"), folder_.string(), folder_.string() + "/"}) {
    const Result<ModelFiles> model = open_model(what);
    ASSERT_TRUE(model) << model.error().to_string();
    ASSERT_EQ(model->files.size(), 3U);
    EXPECT_TRUE(model->files[0].file.raw);
    EXPECT_EQ(model->files[0].file.name, "m.safetensors.index.json");
    EXPECT_EQ(model->files[2].file.name, "m-00002-of-00002.safetensors");
    ASSERT_EQ(model->entries.size(), 3U);
    EXPECT_EQ(model->entries[2].tensor.name, "b");
    EXPECT_EQ(model->bytes, 8 + model->files[0].size);
  }
}

TEST_F(FilesTest, AFolderWithoutAnIndexIsAllItsShards) {
  write_shard("x.safetensors", "a");
  write_shard("y.safetensors", "b");
  const Result<ModelFiles> model = open_model(folder_.string());
  ASSERT_TRUE(model) << model.error().to_string();
  EXPECT_EQ(model->files.size(), 2U);
  write_shard("z.safetensors", "a");
  EXPECT_THAT(open_model(folder_.string()).error().message(), HasSubstr("two tensors named 'a'"));
}

TEST_F(FilesTest, ModelsThatAreNotWholeAreRefused) {
  EXPECT_THAT(open_model(folder_.string()).error().message(), HasSubstr("holds no *.safetensors"));
  write_shard("x.safetensors", "a");
  for (const auto& [index, why] : std::initializer_list<std::pair<const char*, const char*>>{
           {"{", "JSON"},
           {"{}", "weight_map"},
           {R"({"weight_map":{"a":1}})", "names no file"},
           {R"({"weight_map":{"a":"../x.safetensors"}})", "not in its own folder"},
           {R"({"weight_map":{"a":"none.safetensors"}})", "none.safetensors"},
           {R"({"weight_map":{"b":"x.safetensors"}})", "which does not have it"}}) {
    write("m.safetensors.index.json", index);
    const Result<ModelFiles> model = open_model(folder_.string());
    ASSERT_FALSE(model) << index;
    EXPECT_THAT(model.error().message(), HasSubstr(why));
  }
  write("n.safetensors.index.json", "{}");
  EXPECT_THAT(open_model(folder_.string()).error().message(), HasSubstr("holds 2 models"));
}

TEST_F(FilesTest, MetadataAboveTheLimitIsRefusedBeforeAnythingIsSent) {
  const std::vector<std::pair<std::string, std::string>> metadata{{"k", std::string(kMaxMetadata, 'v')}};
  write("m.safetensors", safetensors_prefix({}, metadata));
  const Result<ModelFiles> model = open_model(path("m.safetensors"));
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code(), Code::kOutOfRange);
  EXPECT_THAT(model.error().message(), AllOf(HasSubstr(path("m.safetensors")), HasSubstr("metadata")));
}

// ---- outputs

TEST_F(FilesTest, AFileIsOnTheDiskBeforeItHasItsName) {
  write("out", "before");
  Result<Output> output = Output::create(path("out"), false);
  ASSERT_TRUE(output) << output.error().to_string();
  const auto file = output->add("ignored", "after", 5);
  ASSERT_TRUE(file) << file.error().to_string();
  EXPECT_EQ(read("out"), "before");
  EXPECT_TRUE(output->commit().ok());
  EXPECT_EQ(read("out"), "after");
  EXPECT_THAT(names(), ElementsAre("out"));
  EXPECT_THAT(g_calls, ElementsAre(AllOf(StartsWith("fsync out."), EndsWith(".partial")), "rename out",
                                   "fsync " + folder_.filename().string()));
}

TEST_F(FilesTest, AFolderAppearsWholeOrNotAtAll) {
  for (const bool whole : {false, true}) {
    Result<Output> output = Output::create(path("out") + "/", true);
    ASSERT_TRUE(output) << output.error().to_string();
    ASSERT_TRUE(output->add("a", "1", 1) && output->add("b", "22", 2));
    EXPECT_FALSE(fs::exists(path("out")));
    if (whole) {
      EXPECT_TRUE(output->commit().ok());
    }
  }
  EXPECT_THAT(names(), ElementsAre("out"));
  EXPECT_EQ(read("out/b"), "22");
  EXPECT_THAT(g_calls, ElementsAre("fsync a", "fsync b", HasSubstr(".partial"), "rename out",
                                   "fsync " + folder_.filename().string()));
  EXPECT_FALSE(Output::create(path("out"), true));  // not empty
}

TEST_F(FilesTest, ALinkStaysAndWhatItPointsToIsReplaced) {
  fs::create_directory(path("there"));
  write("there/old", "old");
  fs::create_symlink("there/old", path("link"));
  fs::create_symlink(path("link"), path("link-to-link"));
  fs::create_symlink("there/new", path("dangling"));
  for (const char* name : {"link-to-link", "dangling"}) {
    Result<Output> output = Output::create(path(name), false);
    ASSERT_TRUE(output) << output.error().to_string();
    ASSERT_TRUE(output->add("", "new", 3));
    ASSERT_TRUE(output->commit().ok());
    EXPECT_TRUE(fs::is_symlink(path(name)));
  }
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(read("there/old"), "new");
  EXPECT_EQ(read("there/new"), "new");
}

TEST_F(FilesTest, TextLeavesLinksToo) {
  write("results", "old");
  fs::create_symlink("results", path("latest"));
  ASSERT_TRUE(bench::check_writable(path("latest")).ok());
  ASSERT_TRUE(bench::write_text(path("latest"), "new").ok());
  EXPECT_TRUE(fs::is_symlink(path("latest")));
  EXPECT_EQ(read("results"), "new");
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "results"}));
}

// As /dev/stdout is where a shell has opened a file for it.
TEST_F(FilesTest, TextGoesIntoAFileThatIsOpenAlready) {
  write("out", "before ");
  const UniqueFd open(::open(path("out").c_str(), O_RDWR | O_CLOEXEC));
  fs::create_symlink(fmt::format("/proc/self/fd/{}", open.get()), path("stdout"));
  ASSERT_TRUE(bench::check_writable(path("stdout")).ok());
  ASSERT_TRUE(bench::write_text(path("stdout"), "text").ok());
  EXPECT_TRUE(fs::is_symlink(path("stdout")));
  EXPECT_EQ(read("out"), "before text");
  ASSERT_TRUE(fs::remove(path("out")));
  EXPECT_TRUE(bench::write_text(path("stdout"), "more").ok()) << "it has no name any more";
  EXPECT_EQ(names(), (std::vector<std::string>{"stdout"}));
}

TEST_F(FilesTest, WhatWasPrivateStaysSo) {
  write("private", "before");
  fs::permissions(path("private"), fs::perms::owner_read | fs::perms::owner_write);
  const auto mode = [this](std::string_view name) { return fs::status(path(name)).permissions() & fs::perms::mask; };
  ASSERT_TRUE(bench::write_text(path("private"), "text").ok());
  EXPECT_EQ(mode("private"), fs::perms::owner_read | fs::perms::owner_write);
  Result<Output> output = Output::create(path("private"), false);
  ASSERT_TRUE(output);
  const auto file = output->add("model.safetensors", "prefix", 6);
  ASSERT_TRUE(file);
  EXPECT_EQ(fs::status((*file)->path).permissions() & fs::perms::mask, fs::perms::owner_read | fs::perms::owner_write);
  ASSERT_TRUE(output->commit().ok());
  EXPECT_EQ(mode("private"), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(FilesTest, TextGoesIntoNoFileThatSomebodyElsePlanted) {
  write("victim", "its own");
  const std::string guessed = fmt::format("{}.{}.tmp", path("text"), ::getpid());
  fs::create_symlink(path("victim"), guessed);
  ASSERT_TRUE(bench::check_writable(path("text")).ok());
  ASSERT_TRUE(bench::write_text(path("text"), "text").ok());
  EXPECT_FALSE(fs::is_symlink(path("text")));
  EXPECT_EQ(fs::file_size(path("victim")), 7U);
  EXPECT_TRUE(fs::is_symlink(guessed)) << "it is not ours to remove";
}

TEST_F(FilesTest, AFolderOfOneFileIsAModelOfOneFile) {
  fs::create_directory(path("one"));
  write("one/my model.safetensors", safetensors_prefix({}, {}));
  const Result<ModelFiles> model = open_model(path("one"));
  ASSERT_TRUE(model) << model.error().to_string();
  ASSERT_EQ(model->files.size(), 1U);
  EXPECT_EQ(model->files.front().file.name, "model.safetensors");
}

TEST_F(FilesTest, TheKindOfOutputMustBeThatOfTheModel) {
  write("file", "");
  fs::create_directory(path("empty"));
  EXPECT_THAT(Output::create(path("file"), true).error().message(), HasSubstr("needs a folder"));
  EXPECT_THAT(Output::create(path("empty"), false).error().message(), HasSubstr("one file"));
  EXPECT_TRUE(Output::create(path("empty"), true));
}

}  // namespace
}  // namespace fairlead::cli
