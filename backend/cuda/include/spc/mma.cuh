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

// Slab is Depth rows of 64 columns of X in shared memory, transposed, so that two elements of a
// column are one word; columns are 4 words further apart, so that the lanes of a fragment meet
// different banks.
template <int Depth> struct Slab {
  static constexpr int Columns = 64;
  uint32_t words[Columns][Depth / 2 + 4];

  // load copies rows k0 to k0+Depth-1 from column n0 on, zeros outside of X, with all threads
  // of a block; x is the block's matrix.
  template <int Threads, class T> __device__ __forceinline__ void load(const T *x, const Operands<T> &o, int k0, int n0) {
    uint16_t *halves = reinterpret_cast<uint16_t *>(&words[0][0]);
    for (int at = threadIdx.x; at < Columns * Depth; at += Threads) {
      // Neighbours load neighbours, whichever way X lies.
      int k = o.xRow == 1 ? at % Depth : at / Columns, n = o.xRow == 1 ? at / Depth : at % Columns;
      bool inside = k0 + k < o.K && n0 + n < o.N;
      halves[n * (Depth + 8) + k] = inside ? x[(k0 + k) * o.xRow + (n0 + n) * o.xColumn].bits : 0;
    }
  }
};

// Sums are a warp's 16 x 64 elements of Y.
struct Sums {
  float d[8][4];
  __device__ __forceinline__ Sums() {
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        d[j][i] = 0;
  }
  // store finishes those that lie in Y, of which the first is element (m0,n0).
  template <class T> __device__ __forceinline__ void store(const Operands<T> &o, const Epilogue<T> &e, int m0, int n0) const {
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        int m = m0 + g + 8 * (i / 2), n = n0 + 8 * j + 2 * t + i % 2;
        if (m < o.M && n < o.N)
          o.store(e, d[j][i], m, n);
      }
  }
};

} // namespace spc
