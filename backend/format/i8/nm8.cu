// 2:4 of i8 times u8 on sparse tensor cores: Y[M,N] = W X, where of every 4 consecutive elements of
// a row of W two are stored.
#include "spc/product8.cuh"

namespace spc {

// Pairs8 is a source of W as tiles of 16 rows by 64 columns: by lane the four registers of a tile, and
// its word of places.
template <class S> struct Pairs8 : Grid8<S, 2> {
  using Grid = Grid8<S, 2>;
  const uint4 *values;
  const uint32_t *places;
  struct Part : Registers8<S> { uint32_t places[S::R]; };
  struct Slab {
    uint4 tiles[Grid::Down][Grid::Across][32];
    uint32_t places[Grid::Down][Grid::Across][32];
  };

  __device__ Pairs8(const uint4 *values, const uint32_t *places, int tiles) : Grid{tiles}, values(values), places(places) {}
  __device__ __forceinline__ void begin(Slab &slab, int i) const {
    this->each(i, [&](int down, int across, int lane, int64_t at, bool inside) {
      copy_async<16>(&slab.tiles[down][across][lane], values + at, inside ? 16 : 0);
      copy_async<4>(&slab.places[down][across][lane], places + at, 4); // which must be some, even of zeros
    });
  }
  __device__ __forceinline__ void load(Part &p, const Slab &slab, int step) const {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < S::R; r++) {
      p.set(r, slab.tiles[S::mw() * S::R + r][step][lane]);
      p.places[r] = slab.places[S::mw() * S::R + r][step][lane];
    }
  }
  __device__ __forceinline__ void multiply(int32_t (&d)[4], const Part &p, int r, const uint32_t (&b)[4]) const { mma8Sparse(d, p.a[r], b, p.places[r]); }
};

} // namespace spc

#define PAIRS8(name, ...) \
  SPC_KERNEL(s8_nm24_##name##_mmasp, (spc::Tile8<__VA_ARGS__>::Threads), (const uint4 *values, const uint32_t *places, SPC_OPERANDS8, int tiles, SPC_EPILOGUE8), \
             (spc::tensor_product8<spc::Tile8<__VA_ARGS__>>(spc::Pairs8<spc::Tile8<__VA_ARGS__>>(values, places, tiles), spc::Operands8(SPC_OPERANDS8_ARGS), \
                                                            spc::Epilogue8(SPC_EPILOGUE8_ARGS))))
SPC_TILES8(PAIRS8)
