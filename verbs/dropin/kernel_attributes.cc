// Attributes between the kernel's layout and verbs', as librdmacm needs them, and libibverbs' window on sysfs.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/unique_fd.h"
#include "verbs/dropin/private_verbs.h"

extern "C" {

void ibv_copy_ah_attr_from_kern(ibv_ah_attr* to, ib_uverbs_ah_attr* from) {
  std::memcpy(to->grh.dgid.raw, from->grh.dgid, sizeof(to->grh.dgid));
  to->grh.flow_label = from->grh.flow_label;
  to->grh.sgid_index = from->grh.sgid_index;
  to->grh.hop_limit = from->grh.hop_limit;
  to->grh.traffic_class = from->grh.traffic_class;
  to->dlid = from->dlid;
  to->sl = from->sl;
  to->src_path_bits = from->src_path_bits;
  to->static_rate = from->static_rate;
  to->is_global = from->is_global;
  to->port_num = from->port_num;
}

void ibv_copy_qp_attr_from_kern(ibv_qp_attr* to, ib_uverbs_qp_attr* from) {
  to->qp_state = static_cast<ibv_qp_state>(from->qp_state);
  to->cur_qp_state = static_cast<ibv_qp_state>(from->cur_qp_state);
  to->path_mtu = static_cast<ibv_mtu>(from->path_mtu);
  to->path_mig_state = static_cast<ibv_mig_state>(from->path_mig_state);
  to->qkey = from->qkey;
  to->rq_psn = from->rq_psn;
  to->sq_psn = from->sq_psn;
  to->dest_qp_num = from->dest_qp_num;
  to->qp_access_flags = from->qp_access_flags;
  to->cap = {from->max_send_wr, from->max_recv_wr, from->max_send_sge, from->max_recv_sge, from->max_inline_data};
  ibv_copy_ah_attr_from_kern(&to->ah_attr, &from->ah_attr);
  ibv_copy_ah_attr_from_kern(&to->alt_ah_attr, &from->alt_ah_attr);
  to->pkey_index = from->pkey_index;
  to->alt_pkey_index = from->alt_pkey_index;
  to->en_sqd_async_notify = from->en_sqd_async_notify;
  to->sq_draining = from->sq_draining;
  to->max_rd_atomic = from->max_rd_atomic;
  to->max_dest_rd_atomic = from->max_dest_rd_atomic;
  to->min_rnr_timer = from->min_rnr_timer;
  to->port_num = from->port_num;
  to->timeout = from->timeout;
  to->retry_cnt = from->retry_cnt;
  to->rnr_retry = from->rnr_retry;
  to->alt_port_num = from->alt_port_num;
  to->alt_timeout = from->alt_timeout;
}

void ibv_copy_path_rec_from_kern(ibv_sa_path_rec* to, ib_user_path_rec* from) {
  std::memcpy(to->dgid.raw, from->dgid, sizeof(to->dgid));
  std::memcpy(to->sgid.raw, from->sgid, sizeof(to->sgid));
  to->dlid = from->dlid;
  to->slid = from->slid;
  to->raw_traffic = static_cast<int>(from->raw_traffic);
  to->flow_label = from->flow_label;
  to->hop_limit = from->hop_limit;
  to->traffic_class = from->traffic_class;
  to->reversible = static_cast<int>(from->reversible);
  to->numb_path = from->numb_path;
  to->pkey = from->pkey;
  to->sl = from->sl;
  to->mtu_selector = from->mtu_selector;
  to->mtu = static_cast<std::uint8_t>(from->mtu);
  to->rate_selector = from->rate_selector;
  to->rate = from->rate;
  to->packet_life_time = from->packet_life_time;
  to->packet_life_time_selector = from->packet_life_time_selector;
  to->preference = from->preference;
}

void ibv_copy_path_rec_to_kern(ib_user_path_rec* to, ibv_sa_path_rec* from) {
  std::memcpy(to->dgid, from->dgid.raw, sizeof(to->dgid));
  std::memcpy(to->sgid, from->sgid.raw, sizeof(to->sgid));
  to->dlid = from->dlid;
  to->slid = from->slid;
  to->raw_traffic = static_cast<__u32>(from->raw_traffic);
  to->flow_label = from->flow_label;
  to->hop_limit = from->hop_limit;
  to->traffic_class = from->traffic_class;
  to->reversible = static_cast<__u32>(from->reversible);
  to->numb_path = from->numb_path;
  to->pkey = from->pkey;
  to->sl = from->sl;
  to->mtu_selector = from->mtu_selector;
  to->mtu = from->mtu;
  to->rate_selector = from->rate_selector;
  to->rate = from->rate;
  to->packet_life_time = from->packet_life_time;
  to->packet_life_time_selector = from->packet_life_time_selector;
  to->preference = from->preference;
}

const char* ibv_get_sysfs_path() {
  static const std::string kPath = [] {
    const char* path = ::getuid() == ::geteuid() ? std::getenv("SYSFS_PATH") : nullptr;
    std::string folder = path != nullptr && *path != '\0' ? path : "/sys";
    while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
    return folder;
  }();
  return kPath.c_str();
}

// The number of bytes, without a last line feed; -1 with errno set. Opens softroce's files as well (files.cc).
int ibv_read_sysfs_file(const char* folder, const char* file, char* text, std::size_t size) {
  const std::string path = std::string(folder) + "/" + file;
  const fairlead::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return -1;
  const ssize_t got = ::read(fd.get(), text, size);
  if (got <= 0) return static_cast<int>(got);
  auto length = static_cast<std::size_t>(got);
  if (text[length - 1] == '\n') {
    text[--length] = '\0';
  } else if (length < size) {
    text[length] = '\0';
  } else {
    errno = ENOBUFS;
    return -1;
  }
  return static_cast<int>(length);
}

}  // extern "C"
