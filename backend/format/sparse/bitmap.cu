// Any sparse W times dense on tensor cores: Y[M,N] = W X. What is loaded is sparse, a bit for each
// element and the nonzeros; what is computed is dense. The layout follows Fan et al., "SpInfer:
// Leveraging Low-Level Sparsity for Efficient Large Language Model Inference on GPUs" (EuroSys
// 2025, section 4.2).
#include "spc/product.cuh"

namespace spc {

// Bitmap is a source of W as tiles of 16 x 16: for each four masks, of the 8 x 8 elements of a
// register, whose bits are row by row, and where in values the nonzeros of the tile begin, mask by
// mask and bit by bit.
template <class S, class T> struct Bitmap : Registers<S, T>, Grid<S, 1> {
  const uint64_t *masks;
  const uint32_t *first;
  const T *values;
  // Unpacking the next slab needs the registers that it would lie in while this one is multiplied.
  static constexpr bool Group = false;

  __device__ __forceinline__ void load(typename Registers<S, T>::Part &p, int s, int i) const {
    int bit = threadIdx.x % 32 * 2;
#pragma unroll
    for (int r = 0; r < S::R; r++) {
      int64_t tile;
      bool inside = this->find(tile, r, s, i);
      const T *from = inside ? values + first[tile] : values;
#pragma unroll
      for (int q = 0; q < 4; q++) {
        uint64_t mask = inside ? masks[tile * 4 + q] : 0, mine = mask >> bit;
        const T *at = from + __popcll(mask & ((uint64_t(1) << bit) - 1));
        uint32_t pair = mine & 1 ? at[0].bits : 0;
        if (mine & 2)
          pair |= uint32_t(at[mine & 1].bits) << 16;
        p.a[s][r][q] = pair;
        from += __popcll(mask);
      }
    }
  }
};

} // namespace spc

#define BITMAP(T, name, ...) \
  SPC_KERNEL(T##_bitmap_##name##_mma, (spc::Tile<__VA_ARGS__>::Threads), \
             (const uint64_t *masks, const uint32_t *first, const spc::T *values, SPC_OPERANDS(spc::T), int tiles, SPC_EPILOGUE), \
             (spc::tensor_product<spc::Tile<__VA_ARGS__>>(spc::Bitmap<spc::Tile<__VA_ARGS__>, spc::T>{{}, {tiles}, masks, first, values}, \
                                                          spc::Operands<spc::T>(SPC_OPERANDS_ARGS), spc::Epilogue<spc::T>(SPC_EPILOGUE_ARGS))))
SPC_NARROW_TILES(BITMAP, f16)
SPC_NARROW_TILES(BITMAP, bf16)
