// Flags of perftest, iperf3, ucx_perftest, qperf and nccl-tests, and what does here what they do: fingers know them.
// Threads: a pure function.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace fairlead::cli {

/// What a command has for `flag` ("-s", "-s64", "--qp"), as far as `has` knows the names of its flags: "--size",
/// "--depth for perftest's, --duration for iperf3's". Empty: nothing like it.
[[nodiscard]] std::string familiar_flag(std::string_view flag, const std::function<bool(std::string_view)>& has);

}  // namespace fairlead::cli
