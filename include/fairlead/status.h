// Status and Result: how Fairlead's control path reports errors.
//
// A Status says what went wrong in words a person can act on: the object, the value, the limit and the remedy.
// The data path (completions) carries only the one-byte Code.
// Threads: values; no shared state.
#pragma once

#include <cassert>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "fairlead/export.h"

namespace fairlead::inline v0 {

/// What happened, in one byte. Values are part of the wire protocol (docs/protocol.md) and never change meaning.
enum class Code : std::uint8_t {
  kOk = 0,
  kInvalidArgument = 1,    // the caller's mistake: a flag, a size, a shape
  kNotFound = 2,           // no such name, host, file or device
  kAlreadyExists = 3,      // the name or port is taken
  kOutOfRange = 4,         // outside the region or the tensor
  kPermissionDenied = 5,   // the remote access was not granted, or the system refused
  kProtectionError = 6,    // the target's memory protection refused the operation
  kResourceExhausted = 7,  // a limit was reached: memory, descriptors, queue depth
  kUnavailable = 8,        // no path to the peer; trying again may help
  kPeerDied = 9,           // the peer's process or host is gone
  kDeadlineExceeded = 10,  // the deadline passed before completion
  kCancelled = 11,         // cancelled by the caller
  kAborted = 12,           // flushed: the path was fenced before this operation ran
  kDataLoss = 13,          // a checksum or a format check failed
  kVersionMismatch = 14,   // the peer speaks another protocol version
  kUnimplemented = 15,     // the device or the peer lacks the feature
  kOutcomeUnknown = 16,    // it may or may not have been executed
  kInternal = 17,          // our own bug
};

/// The enumerator's name in words, e.g. "protection error". Never null.
[[nodiscard]] FAIRLEAD_EXPORT std::string_view to_string(Code code) noexcept;

/// A code and, unless ok, a sentence. Cheap to move; copying copies the sentence.
class [[nodiscard]] FAIRLEAD_EXPORT Status {
 public:
  // Not defaulted: `{}` would first zero all of it, with an instruction that takes longer than what it is returned
  // from.
  Status() noexcept : code_(Code::kOk) {}  // NOLINT(modernize-use-equals-default)
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  [[nodiscard]] bool ok() const noexcept { return code_ == Code::kOk; }
  [[nodiscard]] Code code() const noexcept { return code_; }
  [[nodiscard]] const std::string& message() const noexcept { return message_; }
  /// "protection error: ..." or "ok".
  [[nodiscard]] std::string to_string() const;

 private:
  Code code_;
  std::string message_;
};

/// A value or a non-ok Status, with the member names of std::expected (which GCC 12 lacks in C++20).
/// Reading the wrong side is a programming error, and throws std::bad_variant_access.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Status error) : state_(std::in_place_index<1>, std::move(error)) {  // NOLINT(google-explicit-constructor)
    assert(!std::get<1>(state_).ok());
  }
  Result(Code code, std::string message) : Result(Status(code, std::move(message))) {}

  [[nodiscard]] bool has_value() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }

  [[nodiscard]] T& value() & { return std::get<0>(state_); }
  [[nodiscard]] const T& value() const& { return std::get<0>(state_); }
  [[nodiscard]] T&& value() && { return std::get<0>(std::move(state_)); }
  [[nodiscard]] T& operator*() & { return value(); }
  [[nodiscard]] const T& operator*() const& { return value(); }
  [[nodiscard]] T&& operator*() && { return std::move(*this).value(); }
  [[nodiscard]] T* operator->() { return &value(); }
  [[nodiscard]] const T* operator->() const { return &value(); }

  [[nodiscard]] const Status& error() const& { return std::get<1>(state_); }
  [[nodiscard]] Status&& error() && { return std::get<1>(std::move(state_)); }
  /// ok, or the error.
  [[nodiscard]] Status status() const { return has_value() ? Status() : error(); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace fairlead::inline v0
