#include "verbs/soft/qp/qp_states.h"

#include <fmt/format.h>

#include <array>

#include "verbs/soft/queues/device_base.h"
#include "verbs/soft/wire/psn.h"

namespace fairlead::soft {
namespace {

constexpr int kPort = IBV_QP_PKEY_INDEX | IBV_QP_PORT;
constexpr int kPath = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int kAlternate = IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;
constexpr int kRetries = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;

/// Attributes, as a mask for each type.
struct ByType {
  int rc = 0;
  int uc = 0;
  int ud = 0;
  [[nodiscard]] constexpr int of(ibv_qp_type type) const noexcept {
    return type == IBV_QPT_RC ? rc : type == IBV_QPT_UC ? uc : ud;
  }
};

struct Transition {
  ibv_qp_state from;
  ibv_qp_state to;
  ByType required;
  ByType optional;
};

constexpr ByType kRunning = {IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | kAlternate,
                             IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | kAlternate, IBV_QP_CUR_STATE | IBV_QP_QKEY};

constexpr std::array kTransitions = {
    Transition{IBV_QPS_RESET,
               IBV_QPS_INIT,
               {kPort | IBV_QP_ACCESS_FLAGS, kPort | IBV_QP_ACCESS_FLAGS, kPort | IBV_QP_QKEY},
               {}},
    Transition{IBV_QPS_INIT,
               IBV_QPS_INIT,
               {},
               {kPort | IBV_QP_ACCESS_FLAGS, kPort | IBV_QP_ACCESS_FLAGS, kPort | IBV_QP_QKEY}},
    Transition{IBV_QPS_INIT,
               IBV_QPS_RTR,
               {kPath | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER, kPath, 0},
               {kAlternate | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX,
                kAlternate | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX, IBV_QP_PKEY_INDEX | IBV_QP_QKEY}},
    Transition{IBV_QPS_RTR, IBV_QPS_RTS, {kRetries | IBV_QP_SQ_PSN, IBV_QP_SQ_PSN, IBV_QP_SQ_PSN}, kRunning},
    Transition{IBV_QPS_RTS, IBV_QPS_RTS, {}, kRunning},
    Transition{IBV_QPS_RTS,
               IBV_QPS_SQD,
               {},
               {IBV_QP_EN_SQD_ASYNC_NOTIFY, IBV_QP_EN_SQD_ASYNC_NOTIFY, IBV_QP_EN_SQD_ASYNC_NOTIFY}},
    Transition{IBV_QPS_SQD, IBV_QPS_RTS, {}, kRunning},
    Transition{IBV_QPS_SQD,
               IBV_QPS_SQD,
               {},
               {IBV_QP_AV | kRetries | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER | IBV_QP_ACCESS_FLAGS | kPort |
                    kAlternate,
                IBV_QP_AV | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | kAlternate, IBV_QP_PKEY_INDEX | IBV_QP_QKEY}},
    Transition{
        IBV_QPS_SQE, IBV_QPS_RTS, {}, {0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS, IBV_QP_CUR_STATE | IBV_QP_QKEY}},
};

const Transition* find(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to) noexcept {
  if (type == IBV_QPT_RC && from == IBV_QPS_SQE) return nullptr;  // RC has no such state
  for (const Transition& transition : kTransitions) {
    if (transition.from == from && transition.to == to) return &transition;
  }
  return nullptr;
}

// "IBV_QP_QKEY, IBV_QP_PORT"
std::string names(int mask) {
  static constexpr const char* kNames[] = {"STATE",
                                           "CUR_STATE",
                                           "EN_SQD_ASYNC_NOTIFY",
                                           "ACCESS_FLAGS",
                                           "PKEY_INDEX",
                                           "PORT",
                                           "QKEY",
                                           "AV",
                                           "PATH_MTU",
                                           "TIMEOUT",
                                           "RETRY_CNT",
                                           "RNR_RETRY",
                                           "RQ_PSN",
                                           "MAX_QP_RD_ATOMIC",
                                           "ALT_PATH",
                                           "MIN_RNR_TIMER",
                                           "SQ_PSN",
                                           "MAX_DEST_RD_ATOMIC",
                                           "PATH_MIG_STATE",
                                           "CAP",
                                           "DEST_QPN"};
  std::string text;
  for (unsigned bit = 0; bit < 32; ++bit) {
    if ((static_cast<unsigned>(mask) >> bit & 1U) == 0) continue;
    if (!text.empty()) text += ", ";
    text += bit < std::size(kNames) ? fmt::format("IBV_QP_{}", kNames[bit]) : fmt::format("bit {}", bit);
  }
  return text;
}

}  // namespace

const char* to_string(ibv_qp_state state) noexcept {
  static constexpr const char* kNames[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  return state <= IBV_QPS_ERR ? kNames[state] : "an unknown state";
}

bool legal_transition(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask, std::string& why) {
  int required = 0;
  int optional = IBV_QP_CUR_STATE;
  if (to != IBV_QPS_RESET && to != IBV_QPS_ERR) {
    const Transition* transition = find(type, from, to);
    if (transition == nullptr) {
      why = fmt::format("no transition from {} to {}", to_string(from), to_string(to));
      return false;
    }
    required = transition->required.of(type);
    optional = transition->optional.of(type);
  }
  if (const int missing = required & ~mask; missing != 0) {
    why = fmt::format("{} to {} needs {}", to_string(from), to_string(to), names(missing));
    return false;
  }
  if (const int extra = mask & ~(required | optional | IBV_QP_STATE); extra != 0) {
    why = fmt::format("{} to {} does not take {} for this type of queue pair", to_string(from), to_string(to),
                      names(extra));
    return false;
  }
  return true;
}

bool legal_values(const ibv_qp_attr& next, int mask, std::string& why) {
  const auto check = [&](int bit, std::uint32_t value, std::uint32_t least, std::uint32_t most, const char* what) {
    if ((mask & bit) == 0 || (value >= least && value <= most)) return true;
    why = fmt::format("{} is {}; it must lie in {}..{}", what, value, least, most);
    return false;
  };
  return check(IBV_QP_PORT, next.port_num, 1, 1, "port_num") &&
         check(IBV_QP_PKEY_INDEX, next.pkey_index, 0, 0, "pkey_index") &&
         check(IBV_QP_PATH_MTU, next.path_mtu, IBV_MTU_256, IBV_MTU_4096, "path_mtu") &&
         check(IBV_QP_MAX_DEST_RD_ATOMIC, next.max_dest_rd_atomic, 0, kMaxReads, "max_dest_rd_atomic") &&
         check(IBV_QP_MAX_QP_RD_ATOMIC, next.max_rd_atomic, 0, kMaxReads, "max_rd_atomic") &&
         check(IBV_QP_MIN_RNR_TIMER, next.min_rnr_timer, 0, 31, "min_rnr_timer") &&
         check(IBV_QP_TIMEOUT, next.timeout, 0, 31, "timeout") &&
         check(IBV_QP_RETRY_CNT, next.retry_cnt, 0, 7, "retry_cnt") &&
         check(IBV_QP_RNR_RETRY, next.rnr_retry, 0, 7, "rnr_retry") &&
         check(IBV_QP_DEST_QPN, next.dest_qp_num, 0, Psn::kMask, "dest_qp_num");
}

}  // namespace fairlead::soft
