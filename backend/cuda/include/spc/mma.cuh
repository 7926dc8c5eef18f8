// mma.cuh is the tensor cores' products of a warp (PTX ISA, "Matrix multiply-accumulate
// operations"): inline assembly on a GPU, a warp collective on the emulator. Registers hold
// two 16-bit elements each, the one of the lower column or row in the lower half. With
// g = lane/4 and t = lane%4, the lanes hold
//
//	a[r] of A[16,16]: row g + 8*(r%2), columns 8*(r/2) + 2*t and the next
//	b[r] of B[K,8]:   rows 8*r + 2*t and the next, column g
//	d[i] of D[16,8]:  row g + 8*(i/2), column 2*t + i%2
#pragma once

#include "spc/device.cuh"

namespace spc {

#if defined(__CUDACC__)
// mma adds A[16,16] B[16,8] to D.
template <class T> __device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
template <> __device__ __forceinline__ void mma<f16>(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <> __device__ __forceinline__ void mma<bf16>(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// mmaSparse adds A[16,32] B[32,8] to D, where of every 4 consecutive elements of a row of A
// two are there: a holds those, packed as A[16,16], and the lanes t = 0 and 1 in places where
// each lies in its group, 2 bits each, those of row g in the lower half: t = 0 those of columns
// 0 to 15, t = 1 of the others.
template <class T> __device__ __forceinline__ void mmaSparse(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[4], uint32_t places);
#if defined(__CUDACC_VER_MAJOR__) && (__CUDACC_VER_MAJOR__ > 12 || __CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 5)
#define SPC_MMA_SP "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32."
#else
#define SPC_MMA_SP "mma.sp.sync.aligned.m16n8k32.row.col.f32."
#endif
template <> __device__ __forceinline__ void mmaSparse<f16>(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[4], uint32_t places) {
  asm volatile(SPC_MMA_SP "f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9,%10,%11}, {%0,%1,%2,%3}, %12, 0x0;"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(places));
}
template <> __device__ __forceinline__ void mmaSparse<bf16>(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[4], uint32_t places) {
  asm volatile(SPC_MMA_SP "bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9,%10,%11}, {%0,%1,%2,%3}, %12, 0x0;"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(places));
}
#else
namespace emulated {

// half is one of the two elements of a register.
template <class T> float half(uint32_t r, int i) { return number(T{uint16_t(r >> 16 * i)}); }

// multiply adds A B[K,8] to D of the lanes, each of which brought it from word at on. a holds
// 16 elements of each row of A, whose columns are in column; zeros among them count.
template <int K> void multiply(simt::Gathering &g, const float (&a)[16][16], const int (&column)[16][16], const float (&b)[K][8], int at) {
  for (int lane = 0; lane < 32; lane++) {
    float d[4];
    memcpy(d, &g.in[lane][at], sizeof d);
    for (int i = 0; i < 4; i++) {
      int row = lane / 4 + 8 * (i / 2);
      for (int k = 0; k < 16; k++)
        d[i] += a[row][k] * b[column[row][k]][2 * (lane % 4) + i % 2];
    }
    memcpy(g.out[lane], d, sizeof d);
  }
}

template <class T, int K> void readB(simt::Gathering &g, float (&b)[K][8], int at) {
  for (int lane = 0; lane < 32; lane++)
    for (int r = 0; r < K / 8; r++)
      for (int i = 0; i < 2; i++)
        b[8 * r + 2 * (lane % 4) + i][lane / 4] = half<T>(g.in[lane][at + r], i);
}

} // namespace emulated

template <class T> void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  uint32_t in[10];
  memcpy(in, a, 16);
  memcpy(in + 4, b, 8);
  memcpy(in + 6, d, 16);
  simt::gather(~0u, in, sizeof in, d, 16, [](simt::Gathering &g) {
    float a[16][16], b[16][8];
    int column[16][16];
    for (int lane = 0; lane < 32; lane++)
      for (int r = 0; r < 4; r++)
        for (int i = 0; i < 2; i++) {
          int row = lane / 4 + 8 * (r % 2), k = 8 * (r / 2) + 2 * (lane % 4) + i;
          a[row][k] = emulated::half<T>(g.in[lane][r], i);
          column[row][k] = k;
        }
    emulated::readB<T>(g, b, 4);
    emulated::multiply(g, a, column, b, 6);
  });
}

template <class T> void mmaSparse(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[4], uint32_t places) {
  uint32_t in[13];
  memcpy(in, a, 16);
  memcpy(in + 4, b, 16);
  memcpy(in + 8, d, 16);
  in[12] = places;
  simt::gather(~0u, in, sizeof in, d, 16, [](simt::Gathering &g) {
    float a[16][16], b[32][8];
    int column[16][16];
    for (int lane = 0; lane < 32; lane++)
      for (int r = 0; r < 4; r++) {
        int row = lane / 4 + 8 * (r % 2), group = 4 * (r / 2) + lane % 4;
        uint32_t bits = g.in[lane / 4 * 4 + group / 4][12] >> (16 * (r % 2) + 4 * (group % 4));
        int first = bits & 3, second = bits >> 2 & 3;
        if (first >= second) {
          fprintf(stderr, "simt: the places of row %d, group %d are %d and %d, want them ascending\n", row, group, first, second);
          abort();
        }
        for (int i = 0; i < 2; i++) {
          a[row][2 * group + i] = emulated::half<T>(g.in[lane][r], i);
          column[row][2 * group + i] = 4 * group + (i == 0 ? first : second);
        }
      }
    emulated::readB<T>(g, b, 4);
    emulated::multiply(g, a, column, b, 8);
  });
}
#endif

// Slab is Depth rows of Columns columns of X in shared memory, transposed, so that two
// elements of a column are one word. Columns are 4 words further apart, and groups of 4 words
// change places from one 8 columns to the next, so that the lanes of a fragment meet different
// banks, and few of those of a copy the same.
template <int Depth, int Columns> struct Slab {
  static constexpr int Stride = Depth / 2 + 4, Units = Depth * Columns / 16;
  alignas(16) uint32_t words[Columns * Stride];

  __device__ static __forceinline__ int place(int n, int pair) { return n * Stride + (pair ^ ((n >> 3 & (Depth / 8 - 1)) << 2)); }

  // at is elements 2*pair and 2*pair+1 of column n.
  __device__ __forceinline__ uint32_t at(int n, int pair) const { return words[place(n, pair)]; }

  // Unit is 16 elements on their way: of 8 columns 2 rows, one after the other, or, where the
  // rows of X are neighbours in memory, of a column 16 rows.
  struct Unit { uint4 v[2]; };

  // edge reads those of 8 elements that lie in X, some apart, zeros in place of the others.
  template <class T> __device__ __noinline__ static uint4 edge(const T *from, int64_t step, int inside) {
    uint32_t word[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < 8; i++)
      if (i < inside)
        word[i / 2] |= uint32_t(from[i * step].bits) << (i % 2 * 16);
    return {word[0], word[1], word[2], word[3]};
  }

  // fetch reads a unit of the slab from row k0 and column n0 on, zeros outside of X; x is the
  // block's matrix. down says that rows are neighbours in memory, and else columns are, and wide
  // that 8 of them can be loaded at once.
  template <class T> __device__ static __forceinline__ Unit fetch(const T *x, const Operands<T> &o, int k0, int n0, int unit, bool down, bool wide) {
    // Neighbours load neighbours.
    int k = k0 + (down ? unit % (Depth / 16) * 16 : unit / (Columns / 8) * 2), n = n0 + (down ? unit / (Depth / 16) : unit % (Columns / 8) * 8);
    Unit u;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      int row = down ? k + 8 * half : k + half;
      const T *from = x + row * o.xRow + n * o.xColumn;
      int inside = row < o.K && n < o.N ? down ? o.K - row : o.N - n : 0;
      u.v[half] = wide && inside >= 8 ? *reinterpret_cast<const uint4 *>(from) : edge(from, down ? o.xRow : o.xColumn, inside);
    }
    return u;
  }

  // put stores it.
  __device__ __forceinline__ void put(const Unit &u, int unit, bool down) {
    if (down) {
      int n = unit / (Depth / 16), pair = unit % (Depth / 16) * 8;
      *reinterpret_cast<uint4 *>(words + place(n, pair)) = u.v[0];
      *reinterpret_cast<uint4 *>(words + place(n, pair + 4)) = u.v[1];
      return;
    }
    int n = unit % (Columns / 8) * 8, pair = unit / (Columns / 8);
    uint32_t lo[4] = {u.v[0].x, u.v[0].y, u.v[0].z, u.v[0].w}, hi[4] = {u.v[1].x, u.v[1].y, u.v[1].z, u.v[1].w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
      words[place(n + 2 * i, pair)] = (lo[i] & 0xffff) | hi[i] << 16;
      words[place(n + 2 * i + 1, pair)] = lo[i] >> 16 | (hi[i] & 0xffff0000);
    }
  }
};

// Sums are a warp's elements of Y, 16 R rows by 8 C columns.
template <int R, int C> struct Sums {
  float d[R][C][4];
  __device__ __forceinline__ Sums() {
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
      for (int c = 0; c < C; c++)
#pragma unroll
        for (int i = 0; i < 4; i++)
          d[r][c][i] = 0;
  }
  // store finishes those that lie in Y, of which the first is element (m0,n0). They go through
  // stage, 16 rows at a time, so that neighbours write neighbours.
  template <class T> __device__ __forceinline__ void store(const Operands<T> &o, const Epilogue<T> &e, int m0, int n0, float (&stage)[16][8 * C + 1]) const {
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int r = 0; r < R; r++) {
#pragma unroll
      for (int c = 0; c < C; c++)
#pragma unroll
        for (int i = 0; i < 4; i++)
          stage[g + 8 * (i / 2)][8 * c + 2 * t + i % 2] = d[r][c][i];
      __syncwarp();
#pragma unroll 1
      for (int at = lane; at < 16 * 8 * C; at += 32) {
        int row = o.yColumn == 1 ? at / (8 * C) : at % 16, column = o.yColumn == 1 ? at % (8 * C) : at / 16;
        int m = m0 + 16 * r + row, n = n0 + column;
        if (m < o.M && n < o.N)
          o.store(e, stage[row][column], m, n);
      }
      __syncwarp();
    }
  }
};

// Tile is the shape of what a block of threads computes: MW warps, one below the other, have 16 R
// rows each, and KW warps share the rows of X; all of them have 8 C columns. Depth rows of X at a
// time go through a Slab.
template <int MW_, int KW_, int R_, int C_, int Depth_> struct Tile {
  static constexpr int MW = MW_, KW = KW_, R = R_, C = C_, Depth = Depth_;
  static constexpr int Rows = 16 * R * MW, Columns = 8 * C, Threads = 32 * MW * KW;
  using Slabs = Slab<Depth, Columns>[2];
  using Stages = float[MW][16][8 * C + 1];
  using Partial = float[KW > 1 ? KW - 1 : 1][MW][R * C * 4][32];
};

// tensor_product computes a Tile of Y for a source of W: count() slabs of X, of which slab i
// begins at row(i); load(i) reads what a warp multiplies with its share of it, and
// multiply(w, slab, pair, sums) adds their product, where that share begins at word pair of a
// column. While a slab is multiplied the next one is on its way. Grid (ceil(N/Columns),
// ceil(M/Rows), batch).
template <class S, class T, class Source> __device__ __forceinline__ void tensor_product(const Source &source, const Operands<T> &o, const Epilogue<T> &e) {
  using Slab = spc::Slab<S::Depth, S::Columns>;
  constexpr int Each = (Slab::Units + S::Threads - 1) / S::Threads;
  SPC_SHARED(typename S::Slabs, slabs);
  int warp = threadIdx.x / 32, kw = warp / S::MW, mw = warp % S::MW, n0 = blockIdx.x * S::Columns;
  const T *x = o.x + blockIdx.z * o.xBatch;
  bool down = o.xRow == 1;
  int64_t far = down ? o.xColumn : o.xRow; // neighbours lie along the other axis
  bool wide = (down || o.xColumn == 1) && far % 8 == 0 && o.xBatch % 8 == 0 && reinterpret_cast<uintptr_t>(o.x) % 16 == 0;
  typename Slab::Unit units[Each];
  auto fetch = [&](int i) {
    bool aligned = wide && (!down || source.row(i) % 8 == 0);
#pragma unroll
    for (int j = 0; j < Each; j++)
      if (j * S::Threads + int(threadIdx.x) < Slab::Units)
        units[j] = Slab::fetch(x, o, source.row(i), n0, j * S::Threads + threadIdx.x, down, aligned);
  };
  auto put = [&](int i) {
#pragma unroll
    for (int j = 0; j < Each; j++)
      if (j * S::Threads + int(threadIdx.x) < Slab::Units)
        slabs[i % 2].put(units[j], j * S::Threads + threadIdx.x, down);
  };
  Sums<S::R, S::C> sums;
  int count = source.count();
  if (count > 0) {
    auto w = source.load(0);
    fetch(0);
    put(0);
    __syncthreads();
    for (int i = 0; i < count; i++) {
      auto current = w;
      if (i + 1 < count) {
        w = source.load(i + 1);
        fetch(i + 1);
      }
      source.multiply(current, slabs[i % 2], kw * (S::Depth / S::KW / 2), sums);
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
        partial[kw - 1][mw][i][lane] = sums.d[i / (S::C * 4)][i / 4 % S::C][i % 4];
    __syncthreads();
    if (kw > 0)
      return;
#pragma unroll
    for (int other = 0; other + 1 < S::KW; other++)
#pragma unroll
      for (int i = 0; i < S::R * S::C * 4; i++)
        sums.d[i / (S::C * 4)][i / 4 % S::C][i % 4] += partial[other][mw][i][lane];
  }
  SPC_SHARED(typename S::Stages, stages);
  sums.store(o, e, blockIdx.y * S::Rows + mw * 16 * S::R, n0, stages[mw]);
}

// multiply adds the products of R tiles of 16 x 16 of W, by registers, with 16 rows of a slab.
template <class T, int R, int C, class Slab> __device__ __forceinline__ void multiply(const uint32_t (&a)[R][4], const Slab &slab, int pair, Sums<R, C> &sums) {
  int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int c = 0; c < C; c++) {
    uint32_t b[2] = {slab.at(8 * c + g, pair + t), slab.at(8 * c + g, pair + 4 + t)};
#pragma unroll
    for (int r = 0; r < R; r++)
      mma<T>(sums.d[r][c], a[r], b);
  }
}

// Registers is what sources have in common whose warps load Steps times R tiles of 16 x 16 for a
// slab, those of the same rows of X together.
template <class S, class T, int Steps_> struct Registers {
  static constexpr int Steps = Steps_;
  struct Part { uint32_t a[Steps][S::R][4]; };

  template <class Slab> __device__ __forceinline__ void multiply(const Part &p, const Slab &slab, int pair, Sums<S::R, S::C> &sums) const {
#pragma unroll
    for (int s = 0; s < Steps; s++)
      spc::multiply<T>(p.a[s], slab, pair + 8 * s, sums);
  }
};

// fragment is a tile of 16 x 16 of W as lanes hold it, of such tiles one after another.
__device__ __forceinline__ void fragment(uint32_t (&a)[4], const uint4 *values, int64_t tile) {
  uint4 v = values[tile * 32 + threadIdx.x % 32];
  a[0] = v.x;
  a[1] = v.y;
  a[2] = v.z;
  a[3] = v.w;
}

} // namespace spc
