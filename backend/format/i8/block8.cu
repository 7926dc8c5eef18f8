// i8 weights of which groups of four consecutive elements of a row stand or fall together, times
// u8 on tensor cores: Y[M,N] = W X.
#include "spc/product8.cuh"

namespace spc {

// Groups8 is a source of the slabs of W in which rows of the block have a group: row y of blocks
// those from begins[y] to begins[y+1]-1, of the numbers slab[i]. A group is a register of a lane, and
// so each tile of 16 x 32 has six words: four masks, bit l of which says that lane l has a group in
// that register; where its groups begin, register by register; and in the bytes of the last how many
// come before each register. Tiles of 16 rows lie one after another, and there are
// so many in a row.
//
// A group's address depends on the words of its tile, and theirs on the number of the slab. So lanes of
// a warp hold the words of its tiles for Early slabs to come, and the numbers of 32 slabs and the
// next 32.
template <class S> struct Groups8 {
  static constexpr int P = 1, Down = S::Rows / 16, Across = S::Depth / 32, Each = Down * Across * 32 / S::Threads, Words = 6, Early = 2;
  static_assert(Each * S::Threads == Down * Across * 32 && Each * Words <= 32, "a warp's lanes hold the words of its tiles");
  using Part = Registers8<S>;
  struct Slab { uint32_t tiles[Down][Across][4][32]; };
  const uint32_t *words, *values, *slab;
  uint32_t from, end; // of the row of blocks
  int tiles;
  uint32_t numbers[2], early[Early];
  int first; // the slab whose number is the first

  __device__ Groups8(const uint32_t *words, const uint32_t *values, const uint32_t *begins, const uint32_t *slab, int tiles)
      : words(words), values(values), slab(slab), from(begins[blockIdx.y]), end(begins[blockIdx.y + 1]), tiles(tiles), first(0) {
    numbers[0] = number(0);
    numbers[1] = number(32);
#pragma unroll
    for (int i = 0; i < Early; i++)
      early[i] = i < count() ? word(i) : 0;
  }
  __device__ __forceinline__ int count() const { return int(end - from); }
  // number is the lane's of 32 slabs.
  __device__ __forceinline__ uint32_t number(int first) const {
    int i = first + threadIdx.x % 32;
    return i < count() ? slab[from + i] : 0;
  }
  __device__ __forceinline__ int of(int i) const { return int(__shfl_sync(~0u, i - first < 32 ? numbers[0] : numbers[1], (i - first) % 32)); }
  __device__ __forceinline__ int row(int i) const { return of(i) * S::Depth; }
  // tile is the row and column in a slab of tile number j of the warp.
  __device__ static __forceinline__ void tile(int j, int &down, int &across) {
    j += threadIdx.x / 32 * Each;
    down = j / Across;
    across = j % Across;
  }
  // word is the lane's of the tiles of slab i.
  __device__ __forceinline__ uint32_t word(int i) const {
    int down, across, lane = threadIdx.x % 32, column = of(i) * Across;
    tile(lane / Words, down, across);
    column += across;
    return lane < Each * Words && column < tiles ? words[((int64_t(blockIdx.y) * Down + down) * tiles + column) * Words + lane % Words] : 0;
  }
  __device__ __forceinline__ void begin(Slab &to, int i) {
    if (i - first >= 32 + S::Stages) { // of what comes none is among the first
      first += 32;
      numbers[0] = numbers[1];
      numbers[1] = number(first + 32);
    }
    uint32_t mine = early[0], bit = 1u << threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j + 1 < Early; j++)
      early[j] = early[j + 1];
    early[Early - 1] = i + Early < count() ? word(i + Early) : 0;
#pragma unroll
    for (int j = 0; j < Each; j++) {
      int down, across;
      tile(j, down, across);
      uint32_t at = __shfl_sync(~0u, mine, j * Words + 4), before = __shfl_sync(~0u, mine, j * Words + 5);
#pragma unroll
      for (int r = 0; r < 4; r++) {
        uint32_t mask = __shfl_sync(~0u, mine, j * Words + r);
        bool some = mask & bit;
        uint32_t group = at + (before >> 8 * r & 255) + __popc(mask & (bit - 1));
        copy_async<4>(&to.tiles[down][across][r][threadIdx.x % 32], values + (some ? group : 0), some ? 4 : 0);
      }
    }
  }
  __device__ __forceinline__ void load(Part &p, const Slab &slab, int step) const {
#pragma unroll
    for (int r = 0; r < S::R; r++)
#pragma unroll
      for (int q = 0; q < 4; q++)
        p.a[r][q] = slab.tiles[S::mw() * S::R + r][step][q][threadIdx.x % 32];
  }
  __device__ __forceinline__ void multiply(int32_t (&d)[4], const Part &p, int r, const uint32_t (&b)[2]) const { mma8(d, p.a[r], b); }
};

} // namespace spc

#define BLOCK8(name, ...) \
  SPC_KERNEL(s8_block1x4_##name##_mma, (spc::Tile8<__VA_ARGS__>::Threads), \
             (const uint32_t *words, const uint32_t *values, const uint32_t *begins, const uint32_t *slab, SPC_OPERANDS8, int tiles, SPC_EPILOGUE8), \
             (spc::tensor_product8<spc::Tile8<__VA_ARGS__>>(spc::Groups8<spc::Tile8<__VA_ARGS__>>(words, values, begins, slab, tiles), \
                                                            spc::Operands8(SPC_OPERANDS8_ARGS), spc::Epilogue8(SPC_EPILOGUE8_ARGS))))
SPC_TILES8(BLOCK8)
