// From one core to another that is as near to the memory at work.
#pragma once

namespace fairlead {

/// The calling thread goes on on another CPU, of those that it may use and that share the last cache of its own; which
/// it may use stays as it was; what another thread sets in the meantime is lost. False, and nothing is done: there is
/// none, or the system does not say or refuses, or it has more than 1,024 CPUs. Takes some 30 us, and allocates
/// nothing: the data path calls it. `root`: a folder that stands for "/". Threads: any.
[[nodiscard]] bool leave_core(const char* root = "") noexcept;

}  // namespace fairlead
