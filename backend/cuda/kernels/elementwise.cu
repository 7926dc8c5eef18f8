// Functions of one and of two operands, element by element.
#include "spc/device.cuh"

namespace spc {

constexpr int Threads = 256;

// Unary functions, as backend/cuda numbers them; activations come before.
enum Unary { Abs = 32, Ceil, Cos, Erf, Exp, Floor, Log, Neg, Reciprocal, Sin, Softplus, Sqrt };

__device__ __forceinline__ float unary(int f, float a, float b, float v) {
  switch (f) {
  case Abs: return fabsf(v);
  case Ceil: return ceilf(v);
  case Cos: return cosf(v);
  case Erf: return erff(v);
  case Exp: return expf(v);
  case Floor: return floorf(v);
  case Log: return logf(v);
  case Neg: return -v;
  case Reciprocal: return 1 / v;
  case Sin: return sinf(v);
  case Softplus: return v > 0 ? v + log1pf(expf(-v)) : log1pf(expf(v));
  case Sqrt: return sqrtf(v);
  }
  return activate(f, a, b, v);
}

// map applies a unary function to n elements. Grid (ceil(n/256)).
template <class T> __device__ __forceinline__ void map(const T *x, T *y, int64_t n, int f, float a, float b) {
  int64_t i = int64_t(blockIdx.x) * Threads + threadIdx.x;
  if (i < n)
    put(y[i], unary(f, a, b, number(x[i])));
}

// Binary functions, as backend/cuda numbers them.
enum Binary { Add, Sub, Mul, Div, Pow, Max, Min, PRelu };

__device__ __forceinline__ float binary(int f, float a, float b) {
  switch (f) {
  case Add: return a + b;
  case Sub: return a - b;
  case Mul: return a * b;
  case Div: return a / b;
  case Pow: return powf(a, b);
  case Max: return a != a || a > b ? a : b; // NaN where either is
  case Min: return a != a || a < b ? a : b;
  case PRelu: return a < 0 ? a * b : a;
  }
  return 0;
}

// zip applies a binary function to n elements; what each operand is read by is its stride
// along each of the axes of y. axes holds their number, then their sizes, the strides of a
// and those of b. Grid (ceil(n/256)).
template <class T> __device__ __forceinline__ void zip(const T *a, const T *b, T *y, int64_t n, const int64_t *axes, int f) {
  int64_t i = int64_t(blockIdx.x) * Threads + threadIdx.x;
  if (i >= n)
    return;
  int rank = int(axes[0]);
  const int64_t *size = axes + 1, *as = size + rank, *bs = as + rank;
  int64_t left = i, ai = 0, bi = 0;
  for (int d = rank - 1; d >= 0; d--) {
    int64_t at = left % size[d];
    left /= size[d];
    ai += at * as[d];
    bi += at * bs[d];
  }
  put(y[i], binary(f, number(a[ai]), number(b[bi])));
}

// move copies n elements, whose places in x and in y are sums of strides along axes, from
// offsets on. axes is that of zip. Grid (ceil(n/256)).
template <class T> __device__ __forceinline__ void move(const T *x, T *y, int64_t n, const int64_t *axes, int64_t from, int64_t to) {
  int64_t i = int64_t(blockIdx.x) * Threads + threadIdx.x;
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
template <class T> __device__ __forceinline__ void take(const T *x, T *y, int64_t n, const int64_t *axes, const int64_t *tables, float outside) {
  int64_t i = int64_t(blockIdx.x) * Threads + threadIdx.x;
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
  if (inside)
    y[i] = x[from];
  else
    put(y[i], outside);
}

// fill sets n elements to v. Grid (ceil(n/256)).
template <class T> __device__ __forceinline__ void fill(T *y, int64_t n, float v) {
  int64_t i = int64_t(blockIdx.x) * Threads + threadIdx.x;
  if (i < n)
    put(y[i], v);
}

// cast converts n elements. Grid (ceil(n/256)).
template <class T, class U> __device__ __forceinline__ void cast(const T *x, U *y, int64_t n) {
  int64_t i = int64_t(blockIdx.x) * Threads + threadIdx.x;
  if (i < n)
    put(y[i], number(x[i]));
}

} // namespace spc

#define MOVES(T) \
  SPC_KERNEL(T##_move, 256, (const spc::T *x, spc::T *y, int64_t n, const int64_t *axes, int64_t from, int64_t to), spc::move(x, y, n, axes, from, to)) \
  SPC_KERNEL(T##_take, 256, (const spc::T *x, spc::T *y, int64_t n, const int64_t *axes, const int64_t *tables, float outside), \
             spc::take(x, y, n, axes, tables, outside))
#define ELEMENTWISE(T) \
  MOVES(T) \
  SPC_KERNEL(T##_map, 256, (const spc::T *x, spc::T *y, int64_t n, int f, float a, float b), spc::map(x, y, n, f, a, b)) \
  SPC_KERNEL(T##_zip, 256, (const spc::T *a, const spc::T *b, spc::T *y, int64_t n, const int64_t *axes, int f), spc::zip(a, b, y, n, axes, f)) \
  SPC_KERNEL(T##_fill, 256, (spc::T *y, int64_t n, float v), spc::fill(y, n, v))
ELEMENTWISE(f32)
ELEMENTWISE(f16)
ELEMENTWISE(bf16)
MOVES(u8)
#define CAST(T, U) SPC_KERNEL(T##_to_##U, 256, (const spc::T *x, spc::U *y, int64_t n), spc::cast(x, y, n))
CAST(f32, f16)
CAST(f16, f32)
CAST(f32, bf16)
CAST(bf16, f32)
