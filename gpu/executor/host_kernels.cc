// The kernels that come along. Sizes are 32-bit numbers, so products of two fit 64 bits, and of three are checked.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "fairlead/host_executor.h"

namespace fairlead::inline v0::command {
namespace {

using Kind = ParameterKind;
constexpr HostKernel::Parameter kFloats{Kind::kPointer, alignof(float)}, kSize{Kind::kU32}, kFactor{Kind::kF32};

/// Bytes of so many floats; ~0 if that is no number.
std::uint64_t floats(std::uint64_t count) noexcept {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max() / sizeof(float);
  return count < kMost ? count * sizeof(float) : std::numeric_limits<std::uint64_t>::max();
}
std::uint64_t floats(std::uint64_t rows, std::uint64_t columns) noexcept { return floats(rows * columns); }

HostKernel vector_add() {
  return {"vector_add",
          {kFloats, kFloats, kFloats, kSize},
          [](const Call& call, std::size_t) { return floats(call.u32(3)); },
          [](const Call& call) {
            const float *a = call.pointer<float>(0), *b = call.pointer<float>(1);
            float* const out = call.pointer<float>(2);
            for (std::size_t i = 0; i < call.u32(3); ++i) out[i] = a[i] + b[i];
            return Status();
          },
          false};
}

HostKernel saxpy() {
  return {"saxpy",
          {kFactor, kFloats, kFloats, kSize},
          [](const Call& call, std::size_t) { return floats(call.u32(3)); },
          [](const Call& call) {
            const float a = call.f32(0);
            const float* const x = call.pointer<float>(1);
            float* const y = call.pointer<float>(2);
            for (std::size_t i = 0; i < call.u32(3); ++i) y[i] = a * x[i] + y[i];
            return Status();
          },
          false};
}

// c[m x n] = a[m x k] b[k x n], by rows; sums in the order of k.
HostKernel sgemm() {
  return {"sgemm",
          {kFloats, kFloats, kFloats, kSize, kSize, kSize},
          [](const Call& call, std::size_t i) {
            const std::uint32_t m = call.u32(3), n = call.u32(4), k = call.u32(5);
            return i == 0 ? floats(m, k) : i == 1 ? floats(k, n) : floats(m, n);
          },
          [](const Call& call) {
            const float *a = call.pointer<float>(0), *b = call.pointer<float>(1);
            float* const c = call.pointer<float>(2);
            const std::size_t m = call.u32(3), n = call.u32(4), k = call.u32(5);
            if (m == 0 || n == 0) return Status();  // then nothing bounds the other
            std::vector<float> row(n);
            for (std::size_t i = 0; i < m; ++i) {
              std::fill(row.begin(), row.end(), 0.0f);
              for (std::size_t j = 0; j < k; ++j) {
                for (std::size_t l = 0; l < n; ++l) row[l] += a[i * k + j] * b[j * n + l];
              }
              std::copy(row.begin(), row.end(), c + i * n);
            }
            return Status();
          },
          false};
}

HostKernel reduce() {
  return {"reduce",
          {kFloats, kFloats, kSize},
          [](const Call& call, std::size_t i) { return floats(i == 0 ? call.u32(2) : 1); },
          [](const Call& call) {
            const float* const in = call.pointer<float>(0);
            double sum = 0;
            for (std::size_t i = 0; i < call.u32(2); ++i) sum += in[i];
            *call.pointer<float>(1) = static_cast<float>(sum);
            return Status();
          },
          false};
}

HostKernel softmax() {
  return {"softmax",
          {kFloats, kFloats, kSize, kSize},
          [](const Call& call, std::size_t) { return floats(call.u32(2), call.u32(3)); },
          [](const Call& call) {
            const std::size_t rows = call.u32(2), columns = call.u32(3);
            for (std::size_t row = 0; row < rows && columns != 0; ++row) {
              const float* const in = call.pointer<float>(0) + row * columns;
              float* const out = call.pointer<float>(1) + row * columns;
              const float most = *std::max_element(in, in + columns);
              float sum = 0;
              for (std::size_t i = 0; i < columns; ++i) sum += out[i] = std::exp(in[i] - most);
              for (std::size_t i = 0; i < columns; ++i) out[i] /= sum;
            }
            return Status();
          },
          false};
}

// Of 3 x 3 weights; pixels past the edge are those at the edge. In place it is not: the two may not overlap.
HostKernel image_filter() {
  return {"image_filter",
          {kFloats, kFloats, kSize, kSize, kFloats},
          [](const Call& call, std::size_t i) { return i == 4 ? floats(9) : floats(call.u32(2), call.u32(3)); },
          [](const Call& call) {
            const float *in = call.pointer<float>(0), *weights = call.pointer<float>(4);
            float* const out = call.pointer<float>(1);
            const auto width = static_cast<std::int64_t>(call.u32(2)), height = static_cast<std::int64_t>(call.u32(3));
            if (width == 0 || height == 0) return Status();
            const auto at = [&](std::int64_t x, std::int64_t y) {
              return in[std::clamp<std::int64_t>(y, 0, height - 1) * width + std::clamp<std::int64_t>(x, 0, width - 1)];
            };
            for (std::int64_t y = 0; y < height; ++y) {
              for (std::int64_t x = 0; x < width; ++x) {
                float sum = 0;
                for (int i = 0; i < 9; ++i) sum += weights[i] * at(x + i % 3 - 1, y + i / 3 - 1);
                out[y * width + x] = sum;
              }
            }
            return Status();
          },
          false};
}

HostKernel nothing() {
  return {"nothing", {}, {}, [](const Call&) { return Status(); }, true};
}

}  // namespace

std::vector<HostKernel> standard_kernels() {
  return {vector_add(), saxpy(), sgemm(), reduce(), softmax(), image_filter(), nothing()};
}

}  // namespace fairlead::inline v0::command
