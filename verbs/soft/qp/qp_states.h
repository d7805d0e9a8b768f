// Which transitions a queue pair may make, and which attributes each of them needs and allows, by type.
//
// Pure functions over ibv_modify_qp's arguments; what they refuse they explain.
// Source: IBTA volume 1, 10.3.1 (states), 11.2.5.2 (attributes of Modify Queue Pair).
#pragma once

#include <infiniband/verbs.h>

#include <string>

namespace fairlead::soft {

[[nodiscard]] const char* to_string(ibv_qp_state state) noexcept;

/// `mask` as given to ibv_modify_qp. On false `why` names the attributes in the way.
[[nodiscard]] bool legal_transition(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask, std::string& why);
/// Whether each value that the mask selects is one that softroce takes.
[[nodiscard]] bool legal_values(const ibv_qp_attr& next, int mask, std::string& why);

}  // namespace fairlead::soft
