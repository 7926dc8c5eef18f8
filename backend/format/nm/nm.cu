// 2:4 times dense on sparse tensor cores: Y[M,N] = W X, where of every 4 consecutive elements of
// a row of W two are stored.
#include "spc/mma.cuh"

namespace spc {

// Pairs24 is a source of W as tiles of 16 rows by 32 columns, those of 16 rows one after another:
// by lane the four registers of a tile, and the places of pairs of lanes, 16 words.
template <class S, class T> struct Pairs24 {
  const uint4 *values;
  const uint32_t *places;
  int tiles; // in a row
  static constexpr int Steps = S::Depth / S::KW / 32;
  struct Part { uint32_t a[Steps][S::R][4], places[Steps][S::R]; };

  __device__ __forceinline__ int count() const { return (tiles * 32 + S::Depth - 1) / S::Depth; }
  __device__ __forceinline__ int row(int i) const { return i * S::Depth; }
  __device__ __forceinline__ Part load(int i) const {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, first = (i * S::KW + warp / S::MW) * Steps;
    Part p;
#pragma unroll
    for (int s = 0; s < Steps; s++)
#pragma unroll
      for (int r = 0; r < S::R; r++) {
        bool inside = first + s < tiles;
        int64_t tile = (int64_t(blockIdx.y) * S::MW * S::R + warp % S::MW * S::R + r) * tiles + (inside ? first + s : 0);
        fragment(p.a[s][r], values, tile);
        p.places[s][r] = places[tile * 16 + lane / 4 * 2 + lane % 2];
        if (!inside)
          p.a[s][r][0] = p.a[s][r][1] = p.a[s][r][2] = p.a[s][r][3] = 0;
      }
    return p;
  }
  template <class Slab> __device__ __forceinline__ void multiply(const Part &p, const Slab &slab, int pair, Sums<S::R, S::C> &sums) const {
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int s = 0; s < Steps; s++)
#pragma unroll
      for (int c = 0; c < S::C; c++) {
        uint32_t b[4];
#pragma unroll
        for (int q = 0; q < 4; q++)
          b[q] = slab.at(8 * c + g, pair + 16 * s + 4 * q + t);
#pragma unroll
        for (int r = 0; r < S::R; r++)
          mmaSparse<T>(sums.d[r][c], p.a[s][r], b, p.places[s][r]);
      }
  }
};

} // namespace spc

#define SPARSE24(T, name, MW, KW, R, C, Depth) \
  SPC_KERNEL(T##_nm24_##name##_mmasp, 32 * MW * KW, (const uint4 *values, const uint32_t *places, SPC_OPERANDS(spc::T), int tiles, SPC_EPILOGUE), \
             (spc::tensor_product<spc::Tile<MW, KW, R, C, Depth>>(spc::Pairs24<spc::Tile<MW, KW, R, C, Depth>, spc::T>{values, places, tiles}, \
                                                                  spc::Operands<spc::T>(SPC_OPERANDS_ARGS), spc::Epilogue<spc::T>(SPC_EPILOGUE_ARGS))))
#define SPARSE24_TILES(T) \
  SPARSE24(T, 128x64x32, 4, 1, 2, 8, 32) \
  SPARSE24(T, 32x32x128k4, 1, 4, 2, 4, 128) \
  SPARSE24(T, 16x8x128k4, 1, 4, 1, 1, 128)
SPARSE24_TILES(f16)
SPARSE24_TILES(bf16)
