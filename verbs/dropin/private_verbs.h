// What programs of rdma-core use of libibverbs beyond <infiniband/verbs.h>.
#pragma once

#include <infiniband/sa.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>

extern "C" {

// As ibv_devinfo and pyverbs use it: the text of sysfs' gid_attrs/types as a number.
enum ibv_gid_type_sysfs { IBV_GID_TYPE_SYSFS_IB_ROCE_V1 = 0, IBV_GID_TYPE_SYSFS_ROCE_V2 = 1 };

int ibv_query_gid_type(ibv_context* context, std::uint8_t port, unsigned int index, ibv_gid_type_sysfs* type);

const char* ibv_get_sysfs_path();
int ibv_read_sysfs_file(const char* folder, const char* file, char* text, std::size_t size);

void ibv_copy_ah_attr_from_kern(ibv_ah_attr* to, ib_uverbs_ah_attr* from);
void ibv_copy_qp_attr_from_kern(ibv_qp_attr* to, ib_uverbs_qp_attr* from);
void ibv_copy_path_rec_from_kern(ibv_sa_path_rec* to, ib_user_path_rec* from);
void ibv_copy_path_rec_to_kern(ib_user_path_rec* to, ibv_sa_path_rec* from);

}  // extern "C"
