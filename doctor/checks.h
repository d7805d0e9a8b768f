// The checks by what they are about, and the words of a finding.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "doctor/doctor.h"

namespace fairlead::doctor {

[[nodiscard]] std::span<const Check> memory_checks();
[[nodiscard]] std::span<const Check> cpu_checks();
[[nodiscard]] std::span<const Check> pci_checks();
[[nodiscard]] std::span<const Check> rdma_checks();
[[nodiscard]] std::span<const Check> network_checks();

[[nodiscard]] inline Finding fine(std::string seen) { return {Verdict::kOk, std::move(seen), {}}; }
[[nodiscard]] inline Finding not_here(std::string seen) { return {Verdict::kNotHere, std::move(seen), {}}; }
[[nodiscard]] inline Finding advice(std::string seen, std::vector<std::string> commands) {
  return {Verdict::kAdvice, std::move(seen), std::move(commands)};
}
[[nodiscard]] inline Finding problem(std::string seen, std::vector<std::string> commands) {
  return {Verdict::kProblem, std::move(seen), std::move(commands)};
}

}  // namespace fairlead::doctor
