// 2:4 times dense on sparse tensor cores: Y[M,N] = W X, where of every 4 consecutive elements of
// a row of W two are stored.
#include "spc/mma.cuh"

namespace spc {

// sparse24 gives 64 x 64 elements of Y to a block of 4 warps, 16 rows to each. The weight comes
// as tiles of 16 rows by 32 columns, those of 16 rows one after another: by lane the four
// registers of a tile, and the places of pairs of lanes, 16 words. 32 rows of X at a time go
// through shared memory, transposed, so that two elements of a column are one word. Grid
// (ceil(N/64), ceil(M/64), batch).
template <class T>
__device__ __forceinline__ void sparse24(const uint4 *values, const uint32_t *places, const Operands<T> &o, int tiles, const Epilogue<T> &e) {
  constexpr int Columns = 64, Depth = 32, Threads = 128;
  using Slab = uint32_t[Columns][Depth / 2 + 4]; // 20 words apart: lanes of a fragment meet all banks
  SPC_SHARED(Slab, slab);
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  int m0 = blockIdx.y * 64 + warp * 16, n0 = blockIdx.x * Columns;
  const T *x = o.x + blockIdx.z * o.xBatch;
  int64_t tile = int64_t(blockIdx.y * 4 + warp) * tiles;
  float d[Columns / 8][4];
#pragma unroll
  for (int j = 0; j < Columns / 8; j++)
#pragma unroll
    for (int i = 0; i < 4; i++)
      d[j][i] = 0;
  for (int k0 = 0; k0 < o.K; k0 += Depth, tile++) {
    uint16_t *halves = reinterpret_cast<uint16_t *>(&slab[0][0]);
    for (int at = threadIdx.x; at < Columns * Depth; at += Threads) {
      // Neighbours load neighbours, whichever way X lies.
      int k = o.xRow == 1 ? at % Depth : at / Columns, n = o.xRow == 1 ? at / Depth : at % Columns;
      bool inside = k0 + k < o.K && n0 + n < o.N;
      halves[n * (Depth + 8) + k] = inside ? x[(k0 + k) * o.xRow + (n0 + n) * o.xColumn].bits : 0;
    }
    __syncthreads();
    if (m0 < o.M) {
      uint4 v = values[tile * 32 + lane];
      uint32_t a[4] = {v.x, v.y, v.z, v.w}, where = places[tile * 16 + g * 2 + t % 2];
#pragma unroll
      for (int j = 0; j < Columns / 8; j++) {
        uint32_t b[4];
#pragma unroll
        for (int r = 0; r < 4; r++)
          b[r] = slab[8 * j + g][4 * r + t];
        mmaSparse<T>(d[j], a, b, where);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int j = 0; j < Columns / 8; j++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      int m = m0 + g + 8 * (i / 2), n = n0 + 8 * j + 2 * t + i % 2;
      if (m < o.M && n < o.N)
        o.store(e, d[j][i], m, n);
    }
}

} // namespace spc

#define SPARSE24(T) \
  SPC_KERNEL(T##_nm24_64x64x32_mmasp, 128, (const uint4 *values, const uint32_t *places, SPC_OPERANDS(spc::T), int tiles, SPC_EPILOGUE), \
             (spc::sparse24<spc::T>(values, places, spc::Operands<spc::T>(SPC_OPERANDS_ARGS), tiles, spc::Epilogue<spc::T>(SPC_EPILOGUE_ARGS))))
SPARSE24(f16)
SPARSE24(bf16)
