// What a GPU costs by way of command channels, beside the same work given to CUDA's driver: copies, graphs, launches.
//
//   fairlead-commands-beside-native TRANSPORT CODE SECONDS [HOST:PORT]
//
// CODE: PTX of tests/gpu/device_kernels.cu. The service is a process of its own on this host, with the first device,
// and a thread for the session; or one that listens there, on this host. This process is both its client and the
// program that uses the driver, in turns of SECONDS / 5 each, five times: medians. Prints one line for each piece of
// work: natively, by the channel, and how they compare (the channel's rate to the native one; of times the channel's to
// the native one).
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/base/floor_program.h"
#include "fairlead/command.h"
#include "fairlead/command_graph.h"
#include "fairlead/command_service.h"
#include "fairlead/cuda_executor.h"
#include "gpu/driver/copier.h"
#include "gpu/driver/driver.h"
#include "gpu/driver/pinned.h"

namespace {

using namespace fairlead;  // NOLINT(google-build-using-namespace): a program of one file
using bench::die;
using bench::must;
using bench::time_of;

constexpr int kRounds = 5;
constexpr std::size_t kMiB = std::size_t{1} << 20, kMost = 256 * kMiB;
constexpr std::uint64_t kNodes = 50;  // of a graph
constexpr std::uint64_t kDeep = 200;  // launches of a graph, or of a kernel, before one waits

// ---- by the driver -------------------------------------------------------------------------------------------------

/// All of it in the device's primary context, on one stream.
class Native {
 public:
  explicit Native(const std::string& code)
      : driver_(must(gpu::process_driver())), scope_(driver_->api(), must(driver_->primary(0))) {
    std::vector<char> image(code.begin(), code.end());
    image.push_back(0);
    fine(api().stream_create(&stream_, gpu::kStreamNonBlocking), "cuStreamCreate");
    fine(api().module_load(&module_, image.data(), 0, nullptr, nullptr), "cuModuleLoadDataEx");
    fine(api().module_function(&work_, module_, "work"), "cuModuleGetFunction");
    fine(api().memory_alloc(&device_, kMost), "cuMemAlloc");
    pinned_ = must(gpu::PinnedMemory::allocate(driver_, must(driver_->primary(0)), kMost, "memory"));
  }
  ~Native() {
    if (exec_ != nullptr) static_cast<void>(api().graph_exec_destroy(exec_));
    static_cast<void>(api().memory_free(device_));
    static_cast<void>(api().stream_destroy(stream_));
  }
  Native(const Native&) = delete;
  Native& operator=(const Native&) = delete;

  void wait() { fine(api().stream_synchronize(stream_), "cuStreamSynchronize"); }
  void copy_in(std::size_t bytes) {
    fine(api().copy_to_device(device_, pinned_->bytes().data(), bytes, stream_), "cuMemcpyHtoDAsync");
  }
  void copy_out(std::size_t bytes) {
    fine(api().copy_to_host(pinned_->bytes().data(), device_, bytes, stream_), "cuMemcpyDtoHAsync");
  }
  void launch(std::uint64_t clocks) {
    std::size_t bytes = sizeof clocks;
    // NOLINTBEGIN(performance-no-int-to-ptr): so the driver tells them apart
    void* extra[] = {reinterpret_cast<void*>(gpu::kLaunchParameters), &clocks,
                     reinterpret_cast<void*>(gpu::kLaunchParameterBytes), &bytes, nullptr};
    // NOLINTEND(performance-no-int-to-ptr)
    fine(api().launch(work_, 1, 1, 1, 32, 1, 1, 0, stream_, nullptr, extra), "cuLaunchKernel");
  }
  void make_graph(std::uint64_t clocks) {
    if (exec_ != nullptr) fine(api().graph_exec_destroy(exec_), "cuGraphExecDestroy");
    gpu::CuGraph graph = nullptr;
    fine(api().capture_begin(stream_, gpu::kCaptureRelaxed), "cuStreamBeginCapture");
    for (std::uint64_t i = 0; i < kNodes; ++i) launch(clocks);
    fine(api().capture_end(stream_, &graph), "cuStreamEndCapture");
    fine(api().graph_instantiate(&exec_, graph, 0), "cuGraphInstantiate");
    fine(api().graph_destroy(graph), "cuGraphDestroy");
  }
  void launch_graph() { fine(api().graph_launch(exec_, stream_), "cuGraphLaunch"); }

  /// As the engine copies what is staged, in and out: pieces of so many bytes, four of them under way.
  void copy_in_pieces(std::size_t bytes, std::size_t piece, gpu::Copier::Way way) {
    constexpr std::size_t kUnderWay = 4;
    struct End final : gpu::CopyEnd {
      void copied(bool ok) noexcept override { is_ok &= ok, ++ended; }
      bool is_ok = true;
      std::size_t ended = 0;
    } end;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): so the copier takes it
    auto* const device = reinterpret_cast<std::byte*>(device_);
    const gpu::CuContext context = must(driver_->primary(0));
    for (std::size_t at = 0, begun = 0; end.ended * piece < bytes;) {
      for (; at < bytes && begun - end.ended < kUnderWay; at += piece, ++begun) {
        if (!copier_.start(way == gpu::Copier::Way::kToDevice ? gpu::Copier::Use::kIn : gpu::Copier::Use::kOut, way,
                           context, device + at, pinned_->bytes().data() + at, piece, end)) {
          die("a copy");
        }
      }
      copier_.poll();
    }
    if (!end.is_ok) die("a copy");
  }

  [[nodiscard]] std::string device() const {
    return fmt::format("{}, CUDA {}.{}", driver_->devices().front().name, driver_->version() / 1000,
                       driver_->version() % 1000 / 10);
  }

 private:
  [[nodiscard]] const gpu::DriverApi& api() const { return driver_->api(); }
  void fine(gpu::CuResult result, const char* call) const { must(driver_->check(result, call)); }

  const std::shared_ptr<gpu::Driver> driver_;
  const gpu::ContextScope scope_;
  gpu::Copier copier_{driver_};
  std::unique_ptr<gpu::PinnedMemory> pinned_;
  gpu::CuStream stream_ = nullptr;
  gpu::CuModule module_ = nullptr;
  gpu::CuFunction work_ = nullptr;
  gpu::CuAddress device_ = 0;
  gpu::CuGraphExec exec_ = nullptr;
};

// ---- by a channel --------------------------------------------------------------------------------------------------

class Remote {
 public:
  Remote(Engine& engine, const std::string& address, const std::string& code)
      : session_(must(command::Session::connect(engine, address))),
        channel_(must(session_.open_channel())),
        pool_(must(engine.allocate(kMost))) {
    std::ranges::fill(pool_.bytes(), std::byte{1});
    const command::Handle module = session_.new_handle();
    must(channel_.load_module(module, std::as_bytes(std::span(code))));
    must(channel_.load(work_, module, "work", command::layout<std::uint64_t>()));
    must(channel_.allocate(memory_, kMost));
    wait();
  }
  void wait() { must(channel_.synchronize(std::chrono::seconds(60))); }
  void copy_in(std::size_t bytes) { must(channel_.copy_in(memory_, 0, std::span(host_).first(bytes))); }
  void copy_in_of_pool(std::size_t bytes) { must(channel_.copy_in(memory_, 0, pool_.bytes().first(bytes))); }
  void copy_out(std::size_t bytes) { must(channel_.copy_out(std::span(host_).first(bytes), memory_, 0)); }
  void launch(std::uint64_t clocks) { must(channel_.launch(work_of_a_warp(), command::pack(clocks))); }
  void make_graph(std::uint64_t clocks) {
    if (graph_.bits != 0) must(channel_.release_graph(graph_));
    graph_ = session_.new_handle();
    command::Graph graph;
    for (std::uint64_t i = 0; i < kNodes; ++i) must(graph.launch(work_of_a_warp(), command::pack(clocks)));
    must(channel_.upload(graph_, graph));
    wait();
  }
  void launch_graph() { must(channel_.launch_graph(graph_)); }
  [[nodiscard]] std::string path() const { return session_.peer().transport(); }

 private:
  [[nodiscard]] command::Launch work_of_a_warp() const { return {.function = work_, .block = {32}}; }

  command::Session session_;
  command::Channel channel_;
  const command::Handle work_ = session_.new_handle(), memory_ = session_.new_handle();
  command::Handle graph_{};
  Memory pool_;
  std::vector<std::byte> host_ = std::vector<std::byte>(kMost, std::byte{1});
};

// ---- in turns ------------------------------------------------------------------------------------------------------

struct Compared {
  double native = 0, remote = 0;  // seconds of a step
};
Compared compare(double seconds, const std::function<void()>& native, const std::function<void()>& remote) {
  std::array<double, kRounds> by_driver{}, by_channel{};
  native();
  remote();
  for (int i = 0; i < kRounds; ++i) {
    by_driver[static_cast<std::size_t>(i)] = time_of(seconds / kRounds, native);
    by_channel[static_cast<std::size_t>(i)] = time_of(seconds / kRounds, remote);
  }
  std::ranges::sort(by_driver);
  std::ranges::sort(by_channel);
  return {by_driver[kRounds / 2], by_channel[kRounds / 2]};
}

void print_rates(const std::string& what, const Compared& times, double amount, const char* unit) {
  fmt::print("{:48} native {:10.3f} {:9} channel {:10.3f} {:9} {:.3f}\n", what, amount / times.native, unit,
             amount / times.remote, unit, times.native / times.remote);
  std::fflush(stdout);
}
void print_times(const std::string& what, const Compared& times, double count) {
  fmt::print("{:48} native {:10.3f} us        channel {:10.3f} us        {:.3f}\n", what, times.native / count * 1e6,
             times.remote / count * 1e6, times.remote / times.native);
  std::fflush(stdout);
}

void measure(Native& native, Remote& remote, double seconds) {
  for (const std::size_t bytes : {kMiB / 16, kMiB, 16 * kMiB, kMost}) {
    const std::string size = bytes < kMiB ? fmt::format("{} KiB", bytes >> 10) : fmt::format("{} MiB", bytes >> 20);
    const auto amount = static_cast<double>(bytes) / 1e9;
    const auto both = [&](auto step) {
      return compare(seconds, [&] { step(native), native.wait(); }, [&] { step(remote), remote.wait(); });
    };
    print_rates(fmt::format("copy in, {}", size), both([&](auto& end) { end.copy_in(bytes); }), amount, "GB/s");
    print_rates(fmt::format("copy in, {}, from the engine's pool", size),
                compare(
                    seconds, [&] { native.copy_in(bytes), native.wait(); },
                    [&] { remote.copy_in_of_pool(bytes), remote.wait(); }),
                amount, "GB/s");
    print_rates(fmt::format("copy out, {}", size), both([&](auto& end) { end.copy_out(bytes); }), amount, "GB/s");
  }
  using Way = gpu::Copier::Way;
  for (const auto& [name, way] : {std::pair("in", Way::kToDevice), std::pair("out", Way::kToHost)}) {
    const Compared times = compare(
        seconds,
        [&, in = way == Way::kToDevice] { in ? native.copy_in(kMost) : native.copy_out(kMost), native.wait(); },
        [&] { native.copy_in_pieces(kMost, 2 * kMiB, way); });
    print_rates(fmt::format("copy {}, 256 MiB, by the engine's copier", name), times, static_cast<double>(kMost) / 1e9,
                "GB/s");
  }
  for (const std::uint64_t clocks : {0u, 10'000u, 100'000u}) {
    native.make_graph(clocks);
    remote.make_graph(clocks);
    const auto both = [&](std::uint64_t deep) {
      const auto step = [deep](auto& end) {
        for (std::uint64_t i = 0; i < deep; ++i) end.launch_graph();
        end.wait();
      };
      return compare(seconds, [&] { step(native); }, [&] { step(remote); });
    };
    const std::string what = fmt::format("graph of {} kernels of {} clocks", kNodes, clocks);
    print_times(what + ", replayed", both(kDeep), kDeep);
    print_times(what + ", waited for", both(1), 1);
  }
  const auto launches = [](auto& end) {
    for (std::uint64_t i = 0; i < kDeep * 10; ++i) end.launch(0);
    end.wait();
  };
  print_rates("launches",
              compare(
                  seconds, [&] { launches(native); }, [&] { launches(remote); }),
              static_cast<double>(kDeep * 10) / 1e6, "million/s");
  const auto one = [](auto& end) {
    end.launch(0);
    end.wait();
  };
  print_times("one launch that is waited for", compare(seconds, [&] { one(native); }, [&] { one(remote); }), 1);
}

void measure_at(const std::string& address, const std::string& transport, const std::string& code, double seconds) {
  EngineConfig config;
  config.transport = transport;
  Engine engine = must(Engine::create(config));
  Native native(code);
  Remote remote(engine, address, code);
  fmt::print("{}; over {}\n", native.device(), remote.path());
  measure(native, remote, seconds);
}

// ---- the other end -------------------------------------------------------------------------------------------------

int serve(const std::string& transport, int say, int until) {
  EngineConfig config;
  config.transport = transport;
  config.listen = "127.0.0.1:0";
  command::CudaExecutorConfig cuda;
  cuda.memory_bytes = kMost + 64 * kMiB;
  Engine engine = must(Engine::create(config));
  const std::string address = engine.listen_address();
  const command::Service service =
      must(command::Service::start(std::move(engine), {.executors = must(command::cuda_executors(std::move(cuda)))}));
  if (::write(say, address.data(), address.size()) < 0) die("write");
  char none = 0;
  (void)!::read(until, &none, 1);  // to its end
  return 0;
}

std::string text_of(const char* path) {
  std::ifstream file(path);
  std::string text{std::istreambuf_iterator(file), {}};
  if (text.empty()) {
    fmt::print(stderr, "fairlead-commands-beside-native: {}: no code is there\n", path);
    std::exit(2);
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc == 4 || argc == 5 ? std::atof(argv[3]) : 0;
  if (seconds <= 0) {
    fmt::print(stderr, "usage: fairlead-commands-beside-native TRANSPORT CODE SECONDS [HOST:PORT]\n");
    return 2;
  }
  const std::string code = text_of(argv[2]);
  if (argc == 5) {
    measure_at(argv[4], argv[1], code, seconds);
    return 0;
  }
  int address[2], life[2];
  if (::pipe(address) != 0 || ::pipe(life) != 0) die("pipe");
  const pid_t server = ::fork();  // before there is an engine, or a driver
  if (server < 0) die("fork");
  if (server == 0) {
    ::close(life[1]);
    return serve(argv[1], address[1], life[0]);
  }
  ::close(address[1]);
  char text[64];
  const ssize_t size = ::read(address[0], text, sizeof text);
  if (size <= 0) return 1;  // the other has said why
  measure_at(std::string(text, static_cast<std::size_t>(size)), argv[1], code, seconds);
  ::close(life[1]);
  int status = 0;
  ::waitpid(server, &status, 0);
  return status == 0 ? 0 : 1;
}
