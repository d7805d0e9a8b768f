// Which processors a measurement's process may be told to run on.
#include "bench/base/cores.h"

#include <gmock/gmock.h>

#include <thread>

namespace fairlead::bench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Cores, AreParsedAndThoseThatAreNotThereNamed) {
  const unsigned usable[] = {0, 1, 2, 5};
  EXPECT_THAT(*parse_cores("0-1,5", usable), ElementsAre(0, 1, 5));
  EXPECT_THAT(parse_cores("1-4", usable).error().message(), HasSubstr("core 3-4 is not there"));
  EXPECT_THAT(parse_cores("1-4", usable).error().message(), HasSubstr("may run on 0-2,5"));
  EXPECT_THAT(parse_cores("", usable).error().message(), HasSubstr("no core is named"));
  EXPECT_FALSE(parse_cores("a", usable));
}

TEST(Cores, ThatAreUsedAreThoseOfThreadsStartedLater) {
  ASSERT_FALSE(own_cores().empty());
  std::thread([] {  // a thread, so that the other tests keep theirs
    const unsigned last = own_cores().back();
    ASSERT_TRUE(use_cores({&last, 1}).ok());
    EXPECT_THAT(own_cores(), ElementsAre(last));
    std::thread([last] { EXPECT_THAT(own_cores(), ElementsAre(last)); }).join();
    const Status none = use_cores({});
    EXPECT_THAT(none.message(), HasSubstr("cannot run on cores none"));
    EXPECT_THAT(own_cores(), ElementsAre(last));
  })
      .join();
}

}  // namespace
}  // namespace fairlead::bench
