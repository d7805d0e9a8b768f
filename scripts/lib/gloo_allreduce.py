"""Seconds of each all-reduce of BYTES of floats by Gloo, which PyTorch brings along, as rank 0 has them, after a barrier: a JSON
array. The sums of the last one are compared, outside of the time.

  gloo_allreduce.py RANKS FOLDER BYTES ITERATIONS      starts all ranks here; they meet at a file in FOLDER
"""

import json
import multiprocessing
import sys
import time

import torch
from torch import distributed


def run(rank, ranks, folder, size, iterations):
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/gloo", rank=rank, world_size=ranks)
    data, took = torch.empty(size // 4), []
    for _ in range(iterations):
        data.fill_(rank + 1)
        distributed.barrier()
        begin = time.perf_counter()
        distributed.all_reduce(data)
        took.append(time.perf_counter() - begin)
    if not torch.all(data == ranks * (ranks + 1) // 2):
        sys.exit(f"rank {rank}: the sum is wrong")
    distributed.barrier()
    if rank == 0:
        print(json.dumps(took), flush=True)


def main():
    ranks, folder, size, iterations = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    others = [multiprocessing.Process(target=run, args=(rank, ranks, folder, size, iterations)) for rank in range(ranks)]
    for each in others:
        each.start()
    for each in others:
        each.join()
    sys.exit(any(each.exitcode for each in others))


if __name__ == "__main__":
    main()
