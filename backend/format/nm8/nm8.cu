// 2:4 of i8 times u8 on sparse tensor cores: Y[M,N] = W X, where of every 4 consecutive elements of
// a row of W two are stored.
#include "spc/product8.cuh"

namespace spc {

// Pairs8 is a source of W as tiles of 16 rows by 64 columns, those of 16 rows one after another:
// by lane the four registers of a tile, and its word of places.
template <class S> struct Pairs8 {
  static constexpr int Words = 16;
  const uint4 *values;
  const uint32_t *places;
  int tiles; // in a row
  struct Part { uint32_t a[S::R][4], places[S::R]; };

  __device__ __forceinline__ int count() const { return (tiles * 64 + S::Depth - 1) / S::Depth; }
  __device__ __forceinline__ int row(int i) const { return i * S::Depth; }
  __device__ __forceinline__ Part load(int i, int step, int mw) const {
    int tile = i * (S::Depth / 64) + step, lane = threadIdx.x % 32;
    Part p;
#pragma unroll
    for (int r = 0; r < S::R; r++) {
      uint4 v = {0, 0, 0, 0};
      p.places[r] = 0x44444444; // 0 and 1
      if (tile < tiles) {
        int64_t at = (((int64_t(blockIdx.y) * S::MW + mw) * S::R + r) * tiles + tile) * 32 + lane;
        v = values[at];
        p.places[r] = places[at];
      }
      p.a[r][0] = v.x;
      p.a[r][1] = v.y;
      p.a[r][2] = v.z;
      p.a[r][3] = v.w;
    }
    return p;
  }
  template <class Slab> __device__ __forceinline__ void multiply(const Part &p, const Slab &slab, int column, int word, Sums8<S::R, S::C> &sums) const {
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int c = 0; c < S::C; c++) {
      uint32_t b[4];
#pragma unroll
      for (int q = 0; q < 4; q++)
        b[q] = slab.at(column + 8 * c + g, word + 4 * q + t);
#pragma unroll
      for (int r = 0; r < S::R; r++)
        mma8Sparse(sums.d[r][c], p.a[r], b, p.places[r]);
    }
  }
};

} // namespace spc

#define PAIRS8(name, MW, NW, KW, R, C, Depth) \
  SPC_KERNEL(s8_nm24_##name##_mmasp, 32 * MW * NW * KW, (const uint4 *values, const uint32_t *places, SPC_OPERANDS8, int tiles, SPC_EPILOGUE8), \
             (spc::tensor_product8<spc::Tile8<MW, NW, KW, R, C, Depth>>(spc::Pairs8<spc::Tile8<MW, NW, KW, R, C, Depth>>{values, places, tiles}, \
                                                                        spc::Operands8(SPC_OPERANDS8_ARGS), spc::Epilogue8(SPC_EPILOGUE8_ARGS))))
SPC_TILES8(PAIRS8)
