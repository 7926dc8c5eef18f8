// Uniform ELL times dense: Y[M,N] = W X, where every row of W[M,K] has S nonzeros. Values and
// columns are column-major [S][M], so that the 32 rows of a warp read them coalesced.
#include "spc/device.cuh"

namespace spc {

// uspmm is USpMM, the kernel published with the uniform rule: 32 rows and VS columns of Y
// for each block of NW warps. A thread multiplies every NW-th nonzero of its row with VS
// columns of X, which it loads VEC at a time; the warps' sums are added up in shared memory.
// Grid (ceil(N/VS), ceil(M/32), batch), block (32, NW).
template <class T, class I, int NW, int VS>
__device__ __forceinline__ void uspmm(const T *values, const I *columns, const Operands<T> &o, int S, const Epilogue<T> &e) {
  constexpr int VEC = VS * sizeof(T) < 16 ? VS : 16 / sizeof(T);
  using Sums = float[NW][32][VS + 1]; // odd rows, so that lanes meet different banks
  SPC_SHARED(Sums, sums);
  int lane = threadIdx.x, warp = threadIdx.y;
  int row = blockIdx.y * 32 + lane, n0 = blockIdx.x * VS;
  const T *x = o.x + blockIdx.z * o.xBatch + n0 * o.xColumn;
  bool whole = n0 + VS <= o.N && o.vectors(VEC);
  float sum[VS];
  for (int v = 0; v < VS; v++)
    sum[v] = 0;
  if (row < o.M) {
    for (int s = warp; s < S; s += NW) {
      size_t at = size_t(s) * o.M + row;
      float w = number(values[at]);
      const T *from = x + columns[at] * o.xRow;
      if (whole) {
#pragma unroll
        for (int v = 0; v < VS; v += VEC) {
          Vec<T, VEC> part = *reinterpret_cast<const Vec<T, VEC> *>(from + v);
#pragma unroll
          for (int i = 0; i < VEC; i++)
            sum[v + i] += w * number(part.at[i]);
        }
      } else {
#pragma unroll
        for (int v = 0; v < VS; v++)
          if (n0 + v < o.N)
            sum[v] += w * number(from[v * o.xColumn]);
      }
    }
  }
#pragma unroll
  for (int v = 0; v < VS; v++)
    sums[warp][lane][v] = sum[v];
  __syncthreads();
  for (int t = warp * 32 + lane; t < 32 * VS; t += NW * 32) {
    // Threads that are neighbours write neighbours.
    int r = o.yColumn == 1 ? t / VS : t % 32, v = o.yColumn == 1 ? t % VS : t / 32;
    int m = blockIdx.y * 32 + r, n = n0 + v;
    float total = 0;
    for (int w = 0; w < NW; w++)
      total += sums[w][r][v];
    if (m < o.M && n < o.N)
      o.store(e, total, m, n);
  }
}

} // namespace spc

#define USPMM(T, I, index, NW, VS) \
  SPC_KERNEL(T##_ell_32x##VS##w##NW##_##index##_simt, 32 * NW, \
             (const spc::T *values, const I *columns, SPC_OPERANDS(spc::T), int S, SPC_EPILOGUE), \
             (spc::uspmm<spc::T, I, NW, VS>(values, columns, spc::Operands<spc::T>(SPC_OPERANDS_ARGS), S, spc::Epilogue<spc::T>(SPC_EPILOGUE_ARGS))))
#define USPMM_TILES(T, I, index) \
  USPMM(T, I, index, 4, 1) USPMM(T, I, index, 8, 1) \
  USPMM(T, I, index, 4, 4) USPMM(T, I, index, 8, 4) USPMM(T, I, index, 16, 4) \
  USPMM(T, I, index, 4, 8) USPMM(T, I, index, 8, 8) \
  USPMM(T, I, index, 4, 16) USPMM(T, I, index, 8, 16)
#define USPMM_INDICES(T) USPMM_TILES(T, uint16_t, u16) USPMM_TILES(T, uint32_t, u32)
USPMM_INDICES(f32)
USPMM_INDICES(f16)
USPMM_INDICES(bf16)
