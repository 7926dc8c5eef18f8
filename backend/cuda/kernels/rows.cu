// What is computed from whole rows: softmax, normalisations, sums and means.
#include "spc/device.cuh"

namespace spc {

constexpr int RowThreads = 128, Warps = RowThreads / 32;

// total adds up what the threads of a block have.
__device__ __forceinline__ float total(float v) {
  using Sums = float[Warps];
  SPC_SHARED(Sums, sums);
  for (int by = 16; by > 0; by /= 2)
    v += __shfl_xor_sync(~0u, v, by);
  if (threadIdx.x % 32 == 0)
    sums[threadIdx.x / 32] = v;
  __syncthreads();
  v = 0;
  for (int w = 0; w < Warps; w++)
    v += sums[w];
  __syncthreads(); // so that sums may be written again
  return v;
}

// most is the greatest of what they have, NaN where one is.
__device__ __forceinline__ float most(float v) {
  using Greatest = float[Warps];
  SPC_SHARED(Greatest, greatest);
  for (int by = 16; by > 0; by /= 2) {
    float other = __shfl_xor_sync(~0u, v, by);
    v = v != v || v > other ? v : other;
  }
  if (threadIdx.x % 32 == 0)
    greatest[threadIdx.x / 32] = v;
  __syncthreads();
  v = greatest[0];
  for (int w = 1; w < Warps; w++)
    v = v != v || v > greatest[w] ? v : greatest[w];
  __syncthreads();
  return v;
}

// Row is the n elements of the row of a block, step apart: rows are [outer][n][step]. Grid
// (outer*step).
template <class T> struct Row {
  const T *x;
  T *y;
  int n;
  int64_t step;
  __device__ Row(const T *x, T *y, int n, int64_t step) : n(n), step(step) {
    int64_t at = blockIdx.x / step * n * step + blockIdx.x % step;
    this->x = x + at;
    this->y = y + at;
  }
  __device__ __forceinline__ float get(int i) const { return number(x[i * step]); }
  __device__ __forceinline__ void set(int i, float v) const { put(y[i * step], v); }
};

template <class T> __device__ __forceinline__ void softmax(const Row<T> &r) {
  float top = -INFINITY;
  for (int i = threadIdx.x; i < r.n; i += RowThreads) {
    float v = r.get(i);
    top = v != v || v > top ? v : top;
  }
  top = most(top);
  float sum = 0;
  for (int i = threadIdx.x; i < r.n; i += RowThreads)
    sum += expf(r.get(i) - top);
  sum = total(sum);
  for (int i = threadIdx.x; i < r.n; i += RowThreads)
    r.set(i, expf(r.get(i) - top) / sum);
}

// normalise subtracts the mean, where centred is set, divides by the root of the mean square
// plus epsilon, and applies scale and shift, which may be missing, by position.
template <class T> __device__ __forceinline__ void normalise(const Row<T> &r, const float *scale, const float *shift, float epsilon, int centred) {
  float mean = 0;
  if (centred) {
    for (int i = threadIdx.x; i < r.n; i += RowThreads)
      mean += r.get(i);
    mean = total(mean) / r.n;
  }
  float square = 0;
  for (int i = threadIdx.x; i < r.n; i += RowThreads) {
    float d = r.get(i) - mean;
    square += d * d;
  }
  float by = 1 / sqrtf(total(square) / r.n + epsilon);
  for (int i = threadIdx.x; i < r.n; i += RowThreads) {
    float v = (r.get(i) - mean) * by;
    if (scale)
      v *= scale[i];
    if (shift)
      v += shift[i];
    r.set(i, v);
  }
}

// reduce writes the sum of each row, times factor, to y[outer][step].
template <class T> __device__ __forceinline__ void reduce(const Row<T> &r, T *y, float factor) {
  float sum = 0;
  for (int i = threadIdx.x; i < r.n; i += RowThreads)
    sum += r.get(i);
  sum = total(sum);
  if (threadIdx.x == 0)
    put(y[blockIdx.x], sum * factor);
}

} // namespace spc

#define ROWS(T) \
  SPC_KERNEL(T##_softmax, 128, (const spc::T *x, spc::T *y, int n, int64_t step), spc::softmax(spc::Row<spc::T>(x, y, n, step))) \
  SPC_KERNEL(T##_normalise, 128, (const spc::T *x, spc::T *y, int n, int64_t step, const float *scale, const float *shift, float epsilon, int centred), \
             spc::normalise(spc::Row<spc::T>(x, y, n, step), scale, shift, epsilon, centred)) \
  SPC_KERNEL(T##_reduce, 128, (const spc::T *x, spc::T *y, int n, int64_t step, float factor), spc::reduce(spc::Row<spc::T>(x, y, n, step), y, factor))
ROWS(f32)
ROWS(f16)
ROWS(bf16)
