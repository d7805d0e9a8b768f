#include <remote_device.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace command = fairlead::command;

namespace {

constexpr std::chrono::microseconds kLook{20};
constexpr CUresult kPassedOver = CUDA_ERROR_UNKNOWN;  // it did not run, for a failure that was told before
constexpr std::uint64_t kAll = 0;                     // in wait(): all that was asked of the channel

std::string setting(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::unique_ptr<RemoteDevice> RemoteDevice::connect() {
  const auto refuse = [](const fairlead::Status& why) {
    std::fprintf(stderr, "remote_cuda: %s\n", why.to_string().c_str());
    return nullptr;
  };
  const std::string where = setting("REMOTE_CUDA");
  if (where.empty()) {
    return refuse({fairlead::Code::kInvalidArgument, "REMOTE_CUDA is to be the HOST:PORT of a `fairlead serve --gpu`"});
  }
  fairlead::EngineConfig config;
  config.keys_file = setting("REMOTE_CUDA_KEYS");
  config.principal = setting("REMOTE_CUDA_PRINCIPAL");
  auto engine = fairlead::Engine::create(config);
  if (!engine) return refuse(engine.error());
  auto session = command::Session::connect(*engine, where);
  if (!session) return refuse(session.error());
  std::unique_ptr<RemoteDevice> device(new RemoteDevice(*std::move(engine), *std::move(session)));
  for (command::Channel* channel : {&device->default_.channel, &device->answers_}) {
    auto opened = device->session_.open_channel();
    if (!opened) return refuse(opened.error());
    *channel = *opened;
  }
  if (!device->addresses_.reserve(device->memory_bytes())) {
    return refuse({fairlead::Code::kResourceExhausted, "this process has no addresses for the device's memory"});
  }
  return device;
}

RemoteDevice::RemoteDevice(fairlead::Engine engine, command::Session session)
    : engine_(std::move(engine)), session_(std::move(session)) {}

// What a Status of a channel's is in CUDA's words. A failure is told once, and the channel goes on; who asks then for
// what was passed over for it hears that it did not run.
CUresult RemoteDevice::told(const fairlead::Status& status, command::Channel& channel, std::uint64_t own) {
  if (status.ok()) return CUDA_SUCCESS;
  if (status.code() == fairlead::Code::kInvalidArgument) return CUDA_ERROR_INVALID_VALUE;
  const auto failure = channel.failure();
  const bool is_over = failure ? failure->scope == command::Scope::kSession : !session_.status().ok();
  if (is_over) {
    std::fprintf(stderr, "remote_cuda: %s\n", status.to_string().c_str());
    return lost_ = CUDA_ERROR_DEVICE_UNAVAILABLE;
  }
  if (!failure) return kPassedOver;
  const auto result = static_cast<CUresult>(failure->result);
  if (failure->scope == command::Scope::kContext || !channel.recover().ok()) return lost_ = result;
  return own == 0 || own == failure->sequence ? result : kPassedOver;
}

CUstream_st* RemoteDevice::find(CUstream stream) {
  if (stream == nullptr) return &default_;
  const auto found = std::ranges::find(streams_, stream, &std::unique_ptr<CUstream_st>::get);
  return found == streams_.end() ? nullptr : stream;
}

CUresult RemoteDevice::order(CUstream_st& stream) {
  const auto behind = [&](CUstream_st& before, std::uint64_t& seen) {
    if (before.work <= seen) return CUDA_SUCCESS;
    if (before.mark.sequence < before.work) {
      auto mark = before.channel.record();
      if (!mark) return told(mark.error(), before.channel);
      before.mark = *mark;
    }
    if (auto fence = stream.channel.fence(before.mark); !fence) return told(fence.error(), stream.channel);
    seen = before.work;
    return CUDA_SUCCESS;
  };
  if (&stream != &default_) return behind(default_, stream.default_seen);
  for (const auto& other : streams_) {
    if (const CUresult result = behind(*other, other->seen); result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

// `append` gives a stream's channel something to do. The lock is the caller's.
template <typename Append>
CUresult RemoteDevice::append(CUstream stream, Append append) {
  if (lost_ != CUDA_SUCCESS) return lost_;
  CUstream_st* const found = find(stream);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult result = order(*found); result != CUDA_SUCCESS) return result;
  const fairlead::Result<std::uint64_t> sequence = append(found->channel);
  if (!sequence) return told(sequence.error(), found->channel);
  found->work = *sequence;
  return CUDA_SUCCESS;
}

// Also where all is lost: what was appended may still write into the caller's memory, until it is waited for.
CUresult RemoteDevice::wait(Lock& lock, command::Channel channel, std::uint64_t sequence, std::uint64_t own) {
  lock.unlock();
  const fairlead::Status status = sequence == kAll ? channel.synchronize() : channel.wait(sequence);
  lock.lock();
  return lost_ != CUDA_SUCCESS ? lost_ : told(status, channel, own);
}

// What is known at once, by the channel of such answers. Another thread's failure there is none of this one's.
template <typename Append>
CUresult RemoteDevice::answer(Lock& lock, Append append) {
  for (;;) {
    if (lost_ != CUDA_SUCCESS) return lost_;
    const fairlead::Result<std::uint64_t> sequence = append(answers_);
    const CUresult result =
        sequence ? wait(lock, answers_, *sequence, *sequence) : told(sequence.error(), answers_, ~std::uint64_t{0});
    if (result != kPassedOver) return result;
  }
}

CUresult RemoteDevice::allocate(CUdeviceptr* address, std::size_t bytes) {
  if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  Lock lock(mutex_);
  if (lost_ != CUDA_SUCCESS) return lost_;
  const command::Handle handle = session_.new_handle();
  const std::uint64_t place = addresses_.place(handle, bytes);
  if (place == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  if (freed_) (void)answers_.fence(*std::exchange(freed_, std::nullopt));
  const CUresult result = answer(lock, [&](command::Channel& channel) { return channel.allocate(handle, bytes); });
  if (result != CUDA_SUCCESS) {
    (void)addresses_.remove(place);
    return result;
  }
  *address = place;
  return CUDA_SUCCESS;
}

CUresult RemoteDevice::release(CUdeviceptr address) {
  if (address == 0) return CUDA_SUCCESS;
  const Lock lock(mutex_);
  const auto place = addresses_.find(address, 0);
  if (!place || place->offset != 0) return CUDA_ERROR_INVALID_VALUE;
  const auto handle = place->allocation;
  const CUresult result = append(nullptr, [&](command::Channel& channel) { return channel.release(handle); });
  if (result != CUDA_SUCCESS) return result;
  (void)addresses_.remove(address);
  if (auto mark = default_.channel.record()) freed_ = *mark;
  return CUDA_SUCCESS;
}

CUresult RemoteDevice::copy_in(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
  const Lock lock(mutex_);
  const auto place = addresses_.find(to, bytes);
  if (!place) return CUDA_ERROR_INVALID_VALUE;
  return append(stream, [&](command::Channel& channel) {
    return channel.copy_in(place->allocation, place->offset, {static_cast<const std::byte*>(from), bytes});
  });
}

CUresult RemoteDevice::copy_out(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  const Lock lock(mutex_);
  const auto place = addresses_.find(from, bytes);
  if (!place) return CUDA_ERROR_INVALID_VALUE;
  return append(stream, [&](command::Channel& channel) {
    return channel.copy_out({static_cast<std::byte*>(to), bytes}, place->allocation, place->offset);
  });
}

CUresult RemoteDevice::copy_within(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  const Lock lock(mutex_);
  const auto target = addresses_.find(to, bytes), source = addresses_.find(from, bytes);
  if (!target || !source) return CUDA_ERROR_INVALID_VALUE;
  return append(stream, [&](command::Channel& channel) {
    return channel.copy_within(target->allocation, target->offset, source->allocation, source->offset, bytes);
  });
}

CUresult RemoteDevice::fill(CUdeviceptr to, std::uint8_t value, std::size_t bytes, CUstream stream) {
  const Lock lock(mutex_);
  const auto place = addresses_.find(to, bytes);
  if (!place) return CUDA_ERROR_INVALID_VALUE;
  return append(
      stream, [&](command::Channel& channel) { return channel.fill(place->allocation, place->offset, bytes, value); });
}

CUresult RemoteDevice::load(CUfunction* function, CUmod_st& module, const char* name) {
  Lock lock(mutex_);
  if (lost_ != CUDA_SUCCESS) return lost_;
  const auto kernel = std::ranges::find(module.kernels, name, &Kernel::name);
  if (kernel == module.kernels.end()) return CUDA_ERROR_NOT_FOUND;
  const command::Handle handle = session_.new_handle();
  const CUresult result = answer(lock, [&](command::Channel& channel) { return channel.load(handle, name); });
  if (result != CUDA_SUCCESS) return result;
  *function = module.functions.emplace_back(new CUfunc_st{*kernel, handle}).get();
  return CUDA_SUCCESS;
}

CUresult RemoteDevice::launch(const CUfunc_st& function, command::Extent grid, command::Extent block,
                              std::uint32_t shared_bytes, CUstream stream, void* const* parameters) {
  const Lock lock(mutex_);
  const auto bytes = pack_parameters(function.kernel, parameters, addresses_);
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  return append(stream, [&](command::Channel& channel) {
    return channel.launch({function.handle, grid, block, shared_bytes}, *bytes);
  });
}

CUresult RemoteDevice::create_stream(CUstream* stream) {
  const Lock lock(mutex_);
  if (lost_ != CUDA_SUCCESS) return lost_;
  if (idle_.empty()) {
    auto channel = session_.open_channel();
    if (!channel) return CUDA_ERROR_OUT_OF_MEMORY;
    idle_.push_back(*channel);
  }
  auto made = std::make_unique<CUstream_st>();
  made->channel = idle_.back();
  idle_.pop_back();
  *stream = streams_.emplace_back(std::move(made)).get();
  return CUDA_SUCCESS;
}

CUresult RemoteDevice::destroy_stream(CUstream stream) {
  const Lock lock(mutex_);
  const auto found = std::ranges::find(streams_, stream, &std::unique_ptr<CUstream_st>::get);
  if (found == streams_.end()) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult result = order(default_);  // what is under way goes on, and the default stream is to be behind it
  idle_.push_back((*found)->channel);
  streams_.erase(found);
  return result;
}

CUresult RemoteDevice::record(CUevent event, CUstream stream) {
  const Lock lock(mutex_);
  return append(stream, [&](command::Channel& channel) -> fairlead::Result<std::uint64_t> {
    auto mark = channel.record();
    if (!mark) return mark.error();
    *event = {channel, *mark};
    return mark->sequence;
  });
}

CUresult RemoteDevice::wait_event(CUstream stream, CUevent event) {
  const Lock lock(mutex_);
  const CUstream_st* const found = find(stream);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (event->mark.sequence == 0 || found->channel.number() == event->mark.channel) return CUDA_SUCCESS;
  return append(stream, [&](command::Channel& channel) { return channel.fence(event->mark); });
}

CUresult RemoteDevice::synchronize(CUstream stream) {
  Lock lock(mutex_);
  CUstream_st* const found = find(stream);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult result = order(*found); result != CUDA_SUCCESS) return result;
  return wait(lock, found->channel, kAll);
}

CUresult RemoteDevice::synchronize_all() {
  Lock lock(mutex_);
  std::vector<command::Channel> channels{default_.channel};
  for (const auto& stream : streams_) channels.push_back(stream->channel);
  CUresult first = CUDA_SUCCESS;
  for (const command::Channel& channel : channels) {
    const CUresult result = wait(lock, channel, kAll);
    if (first == CUDA_SUCCESS) first = result;
  }
  return first;
}

CUresult RemoteDevice::synchronize(CUevent event, bool query) {
  Lock lock(mutex_);
  if (lost_ != CUDA_SUCCESS) return lost_;
  const CUevent_st recorded = *event;
  if (recorded.mark.sequence == 0) return CUDA_SUCCESS;
  if (query) {
    auto channel = recorded.channel;
    // Answers are taken by who waits, if ever so shortly; without that reached() stays as it is.
    const fairlead::Status status = channel.wait(recorded.mark.sequence, command::Stage::kComplete, kLook);
    return status.code() == fairlead::Code::kDeadlineExceeded ? CUDA_ERROR_NOT_READY : told(status, channel);
  }
  return wait(lock, recorded.channel, recorded.mark.sequence);
}
