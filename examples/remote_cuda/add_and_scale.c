/* A program for a GPU that knows nothing of the network: 4 x 65,536 numbers in pieces, two streams with an event between
 * them. REMOTE_CUDA=HOST:PORT says where its device is. */
#include <remote_cuda.h>
#include <stdio.h>
#include <stdlib.h>

enum { kPieces = 4, kCount = 65536 };

static void want(CUresult result, const char* call) {
  const char* text = "";
  if (result == CUDA_SUCCESS) return;
  cuGetErrorString(result, &text);
  fprintf(stderr, "%s: %d, %s\n", call, result, text);
  exit(1);
}
#define WANT(call) want(call, #call)

int main(void) {
  static float a[kPieces][kCount], b[kPieces][kCount], sum[kPieces][kCount];
  CUdevice device;
  CUcontext context;
  CUmodule module;
  CUfunction add, scale;
  CUstream copies, work;
  unsigned n = kCount;
  float three = 3;
  WANT(cuInit(0));
  WANT(cuDeviceGet(&device, 0));
  WANT(cuCtxCreate(&context, 0, device));
  WANT(cuModuleLoadData(&module, "vector_add(pointer, pointer, pointer, u32)\nsaxpy(f32, pointer, pointer, u32)\n"));
  WANT(cuModuleGetFunction(&add, module, "vector_add"));
  WANT(cuModuleGetFunction(&scale, module, "saxpy"));
  WANT(cuStreamCreate(&copies, 0));
  WANT(cuStreamCreate(&work, 0));
  for (int piece = 0; piece < kPieces; ++piece) {
    CUdeviceptr x, y;
    CUevent here;
    for (int i = 0; i < kCount; ++i) a[piece][i] = (float)(i + piece), b[piece][i] = (float)(2 * i);
    WANT(cuMemAlloc(&x, sizeof a[piece]));
    WANT(cuMemAlloc(&y, sizeof b[piece]));
    WANT(cuEventCreate(&here, 0));
    WANT(cuMemcpyHtoDAsync(x, a[piece], sizeof a[piece], copies));
    WANT(cuMemcpyHtoDAsync(y, b[piece], sizeof b[piece], copies));
    WANT(cuEventRecord(here, copies));
    WANT(cuStreamWaitEvent(work, here, 0));
    WANT(cuLaunchKernel(add, kCount / 256, 1, 1, 256, 1, 1, 0, work, (void*[]){&x, &y, &y, &n}, NULL));
    WANT(cuLaunchKernel(scale, kCount / 256, 1, 1, 256, 1, 1, 0, work, (void*[]){&three, &x, &y, &n}, NULL));
    WANT(cuMemcpyDtoHAsync(sum[piece], y, sizeof sum[piece], work));
    WANT(cuEventDestroy(here));
    WANT(cuMemFree(x)); /* when all that was asked before is done */
    WANT(cuMemFree(y));
  }
  WANT(cuCtxSynchronize());
  for (int piece = 0; piece < kPieces; ++piece) {
    for (int i = 0; i < kCount; ++i) {
      if (sum[piece][i] != 4 * a[piece][i] + b[piece][i]) return fprintf(stderr, "number %d of piece %d is wrong\n", i, piece), 1;
    }
  }
  WANT(cuModuleUnload(module));
  WANT(cuCtxDestroy(context));
  printf("%d numbers, right\n", kPieces * kCount);
  return 0;
}
