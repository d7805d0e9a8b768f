/* Stands for the libibverbs of an rdma-core that has more than ours: newer_ibverbs.map names the version. */
int ibv_of_a_later_day(void);
int ibv_of_a_later_day(void) { return 42; }
