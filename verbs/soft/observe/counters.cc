#include "verbs/soft/observe/counters.h"

namespace fairlead::soft {

std::vector<CounterValue> read(const Counters& c) {
  return {
      {"sent_pkts", c.sent_pkts.get()},
      {"rcvd_pkts", c.rcvd_pkts.get()},
      {"sent_bytes", c.sent_bytes.get()},
      {"rcvd_bytes", c.rcvd_bytes.get()},
      {"send_err", c.send_err.get()},
      {"duplicate_request", c.duplicate_request.get()},
      {"out_of_seq_request", c.out_of_seq_request.get()},
      {"rcvd_rnr_err", c.rcvd_rnr_err.get()},
      {"send_rnr_err", c.send_rnr_err.get()},
      {"rcvd_seq_err", c.rcvd_seq_err.get()},
      {"send_seq_err", c.send_seq_err.get()},
      {"ack_deferred", c.ack_deferred.get()},
      {"completer_retry_err", c.completer_retry_err.get()},
      {"retry_exceeded_err", c.retry_exceeded_err.get()},
      {"retry_rnr_exceeded_err", c.retry_rnr_exceeded_err.get()},
      {"rdma_sends", c.rdma_sends.get()},
      {"rdma_recvs", c.rdma_recvs.get()},
      {"lost_responses", c.lost_responses.get()},
      {"cq_overflows", c.cq_overflows.get()},
      {"drop_malformed", c.drop_malformed.get()},
      {"drop_icrc", c.drop_icrc.get()},
      {"drop_no_qp", c.drop_no_qp.get()},
      {"drop_wrong_source", c.drop_wrong_source.get()},
      {"drop_wrong_service", c.drop_wrong_service.get()},
      {"drop_pkey", c.drop_pkey.get()},
      {"drop_state", c.drop_state.get()},
      {"drop_qkey", c.drop_qkey.get()},
      {"drop_no_receive", c.drop_no_receive.get()},
      {"drop_length", c.drop_length.get()},
      {"drop_message", c.drop_message.get()},
      {"drop_bogus", c.drop_bogus.get()},
      {"lane_handed_over", c.lane_handed_over.get()},
      {"drop_lane_full", c.drop_lane_full.get()},
      {"np_ecn_marked_roce_packets", c.np_ecn_marked_roce_packets.get()},
      {"np_cnp_sent", c.np_cnp_sent.get()},
      {"rp_cnp_handled", c.rp_cnp_handled.get()},
      {"rp_cnp_ignored", c.rp_cnp_ignored.get()},
      {"icrc_explained", c.icrc_explained.get()},
      {"sent_windows", c.sent_windows.get()},
      {"rcvd_windows", c.rcvd_windows.get()},
      {"sent_by_memory", c.sent_by_memory.get()},
      {"rcvd_by_memory", c.rcvd_by_memory.get()},
  };
}

}  // namespace fairlead::soft
