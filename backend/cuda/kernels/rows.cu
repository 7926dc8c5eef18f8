// What is computed from whole rows: softmax, normalisations, sums and means.
#include "spc/device.cuh"

namespace spc {

constexpr int Warps = RowThreads / 32;

// fold joins what the threads of a block have, two by two.
template <class F> __device__ __forceinline__ float fold(float v, F join) {
  using Parts = float[Warps];
  SPC_SHARED(Parts, parts);
  for (int by = 16; by > 0; by /= 2)
    v = join(v, __shfl_xor_sync(~0u, v, by));
  if (threadIdx.x % 32 == 0)
    parts[threadIdx.x / 32] = v;
  __syncthreads();
  v = parts[0];
  for (int w = 1; w < Warps; w++)
    v = join(v, parts[w]);
  __syncthreads(); // so that parts may be written again
  return v;
}

// greater and less are the greater and the smaller of two numbers, NaN where one is.
__device__ __forceinline__ float greater(float a, float b) { return a != a || a > b ? a : b; }
__device__ __forceinline__ float less(float a, float b) { return a != a || a < b ? a : b; }

__device__ __forceinline__ float total(float v) {
  return fold(v, [](float a, float b) { return a + b; });
}
__device__ __forceinline__ float most(float v) { return fold(v, greater); }

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
  // A thread has every so many elements from the first on, and joined is what all of them have.
  static constexpr int Hop = RowThreads;
  __device__ __forceinline__ int first() const { return threadIdx.x; }
  template <class F> __device__ __forceinline__ float joined(float v, F join) const { return fold(v, join); }
  __device__ __forceinline__ void result(T *y, float v) const {
    if (threadIdx.x == 0)
      put(y[blockIdx.x], v);
  }
};

constexpr int ColumnWarps = ColumnThreads / 32;

// Columns is 32 such rows that are neighbours, one for each lane, of which each warp of 16 has every 16th element. Grid
// (outer*ceil(step/32)).
template <class T> struct Columns {
  const T *x;
  int n;
  int64_t step, outer, column;
  __device__ Columns(const T *x, int n, int64_t step) : n(n), step(step) {
    int64_t blocks = (step + 31) / 32;
    outer = blockIdx.x / blocks;
    column = blockIdx.x % blocks * 32 + threadIdx.x % 32;
    this->x = x + outer * n * step + (column < step ? column : 0);
  }
  static constexpr int Hop = ColumnWarps;
  __device__ __forceinline__ int first() const { return threadIdx.x / 32; }
  __device__ __forceinline__ float get(int i) const { return number(x[i * step]); }
  template <class F> __device__ __forceinline__ float joined(float v, F join) const {
    using Parts = float[ColumnWarps][32];
    SPC_SHARED(Parts, parts);
    parts[threadIdx.x / 32][threadIdx.x % 32] = v;
    __syncthreads();
    v = parts[0][threadIdx.x % 32];
    for (int w = 1; w < ColumnWarps; w++)
      v = join(v, parts[w][threadIdx.x % 32]);
    __syncthreads(); // so that parts may be written again
    return v;
  }
  __device__ __forceinline__ void result(T *y, float v) const {
    if (threadIdx.x < 32 && column < step)
      put(y[outer * step + column], v);
  }
};

// softmax writes the logarithms where log is set.
template <class T> __device__ __forceinline__ void softmax(const Row<T> &r, int log) {
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
  float shift = logf(sum);
  for (int i = threadIdx.x; i < r.n; i += RowThreads)
    r.set(i, log ? r.get(i) - top - shift : expf(r.get(i) - top) / sum);
}

// normalise subtracts the mean, where centred is set, divides by the root of the mean square
// plus epsilon, and applies scale and shift, which may be missing: those of position i of row k of
// each period rows are (k*n + i)/per.
template <class T>
__device__ __forceinline__ void normalise(const Row<T> &r, const float *scale, const float *shift, int period, int per, float epsilon, int centred) {
  int first = blockIdx.x % period * r.n;
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
    int at = per == 1 ? first + i : (first + i) / per;
    if (scale)
      v *= scale[at];
    if (shift)
      v += shift[at];
    r.set(i, v);
  }
}

// locate writes to y[outer][step] where the greatest element of each row is, or the least: the first
// of them, or the last. NaN is more than every number, and less.
template <class T> __device__ __forceinline__ void locate(const Row<T> &r, int64_t *y, int least, int last) {
  using Best = float[RowThreads];
  using Places = int[RowThreads];
  SPC_SHARED(Best, best);
  SPC_SHARED(Places, places);
  auto better = [&](float a, int i, float b, int j) { // than b at j
    if (i < 0 || j < 0)
      return j < 0 && i >= 0;
    if (a != a || b != b ? (a != a) != (b != b) : a != b)
      return a != a || (b == b && (least ? a < b : a > b));
    return last ? i > j : i < j;
  };
  float v = 0;
  int place = -1;
  for (int i = threadIdx.x; i < r.n; i += RowThreads) {
    float x = r.get(i);
    if (better(x, i, v, place))
      v = x, place = i;
  }
  best[threadIdx.x] = v;
  places[threadIdx.x] = place;
  for (int by = RowThreads / 2; by > 0; by /= 2) {
    __syncthreads();
    int here = threadIdx.x, other = here + by;
    if (here < by && better(best[other], places[other], best[here], places[here])) {
      best[here] = best[other];
      places[here] = places[other];
    }
  }
  if (threadIdx.x == 0)
    y[blockIdx.x] = places[0];
}

enum Reduction { SPC_REDUCTIONS };

// reduce joins each Row or those of Columns to an element of y[outer][step]. A sum is multiplied with factor.
template <class T, class Rows> __device__ __forceinline__ void reduce(const Rows &r, T *y, int kind, float factor) {
  auto sum = [](float a, float b) { return a + b; };
  float v = kind == Greatest || kind == LogSumExp ? -INFINITY : kind == Least ? INFINITY : kind == Product ? 1 : 0, top = 0;
#pragma unroll 8
  for (int i = r.first(); i < r.n; i += Rows::Hop) {
    float x = r.get(i);
    switch (kind) {
    case Greatest:
    case LogSumExp: v = greater(x, v); break;
    case Least: v = less(x, v); break;
    case Product: v *= x; break;
    case AbsSum: v += fabsf(x); break;
    case SquareSum:
    case Norm: v += x * x; break;
    default: v += x;
    }
  }
  switch (kind) {
  case Greatest: v = r.joined(v, greater); break;
  case Least: v = r.joined(v, less); break;
  case Product: v = r.joined(v, [](float a, float b) { return a * b; }); break;
  case Norm: v = sqrtf(r.joined(v, sum)); break;
  case LogSum: v = logf(r.joined(v, sum)); break;
  case LogSumExp:
    top = r.joined(v, greater);
    top = fabsf(top) == INFINITY ? 0 : top;
    v = 0;
    for (int i = r.first(); i < r.n; i += Rows::Hop)
      v += expf(r.get(i) - top);
    v = top + logf(r.joined(v, sum));
    break;
  default: v = r.joined(v, sum) * factor;
  }
  r.result(y, v);
}

} // namespace spc

#define ROWS(T) \
  SPC_KERNEL(T##_softmax, 128, (const spc::T *x, spc::T *y, int n, int64_t step, int log), spc::softmax(spc::Row<spc::T>(x, y, n, step), log)) \
  SPC_KERNEL(T##_normalise, 128, \
             (const spc::T *x, spc::T *y, int n, int64_t step, const float *scale, const float *shift, int period, int per, float epsilon, int centred), \
             spc::normalise(spc::Row<spc::T>(x, y, n, step), scale, shift, period, per, epsilon, centred)) \
  SPC_KERNEL(T##_locate, 128, (const spc::T *x, int64_t *y, int n, int64_t step, int least, int last), \
             spc::locate(spc::Row<spc::T>(x, nullptr, n, step), y, least, last)) \
  SPC_KERNEL(T##_reduce, 128, (const spc::T *x, spc::T *y, int n, int64_t step, int kind, float factor), spc::reduce(spc::Row<spc::T>(x, y, n, step), y, kind, factor)) \
  SPC_KERNEL(T##_reduce_columns, 512, (const spc::T *x, spc::T *y, int n, int64_t step, int kind, float factor), \
             spc::reduce(spc::Columns<spc::T>(x, n, step), y, kind, factor))
ROWS(f32)
ROWS(f16)
ROWS(bf16)
