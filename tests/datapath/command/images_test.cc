// Images that a service's processes share: what the two sides say to each other over a socket, and who lies.
#include "datapath/command/process/images.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>
#include <thread>

#include "base/unique_fd.h"

namespace fairlead::datapath::command {
namespace {

constexpr std::uint64_t kMost = std::uint64_t{4} << 20;

ImageStore::Image image(std::size_t bytes, char fill) {
  std::vector<std::byte> made(bytes, static_cast<std::byte>(fill));
  made.push_back(std::byte{0});
  return std::make_shared<const std::vector<std::byte>>(std::move(made));
}
Sha256 digest_of(const ImageStore::Image& of) { return *sha256_of(Bytes(*of).first(of->size() - 1)); }

/// The service's end on a thread; the process's is the test's.
class Images : public testing::Test {
 protected:
  Images() {
    service_ = std::thread([this] {
      FramePipe pipe(theirs_.get());
      ImageDesk desk(cache_, kMost);
      while (const auto frame = pipe.read()) {
        if (desk.answer(pipe, *frame)) continue;
        ended_wrong_ = true;
        break;
      }
      ::shutdown(theirs_.get(), SHUT_RDWR);
    });
  }
  ~Images() override { end(); }
  /// Whether the service found what was said to it wrong.
  bool end() {
    ::shutdown(ours_.get(), SHUT_WR);
    if (service_.joinable()) service_.join();
    return ended_wrong_;
  }

  const std::shared_ptr<ModuleCache> cache_ = std::make_shared<ModuleCache>(2 * kMost);
  UniqueFd theirs_;
  UniqueFd ours_ = connect(theirs_);
  FramePipe pipe_{ours_.get()};
  RemoteImages remote_{pipe_, kMost};

 private:
  static UniqueFd connect(UniqueFd& other) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    other.reset(ends[1]);
    return UniqueFd(ends[0]);
  }

  std::thread service_;
  bool ended_wrong_ = false;
};

TEST_F(Images, WhatOneAddsAllFind) {
  const ImageStore::Image small = image(1, 's'), large = image(3 << 20, 'l');
  EXPECT_EQ(remote_.find(digest_of(large)), nullptr);
  remote_.add(digest_of(large), large);
  remote_.add(digest_of(small), small);
  const ImageStore::Image found = remote_.find(digest_of(large));
  ASSERT_TRUE(found);
  EXPECT_EQ(*found, *large) << "with the byte behind it";
  EXPECT_NE(found, large) << "a copy of its own";
  EXPECT_EQ(*remote_.find(digest_of(small)), *small);
  EXPECT_EQ(cache_->count(), 2u);
  EXPECT_FALSE(end());
}

// A process whose tenant rules it: what it adds under another's digest is not kept.
TEST_F(Images, NobodyPutsAnythingUnderAnothersDigest) {
  const ImageStore::Image good = image(100, 'g'), bad = image(100, 'b');
  remote_.add(digest_of(good), bad);
  EXPECT_EQ(remote_.find(digest_of(good)), nullptr);
  EXPECT_EQ(cache_->count(), 0u);
  remote_.add(digest_of(good), good);
  remote_.add(digest_of(good), bad);
  EXPECT_EQ(*remote_.find(digest_of(good)), *good);
  EXPECT_FALSE(end());
}

// Whatever the service's cache says: who loads an image looks itself.
TEST_F(Images, WhoLoadsLooksItself) {
  const ImageStore::Image good = image(100, 'g'), bad = image(100, 'b');
  cache_->add(digest_of(good), bad);
  EXPECT_EQ(remote_.find(digest_of(good)), nullptr);
  EXPECT_FALSE(end());
}

TEST_F(Images, MoreThanThereMayBeEndsIt) {
  pipe_.put_value(FrameType::kAddImage, ImageFrame{{}, kMost + 1});
  EXPECT_TRUE(pipe_.flush());
  EXPECT_TRUE(end());
}

TEST_F(Images, MoreThanWasSaidEndsIt) {
  pipe_.put_value(FrameType::kAddImage, ImageFrame{{}, 10});
  pipe_.put(FrameType::kImagePart, std::vector<std::byte>(11));
  EXPECT_TRUE(pipe_.flush());
  EXPECT_TRUE(end());
}

TEST_F(Images, PartsThatHoldNothingEndIt) {
  pipe_.put_value(FrameType::kAddImage, ImageFrame{{}, 10});
  pipe_.put(FrameType::kImagePart, {});
  EXPECT_TRUE(pipe_.flush());
  EXPECT_TRUE(end());
}

TEST_F(Images, AnotherFrameInTheMiddleEndsIt) {
  pipe_.put_value(FrameType::kAddImage, ImageFrame{{}, 10});
  pipe_.put_value(FrameType::kFindImage, ImageFrame{});
  EXPECT_TRUE(pipe_.flush());
  EXPECT_TRUE(end());
}

}  // namespace
}  // namespace fairlead::datapath::command
