// Blocks times dense on tensor cores: Y[M,N] = W X, where W is made of blocks of R x C elements,
// both multiples of 16.
#include "spc/product.cuh"

namespace spc {

// Blocks is a source of a row of blocks of W, of S::Rows rows and C columns each. Values come as
// tiles of 16 x 16, of each block first those of its first 16 columns: by lane the four
// registers of a tile. Row i of blocks has those from first[i] to first[i+1]-1, whose columns
// begin at column[b].
template <class S, class T> struct Blocks : Registers<S, T> {
  using Base = Registers<S, T>;
  const uint4 *values;
  const uint32_t *column;
  uint32_t begin, end;
  int across; // slabs in a block

  __device__ Blocks(const uint4 *values, const uint32_t *first, const uint32_t *column, int C)
      : values(values), column(column), begin(first[blockIdx.y]), end(first[blockIdx.y + 1]), across(C / S::Depth) {}
  __device__ __forceinline__ int count() const { return int(end - begin) * across; }
  __device__ __forceinline__ int row(int i) const { return int(column[begin + i / across]) + i % across * S::Depth; }
  __device__ __forceinline__ void load(typename Base::Part &p, int s, int i) const {
    int64_t step = (int64_t(begin) * across + i) * (S::Depth / 16) + S::kw() * Base::Steps + s;
#pragma unroll
    for (int r = 0; r < S::R; r++)
      fragment(p.a[s][r], values, step * S::MW * S::R + S::mw() * S::R + r);
  }
#if SPC_WARPGROUPS
  static constexpr int Share = S::Rows / 16 * (S::Depth / 16) * 512;
  __device__ __forceinline__ void fetch(unsigned char *to, int i, int thread) const {
    const uint4 *from = values + (int64_t(begin) * across + i) * (Share / 16);
#pragma unroll
    for (int unit = 0; unit < Share / 16; unit += S::Givers)
      copy_async<16>(to + 16 * (unit + thread), from + unit + thread, 16);
  }
  __device__ __forceinline__ void take(typename Base::Part &p, const unsigned char *from) const {
#pragma unroll
    for (int s = 0; s < Base::Steps; s++)
#pragma unroll
      for (int r = 0; r < S::R; r++)
        fragment(p.a[s][r], reinterpret_cast<const uint4 *>(from), (s * S::MW + S::mw()) * S::R + r);
  }
#endif
};

} // namespace spc

#define BLOCKS_OF(T, name, ...) \
  SPC_KERNEL_WITHIN(T##_block_##name##_mma, (__VA_ARGS__::Threads, __VA_ARGS__::Blocks), \
                    (const uint4 *values, const uint32_t *first, const uint32_t *column, SPC_OPERANDS(spc::T), int C_, SPC_EPILOGUE), \
                    (spc::tensor_product<__VA_ARGS__>(spc::Blocks<__VA_ARGS__, spc::T>(values, first, column, C_), \
                                                      spc::Operands<spc::T>(SPC_OPERANDS_ARGS), spc::Epilogue<spc::T>(SPC_EPILOGUE_ARGS))))
#define BLOCKS(T, name, ...) BLOCKS_OF(T, name, spc::GroupTile<__VA_ARGS__>)
// As tiles and groups of gpu.go list them.
#define BLOCKS_GROUPS spc::Groups<4, 2, 1, 16, 5, 1>
#define BLOCKS_TILES(T) \
  BLOCKS_OF(T, 64x256x64, BLOCKS_GROUPS) \
  BLOCKS(T, 16x128x16, 1, 2, 1, 1, 8, 16, 3) BLOCKS(T, 16x128x32, 1, 2, 1, 1, 8, 32, 3) \
  BLOCKS(T, 16x8x16, 1, 1, 1, 1, 1, 16, 4) BLOCKS(T, 16x8x32k2, 1, 1, 2, 1, 1, 32, 4) \
  BLOCKS(T, 32x128x16, 1, 2, 1, 2, 8, 16, 3) BLOCKS(T, 32x128x32, 1, 2, 1, 2, 8, 32, 3) \
  BLOCKS(T, 32x8x16, 2, 1, 1, 1, 1, 16, 4) BLOCKS(T, 32x8x32k2, 2, 1, 2, 1, 1, 32, 4) \
  BLOCKS(T, 64x128x16, 2, 4, 1, 2, 4, 16, 3) BLOCKS(T, 64x128x64, 2, 4, 1, 2, 4, 64, 3) \
  BLOCKS(T, 64x8x16, 4, 1, 1, 1, 1, 16, 4) BLOCKS(T, 64x8x64k4, 4, 1, 4, 1, 1, 64, 4)
BLOCKS_TILES(f16)
BLOCKS_TILES(bf16)
