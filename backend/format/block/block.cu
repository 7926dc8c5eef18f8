// Blocks times dense on tensor cores: Y[M,N] = W X, where W is made of blocks of R x C elements,
// both multiples of 16.
#include "spc/mma.cuh"

namespace spc {

// blocks gives a row of blocks, 16 rows of it to each of Warps = R/16 warps, and 64 columns of Y
// to a block of threads. Values come as tiles of 16 x 16, of each block first those of its first
// 16 columns: by lane the four registers of a tile. Row i of blocks has those from first[i] to
// first[i+1]-1, whose columns begin at column[b]. 16 rows of X at a time go through a Slab.
// Grid (ceil(N/64), rows of blocks, batch).
template <class T, int Warps>
__device__ __forceinline__ void blocks(const uint4 *values, const uint32_t *first, const uint32_t *column, const Operands<T> &o, int C, const Epilogue<T> &e) {
  constexpr int Depth = 16;
  SPC_SHARED(Slab<Depth>, slab);
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  int n0 = blockIdx.x * 64;
  const T *x = o.x + blockIdx.z * o.xBatch;
  Sums sums;
  for (uint32_t b = first[blockIdx.y]; b < first[blockIdx.y + 1]; b++)
    for (int part = 0; part < C / Depth; part++) {
      slab.template load<32 * Warps>(x, o, int(column[b]) + part * Depth, n0);
      __syncthreads();
      uint4 v = values[((int64_t(b) * (C / Depth) + part) * Warps + warp) * 32 + lane];
      uint32_t a[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int j = 0; j < 8; j++) {
        uint32_t pair[2] = {slab.words[8 * j + g][t], slab.words[8 * j + g][4 + t]};
        mma<T>(sums.d[j], a, pair);
      }
      __syncthreads();
    }
  sums.store(o, e, (blockIdx.y * Warps + warp) * 16, n0);
}

} // namespace spc

#define BLOCKS(T, R) \
  SPC_KERNEL(T##_block_##R##x64x16_mma, 2 * R, (const uint4 *values, const uint32_t *first, const uint32_t *column, SPC_OPERANDS(spc::T), int C, SPC_EPILOGUE), \
             (spc::blocks<spc::T, R / 16>(values, first, column, spc::Operands<spc::T>(SPC_OPERANDS_ARGS), C, spc::Epilogue<spc::T>(SPC_EPILOGUE_ARGS))))
BLOCKS(f16, 16)
BLOCKS(f16, 32)
BLOCKS(f16, 64)
BLOCKS(bf16, 16)
BLOCKS(bf16, 32)
BLOCKS(bf16, 64)
