// i8 weights of which groups of four consecutive elements of a row stand or fall together, times
// u8 on tensor cores: Y[M,N] = W X.
#include "spc/product8.cuh"

namespace spc {

// Groups8 is a source of the slabs of W in which rows of the block have a group: row y of blocks
// those from begin[y] to begin[y+1]-1, of the numbers slab[i]. A group is a register of a lane, and
// so bit l of masks[r] of a tile of 16 x 32 says that lane l has one in register r. The groups of a
// tile, register by register, begin at first. Tiles of 16 rows lie one after another.
template <class S> struct Groups8 {
  static constexpr int Words = 8;
  const uint4 *masks;
  const uint32_t *first, *values, *slab;
  uint32_t begin, end;
  int tiles; // in a row
  struct Part {
    uint32_t a[S::R][4];
    bool some; // there are groups
  };

  __device__ Groups8(const uint4 *masks, const uint32_t *first, const uint32_t *values, const uint32_t *begins, const uint32_t *slab, int tiles)
      : masks(masks), first(first), values(values), slab(slab), begin(begins[blockIdx.y]), end(begins[blockIdx.y + 1]), tiles(tiles) {}
  __device__ __forceinline__ int count() const { return int(end - begin); }
  __device__ __forceinline__ int row(int i) const { return int(slab[begin + i]) * S::Depth; }
  __device__ __forceinline__ Part load(int i, int step, int mw) const {
    int tile = int(slab[begin + i]) * (S::Depth / 32) + step;
    uint32_t before = (1u << threadIdx.x % 32) - 1;
    Part p;
    p.some = false;
#pragma unroll
    for (int r = 0; r < S::R; r++) {
      int64_t at = ((int64_t(blockIdx.y) * S::MW + mw) * S::R + r) * tiles + tile;
      uint4 mask = {0, 0, 0, 0};
      if (tile < tiles)
        mask = masks[at];
      uint32_t of[4] = {mask.x, mask.y, mask.z, mask.w}, any = mask.x | mask.y | mask.z | mask.w, group = any ? first[at] : 0;
      p.some = p.some || any;
#pragma unroll
      for (int q = 0; q < 4; q++) {
        p.a[r][q] = of[q] >> threadIdx.x % 32 & 1 ? values[group + __popcll(of[q] & before)] : 0;
        group += __popcll(of[q]);
      }
    }
    return p;
  }
  template <class Slab> __device__ __forceinline__ void multiply(const Part &p, const Slab &slab, int column, int word, Sums8<S::R, S::C> &sums) const {
    if (p.some) // the same for all lanes
      Registers8<S>::multiply(p.a, slab, column, word, sums);
  }
};

} // namespace spc

#define BLOCK8(name, MW, NW, KW, R, C, Depth) \
  SPC_KERNEL(s8_block1x4_##name##_mma, 32 * MW * NW * KW, \
             (const uint4 *masks, const uint32_t *first, const uint32_t *values, const uint32_t *begins, const uint32_t *slab, SPC_OPERANDS8, int tiles, SPC_EPILOGUE8), \
             (spc::tensor_product8<spc::Tile8<MW, NW, KW, R, C, Depth>>(spc::Groups8<spc::Tile8<MW, NW, KW, R, C, Depth>>(masks, first, values, begins, slab, tiles), \
                                                                        spc::Operands8(SPC_OPERANDS8_ARGS), spc::Epilogue8(SPC_EPILOGUE8_ARGS))))
SPC_TILES8(BLOCK8)
