// 2:4 times dense on sparse tensor cores: Y[M,N] = W X, where of every 4 consecutive elements of
// a row of W two are stored.
#include "spc/mma.cuh"

namespace spc {

// sparse24 gives 64 x 64 elements of Y to a block of 4 warps, 16 rows to each. The weight comes
// as tiles of 16 rows by 32 columns, those of 16 rows one after another: by lane the four
// registers of a tile, and the places of pairs of lanes, 16 words. 32 rows of X at a time go
// through a Slab. Grid (ceil(N/64), ceil(M/64), batch).
template <class T>
__device__ __forceinline__ void sparse24(const uint4 *values, const uint32_t *places, const Operands<T> &o, int tiles, const Epilogue<T> &e) {
  constexpr int Depth = 32, Threads = 128;
  SPC_SHARED(Slab<Depth>, slab);
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  int m0 = blockIdx.y * 64 + warp * 16, n0 = blockIdx.x * 64;
  const T *x = o.x + blockIdx.z * o.xBatch;
  int64_t tile = int64_t(blockIdx.y * 4 + warp) * tiles;
  Sums sums;
  for (int k0 = 0; k0 < o.K; k0 += Depth, tile++) {
    slab.template load<Threads>(x, o, k0, n0);
    __syncthreads();
    if (m0 < o.M) {
      uint4 v = values[tile * 32 + lane];
      uint32_t a[4] = {v.x, v.y, v.z, v.w}, where = places[tile * 16 + g * 2 + t % 2];
#pragma unroll
      for (int j = 0; j < 8; j++) {
        uint32_t b[4];
#pragma unroll
        for (int r = 0; r < 4; r++)
          b[r] = slab.words[8 * j + g][4 * r + t];
        mmaSparse<T>(sums.d[j], a, b, where);
      }
    }
    __syncthreads();
  }
  sums.store(o, e, m0, n0);
}

} // namespace spc

#define SPARSE24(T) \
  SPC_KERNEL(T##_nm24_64x64x32_mmasp, 128, (const uint4 *values, const uint32_t *places, SPC_OPERANDS(spc::T), int tiles, SPC_EPILOGUE), \
             (spc::sparse24<spc::T>(values, places, spc::Operands<spc::T>(SPC_OPERANDS_ARGS), tiles, spc::Epilogue<spc::T>(SPC_EPILOGUE_ARGS))))
SPARSE24(f16)
SPARSE24(bf16)
