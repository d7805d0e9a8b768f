// The device at the other host, as the driver API sees one: memory with addresses, streams, events, kernels.
//
// A stream is a channel. The default stream is one as well; as CUDA has it, what is asked of it waits for all that was
// asked of the others before, and they for it: that is done with fences. Allocating and naming functions take a round
// trip in a channel of their own, because programs expect the truth about them at once. What fails later is told by the
// next call that waits for that stream, or asks something of it, once; a failure of the context, or the end of the
// session, by every call from then on. Threads: any; calls that wait hold no lock meanwhile.
#pragma once

#include <addresses.h>
#include <fairlead/command.h>
#include <kernels.h>
#include <remote_cuda.h>

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

struct CUstream_st {
  fairlead::command::Channel channel;
  std::uint64_t work = 0;          // the last command of the program's
  fairlead::command::Mark mark{};  // behind it, or earlier
  std::uint64_t default_seen = 0;  // up to where it is behind the default stream,
  std::uint64_t seen = 0;          // and that behind it
};
struct CUevent_st {
  fairlead::command::Channel channel;
  fairlead::command::Mark mark{};
};
struct CUfunc_st {
  Kernel kernel;
  fairlead::command::Handle handle;
};
struct CUmod_st {
  std::vector<Kernel> kernels;
  std::vector<std::unique_ptr<CUfunc_st>> functions;  // that were asked for
};

class RemoteDevice {
 public:
  /// Nothing: nobody serves a device there; says why on standard error.
  static std::unique_ptr<RemoteDevice> connect();

  [[nodiscard]] std::uint64_t memory_bytes() const { return session_.limits().memory_bytes; }

  CUresult allocate(CUdeviceptr* address, std::size_t bytes);
  CUresult release(CUdeviceptr address);
  CUresult copy_in(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream);
  CUresult copy_out(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream);
  CUresult copy_within(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream);
  CUresult fill(CUdeviceptr to, std::uint8_t value, std::size_t bytes, CUstream stream);

  CUresult load(CUfunction* function, CUmod_st& module, const char* name);
  CUresult launch(const CUfunc_st& function, fairlead::command::Extent grid, fairlead::command::Extent block,
                  std::uint32_t shared_bytes, CUstream stream, void* const* parameters);

  CUresult create_stream(CUstream* stream);
  CUresult destroy_stream(CUstream stream);
  CUresult record(CUevent event, CUstream stream);
  CUresult wait_event(CUstream stream, CUevent event);

  CUresult synchronize(CUstream stream);
  CUresult synchronize_all();
  /// Of an event; `query`: says CUDA_ERROR_NOT_READY instead of waiting.
  CUresult synchronize(CUevent event, bool query);

 private:
  using Lock = std::unique_lock<std::mutex>;
  RemoteDevice(fairlead::Engine engine, fairlead::command::Session session);

  CUstream_st* find(CUstream stream);
  CUresult order(CUstream_st& stream);
  template <typename Append>
  CUresult append(CUstream stream, Append append);
  template <typename Append>
  CUresult answer(Lock& lock, Append append);
  CUresult wait(Lock& lock, fairlead::command::Channel channel, std::uint64_t sequence, std::uint64_t own = 0);
  /// `own`: which command's failure is asked for; where the channel stands at another it did not run. 0: any.
  CUresult told(const fairlead::Status& status, fairlead::command::Channel& channel, std::uint64_t own = 0);

  std::mutex mutex_;
  fairlead::Engine engine_;
  fairlead::command::Session session_;
  Addresses addresses_;
  CUstream_st default_;
  fairlead::command::Channel answers_;            // of what takes a round trip
  std::optional<fairlead::command::Mark> freed_;  // the last release, which the next allocation is to be behind
  std::vector<std::unique_ptr<CUstream_st>> streams_;
  std::vector<fairlead::command::Channel> idle_;  // of streams that were destroyed: channels are not given back
  CUresult lost_ = CUDA_SUCCESS;                  // why every call fails
};
