// A block of attention over stored keys, with weights from a file: on a device elsewhere and here, bit by bit the same.
//   remote_inference FILE HOST:PORT    FILE: of make_attention; HOST:PORT: of a remote_vector_add --serve
#include <cstdio>
#include <fstream>
#include <vector>

#include "fairlead/command.h"
#include "fairlead/host_executor.h"

namespace command = fairlead::command;
using command::Handle, command::pack, command::Pointer;
constexpr std::uint32_t kN = 64, kBytes = kN * kN * sizeof(float);  // all matrices are square
int fail(const fairlead::Status& why) { return std::fprintf(stderr, "%s\n", why.to_string().c_str()), 1; }

// The bytes of a matrix in a safetensors file whose header has no blanks. None: it is not there.
std::span<const std::byte> matrix(const std::string& file, const std::string& name) {
  const std::size_t at = file.find("\"data_offsets\":[", file.find('"' + name + "\":{\"dtype\":\"F32\""));
  std::size_t header = 0, begin = 0, end = 0;
  if (at == file.npos || std::sscanf(&file[at], "\"data_offsets\":[%zu,%zu]", &begin, &end) != 2) return {};
  std::memcpy(&header, file.data(), sizeof header);
  if (header > file.size() - 8 || end > file.size() - 8 - header || end - begin != kBytes) return {};
  return std::as_bytes(std::span(file)).subspan(8 + header + begin, kBytes);
}

// x = softmax(x keys) values. `Device`: a channel to one elsewhere, or an executor here; they take the same calls.
template <typename Device>
void attend(Device& device, const std::string& file, std::span<float> numbers) {
  constexpr Handle sgemm{1}, softmax{2}, x{1}, keys{2}, scores{3}, values{4};
  for (const Handle each : {x, keys, scores, values}) (void)device.allocate(each, kBytes);
  (void)device.load(sgemm, "sgemm");
  (void)device.load(softmax, "softmax");
  (void)device.copy_in(x, 0, std::as_bytes(numbers));
  (void)device.copy_in(keys, 0, matrix(file, "keys"));
  (void)device.copy_in(values, 0, matrix(file, "values"));
  (void)device.launch({sgemm}, pack(Pointer{x}, Pointer{keys}, Pointer{scores}, kN, kN, kN));
  (void)device.launch({softmax}, pack(Pointer{scores}, Pointer{scores}, kN, kN));
  (void)device.launch({sgemm}, pack(Pointer{scores}, Pointer{values}, Pointer{x}, kN, kN, kN));
  (void)device.copy_out(std::as_writable_bytes(numbers), x, 0);
}

int main(int argc, char** argv) {
  std::ifstream stream(argc == 3 ? argv[1] : "", std::ios::binary);
  const std::string file(std::istreambuf_iterator<char>(stream), {});
  if (matrix(file, "keys").empty() || matrix(file, "values").empty()) {
    return fail({fairlead::Code::kInvalidArgument, "say a FILE with keys and values of 64 x 64, and HOST:PORT"});
  }
  auto engine = fairlead::Engine::create({});
  auto session = engine ? command::Session::connect(*engine, argv[2]) : engine.error();
  auto channel = session ? session->open_channel() : session.error();
  if (!channel) return fail(channel.error());
  std::vector<float> there(kN * kN);
  for (std::size_t i = 0; i < there.size(); ++i) there[i] = static_cast<float>(i * 37 % 101) / 101;
  std::vector<float> here = there;
  attend(*channel, file, there);
  if (auto end = channel->synchronize(); !end.ok()) return fail(end);  // what failed first, if anything did
  attend(**command::host_executors()(fairlead::Peer{}), file, here);
  if (std::memcmp(here.data(), there.data(), kBytes) != 0) return fail({fairlead::Code::kDataLoss, "they differ"});
  std::printf("%u numbers over %s, as here\n", kN * kN, session->peer().transport().c_str());
}
