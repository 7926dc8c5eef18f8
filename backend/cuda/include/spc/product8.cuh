// product8.cuh is the products of 8-bit integers on tensor cores for any source of W, Y = W X of a
// weight of i8 and activations of u8.
#pragma once

#include "spc/mma8.cuh"

namespace spc {

// Types of residuals and results, as backend/cuda numbers them.
enum Type { U8, F32, F16, BF16 };

// SPC_OPERANDS8 is SPC_OPERANDS, where X is u8 and Y has a type of its own.
#define SPC_OPERANDS8 \
  const uint8_t *x, void *y, int M, int K, int N, int64_t x_row, int64_t x_column, int64_t x_batch, int64_t y_row, int64_t y_column, int64_t y_batch
#define SPC_OPERANDS8_ARGS x, y, M, K, N, x_row, x_column, x_batch, y_row, y_column, y_batch

// Operands8 is those parameters. Of Y either rows or columns are neighbours.
struct Operands8 {
  const uint8_t *x;
  void *y;
  int M, K, N;
  int64_t xRow, xColumn, xBatch, yRow, yColumn, yBatch;
  __device__ Operands8(SPC_OPERANDS8)
      : x(x), y(y), M(M), K(K), N(N), xRow(x_row), xColumn(x_column), xBatch(x_batch), yRow(y_row), yColumn(y_column), yBatch(y_batch) {}
};

// SPC_EPILOGUE8 is the parameters by which a kernel finishes the sum in row m of W X:
//
//	v = act((sum + shift[m]) * scale[m] + bias[m] + residual)
//
// with each operation rounded to f32. A residual of u8 stands for r_scale * (r - r_zero), a
// result of u8 for y_scale * (y - y_zero); bias and residual may be missing.
#define SPC_EPILOGUE8 \
  const int32_t *shift, const float *scale, const float *bias, const void *residual, int r_type, float r_scale, int r_zero, int y_type, float y_scale, int y_zero, int act, \
      float act_a, float act_b
#define SPC_EPILOGUE8_ARGS shift, scale, bias, residual, r_type, r_scale, r_zero, y_type, y_scale, y_zero, act, act_a, act_b

// Epilogue8 is those parameters.
struct Epilogue8 {
  const int32_t *shift;
  const float *scale, *bias;
  const void *residual;
  int rType;
  float rScale;
  int rZero, yType;
  float yScale;
  int yZero, act;
  float a, b;
  __device__ Epilogue8(SPC_EPILOGUE8)
      : shift(shift), scale(scale), bias(bias), residual(residual), rType(r_type), rScale(r_scale), rZero(r_zero), yType(y_type), yScale(y_scale), yZero(y_zero), act(act),
        a(act_a), b(act_b) {}

  // load reads 4 elements of type T from place at on, of which so many are there; whole says
  // that all are and can be loaded at once.
  template <class T> __device__ __forceinline__ static void load(float (&r)[4], const void *from, int64_t at, int inside, bool whole) {
    const T *p = static_cast<const T *>(from) + at;
    Vec<T, 4> v = {};
    if (whole)
      v = *reinterpret_cast<const Vec<T, 4> *>(p);
    else
#pragma unroll
      for (int i = 0; i < 4; i++)
        if (i < inside)
          v.at[i] = p[i];
#pragma unroll
    for (int i = 0; i < 4; i++)
      r[i] = number(v.at[i]);
  }

  // residuals reads those of 4 neighbours.
  __device__ __forceinline__ void residuals(float (&r)[4], int64_t at, int inside, bool whole) const {
    switch (rType) {
    case U8:
      load<u8>(r, residual, at, inside, whole);
#pragma unroll
      for (int i = 0; i < 4; i++)
        r[i] = times(rScale, r[i] - float(rZero));
      return;
    case F32: return load<f32>(r, residual, at, inside, whole);
    case F16: return load<f16>(r, residual, at, inside, whole);
    case BF16: return load<bf16>(r, residual, at, inside, whole);
    }
  }

  __device__ __forceinline__ void put(u8 &to, float v) const { to.bits = quantized(v, yScale, yZero); }
  template <class T> __device__ __forceinline__ void put(T &to, float v) const { spc::put(to, v); }

  // store finishes 4 sums that are neighbours in Y, of type T, and of which so many are there;
  // down says that their rows are m and the next three, else all are of row m.
  template <class T> __device__ __forceinline__ void store(void *y, const int32_t (&sum)[4], int m, bool down, int64_t at, int inside) const {
    bool whole = inside == 4 && at % 4 == 0;
    float r[4] = {0, 0, 0, 0};
    if (residual)
      residuals(r, at, inside, whole);
    Vec<T, 4> v = {};
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if (i >= inside)
        break;
      int row = down ? m + i : m;
      float f = times(float(sum[i] + shift[row]), scale[row]);
      if (bias)
        f = plus(f, bias[row]);
      if (residual)
        f = plus(f, r[i]);
      put(v.at[i], act == None ? f : activate(act, a, b, f));
    }
    T *to = static_cast<T *>(y) + at;
    if (whole)
      *reinterpret_cast<Vec<T, 4> *>(to) = v;
    else
#pragma unroll
      for (int i = 0; i < 4; i++)
        if (i < inside)
          to[i] = v.at[i];
  }
};

// Slab8 is Depth rows of Columns columns of X in shared memory, transposed, so that four
// elements of a column are one word. Columns are 4 words further apart, and groups of 4 words
// change places from one 8 columns to the next, so that the lanes of a fragment meet different
// banks, and so do those of a copy.
template <int Depth, int Columns> struct Slab8 {
  static constexpr int Words = Depth / 4, Stride = Words + 4, Units = Depth * Columns / 16;
  alignas(16) uint32_t words[Columns * Stride];

  __device__ static __forceinline__ int place(int n, int word) { return n * Stride + (word ^ ((n >> 3 & (Words / 4 - 1)) << 2)); }

  // at is the elements from 4*word on of column n.
  __device__ __forceinline__ uint32_t at(int n, int word) const { return words[place(n, word)]; }

  // Unit is 16 elements on their way: 4 columns of 4 rows, one row after the other, or, where the
  // rows of X are neighbours in memory, 16 rows of a column.
  struct Unit { uint32_t v[4]; };

  // where returns the first column and word of a unit; neighbours load neighbours.
  __device__ static __forceinline__ void where(int unit, bool down, int &n, int &word) {
    constexpr int Across = Columns / 4 < 8 ? Columns / 4 : 8;
    n = down ? unit / (Words / 4) : (unit / (Across * Words) * Across + unit % Across) * 4;
    word = down ? unit % (Words / 4) * 4 : unit / Across % Words;
  }

  // edge reads those of 4 elements that lie in X, zeros in place of the others.
  __device__ static __forceinline__ uint32_t edge(const uint8_t *from, int inside) {
    uint32_t word = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (i < inside)
        word |= uint32_t(from[i]) << 8 * i;
    return word;
  }

  // fetch reads a unit of the slab from row k0 and column n0 on, zeros outside of X; x is the
  // block's matrix. wide says that 4 neighbours, or 16 rows, can be loaded at once.
  __device__ static __forceinline__ Unit fetch(const uint8_t *x, const Operands8 &o, int k0, int n0, int unit, bool down, bool wide) {
    int n, word;
    where(unit, down, n, word);
    n += n0;
    int k = k0 + 4 * word;
    Unit u = {{0, 0, 0, 0}};
    if (n >= o.N)
      return u;
    if (down) {
      const uint8_t *from = x + n * o.xColumn + k;
      if (wide && k + 16 <= o.K) {
        uint4 v = *reinterpret_cast<const uint4 *>(from);
        u.v[0] = v.x;
        u.v[1] = v.y;
        u.v[2] = v.z;
        u.v[3] = v.w;
      } else
#pragma unroll
        for (int i = 0; i < 4; i++)
          u.v[i] = edge(from + 4 * i, o.K - k - 4 * i);
      return u;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (k + i < o.K) {
        const uint8_t *from = x + (k + i) * o.xRow + n;
        u.v[i] = wide && n + 4 <= o.N ? *reinterpret_cast<const uint32_t *>(from) : edge(from, o.N - n);
      }
    return u;
  }

  // put stores it.
  __device__ __forceinline__ void put(const Unit &u, int unit, bool down) {
    int n, word;
    where(unit, down, n, word);
    if (down) {
      *reinterpret_cast<uint4 *>(words + place(n, word)) = {u.v[0], u.v[1], u.v[2], u.v[3]};
      return;
    }
    uint32_t lo0 = choose(u.v[0], u.v[1], 0x5140), hi0 = choose(u.v[0], u.v[1], 0x7362);
    uint32_t lo1 = choose(u.v[2], u.v[3], 0x5140), hi1 = choose(u.v[2], u.v[3], 0x7362);
    words[place(n, word)] = choose(lo0, lo1, 0x5410);
    words[place(n + 1, word)] = choose(lo0, lo1, 0x7632);
    words[place(n + 2, word)] = choose(hi0, hi1, 0x5410);
    words[place(n + 3, word)] = choose(hi0, hi1, 0x7632);
  }
};

// Tile8 is the shape of what a block of threads computes: warps of 16 R rows and 8 C columns
// each, MW of them one below the other and NW side by side, and KW of each that share the rows of
// X. Depth rows of X at a time go through a Slab8.
template <int MW_, int NW_, int KW_, int R_, int C_, int Depth_> struct Tile8 {
  static constexpr int MW = MW_, NW = NW_, KW = KW_, R = R_, C = C_, Depth = Depth_;
  static constexpr int Rows = 16 * R * MW, Columns = 8 * C * NW, Warps = MW * NW, Threads = 32 * Warps * KW;
  using Slabs = Slab8<Depth, Columns>[2];
  using Stages = int32_t[Warps][16][8 * C + 1];
  using Partial = int32_t[KW > 1 ? KW - 1 : 1][Warps][R * C * 4][32];
};

// Sums8 are a warp's sums, 16 R rows by 8 C columns.
template <int R, int C> struct Sums8 {
  int32_t d[R][C][4];

  // store finishes those that lie in Y, of which the first is element (m0,n0). They go through
  // stage, 16 rows at a time, so that neighbours write neighbours.
  template <class T> __device__ __forceinline__ void store(const Operands8 &o, const Epilogue8 &e, int m0, int n0, int32_t (&stage)[16][8 * C + 1]) const {
    int lane = threadIdx.x % 32;
    bool down = o.yColumn != 1;
#pragma unroll
    for (int r = 0; r < R; r++) {
      lay_out(stage, d[r]);
      __syncwarp();
#pragma unroll 1
      for (int at = lane; at < 32 * C; at += 32) {
        int row = down ? at % 4 * 4 : at / (2 * C), column = down ? at / 4 : at % (2 * C) * 4;
        int m = m0 + 16 * r + row, n = n0 + column, left = down ? o.M - m : o.N - n;
        if (m < o.M && n < o.N) {
          int32_t sum[4];
#pragma unroll
          for (int i = 0; i < 4; i++)
            sum[i] = down ? stage[row + i][column] : stage[row][column + i];
          e.template store<T>(o.y, sum, m, down, m * o.yRow + n * o.yColumn + blockIdx.z * o.yBatch, left < 4 ? left : 4);
        }
      }
      __syncwarp();
    }
  }
};

// tensor_product8 computes a Tile8 of Y for a source of W: count() slabs of X, of which slab i
// begins at row(i); load(i, s) reads what a warp multiplies with step s of its share of it, and
// multiply(w, slab, column, word, sums) adds their product, where columns of the warp and words of
// the step begin there. A step is Words words of a column. While a slab is multiplied the next
// one is on its way. Grid (ceil(N/Columns), ceil(M/Rows), batch).
template <class S, class Source> __device__ __forceinline__ void tensor_product8(const Source &source, const Operands8 &o, const Epilogue8 &e) {
  using Slab = Slab8<S::Depth, S::Columns>;
  constexpr int Each = (Slab::Units + S::Threads - 1) / S::Threads, Steps = Slab::Words / Source::Words / S::KW;
  static_assert(Steps * Source::Words * S::KW == Slab::Words, "warps share whole steps");
  SPC_SHARED(typename S::Slabs, slabs);
  int warp = threadIdx.x / 32, kw = warp / S::Warps, mw = warp % S::MW, nw = warp % S::Warps / S::MW, n0 = blockIdx.x * S::Columns;
  const uint8_t *x = o.x + blockIdx.z * o.xBatch;
  bool down = o.xRow == 1;
  int64_t far = down ? o.xColumn : o.xRow, unit = down ? 16 : 4; // neighbours lie along the other axis
  bool wide = far % unit == 0 && o.xBatch % unit == 0 && reinterpret_cast<uintptr_t>(o.x) % unit == 0;
  typename Slab::Unit units[Each];
  auto fetch = [&](int i) {
#pragma unroll
    for (int j = 0; j < Each; j++)
      if (j * S::Threads + int(threadIdx.x) < Slab::Units)
        units[j] = Slab::fetch(x, o, source.row(i), n0, j * S::Threads + threadIdx.x, down, wide);
  };
  auto put = [&](int i) {
#pragma unroll
    for (int j = 0; j < Each; j++)
      if (j * S::Threads + int(threadIdx.x) < Slab::Units)
        slabs[i % 2].put(units[j], j * S::Threads + threadIdx.x, down);
  };
  Sums8<S::R, S::C> sums = {};
  int count = source.count();
  if (count > 0) {
    auto next = source.load(0, kw * Steps, mw);
    fetch(0);
    put(0);
    __syncthreads();
    for (int i = 0; i < count; i++) {
      if (i + 1 < count)
        fetch(i + 1);
#pragma unroll
      for (int s = 0; s < Steps; s++) {
        auto current = next;
        if (s + 1 < Steps)
          next = source.load(i, kw * Steps + s + 1, mw);
        else if (i + 1 < count)
          next = source.load(i + 1, kw * Steps, mw);
        source.multiply(current, slabs[i % 2], nw * 8 * S::C, (kw * Steps + s) * Source::Words, sums);
      }
      if (i + 1 < count)
        put(i + 1);
      __syncthreads();
    }
  }
  if (S::KW > 1) {
    SPC_SHARED(typename S::Partial, partial);
    int lane = threadIdx.x % 32;
    if (kw > 0)
#pragma unroll
      for (int i = 0; i < S::R * S::C * 4; i++)
        partial[kw - 1][warp % S::Warps][i][lane] = sums.d[i / (S::C * 4)][i / 4 % S::C][i % 4];
    __syncthreads();
    if (kw > 0)
      return;
#pragma unroll
    for (int other = 0; other + 1 < S::KW; other++)
#pragma unroll
      for (int i = 0; i < S::R * S::C * 4; i++)
        sums.d[i / (S::C * 4)][i / 4 % S::C][i % 4] += partial[other][warp % S::Warps][i][lane];
  }
  SPC_SHARED(typename S::Stages, stages);
  int m0 = blockIdx.y * S::Rows + mw * 16 * S::R;
  n0 += nw * 8 * S::C;
  auto &stage = stages[warp % S::Warps];
  switch (e.yType) {
  case U8: return sums.template store<u8>(o, e, m0, n0, stage);
  case F32: return sums.template store<f32>(o, e, m0, n0, stage);
  case F16: return sums.template store<f16>(o, e, m0, n0, stage);
  case BF16: return sums.template store<bf16>(o, e, m0, n0, stage);
  }
}

// Registers8 is what sources have in common that yield R tiles of 16 x 32 for a step of 8 words.
template <class S> struct Registers8 {
  static constexpr int Words = 8;
  struct Part { uint32_t a[S::R][4]; };

  template <class Slab>
  __device__ static __forceinline__ void multiply(const uint32_t (&a)[S::R][4], const Slab &slab, int column, int word, Sums8<S::R, S::C> &sums) {
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int c = 0; c < S::C; c++) {
      uint32_t b[2] = {slab.at(column + 8 * c + g, word + t), slab.at(column + 8 * c + g, word + 4 + t)};
#pragma unroll
      for (int r = 0; r < S::R; r++)
        mma8(sums.d[r][c], a[r], b);
    }
  }
  template <class Slab> __device__ __forceinline__ void multiply(const Part &p, const Slab &slab, int column, int word, Sums8<S::R, S::C> &sums) const {
    multiply(p.a, slab, column, word, sums);
  }
};

} // namespace spc

// SPC_TILES8 is the tiles that kernels of a format come in, backend.GPUTiles8.
#define SPC_TILES8(KERNEL) \
  KERNEL(128x128x64, 2, 2, 1, 4, 8, 64) \
  KERNEL(64x64x64, 2, 2, 1, 2, 4, 64) \
  KERNEL(32x32x256k4, 1, 1, 4, 2, 4, 256) \
  KERNEL(16x8x256k4, 1, 1, 4, 1, 1, 256)
