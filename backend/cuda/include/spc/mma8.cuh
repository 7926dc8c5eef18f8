// mma8.cuh is the tensor cores' products of 8-bit integers, i8 times u8 with sums in i32, and the
// arithmetic around them. Registers hold four elements each, the one of the lowest column or row in
// the lowest byte. With g = lane/4 and t = lane%4, the lanes hold
//
//	a[r] of A[16,32]: row g + 8*(r%2), columns 16*(r/2) + 4*t and the next three
//	b[r] of B[K,8]:   rows 16*r + 4*t and the next three, column g
//	d[i] of D[16,8]:  row g + 8*(i/2), column 2*t + i%2
//
// which are in words the places of mma.cuh.
#pragma once

#include "spc/mma.cuh"

namespace spc {

#if defined(__CUDACC__)
// mma8 adds A[16,32] B[32,8] to D.
__device__ __forceinline__ void mma8(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// mma8Sparse adds A[16,64] B[64,8] to D, where of every 4 consecutive elements of a row of A two
// are there: a holds those, packed as A[16,32], and places where each lies in its group, 2 bits
// each: lane t those of row g + 8*(t%2) in columns 32*(t/2) to 32*(t/2) + 31.
#if __CUDACC_VER_MAJOR__ > 12 || __CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 5
#define SPC_MMA8_SP "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.s8.u8.s32 "
#else
#define SPC_MMA8_SP "mma.sp.sync.aligned.m16n8k64.row.col.s32.s8.u8.s32 "
#endif
__device__ __forceinline__ void mma8Sparse(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[4], uint32_t places) {
  asm volatile(SPC_MMA8_SP "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9,%10,%11}, {%0,%1,%2,%3}, %12, 0x0;"
               : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(places));
}

// choose makes a word of bytes of a and, from 4 on, of b: the lowest hexadecimal digit of which
// says which is the lowest.
__device__ __forceinline__ uint32_t choose(uint32_t a, uint32_t b, uint32_t which) { return __byte_perm(a, b, which); }

// times and plus round once each: what is written with operators may become one operation.
__device__ __forceinline__ float times(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ float plus(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ float quotient(float a, float b) { return __fdiv_rn(a, b); }
#else
namespace emulated {

// multiply8 adds A B[K,8] to D of the lanes, each of which brought it from word d on, and B from
// word b on. a holds 32 elements of each row of A, whose columns are in column.
template <int K> SPC_ARITHMETIC void multiply8(simt::Gathering &g, const int (&a)[16][32], const int (&column)[16][32], int b, int d) {
  int x[K][8];
  for (int lane = 0; lane < 32; lane++)
    for (int r = 0; r < K / 16; r++)
      for (int i = 0; i < 4; i++)
        x[16 * r + 4 * (lane % 4) + i][lane / 4] = uint8_t(g.in[lane][b + r] >> 8 * i);
  uint32_t sums[16][8] = {}; // which wrap around
  for (int row = 0; row < 16; row++)
    for (int k = 0; k < 32; k++)
      for (int n = 0; n < 8; n++)
        sums[row][n] += uint32_t(a[row][k] * x[column[row][k]][n]);
  for (int lane = 0; lane < 32; lane++)
    for (int i = 0; i < 4; i++)
      g.out[lane][i] = g.in[lane][d + i] + sums[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + i % 2];
}

} // namespace emulated

inline void mma8(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  uint32_t in[10];
  memcpy(in, a, 16);
  memcpy(in + 4, b, 8);
  memcpy(in + 6, d, 16);
  simt::gather(~0u, in, sizeof in, d, 16, [](simt::Gathering &g) {
    int a[16][32], column[16][32];
    for (int lane = 0; lane < 32; lane++)
      for (int r = 0; r < 4; r++)
        for (int i = 0; i < 4; i++) {
          int row = lane / 4 + 8 * (r % 2), k = 16 * (r / 2) + 4 * (lane % 4) + i;
          a[row][k] = int8_t(g.in[lane][r] >> 8 * i);
          column[row][k] = k;
        }
    emulated::multiply8<32>(g, a, column, 4, 6);
  });
}

inline void mma8Sparse(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[4], uint32_t places) {
  uint32_t in[13];
  memcpy(in, a, 16);
  memcpy(in + 4, b, 16);
  memcpy(in + 8, d, 16);
  in[12] = places;
  simt::gather(~0u, in, sizeof in, d, 16, [](simt::Gathering &g) {
    int a[16][32], column[16][32];
    for (int lane = 0; lane < 32; lane++)
      for (int r = 0; r < 4; r++)
        for (int half = 0; half < 2; half++) {
          int row = lane / 4 + 8 * (r % 2), group = 8 * (r / 2) + 2 * (lane % 4) + half;
          uint32_t bits = g.in[lane / 4 * 4 + 2 * (group / 8) + r % 2][12] >> 4 * (group % 8);
          int first = bits & 3, second = bits >> 2 & 3;
          if (first >= second) {
            fprintf(stderr, "simt: the places of row %d, group %d are %d and %d, want them ascending\n", row, group, first, second);
            abort();
          }
          for (int i = 0; i < 2; i++) {
            a[row][2 * group + i] = int8_t(g.in[lane][r] >> 8 * (2 * half + i));
            column[row][2 * group + i] = 4 * group + (i == 0 ? first : second);
          }
        }
    emulated::multiply8<64>(g, a, column, 4, 8);
  });
}

inline uint32_t choose(uint32_t a, uint32_t b, uint32_t which) {
  uint64_t both = uint64_t(b) << 32 | a;
  uint32_t word = 0;
  for (int i = 0; i < 4; i++)
    word |= uint32_t(both >> 8 * (which >> 4 * i & 7) & 0xff) << 8 * i;
  return word;
}

// C++17 without extensions fuses nothing.
inline float times(float a, float b) { return a * b; }
inline float plus(float a, float b) { return a + b; }
inline float quotient(float a, float b) { return a / b; }
#endif

// quantized is v / scale, rounded to the nearest, ties to even, plus zero, saturated; 0 of NaN.
__device__ __forceinline__ uint8_t quantized(float v, float scale, int zero) {
  float r = rintf(quotient(v, scale)) + float(zero);
  return r > 0 ? uint8_t(r < 255 ? r : 255.f) : 0;
}

} // namespace spc
