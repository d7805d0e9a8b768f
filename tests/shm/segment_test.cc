#include "shm/ring/segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace fairlead::shm {
namespace {

TEST(ShmSegment, BothEndsSeeTheSame) {
  UniqueFd descriptor;
  auto made = Segment::make(descriptor);
  ASSERT_TRUE(made) << made.error().to_string();
  auto adopted = Segment::adopt(descriptor);
  ASSERT_TRUE(adopted) << adopted.error().to_string();
  (*made)->sides[0].answered.ended = 42;
  EXPECT_EQ((*adopted)->sides[0].answered.ended, 42u);
  EXPECT_NE(&**made, &**adopted);
}

TEST(ShmSegment, ItsSizeCannotBeChanged) {
  UniqueFd descriptor;
  ASSERT_TRUE(Segment::make(descriptor));
  EXPECT_NE(::ftruncate(descriptor.get(), 4096), 0);
  EXPECT_NE(::ftruncate(descriptor.get(), 1 << 24), 0);
  EXPECT_NE(::fcntl(descriptor.get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

// Whoever could shrink it could have this process end by SIGBUS.
TEST(ShmSegment, OtherMemoryIsRefused) {
  const auto size = static_cast<off_t>((sizeof(Shared) + 4095) / 4096 * 4096);
  const auto memory = [](off_t bytes, int seals) {
    UniqueFd fd(::memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(::ftruncate(fd.get(), bytes), 0);
    EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
    return fd;
  };
  EXPECT_TRUE(Segment::adopt(memory(size, F_SEAL_SHRINK | F_SEAL_GROW)));
  EXPECT_FALSE(Segment::adopt(memory(size, F_SEAL_GROW)));
  EXPECT_FALSE(Segment::adopt(memory(size, F_SEAL_SHRINK)));
  EXPECT_FALSE(Segment::adopt(memory(size - 4096, F_SEAL_SHRINK | F_SEAL_GROW)));
  EXPECT_FALSE(Segment::adopt(memory(size + 4096, F_SEAL_SHRINK | F_SEAL_GROW)));
  EXPECT_FALSE(Segment::adopt(memory(size, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)));
  EXPECT_FALSE(Segment::adopt(UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC))));
  EXPECT_FALSE(Segment::adopt(UniqueFd(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC))));
  EXPECT_FALSE(Segment::adopt(UniqueFd()));
}

TEST(ShmSegment, AChildOfForkDoesNotHaveIt) {
  UniqueFd descriptor;
  auto made = Segment::make(descriptor);
  ASSERT_TRUE(made);
  const pid_t child = ::fork();
  if (child == 0) {
    unsigned char resident = 0;
    const bool mapped = ::mincore(&**made, 4096, &resident) == 0;
    const bool mine = made->is_mine();
    {
      const Segment gone = std::move(*made);
    }  // unmaps nothing that is another's by now
    ::_exit(mapped || mine ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(made->is_mine());
}

}  // namespace
}  // namespace fairlead::shm
