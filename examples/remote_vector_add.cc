// Adds two vectors on a device elsewhere.
//   remote_vector_add --serve      serves a device, this host's processor, and prints where, until it is ended
//   remote_vector_add HOST:PORT    adds there, and checks
#include <unistd.h>

#include <cstdio>
#include <string_view>
#include <vector>

#include "fairlead/command.h"
#include "fairlead/command_service.h"
#include "fairlead/host_executor.h"

namespace command = fairlead::command;

int fail(const fairlead::Status& status) {
  std::fprintf(stderr, "remote_vector_add: %s\n", status.to_string().c_str());
  return 1;
}

int serve(fairlead::Engine engine) {
  auto service = command::Service::start(std::move(engine), {.executors = command::host_executors()});
  if (!service) return fail(service.error());
  std::printf("listening on %s\n", service->listen_address().c_str());
  std::fflush(stdout);
  for (;;) pause();
}

int main(int argc, char** argv) {
  if (argc != 2) return fail({fairlead::Code::kInvalidArgument, "say --serve, or the HOST:PORT of who does"});
  const bool serves = std::string_view(argv[1]) == "--serve";
  fairlead::EngineConfig config;
  if (serves) config.listen = "127.0.0.1:0";
  auto engine = fairlead::Engine::create(config);
  if (!engine) return fail(engine.error());
  if (serves) return serve(*std::move(engine));

  std::vector<float> a(1 << 20), b(a.size(), 1), sum(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i);
  auto session = command::Session::connect(*engine, argv[1]);
  if (!session) return fail(session.error());
  auto channel = session->open_channel();
  if (!channel) return fail(channel.error());
  const command::Handle x = session->new_handle(), y = session->new_handle(), add = session->new_handle();
  for (const command::Handle vector : {x, y}) (void)channel->allocate(vector, a.size() * sizeof(float));
  (void)channel->load(add, "vector_add");
  (void)channel->copy_in(x, 0, std::as_bytes(std::span(a)));
  (void)channel->copy_in(y, 0, std::as_bytes(std::span(b)));
  const auto n = static_cast<std::uint32_t>(a.size());
  using command::Pointer;
  (void)channel->launch({add, {n / 256}, {256}}, command::pack(Pointer{x}, Pointer{y}, Pointer{y}, n));
  (void)channel->copy_out(std::as_writable_bytes(std::span(sum)), y, 0);
  if (auto end = channel->synchronize(); !end.ok()) return fail(end);  // what failed first, if anything did
  for (std::uint32_t i = 0; i < n; ++i) {
    if (sum[i] != a[i] + 1) return fail({fairlead::Code::kDataLoss, "a sum is wrong"});
  }
  std::printf("%u sums over %s\n", n, session->peer().transport().c_str());
}
