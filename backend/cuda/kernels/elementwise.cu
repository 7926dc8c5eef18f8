// Elements that are moved, by their bytes, conversions between the types of floats, and epilogues by
// themselves.
#include "spc/device.cuh"

namespace spc {

using b8 = uint8_t;
using b16 = uint16_t;
using b32 = uint32_t;
using b64 = uint64_t;

// move copies n elements, whose places in x and in y are sums of strides along axes, from
// offsets on. axes holds the number of axes, their sizes, the strides of x and those of y. Grid
// (ceil(n/256)).
template <class T> __device__ __forceinline__ void move(const T *x, T *y, int64_t n, const int64_t *axes, int64_t from, int64_t to) {
  int64_t i = int64_t(blockIdx.x) * FlatThreads + threadIdx.x;
  if (i >= n)
    return;
  int rank = int(axes[0]);
  const int64_t *size = axes + 1, *xs = size + rank, *ys = xs + rank;
  int64_t left = i;
  for (int d = rank - 1; d >= 0; d--) {
    int64_t at = left % size[d];
    left /= size[d];
    from += at * xs[d];
    to += at * ys[d];
  }
  y[to] = x[from];
}

// take copies to each of n elements of y the one that tables name, or outside. axes holds the
// number of axes of y, their sizes, the strides of x along them, and for each where in tables its
// own begins, -1 where it has none; a table has for each position that of x, -1 for outside.
// Grid (ceil(n/256)).
template <class T> __device__ __forceinline__ void take(const T *x, T *y, int64_t n, const int64_t *axes, const int64_t *tables, b64 outside) {
  int64_t i = int64_t(blockIdx.x) * FlatThreads + threadIdx.x;
  if (i >= n)
    return;
  int rank = int(axes[0]);
  const int64_t *size = axes + 1, *xs = size + rank, *table = xs + rank;
  int64_t left = i, from = 0;
  bool inside = true;
  for (int d = rank - 1; d >= 0; d--) {
    int64_t at = left % size[d];
    left /= size[d];
    if (table[d] >= 0)
      at = tables[table[d] + at];
    inside = inside && at >= 0;
    from += at * xs[d];
  }
  y[i] = inside ? x[from] : static_cast<T>(outside);
}

// gather copies to y[outer][count][inner], n elements in all, the slices of x[outer][size][inner]
// that at names, from the end where it is negative. Grid (ceil(n/256)).
template <class T, class I>
__device__ __forceinline__ void gather(const T *x, const I *at, T *y, int64_t n, int count, int inner, int size) {
  int64_t i = int64_t(blockIdx.x) * FlatThreads + threadIdx.x;
  if (i >= n)
    return;
  int64_t row = i / inner, from = at[row % count];
  y[i] = x[(row / count * size + (from < 0 ? from + size : from)) * inner + i % inner];
}

// scatter copies to y, at the places that at lists, runs of x, n elements in all. Grid
// (ceil(n/256)).
template <class T> __device__ __forceinline__ void scatter(const T *x, const int64_t *at, T *y, int64_t n, int run) {
  int64_t i = int64_t(blockIdx.x) * FlatThreads + threadIdx.x;
  if (i < n)
    y[at[i / run] + i % run] = x[i];
}

// cast converts n elements. Grid (ceil(n/256)).
template <class T, class U> __device__ __forceinline__ void cast(const T *x, U *y, int64_t n) {
  int64_t i = int64_t(blockIdx.x) * FlatThreads + threadIdx.x;
  if (i < n)
    put(y[i], number(x[i]));
}

// finish applies an epilogue to n sums of products, which lie as y does and may be y: rows come
// one after another, step elements each, again and again. Of a product that splits share each has n. Grid (ceil(n/256)).
template <class T> __device__ __forceinline__ void finish(const float *sums, T *y, int64_t n, int rows, int64_t step, int splits, const Epilogue<T> &e) {
  int64_t i = int64_t(blockIdx.x) * FlatThreads + threadIdx.x;
  if (i >= n)
    return;
  float sum = sums[i];
  for (int s = 1; s < splits; s++)
    sum += sums[s * n + i];
  put(y[i], e.finish(sum, int(i / step % rows), i));
}

} // namespace spc

#define MOVES(T) \
  SPC_KERNEL(T##_move, 256, (const spc::T *x, spc::T *y, int64_t n, const int64_t *axes, int64_t from, int64_t to), spc::move(x, y, n, axes, from, to)) \
  SPC_KERNEL(T##_take, 256, (const spc::T *x, spc::T *y, int64_t n, const int64_t *axes, const int64_t *tables, spc::b64 outside), \
             spc::take(x, y, n, axes, tables, outside)) \
  SPC_KERNEL(T##_gather_i32, 256, (const spc::T *x, const int32_t *at, spc::T *y, int64_t n, int count, int inner, int size), \
             spc::gather(x, at, y, n, count, inner, size)) \
  SPC_KERNEL(T##_gather_i64, 256, (const spc::T *x, const int64_t *at, spc::T *y, int64_t n, int count, int inner, int size), \
             spc::gather(x, at, y, n, count, inner, size)) \
  SPC_KERNEL(T##_scatter, 256, (const spc::T *x, const int64_t *at, spc::T *y, int64_t n, int run), spc::scatter(x, at, y, n, run))
MOVES(b8)
MOVES(b16)
MOVES(b32)
MOVES(b64)
#define FINISH(T) \
  SPC_KERNEL(T##_finish, 256, (const float *sums, spc::T *y, int64_t n, int rows, int64_t step, int splits, SPC_EPILOGUE), \
             spc::finish(sums, y, n, rows, step, splits, spc::Epilogue<spc::T>(SPC_EPILOGUE_ARGS)))
FINISH(f32)
FINISH(f16)
FINISH(bf16)
#define CAST(T, U) SPC_KERNEL(T##_to_##U, 256, (const spc::T *x, spc::U *y, int64_t n), spc::cast(x, y, n))
CAST(f32, f16)
CAST(f16, f32)
CAST(f32, bf16)
CAST(bf16, f32)
