// The device of a replay over command channels.
#include <optional>
#include <string>
#include <utility>

#include "bench/trace/busy_executor.h"
#include "bench/trace/replay.h"
#include "fairlead/command.h"

namespace fairlead::bench {
namespace {

using command::Handle;

class CommandDevice final : public TraceDevice {
 public:
  CommandDevice(const Trace& trace, command::Session session) : memory_(trace), session_(std::move(session)) {}
  ~CommandDevice() override { session_.close(); }

  Status start(std::size_t streams) {
    function_ = session_.new_handle();
    for (std::size_t i = 0; i < streams; ++i) {
      Result<command::Channel> opened = session_.open_channel();
      if (!opened) return opened.error();
      const auto stream = static_cast<std::uint8_t>(i);
      const std::uint64_t bytes = memory_.device_bytes(stream);
      Stream& made = streams_[i];
      made.channel = *std::move(opened);
      made.memory = session_.new_handle();
      if (i == 0) {
        if (const auto loaded = made.channel.load(function_, kBusy); !loaded) return loaded.error();
      }
      if (bytes != 0) {
        if (const auto allocated = made.channel.allocate(made.memory, bytes); !allocated) return allocated.error();
        if (const auto copied = made.channel.copy_in(made.memory, 0, memory_.pattern(bytes)); !copied) {
          return copied.error();
        }
      }
      if (Status ready = made.channel.synchronize(); !ready.ok()) return ready;
    }
    return {};
  }

  Status call(const TraceRecord& record) override {
    Stream& stream = streams_[record.stream];
    switch (record.op) {
      case TraceOp::kLaunch:
        return status_of(stream.channel.launch({.function = function_},
                                               busy_parameters(parameters_, record.device_ns, record.bytes_out)));
      case TraceOp::kCopyIn:
        if (record.bytes_out == 0) return {};
        return status_of(stream.channel.copy_in(stream.memory, 0, memory_.pattern(record.bytes_out)));
      case TraceOp::kCopyOut:
        if (record.bytes_back == 0) return {};
        return status_of(stream.channel.copy_out(memory_.result(record.stream, record.bytes_back), stream.memory, 0));
      case TraceOp::kMark: {
        const Result<command::Mark> mark = stream.channel.record();
        if (!mark) return mark.error();
        stream.mark = *mark;
        return {};
      }
      case TraceOp::kFence:
        return status_of(stream.channel.fence(streams_[record.on].mark));
      case TraceOp::kSynchronize:
        break;
    }
    return {};
  }

  Status wait(std::uint8_t stream) override { return streams_[stream].channel.synchronize(); }
  [[nodiscard]] Status check() const override { return memory_.check(); }
  void clear() override { memory_.clear(); }

 private:
  struct Stream {
    command::Channel channel;
    Handle memory;
    command::Mark mark;
  };
  static Status status_of(const Result<std::uint64_t>& appended) { return appended ? Status() : appended.error(); }

  TraceMemory memory_;  // copies that are under way end with the session
  command::Session session_;
  Handle function_;
  std::array<Stream, kMaxTraceStreams> streams_;
  std::vector<std::byte> parameters_;
};

}  // namespace

Result<RemoteDevice> make_remote_device(const Trace& trace, Engine& engine, const std::string& address) {
  Result<command::Session> session = command::Session::connect(engine, address);
  if (!session) return session.error();
  RemoteDevice remote{nullptr, session->peer().transport(), session->peer().explain()};
  auto device = std::make_unique<CommandDevice>(trace, *std::move(session));
  if (Status status = device->start(totals_of(trace).streams); !status.ok()) return status;
  remote.device = std::move(device);
  return remote;
}

}  // namespace fairlead::bench
