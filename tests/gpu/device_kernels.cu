// The kernels of tests for a GPU: those of gpu/executor/host_kernels.cc and of tests/conformance/test_kernels.h, with the
// same parameters and, where arithmetic is exact on both, the same bits. However many threads they are launched on, they
// do the whole. No part of the build: nvcc --ptx makes what FAIRLEAD_TEST_CUDA names (scripts/gpu/README.md).

// What tests and kernels say to each other (TestSignals): the first words of a page of the host's. Whoever loads the code
// puts its address in the place of this number.
__device__ unsigned long long signals_at = 0x0123456789abcdefULL;

struct Signals {
  volatile unsigned char open;
  int entered;
};

namespace {

using Number = unsigned int;

__device__ unsigned long long self() { return static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ unsigned long long all() { return static_cast<unsigned long long>(gridDim.x) * blockDim.x; }
/// One thread of all of a launch.
__device__ bool is_first() { return self() == 0 && threadIdx.y == 0 && threadIdx.z == 0 && blockIdx.y == 0 && blockIdx.z == 0; }
// Apart, as the host does it: fused they round once.
__device__ float multiply_add(float a, float b, float c) { return __fadd_rn(__fmul_rn(a, b), c); }

__device__ Signals* enter() {
  auto* const signals = reinterpret_cast<Signals*>(signals_at);
  atomicAdd_system(&signals->entered, 1);
  return signals;
}

__device__ void rest_ms(Number ms) {
  for (Number i = 0; i < ms; ++i) __nanosleep(1'000'000);
}

}  // namespace

extern "C" {

__global__ void vector_add(const float* a, const float* b, float* out, Number n) {
  for (unsigned long long i = self(); i < n; i += all()) out[i] = __fadd_rn(a[i], b[i]);
}

__global__ void saxpy(float a, const float* x, float* y, Number n) {
  for (unsigned long long i = self(); i < n; i += all()) y[i] = multiply_add(a, x[i], y[i]);
}

__global__ void sgemm(const float* a, const float* b, float* c, Number m, Number n, Number k) {
  const unsigned long long cells = static_cast<unsigned long long>(m) * n;
  for (unsigned long long cell = self(); cell < cells; cell += all()) {
    const unsigned long long row = cell / n, column = cell % n;
    float sum = 0;
    for (unsigned long long j = 0; j < k; ++j) sum = multiply_add(a[row * k + j], b[j * n + column], sum);
    c[cell] = sum;
  }
}

__global__ void reduce(const float* in, float* out, Number n) {
  if (!is_first()) return;
  double sum = 0;
  for (Number i = 0; i < n; ++i) sum += in[i];
  *out = static_cast<float>(sum);
}

__global__ void softmax(const float* in, float* out, Number rows, Number columns) {
  for (unsigned long long row = self(); row < rows && columns != 0; row += all()) {
    const float* const from = in + row * columns;
    float* const to = out + row * columns;
    float most = from[0], sum = 0;
    for (Number i = 1; i < columns; ++i) most = fmaxf(most, from[i]);
    for (Number i = 0; i < columns; ++i) sum += to[i] = expf(from[i] - most);
    for (Number i = 0; i < columns; ++i) to[i] /= sum;
  }
}

__global__ void image_filter(const float* in, float* out, Number width, Number height, const float* weights) {
  const long long pixels = static_cast<long long>(width) * height;
  for (auto pixel = static_cast<long long>(self()); pixel < pixels; pixel += static_cast<long long>(all())) {
    const long long x = pixel % width, y = pixel / width;
    float sum = 0;
    for (int i = 0; i < 9; ++i) {
      const long long column = min(max(x + i % 3 - 1, 0LL), width - 1LL), line = min(max(y + i / 3 - 1, 0LL), height - 1LL);
      sum = multiply_add(weights[i], in[line * width + column], sum);
    }
    out[pixel] = sum;
  }
}

__global__ void nothing() {}

// As a defect of a kernel's own would.
__global__ void fault() { __trap(); }
__global__ void crash() { __trap(); }
// What a process has inherited a device does not see.
__global__ void inherits() {}

struct Node {
  unsigned long long next;
  float value;
};
__global__ void list_sum(unsigned long long head, float* out) {
  if (!is_first()) return;
  float sum = 0;
  for (unsigned long long at = head; at != 0; at = reinterpret_cast<const Node*>(at)->next) {
    sum += reinterpret_cast<const Node*>(at)->value;
  }
  *out = sum;
}

__global__ void add_one(unsigned long long address, Number n) {
  for (unsigned long long i = self(); i < n; i += all()) reinterpret_cast<float*>(address)[i] += 1;
}

__global__ void tick() {
  if (!is_first()) return;
  if (enter()->open == 0) rest_ms(1);
}

__global__ void gate() {
  if (!is_first()) return;
  const Signals* const signals = enter();
  while (signals->open == 0) rest_ms(1);
}

// So many clocks of the device on each thread: work of a known length.
__global__ void work(unsigned long long clocks) {
  const long long begin = clock64();
  while (static_cast<unsigned long long>(clock64() - begin) < clocks) {
  }
}

}  // extern "C"
