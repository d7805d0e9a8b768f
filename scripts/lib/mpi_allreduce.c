/* Seconds of each MPI_Allreduce of BYTES of floats, in place, as rank 0 has them, after a barrier: a JSON array. The sums of
 * the last one are compared, outside of the time.
 *
 * mpi_allreduce BYTES ITERATIONS */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  int rank = 0;
  int ranks = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int count = argc > 2 ? (int)(atol(argv[1]) / (long)sizeof(float)) : 0;
  const int iterations = argc > 2 ? atoi(argv[2]) : 0;
  float* data = malloc(sizeof(float) * (size_t)count);
  for (int i = 0; i < iterations; ++i) {
    for (int k = 0; k < count; ++k) data[k] = (float)(rank + 1);
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("%s%f%s", i == 0 ? "[" : ", ", MPI_Wtime() - begin, i + 1 == iterations ? "]\n" : "");
  }
  for (int k = 0; k < count; ++k) {
    if (data[k] == (float)(ranks * (ranks + 1) / 2)) continue;
    fprintf(stderr, "value %d of the sum is wrong\n", k);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return 0;
}
