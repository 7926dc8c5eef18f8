// Dense i8 times u8 on tensor cores: Y[M,N] = W X.
#include "spc/product8.cuh"

namespace spc {

// Tiles8 is a source of all of W as tiles of 16 x 32: by lane the four registers of a tile.
template <class S> struct Tiles8 : Grid8<S, 1> {
  using Grid = Grid8<S, 1>;
  using Part = Registers8<S>;
  const uint4 *values;
  struct Slab { uint4 tiles[Grid::Down][Grid::Across][32]; };

  __device__ Tiles8(const uint4 *values, int tiles) : Grid{tiles}, values(values) {}
  __device__ __forceinline__ void begin(Slab &slab, int i) const {
    this->each(i, [&](int down, int across, int lane, int64_t at, bool inside) { copy_async<16>(&slab.tiles[down][across][lane], values + at, inside ? 16 : 0); });
  }
  __device__ __forceinline__ void load(Part &p, const Slab &slab, int step) const {
#pragma unroll
    for (int r = 0; r < S::R; r++)
      p.set(r, slab.tiles[S::mw() * S::R + r][step][threadIdx.x % 32]);
  }
  __device__ __forceinline__ void multiply(int32_t (&d)[4], const Part &p, int r, const uint32_t (&b)[2]) const { mma8(d, p.a[r], b); }
};

} // namespace spc

#define DENSE8(name, ...) \
  SPC_KERNEL(s8_dense_##name##_mma, (spc::Tile8<__VA_ARGS__>::Threads), (const uint4 *values, SPC_OPERANDS8, int tiles, SPC_EPILOGUE8), \
             (spc::tensor_product8<spc::Tile8<__VA_ARGS__>>(spc::Tiles8<spc::Tile8<__VA_ARGS__>>(values, tiles), spc::Operands8(SPC_OPERANDS8_ARGS), \
                                                            spc::Epilogue8(SPC_EPILOGUE8_ARGS))))
SPC_TILES8(DENSE8)
