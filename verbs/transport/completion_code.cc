#include "verbs/transport/completion_code.h"

namespace fairlead::verbs {

Code code_of(ibv_wc_status status) noexcept {
  switch (status) {
    case IBV_WC_SUCCESS:
      return Code::kOk;
    case IBV_WC_WR_FLUSH_ERR:
      return Code::kAborted;
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_OP_ERR:
      return Code::kProtectionError;
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_LEN_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
      return Code::kInvalidArgument;
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RNR_RETRY_EXC_ERR:
    case IBV_WC_BAD_RESP_ERR:
    case IBV_WC_REM_ABORT_ERR:
    case IBV_WC_FATAL_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
      return Code::kUnavailable;
    default:
      return Code::kInternal;
  }
}

std::string_view explain(ibv_wc_status status) noexcept {
  switch (status) {
    case IBV_WC_SUCCESS:
      return "success";
    case IBV_WC_WR_FLUSH_ERR:
      return "the queue pair went into the error state";
    case IBV_WC_REM_ACCESS_ERR:
      return "the target refused the remote key, the address range or the access (remote access error)";
    case IBV_WC_REM_OP_ERR:
      return "the target could not reach its own memory, for one because a file there was truncated (remote operation "
             "error)";
    case IBV_WC_REM_INV_REQ_ERR:
      return "the target refused the request as invalid (remote invalid request error)";
    case IBV_WC_LOC_PROT_ERR:
      return "a local buffer is not inside the registration it names, or its memory is gone: unmapped, or of a file "
             "that was "
             "truncated (local protection error)";
    case IBV_WC_LOC_LEN_ERR:
      return "a message did not fit the receive buffer (local length error)";
    case IBV_WC_LOC_QP_OP_ERR:
      return "the device could not execute the request (local queue pair operation error)";
    case IBV_WC_RETRY_EXC_ERR:
      return "the peer did not answer within the retries (transport retry counter exceeded)";
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return "the peer had no receive buffer within the retries (RNR retries exceeded)";
    case IBV_WC_BAD_RESP_ERR:
      return "the peer answered out of protocol (bad response)";
    case IBV_WC_REM_ABORT_ERR:
      return "the peer aborted the operation";
    case IBV_WC_FATAL_ERR:
      return "the device failed (fatal error)";
    case IBV_WC_RESP_TIMEOUT_ERR:
      return "the peer's answer timed out";
    default:
      return "an error that this transport never expects";
  }
}

}  // namespace fairlead::verbs
