// What misuse tests share: the error that is expected, and a session to misuse that must be as good as before.
#pragma once

#include <sys/mman.h>

#include <string_view>
#include <tuple>

#include "tests/conformance/engine_pair.h"

namespace fairlead {

inline constexpr std::size_t kBytes = 4096;  // of each region and buffer

inline void expect_error(const Status& status, Code code, std::string_view words) {
  EXPECT_EQ(status.code(), code) << status.to_string();
  EXPECT_NE(status.message().find(words), std::string::npos)
      << '"' << status.message() << "\" says nothing of " << words;
}
template <typename T>
void expect_error(const Result<T>& result, Code code, std::string_view words) {
  expect_error(result.status(), code, words);
}

/// A session over TCP, a region of the server's, and memory of the client's to go with it.
class EngineMisuse : public testing::Test, public EnginePair {
 protected:
  void SetUp() override {
    EngineConfig config = config_for({"tcp", "tcp"});
    config.max_message_bytes = 10'000;
    start(config, config);
    std::tie(inbox, remote) = target("region", kBytes);
    source = buffer(*client, kBytes, 7);
  }
  /// The session and the engines are as good as before.
  void TearDown() override {
    if (!client || testing::Test::HasFatalFailure()) return;
    const Status fine = peer.write(source, remote).wait(kPatience);
    EXPECT_TRUE(fine.ok()) << fine.to_string();
  }
  Result<Memory> own_pages(std::size_t bytes, int protection, Access access) {
    void* start = ::mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(start, MAP_FAILED);
    return client->register_memory({static_cast<std::byte*>(start), bytes}, access);  // unmapped with the process
  }

  Memory inbox, source;
  RemoteMemory remote;
};

}  // namespace fairlead
