// 2:4 times dense on sparse tensor cores: Y[M,N] = W X, where of every 4 consecutive elements of
// a row of W two are stored.
#include "spc/product.cuh"

namespace spc {

// Pairs24 is a source of W as tiles of 16 rows by 32 columns: by lane the four registers of a tile, and
// the places of pairs of lanes, 16 words.
template <class S, class T> struct Pairs24 : Grid<S, 2> {
  const uint4 *values;
  const uint32_t *places;
  static constexpr int P = 2, Steps = S::Depth / S::KW / 32;
  static constexpr bool Group = true, Staged = false;
  struct Part { uint32_t a[Steps][S::R][4], places[Steps][S::R]; };

  __device__ __forceinline__ void load(Part &p, int s, int i) const {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < S::R; r++) {
      int64_t tile;
      bool inside = this->find(tile, r, s, i);
      fragment(p.a[s][r], values, tile, inside);
      p.places[s][r] = inside ? places[tile * 16 + lane / 4 * 2 + lane % 2] : 0x44444444;
    }
  }
  __device__ __forceinline__ void multiply(const Part &p, int s, const uint32_t (&b)[S::C][4], Sums<S::R, S::C> &sums) const {
#pragma unroll
    for (int c = 0; c < S::C; c++)
#pragma unroll
      for (int r = 0; r < S::R; r++)
        mmaSparse<T>(sums.d[r][c], p.a[s][r], b[c], p.places[s][r]);
  }
#if SPC_WARPGROUPS
  template <bool Down> __device__ __forceinline__ void issue(const Part &p, int s, uint64_t b, Sums<S::R, S::C> &sums) const {
#pragma unroll
    for (int r = 0; r < S::R; r++)
      wgmmaSparse<Down>(T(), sums.d[r], p.a[s][r], b, p.places[s][r]);
  }
#endif
};

} // namespace spc

#define SPARSE24(T, name, ...) \
  SPC_KERNEL(T##_nm24_##name##_mmasp, (spc::Tile<__VA_ARGS__>::Threads), \
             (const uint4 *values, const uint32_t *places, SPC_OPERANDS(spc::T), int tiles, SPC_EPILOGUE), \
             (spc::tensor_product<spc::Tile<__VA_ARGS__>>(spc::Pairs24<spc::Tile<__VA_ARGS__>, spc::T>{{tiles}, values, places}, \
                                                          spc::Operands<spc::T>(SPC_OPERANDS_ARGS), spc::Epilogue<spc::T>(SPC_EPILOGUE_ARGS))))
SPC_TILES(SPARSE24, f16)
SPC_TILES(SPARSE24, bf16)
