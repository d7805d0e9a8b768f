// Models on disk: whole or not there, checked when they are read, by one server at a time.
#include "cli/models/model_disk.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "base/crc.h"
#include "tests/golden.h"

namespace fairlead::cli {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ModelDiskTest : public testing::Test {
 protected:
  ModelDiskTest() : folder_(fs::temp_directory_path() / fmt::format("fairlead-store-{}", ::getpid())) {
    fs::remove_all(folder_);
    EngineConfig config;
    config.transport = "tcp";
    Result<Engine> engine = Engine::create(config);
    EXPECT_TRUE(engine);
    engine_.emplace(std::move(*engine));
    disk_ = open();
  }
  ~ModelDiskTest() override { fs::remove_all(folder_); }

  std::unique_ptr<ModelDisk> open() {
    Result<std::unique_ptr<ModelDisk>> disk = ModelDisk::open(folder_);
    EXPECT_TRUE(disk) << disk.error().to_string();
    return *std::move(disk);
  }

  // Two files, three tensors, of which one is empty and one has no checksum.
  std::shared_ptr<Model> model(const std::string& owner, const std::string& name, unsigned seed = 1) {
    const auto tensor = [](const char* called, std::int64_t bytes) {
      return FileTensor{called, "U8", {bytes}, 0, static_cast<std::uint64_t>(bytes)};
    };
    auto made = *ModelStore::lay_out(
        name, {ModelFile{"a.safetensors", {{"format", "pt"}}, 2}, ModelFile{"b.json", {}, 1, true}},
        {{tensor("w", 5000), {}}, {tensor("nothing", 0), {}}, {tensor("index", 77), {}}});
    made->owner = owner;
    EXPECT_TRUE(made->allocate(*engine_).ok());
    for (std::byte& byte : made->memory.bytes()) byte = static_cast<std::byte>(seed = seed * 1'103'515'245 + 12'345);
    made->entries[0].crc = crc32(made->tensor(0).bytes());
    return made;
  }

  void save(const Model& model) {
    Result<ModelDisk::Draft> draft = disk_->write(model);
    ASSERT_TRUE(draft) << draft.error().to_string();
    const Status named = disk_->name(*std::move(draft), model);
    ASSERT_TRUE(named.ok()) << named.to_string();
  }
  ModelDisk::File only_file() {
    const auto files = disk_->files();
    EXPECT_TRUE(files && files->size() == 1);
    return files->front();
  }
  std::vector<std::string> everything() {
    std::vector<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
      if (entry.is_regular_file()) names.push_back(fs::relative(entry.path(), folder_));
    }
    std::ranges::sort(names);
    return names;
  }
  void overwrite(const fs::path& path, std::uint64_t offset, const std::string& bytes) {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(offset));
    file << bytes;
  }

  fs::path folder_;
  std::optional<Engine> engine_;
  std::unique_ptr<ModelDisk> disk_;
};

TEST_F(ModelDiskTest, WhatWasWrittenComesBack) {
  const auto before = model("alice", "m");
  save(*before);
  EXPECT_THAT(everything(), ElementsAre("of-alice/m.model"));
  const ModelDisk::File file = only_file();
  EXPECT_EQ(file.owner, "alice");
  EXPECT_EQ(file.model, "m");
  const auto after = ModelDisk::read(file, *engine_);
  ASSERT_TRUE(after) << after.error().to_string();
  const Model& back = **after;
  EXPECT_EQ(back.owner, "alice");
  EXPECT_EQ(back.bytes, before->bytes);
  ASSERT_EQ(back.files.size(), 2U);
  EXPECT_EQ(back.files[0].metadata, before->files[0].metadata);
  EXPECT_TRUE(back.files[1].raw);
  ASSERT_EQ(back.entries.size(), 3U);
  EXPECT_EQ(back.entries[2].crc, crc32(before->tensor(2).bytes())) << "computed where the client computed none";
  EXPECT_TRUE(std::ranges::equal(back.memory.bytes(), before->memory.bytes()));
}

TEST_F(ModelDiskTest, EachOwnerHasAFolderAndTheOldestComesFirst) {
  save(*model("", "m"));
  save(*model("..", "m"));
  save(*model("bob", "n"));
  save(*model("bob", "n", 2));
  EXPECT_THAT(everything(), ElementsAre("all/m.model", "of-../m.model", "of-bob/n.model"));
  const auto files = disk_->files();
  ASSERT_TRUE(files);
  EXPECT_TRUE(std::ranges::is_sorted(*files, {}, &ModelDisk::File::written));
  EXPECT_TRUE(disk_->remove(*model("bob", "n")).ok());
  EXPECT_TRUE(disk_->remove(*model("bob", "n")).ok()) << "it is gone already";
  EXPECT_THAT(everything(), ElementsAre("all/m.model", "of-../m.model"));
}

TEST_F(ModelDiskTest, ADraftWithoutANameIsNothing) {
  {
    EXPECT_TRUE(disk_->write(*model("", "m")));
  }
  EXPECT_THAT(everything(), IsEmpty());
  save(*model("", "m"));
  std::ofstream(folder_ / "all/m.7.draft") << "of a server that was killed";
  disk_.reset();
  disk_ = open();
  EXPECT_THAT(everything(), ElementsAre("all/m.model"));
}

TEST_F(ModelDiskTest, OnlyItsOwnDraftsAreTakenAway) {
  save(*model("", "m"));
  fs::create_directories(folder_ / "of-trainer/deep");
  fs::create_directories(folder_ / "notes");
  const std::vector<std::string> others = {"all/letter.draft", "all/m.x.draft", "notes/m.1.draft",
                                           "of-trainer/deep/m.1.draft"};
  for (const std::string& other : others) std::ofstream(folder_ / other) << "somebody else's";
  std::ofstream(folder_ / "of-trainer/m.v2.12.draft") << "of a server that was killed";
  disk_.reset();
  disk_ = open();
  std::vector<std::string> left = others;
  left.insert(left.begin() + 1, "all/m.model");
  std::ranges::sort(left);
  EXPECT_EQ(everything(), left);
}

TEST_F(ModelDiskTest, AStopEndsAWriteAndLeavesNothing) {
  std::stop_source stop;
  stop.request_stop();
  const auto draft = disk_->write(*model("", "m"), stop.get_token());
  ASSERT_FALSE(draft);
  EXPECT_EQ(draft.error().code(), Code::kCancelled);
  EXPECT_THAT(everything(), IsEmpty());
}

TEST_F(ModelDiskTest, OneServerAtATime) {
  const auto second = ModelDisk::open(folder_);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), Code::kAlreadyExists);
  EXPECT_THAT(second.error().message(), HasSubstr(folder_.string()));
  EXPECT_THAT(ModelDisk::open("/proc/nowhere").error().message(), HasSubstr("/proc/nowhere"));
}

TEST_F(ModelDiskTest, WhatIsDamagedIsNamedAndSetAside) {
  const std::string whole = [&] {
    save(*model("", "m"));
    return file_text(only_file().path);
  }();
  const fs::path path = only_file().path;
  const auto error = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    const auto read = ModelDisk::read(only_file(), *engine_);
    EXPECT_FALSE(read);
    if (read) return std::string();
    EXPECT_EQ(read.error().code(), Code::kDataLoss) << read.error().to_string();
    EXPECT_THAT(read.error().message(), HasSubstr(path.string()));
    return read.error().message();
  };
  std::string bytes = whole;
  bytes[4096 + 100] ^= 1;
  EXPECT_THAT(error(bytes), HasSubstr("tensor w does not have the CRC-32"));
  bytes = whole;
  bytes[40] ^= 1;
  EXPECT_THAT(error(bytes), HasSubstr("its description does not have its CRC-32"));
  EXPECT_THAT(error("FLMODEL2" + whole.substr(8)), HasSubstr("does not begin as a model does"));
  EXPECT_THAT(error(whole.substr(0, 8) + "\xff\xff\xff\xff" + whole.substr(12)), HasSubstr("has no end"));
  EXPECT_THAT(error(whole + "x"), HasSubstr("bytes, not"));
  for (const std::size_t length :
       {std::size_t{0}, std::size_t{7}, std::size_t{15}, std::size_t{100}, std::size_t{4096}, whole.size() - 1}) {
    EXPECT_NE(error(whole.substr(0, length)), "") << length;
  }
  const auto aside = disk_->set_aside(only_file());
  ASSERT_TRUE(aside) << aside.error().to_string();
  EXPECT_EQ(*aside, path.string() + ".damaged");
  EXPECT_THAT(*disk_->files(), IsEmpty());
}

// Every byte of head, description and data is vouched for: none can change without being found.
TEST_F(ModelDiskTest, NoByteOfTheDescriptionChangesUnseen) {
  save(*model("", "m"));
  const ModelDisk::File file = only_file();
  const std::string whole = file_text(file.path);
  const auto described = static_cast<std::size_t>(static_cast<unsigned char>(whole[8])) |
                         static_cast<std::size_t>(static_cast<unsigned char>(whole[9])) << 8U;
  for (std::size_t i = 0; i < 16 + described; i += 7) {
    overwrite(file.path, i, std::string(1, static_cast<char>(whole[i] ^ 0x20)));
    EXPECT_FALSE(ModelDisk::read(file, *engine_)) << i;
    overwrite(file.path, i, std::string(1, whole[i]));
  }
  EXPECT_TRUE(ModelDisk::read(file, *engine_));
}

TEST_F(ModelDiskTest, AReadEndsWhereverItIsToldTo) {
  save(*model("", "m"));
  int asked = 0;
  ASSERT_TRUE(ModelDisk::read(only_file(), *engine_, [&] { return ++asked < 0; }));
  EXPECT_GE(asked, 2);  // for what is read, and for what is checked
  for (int at = 1; at <= asked; ++at) {
    int left = at;
    const auto read = ModelDisk::read(only_file(), *engine_, [&] { return --left == 0; });
    ASSERT_FALSE(read) << at;
    EXPECT_EQ(read.error().code(), Code::kCancelled);
  }
}

TEST_F(ModelDiskTest, AModelThatIsCalledOtherwiseIsNotTaken) {
  save(*model("", "m"));
  fs::rename(folder_ / "all/m.model", folder_ / "all/n.model");
  EXPECT_THAT(ModelDisk::read(only_file(), *engine_).error().message(), HasSubstr("it is model m"));
}

}  // namespace
}  // namespace fairlead::cli
