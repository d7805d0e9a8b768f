// Two engines in this process, one buffer from one to the other, with every public header.
#include <fairlead/burst.h>
#include <fairlead/command.h>
#include <fairlead/command_graph.h>
#include <fairlead/command_service.h>
#include <fairlead/config.h>
#include <fairlead/cuda.h>
#include <fairlead/cuda_executor.h>
#include <fairlead/dlpack.h>
#include <fairlead/engine.h>
#include <fairlead/executor_around.h>
#include <fairlead/export.h>
#include <fairlead/fairlead.h>
#include <fairlead/fairlead_command.h>
#include <fairlead/handle.h>
#include <fairlead/host_executor.h>
#include <fairlead/log.h>
#include <fairlead/memory.h>
#include <fairlead/metrics.h>
#include <fairlead/peer.h>
#include <fairlead/placement.h>
#include <fairlead/pool_writes.h>
#include <fairlead/softroce.h>
#include <fairlead/status.h>
#include <fairlead/tensor.h>
#include <fairlead/transfer.h>
#include <fairlead/version.h>

#include <algorithm>
#include <cstdio>
#include <string>

namespace {

fairlead::Status move(const std::string& transport) {
  fairlead::EngineConfig config;
  config.transport = transport;
  auto here = fairlead::Engine::create(config);
  if (!here) return here.error();
  config.listen = "127.0.0.1:0";
  auto there = fairlead::Engine::create(config);
  if (!there) return there.error();
  auto target = there->allocate(4096);
  if (!target) return target.error();
  fairlead::Status status = there->publish("target", *target, fairlead::Access::kRemoteWrite);
  if (!status.ok()) return status;
  auto peer = here->connect(there->listen_address());
  if (!peer) return peer.error();
  auto remote = peer->lookup("target", std::chrono::seconds(60));
  if (!remote) return remote.error();
  auto source = here->allocate(4096);
  if (!source) return source.error();
  std::fill(source->bytes().begin(), source->bytes().end(), std::byte{42});
  status = peer->write(*source, *remote).wait(std::chrono::seconds(60));
  if (!status.ok()) return status;
  if (!std::equal(source->bytes().begin(), source->bytes().end(), target->bytes().begin())) {
    return {fairlead::Code::kDataLoss, "other bytes arrived"};
  }
  return {};
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int move_one_buffer(const char* transport) {
  const fairlead::Status status = move(transport);
  std::printf("Fairlead %s over %s: %s\n", std::string(fairlead::version()).c_str(), transport,
              status.to_string().c_str());
  std::fflush(stdout);
  return status.ok() ? 0 : 1;
}
