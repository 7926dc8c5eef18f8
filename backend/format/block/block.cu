// Blocks times dense on tensor cores: Y[M,N] = W X, where W is made of blocks of R x C elements,
// both multiples of 16.
#include "spc/mma.cuh"

namespace spc {

// Blocks is a source of a row of blocks of W, of S::Rows rows and C columns each. Values come as
// tiles of 16 x 16, of each block first those of its first 16 columns: by lane the four
// registers of a tile. Row i of blocks has those from first[i] to first[i+1]-1, whose columns
// begin at column[b].
template <class S, class T> struct Blocks : Registers<S, T, S::Depth / 16> {
  using Base = Registers<S, T, S::Depth / 16>;
  using Base::Steps;
  using typename Base::Part;
  const uint4 *values;
  const uint32_t *column;
  uint32_t begin, end;
  int across; // slabs in a block

  __device__ Blocks(const uint4 *values, const uint32_t *first, const uint32_t *column, int C)
      : values(values), column(column), begin(first[blockIdx.y]), end(first[blockIdx.y + 1]), across(C / S::Depth) {}
  __device__ __forceinline__ int count() const { return int(end - begin) * across; }
  __device__ __forceinline__ int row(int i) const { return int(column[begin + i / across]) + i % across * S::Depth; }
  __device__ __forceinline__ Part load(int i) const {
    Part p;
#pragma unroll
    for (int s = 0; s < Steps; s++)
#pragma unroll
      for (int r = 0; r < S::R; r++)
        fragment(p.a[s][r], values, ((int64_t(begin) * across + i) * Steps + s) * S::MW * S::R + threadIdx.x / 32 * S::R + r);
    return p;
  }
};

} // namespace spc

#define BLOCKS(T, name, MW, R, C, Depth) \
  SPC_KERNEL(T##_block_##name##_mma, 32 * MW, (const uint4 *values, const uint32_t *first, const uint32_t *column, SPC_OPERANDS(spc::T), int C_, SPC_EPILOGUE), \
             (spc::tensor_product<spc::Tile<MW, 1, R, C, Depth>>(spc::Blocks<spc::Tile<MW, 1, R, C, Depth>, spc::T>(values, first, column, C_), \
                                                                 spc::Operands<spc::T>(SPC_OPERANDS_ARGS), spc::Epilogue<spc::T>(SPC_EPILOGUE_ARGS))))
#define BLOCKS_TILES(T) \
  BLOCKS(T, 16x64x16, 1, 1, 8, 16) BLOCKS(T, 16x64x32, 1, 1, 8, 32) BLOCKS(T, 16x8x16, 1, 1, 1, 16) BLOCKS(T, 16x8x32, 1, 1, 1, 32) \
  BLOCKS(T, 32x64x16, 1, 2, 8, 16) BLOCKS(T, 32x64x32, 1, 2, 8, 32) BLOCKS(T, 32x8x16, 2, 1, 1, 16) BLOCKS(T, 32x8x32, 2, 1, 1, 32) \
  BLOCKS(T, 64x64x16, 2, 2, 8, 16) BLOCKS(T, 64x64x32, 2, 2, 8, 32) BLOCKS(T, 64x8x16, 4, 1, 1, 16) BLOCKS(T, 64x8x32, 4, 1, 1, 32)
BLOCKS_TILES(f16)
BLOCKS_TILES(bf16)
