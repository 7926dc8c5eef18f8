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
  static constexpr bool Staged = false;
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
  static constexpr int All = S::Rows / 16 * Grid<S, 2>::Each, Share = All * (512 + 64);
  __device__ __forceinline__ void fetch(unsigned char *to, int i, int thread) const {
    Grid<S, 2>::template fetch<32, false>(to, values, i, thread);
    Grid<S, 2>::template fetch<4, true>(to + All * 512, this->places, i, thread); // which have to be some
  }
  __device__ __forceinline__ void take(Part &p, const unsigned char *from) const {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int s = 0; s < Steps; s++)
#pragma unroll
      for (int r = 0; r < S::R; r++) {
        fragment(p.a[s][r], reinterpret_cast<const uint4 *>(from), this->taken(r, s));
        p.places[s][r] = reinterpret_cast<const uint32_t *>(from + All * 512)[this->taken(r, s) * 16 + lane / 4 * 2 + lane % 2];
      }
  }
  template <bool Down> __device__ __forceinline__ void issue(const Part &p, int s, uint64_t b, Sums<S::R, S::C> &sums) const {
#pragma unroll
    for (int r = 0; r < S::R; r++)
      wgmmaSparse<Down>(T(), sums.d[r], p.a[s][r], b, p.places[s][r]);
  }
#endif
};

} // namespace spc

#define SPARSE24_OF(T, name, ...) \
  SPC_KERNEL_WITHIN(T##_nm24_##name##_mmasp, (__VA_ARGS__::Threads, __VA_ARGS__::Blocks), \
                    (const uint4 *values, const uint32_t *places, SPC_OPERANDS(spc::T), int tiles, SPC_EPILOGUE), \
                    (spc::tensor_product<__VA_ARGS__>(spc::Pairs24<__VA_ARGS__, spc::T>{{tiles, M}, values, places}, \
                                                      spc::Operands<spc::T>(SPC_OPERANDS_ARGS), spc::Epilogue<spc::T>(SPC_EPILOGUE_ARGS))))
#define SPARSE24(T, name, ...) SPARSE24_OF(T, name, spc::GroupTile<__VA_ARGS__>)
#define SPARSE24_TILES(T) SPC_TILES(SPARSE24, T) SPARSE24_OF(T, 256x128x64, SPC_GROUPS)
SPARSE24_TILES(f16)
SPARSE24_TILES(bf16)
