// A chain of matrix products on a device elsewhere: matrices go in once, and only the last product comes back.
//   remote_vector_add --serve       serves a device, and prints where
//   remote_sgemm_chain HOST:PORT    multiplies there, and checks
#include <cstdio>
#include <vector>

#include "fairlead/command.h"

namespace command = fairlead::command;

int fail(const fairlead::Status& status) {
  std::fprintf(stderr, "remote_sgemm_chain: %s\n", status.to_string().c_str());
  return 1;
}

int main(int argc, char** argv) {
  if (argc != 2) return fail({fairlead::Code::kInvalidArgument, "say the HOST:PORT of a remote_vector_add --serve"});
  auto engine = fairlead::Engine::create({});
  if (!engine) return fail(engine.error());
  auto session = command::Session::connect(*engine, argv[1]);
  if (!session) return fail(session.error());
  auto channel = session->open_channel();
  if (!channel) return fail(channel.error());

  // Each product with `turn` moves the columns on by one, so after as many as there are columns all is as it was.
  constexpr std::uint32_t kSize = 96;
  std::vector<float> first(kSize * kSize), turn(kSize * kSize), last(kSize * kSize);
  for (std::uint32_t i = 0; i < first.size(); ++i) first[i] = static_cast<float>(i) / 7;
  for (std::uint32_t i = 0; i < kSize; ++i) turn[i * kSize + (i + 1) % kSize] = 1;

  command::Handle from = session->new_handle(), to = session->new_handle();
  const command::Handle by = session->new_handle(), sgemm = session->new_handle();
  for (const command::Handle matrix : {from, to, by}) (void)channel->allocate(matrix, first.size() * sizeof(float));
  (void)channel->load(sgemm, "sgemm");
  (void)channel->copy_in(from, 0, std::as_bytes(std::span(first)));
  (void)channel->copy_in(by, 0, std::as_bytes(std::span(turn)));
  using command::Pointer;
  for (std::uint32_t i = 0; i < kSize; ++i) {  // nobody waits: the next product is on its way while this one runs
    const auto parameters = command::pack(Pointer{from}, Pointer{by}, Pointer{to}, kSize, kSize, kSize);
    (void)channel->launch({sgemm, {kSize / 16, kSize / 16}, {16, 16}}, parameters);
    std::swap(from, to);
  }
  (void)channel->copy_out(std::as_writable_bytes(std::span(last)), from, 0);
  if (auto end = channel->synchronize(); !end.ok()) return fail(end);  // what failed first, if anything did
  if (last != first) return fail({fairlead::Code::kDataLoss, "the last product is wrong"});
  std::printf("%u products over %s, one wait\n", kSize, session->peer().transport().c_str());
}
