/* allreduce and alltoall over all ranks, every value compared with what it must be, in sizes on both sides of MPI's
 * change from eager to rendezvous. Then rank 0 says so, and all stay until the file FILE is there: who judges can read
 * the counters of their devices.
 *
 * mpi_collectives FILE */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { kRounds = 5, kMost = 1 << 16 };

static void check(int good, const char* call, int size) {
  if (good) return;
  fprintf(stderr, "%s of %d values: wrong\n", call, size);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static void reduce(int rank, int ranks, int size, long* in, long* out) {
  for (int i = 0; i < size; ++i) in[i] = (long)(rank + 1) * i;
  MPI_Allreduce(in, out, size, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  int good = 1;
  for (int i = 0; i < size; ++i) good &= out[i] == (long)ranks * (ranks + 1) / 2 * i;
  check(good, "allreduce", size);
}

static void exchange(int rank, int ranks, int size, long* in, long* out) {
  for (int i = 0; i < ranks * size; ++i) in[i] = (long)rank << 32 | i;
  MPI_Alltoall(in, size, MPI_LONG, out, size, MPI_LONG, MPI_COMM_WORLD);
  int good = 1;
  for (int i = 0; i < ranks * size; ++i) good &= out[i] == ((long)(i / size) << 32 | (rank * size + i % size));
  check(good, "alltoall", size);
}

int main(int argc, char** argv) {
  int rank = 0;
  int ranks = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  long* in = malloc(sizeof(long) * kMost * (size_t)ranks);
  long* out = malloc(sizeof(long) * kMost * (size_t)ranks);
  for (int round = 0; round < kRounds; ++round) {
    for (int size = 1; size <= kMost; size *= 16) {
      reduce(rank, ranks, size, in, out);
      exchange(rank, ranks, size, in, out);
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) printf("verified on %d ranks\n", ranks);
  fflush(stdout);
  while (argc > 1 && access(argv[1], F_OK) != 0) usleep(10000);
  MPI_Finalize();
  return 0;
}
