// What push sends through memory of the pool: pieces, sums, and files that somebody cuts.
#include "cli/staged_write.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <future>

#include "base/crc.h"
#include "base/unique_fd.h"

namespace fairlead::cli {
namespace {

using testing::HasSubstr;

constexpr std::size_t kMiB = std::size_t{1} << 20;

class StagedWriteTest : public testing::Test {
 protected:
  StagedWriteTest() {
    EngineConfig config;
    config.transport = "tcp";
    config.listen = "127.0.0.1:0";
    target_.emplace(*Engine::create(config));
    config.listen.clear();
    session_.emplace(*Session::open(*Engine::create(config), target_->listen_address(), &console_));
    peer_ = *target_->accept(std::chrono::seconds(10));
    file_.reset(::memfd_create("model", MFD_CLOEXEC));
  }

  // A file of such tensors, and where each goes.
  void make(const std::vector<std::size_t>& sizes) {
    std::size_t total = 0;
    for (const std::size_t size : sizes) total += size;
    bytes_.resize(total);
    constexpr std::size_t kRun = 61;  // no piece looks like another, and it takes no loop over all bytes
    for (std::size_t at = 0, i = 0; at < total; at += kRun, ++i) {
      std::memset(bytes_.data() + at, static_cast<int>(i * 31 + i / 7), std::min(kRun, total - at));
    }
    ASSERT_EQ(::write(file_.get(), bytes_.data(), total), static_cast<ssize_t>(total));
    memory_ = *target_->allocate(total);
    std::size_t offset = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const std::string name = fmt::format("t{}", i);
      ASSERT_TRUE(target_->publish(name, memory_.slice(offset, sizes[i]), Access::kRemoteWrite).ok());
      moves_.push_back(
          {name, {file_.get(), &path_, offset, sizes[i]}, *session_->peer().lookup(name), std::uint64_t{i}});
      offset += sizes[i];
    }
  }

  // The notifications that came, each with the sum of the tensor at that moment.
  std::vector<std::pair<std::uint64_t, std::uint32_t>> notified(std::size_t count) {
    std::vector<std::pair<std::uint64_t, std::uint32_t>> all;
    while (all.size() < count) {
      const Event event = peer_.next_event(std::chrono::seconds(10));
      if (event.kind == Event::Kind::kNone) break;
      if (event.kind != Event::Kind::kNotification) continue;
      const FileRange& range = moves_.at(event.value).from;
      all.emplace_back(event.value, crc32(memory_.slice(range.offset, range.bytes).bytes()));
    }
    return all;
  }

  Console console_{"test", Console::Lines::kNone};
  std::optional<Engine> target_;
  std::optional<Session> session_;
  Peer peer_;
  UniqueFd file_;
  const std::string path_ = "model.safetensors";
  std::vector<std::byte> bytes_;
  Memory memory_;
  std::vector<FileMove> moves_;
};

TEST_F(StagedWriteTest, EachTensorArrivesWholeAndIsNotifiedOnceWithTheSumThatWasSent) {
  std::vector<std::size_t> sizes = {3 * kMiB + 17, 1, kMiB, kMiB + 1, 70 * kMiB};  // more than all chunks together
  for (std::size_t i = 0; i < 300; ++i) sizes.push_back(1 + i * 37);
  make(sizes);
  auto arriving = std::async(std::launch::async, [&] { return notified(sizes.size()); });
  const Result<StagedFigures> figures = write_staged(*session_, moves_, true);
  const auto arrived = arriving.get();
  ASSERT_TRUE(figures) << figures.error().to_string();
  EXPECT_EQ(figures->moved.bytes, bytes_.size());
  EXPECT_EQ(std::memcmp(memory_.data(), bytes_.data(), bytes_.size()), 0);
  ASSERT_EQ(figures->crcs.size(), sizes.size());
  ASSERT_EQ(arrived.size(), sizes.size());
  std::vector<bool> seen(sizes.size());
  for (const auto& [index, crc] : arrived) {
    EXPECT_FALSE(seen[index]);
    seen[index] = true;
    EXPECT_EQ(crc, figures->crcs[index]) << index;
  }
}

TEST_F(StagedWriteTest, WithoutSumsThereAreNone) {
  make({100, 200});
  const Result<StagedFigures> figures = write_staged(*session_, moves_, false);
  ASSERT_TRUE(figures) << figures.error().to_string();
  EXPECT_TRUE(figures->crcs.empty());
  EXPECT_EQ(std::memcmp(memory_.data(), bytes_.data(), bytes_.size()), 0);
}

TEST_F(StagedWriteTest, AFileThatSomebodyCutsIsNamed) {
  make({2 * kMiB, 2 * kMiB});
  ASSERT_EQ(::ftruncate(file_.get(), 3 * kMiB), 0);
  const Result<StagedFigures> figures = write_staged(*session_, moves_, true);
  ASSERT_FALSE(figures);
  EXPECT_EQ(figures.error().code(), Code::kDataLoss);
  EXPECT_THAT(figures.error().message(), HasSubstr("model.safetensors ends at byte 3145728"));
}

}  // namespace
}  // namespace fairlead::cli
