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

// ldmatrix loads N matrices of 8 x 8 elements of 16 bits, of which lane i holds the address in
// shared memory of row i%8 of matrix i/8, 16 bytes; lanes get of matrix r, in r[r], elements 2*t
// and 2*t+1 of row g, or, transposed, element g of rows 2*t and 2*t+1.
template <bool Transposed, int N> __device__ __forceinline__ void ldmatrix(uint32_t (&r)[N], const void *row) {
  static_assert(N == 2 || N == 4, "ldmatrix loads 2 or 4 matrices");
  uint32_t at = uint32_t(__cvta_generic_to_shared(row));
  if constexpr (N == 4 && Transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
  else if constexpr (N == 4)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
  else if constexpr (Transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(at) : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(at) : "memory");
}

// copy_async copies Bytes, 4, 8 or 16, to shared memory while the thread goes on: the first valid
// of them, and zeros. Both addresses are multiples of Bytes.
template <int Bytes> __device__ __forceinline__ void copy_async(void *to, const void *from, int valid) {
  uint32_t at = uint32_t(__cvta_generic_to_shared(to));
  if constexpr (Bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(at), "l"(from), "r"(valid) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" : : "r"(at), "l"(from), "n"(Bytes), "r"(valid) : "memory");
}

// copy_commit makes a group of the thread's copies since the last one, and copy_wait waits until
// all of its groups but the latest Pending have arrived.
__device__ __forceinline__ void copy_commit() { asm volatile("cp.async.commit_group;" : : : "memory"); }
template <int Pending> __device__ __forceinline__ void copy_wait() { asm volatile("cp.async.wait_group %0;" : : "n"(Pending) : "memory"); }
#else
namespace emulated {

// half is one of the two elements of a register.
template <class T> float half(uint32_t r, int i) { return number(T{uint16_t(r >> 16 * i)}); }

// multiply adds A B[K,8] to D of the lanes, each of which brought it from word at on. a holds
// 16 elements of each row of A, whose columns are in column; zeros among them count.
template <int K> SPC_ARITHMETIC void multiply(simt::Gathering &g, const float (&a)[16][16], const int (&column)[16][16], const float (&b)[K][8], int at) {
  float d[16][8];
  for (int lane = 0; lane < 32; lane++)
    for (int i = 0; i < 4; i++)
      memcpy(&d[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + i % 2], &g.in[lane][at + i], sizeof(float));
  for (int row = 0; row < 16; row++)
    for (int k = 0; k < 16; k++)
      for (int n = 0; n < 8; n++)
        d[row][n] += a[row][k] * b[column[row][k]][n];
  for (int lane = 0; lane < 32; lane++)
    for (int i = 0; i < 4; i++)
      memcpy(&g.out[lane][i], &d[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + i % 2], sizeof(float));
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

template <bool Transposed, int N> void ldmatrix(uint32_t (&r)[N], const void *row) {
  simt::aligned("ldmatrix", row, 16);
  simt::gather(~0u, &row, sizeof row, r, sizeof r, [](simt::Gathering &g) {
    for (int m = 0; m < N; m++) {
      uint16_t matrix[8][8];
      for (int i = 0; i < 8; i++) {
        const void *row;
        memcpy(&row, g.in[8 * m + i], sizeof row);
        memcpy(matrix[i], row, 16);
      }
      for (int lane = 0; lane < 32; lane++) {
        int line = lane / 4, at = lane % 4 * 2;
        g.out[lane][m] = Transposed ? matrix[at][line] | uint32_t(matrix[at + 1][line]) << 16 : matrix[line][at] | uint32_t(matrix[line][at + 1]) << 16;
      }
    }
  });
}

template <int Bytes> void copy_async(void *to, const void *from, int valid) { simt::copy_async(to, from, Bytes, valid); }
inline void copy_commit() { simt::copy_commit(); }
template <int Pending> void copy_wait() { simt::copy_wait(Pending); }
#endif

// lay_out puts D[16,Wide-1] of a warp into shared memory as it is.
template <class T, int Wide> __device__ __forceinline__ void lay_out(T (&to)[16][Wide], const T (*d)[4]) {
  int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int c = 0; c < Wide / 8; c++)
#pragma unroll
    for (int i = 0; i < 4; i++)
      to[g + 8 * (i / 2)][8 * c + 2 * t + i % 2] = d[c][i];
}

} // namespace spc
