#include "gpu/driver/copier.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "fairlead/log.h"

namespace fairlead::gpu {

Copier::~Copier() {
  for (const std::unique_ptr<Stream>& each : streams_) {
    const ContextScope scope(driver_->api(), each->context);
    if (scope.entered() != CuResult::kSuccess) continue;  // the context has gone, and all of its with it
    for (const CuEvent event : each->spare) static_cast<void>(driver_->api().event_destroy(event));
    for (const Copy& copy : each->copies) static_cast<void>(driver_->api().event_destroy(copy.event));
    static_cast<void>(driver_->api().stream_destroy(each->stream));
  }
}

/// Once: what is wrong with one copy is wrong with many.
void Copier::say(CuResult result, const char* call) noexcept {
  if (std::exchange(said_, true)) return;
  log(LogLevel::kError, fmt::format("a copy between host and GPU memory failed: {}; transfers that need it fail",
                                    driver_->check(result, call).message()));
}

/// In a scope of that context. Null: there can be none.
Copier::Stream* Copier::stream_for(CuContext context, Use use) noexcept {
  for (const std::unique_ptr<Stream>& each : streams_) {
    if (each->context == context && each->use == use) return each.get();
  }
  CuStream made = nullptr;
  const CuResult result = driver_->api().stream_create(&made, kStreamNonBlocking);
  if (result != CuResult::kSuccess) {
    say(result, "cuStreamCreate");
    return nullptr;
  }
  const std::lock_guard lock(streams_growing_);
  streams_.push_back(std::make_unique<Stream>(Stream{context, use, made}));
  return streams_.back().get();
}

bool Copier::start(Use use, Way way, CuContext context, std::byte* device, std::byte* host, std::size_t bytes,
                   CopyEnd& end) noexcept {
  const DriverApi& api = driver_->api();
  const ContextScope scope(api, context);
  if (scope.entered() != CuResult::kSuccess) {
    say(scope.entered(), "cuCtxPushCurrent");
    return false;
  }
  Stream* const stream = stream_for(context, use);
  if (stream == nullptr) return false;
  Copy copy{.event = nullptr, .end = &end, .bytes = bytes, .way = way};
  if (!stream->spare.empty()) {
    copy.event = stream->spare.back();
    stream->spare.pop_back();
  } else if (const CuResult made = api.event_create(&copy.event, kEventDisableTiming); made != CuResult::kSuccess) {
    say(made, "cuEventCreate");
    return false;
  }
  const auto address = reinterpret_cast<CuAddress>(device);
  const CuResult started = way == Way::kToDevice ? api.copy_to_device(address, host, bytes, stream->stream)
                                                 : api.copy_to_host(host, address, bytes, stream->stream);
  if (started != CuResult::kSuccess) {
    say(started, way == Way::kToDevice ? "cuMemcpyHtoDAsync" : "cuMemcpyDtoHAsync");
    stream->spare.push_back(copy.event);
    return false;
  }
  if (const CuResult recorded = api.event_record(copy.event, stream->stream); recorded != CuResult::kSuccess) {
    // The copy is on its way and nothing will tell of its end: it is waited for here.
    say(recorded, "cuEventRecord");
    static_cast<void>(api.stream_synchronize(stream->stream));
    stream->spare.push_back(copy.event);
    return false;
  }
  stream->copies.push_back(copy);
  ++under_way_;
  return true;
}

bool Copier::poll(Stream& stream) noexcept {
  const DriverApi& api = driver_->api();
  const ContextScope scope(api, stream.context);
  bool any = false;
  while (!stream.copies.empty()) {
    const Copy copy = stream.copies.front();
    const CuResult result = scope.entered() == CuResult::kSuccess ? api.event_query(copy.event) : scope.entered();
    if (result == CuResult::kNotReady) break;
    stream.copies.erase(stream.copies.begin());
    stream.spare.push_back(copy.event);
    --under_way_;
    any = true;
    if (result == CuResult::kSuccess) {
      (copy.way == Way::kToDevice ? bytes_in : bytes_out).add(copy.bytes);
    } else {
      say(result, "cuEventQuery");
    }
    copy.end->copied(result == CuResult::kSuccess);
  }
  return any;
}

bool Copier::poll() noexcept {
  if (under_way_ == 0) return false;
  bool any = false;
  for (std::size_t i = 0; i < streams_.size(); ++i) {  // by number: an end may start a copy on a new one
    if (!streams_[i]->copies.empty()) any |= poll(*streams_[i]);
  }
  return any;
}

void Copier::finish() noexcept {
  while (under_way_ != 0) {
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      Stream& stream = *streams_[i];
      if (stream.copies.empty()) continue;
      {
        const ContextScope scope(driver_->api(), stream.context);
        if (scope.entered() == CuResult::kSuccess) {
          static_cast<void>(driver_->api().stream_synchronize(stream.stream));  // poll() says what it says
        }
      }
      poll(stream);
    }
  }
}

void Copier::settle() noexcept {
  std::vector<std::pair<CuContext, CuStream>> of_peers;
  {
    const std::lock_guard lock(streams_growing_);
    for (const std::unique_ptr<Stream>& each : streams_) {
      if (each->use == Use::kForPeers) of_peers.emplace_back(each->context, each->stream);
    }
  }
  for (const auto& [context, stream] : of_peers) {
    const ContextScope scope(driver_->api(), context);
    if (scope.entered() == CuResult::kSuccess) static_cast<void>(driver_->api().stream_synchronize(stream));
  }
}

}  // namespace fairlead::gpu
