// A file by which Prometheus finds this process (file_sd_configs): a folder holds one for each process of a host, which
// is locked as long as that lives. One that was killed leaves its file behind, so that its target is seen to be down;
// the next process that is announced there takes it away.
//
// Threads: one. fork(): the child's copy does nothing. Source: Prometheus' documentation, "<file_sd_config>".
#pragma once

#include <string>
#include <string_view>

#include "base/private_fd.h"
#include "base/system/fork_mark.h"
#include "fairlead/status.h"

namespace fairlead::metrics {

/// Removes its file with it. Move-only.
class Discovery {
 public:
  /// Makes `folder` if it is not there. `address`: that of a MetricsServer; on all addresses it is found at 127.0.0.1.
  /// `service`: a label, "serve" say. The file appears whole, and others may read it. Errors: those of the system.
  static Result<Discovery> announce(const std::string& folder, std::string_view address, std::string_view service);
  Discovery(Discovery&&) noexcept = default;
  Discovery& operator=(Discovery&&) = delete;
  ~Discovery();

  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  Discovery(std::string path, UniqueFd lock) : path_(std::move(path)), lock_(std::move(lock)) {}
  std::string path_;
  PrivateFd lock_;  // of the file itself
  ForkMark fork_mark_;
};

}  // namespace fairlead::metrics
