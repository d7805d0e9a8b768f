// Weights go to a device elsewhere once; batches follow, and while one is worked on the next is on its way in.
//   remote_vector_add --serve    serves a device, and prints where
//   remote_pipeline HOST:PORT    sends, works and fetches there, and checks
#include <array>
#include <cstdio>
#include <vector>

#include "fairlead/command.h"

namespace command = fairlead::command;
constexpr std::uint32_t kRows = 64, kWidth = 128, kBatches = 16, kPlaces = 3;        // a batch in, one at work, one out
constexpr std::size_t kNumbers = kRows * kWidth, kBytes = kNumbers * sizeof(float);  // of a batch

int fail(const fairlead::Status& why) { return std::fprintf(stderr, "%s\n", why.to_string().c_str()), 1; }

int main(int argc, char** argv) {
  if (argc != 2) return fail({fairlead::Code::kInvalidArgument, "say the HOST:PORT of a remote_vector_add --serve"});
  auto engine = fairlead::Engine::create({});
  if (!engine) return fail(engine.error());
  auto session = command::Session::connect(*engine, argv[1]);
  if (!session) return fail(session.error());
  auto in = session->open_channel(), work = session->open_channel(), out = session->open_channel();
  for (const auto* channel : {&in, &work, &out}) {
    if (!*channel) return fail(channel->error());
  }
  std::vector<float> weights(kWidth * kWidth), batches(kBatches * kRows * kWidth), results(batches.size());
  for (std::uint32_t i = 0; i < kWidth; ++i) weights[i * kWidth + i] = 2;  // so what comes back is twice what went
  for (std::uint32_t i = 0; i < batches.size(); ++i) batches[i] = static_cast<float>(i % 1000);
  const command::Handle matrix = session->new_handle(), sgemm = session->new_handle();
  std::array<command::Handle, kPlaces> inputs, outputs;
  for (auto* places : {&inputs, &outputs}) {
    for (command::Handle& place : *places) (void)in->allocate(place = session->new_handle(), kBytes);
  }
  (void)in->allocate(matrix, weights.size() * sizeof(float));
  (void)in->load(sgemm, "sgemm");
  (void)in->copy_in(matrix, 0, std::as_bytes(std::span(weights)));
  std::array<command::Mark, kBatches> came, worked, left;
  for (std::uint32_t i = 0; i < kBatches; ++i) {
    const command::Handle input = inputs[i % kPlaces], output = outputs[i % kPlaces];
    if (i >= kPlaces) (void)in->fence(worked[i - kPlaces]);  // who had the place before is past it
    (void)in->copy_in(input, 0, std::as_bytes(std::span(batches).subspan(i * kNumbers, kNumbers)));
    if (auto mark = in->record()) came[i] = *mark;
    (void)work->fence(came[i]);
    if (i >= kPlaces) (void)work->fence(left[i - kPlaces]);
    using command::Pointer;
    (void)work->launch({sgemm}, pack(Pointer{input}, Pointer{matrix}, Pointer{output}, kRows, kWidth, kWidth));
    if (auto mark = work->record()) worked[i] = *mark;
    (void)out->fence(worked[i]);
    (void)out->copy_out(std::as_writable_bytes(std::span(results).subspan(i * kNumbers, kNumbers)), output, 0);
    if (auto mark = out->record()) left[i] = *mark;
  }
  for (auto* channel : {&in, &work, &out}) {
    if (auto end = (*channel)->synchronize(); !end.ok()) return fail(end);  // what failed first, if anything did
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (results[i] != 2 * batches[i]) return fail({fairlead::Code::kDataLoss, "a result is wrong"});
  }
  std::printf("%u batches over %s\n", kBatches, session->peer().transport().c_str());
}
