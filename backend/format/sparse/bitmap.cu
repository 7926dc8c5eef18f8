// Any sparse W times dense on tensor cores: Y[M,N] = W X. What is loaded is sparse, a bit for each
// element and the nonzeros; what is computed is dense. The layout follows Fan et al., "SpInfer:
// Leveraging Low-Level Sparsity for Efficient Large Language Model Inference on GPUs" (EuroSys
// 2025, section 4.2).
#include "spc/mma.cuh"

namespace spc {

// Bitmap is a source of W as tiles of 16 x 16, those of 16 rows one after another: for each
// four masks, of the 8 x 8 elements of a register, whose bits are row by row, and where in
// values the nonzeros of the tile begin, mask by mask and bit by bit.
template <class S, class T> struct Bitmap : Registers<S, T, S::Depth / S::KW / 16> {
  using Base = Registers<S, T, S::Depth / S::KW / 16>;
  using Base::Steps;
  using typename Base::Part;
  const uint64_t *masks;
  const uint32_t *first;
  const T *values;
  int tiles; // in a row, of whole slabs

  __device__ __forceinline__ int count() const { return tiles / (S::Depth / 16); }
  __device__ __forceinline__ int row(int i) const { return i * S::Depth; }
  __device__ __forceinline__ Part load(int i) const {
    int warp = threadIdx.x / 32, bit = threadIdx.x % 32 * 2;
    Part p;
#pragma unroll
    for (int s = 0; s < Steps; s++)
#pragma unroll
      for (int r = 0; r < S::R; r++) {
        int64_t tile = (int64_t(blockIdx.y) * S::MW * S::R + warp % S::MW * S::R + r) * tiles + (i * S::KW + warp / S::MW) * Steps + s;
        const T *from = values + first[tile];
#pragma unroll
        for (int q = 0; q < 4; q++) {
          uint64_t mask = masks[tile * 4 + q], mine = mask >> bit;
          const T *at = from + __popcll(mask & ((uint64_t(1) << bit) - 1));
          uint32_t pair = mine & 1 ? at[0].bits : 0;
          if (mine & 2)
            pair |= uint32_t(at[mine & 1].bits) << 16;
          p.a[s][r][q] = pair;
          from += __popcll(mask);
        }
      }
    return p;
  }
};

} // namespace spc

#define BITMAP(T, name, MW, KW, R, C, Depth) \
  SPC_KERNEL(T##_bitmap_##name##_mma, 32 * MW * KW, (const uint64_t *masks, const uint32_t *first, const spc::T *values, SPC_OPERANDS(spc::T), int tiles, SPC_EPILOGUE), \
             (spc::tensor_product<spc::Tile<MW, KW, R, C, Depth>>(spc::Bitmap<spc::Tile<MW, KW, R, C, Depth>, spc::T>{{}, masks, first, values, tiles}, \
                                                                  spc::Operands<spc::T>(SPC_OPERANDS_ARGS), spc::Epilogue<spc::T>(SPC_EPILOGUE_ARGS))))
#define BITMAP_TILES(T) \
  BITMAP(T, 128x64x32, 4, 1, 2, 8, 32) \
  BITMAP(T, 32x32x64k4, 1, 4, 2, 4, 64) \
  BITMAP(T, 16x8x64k4, 1, 4, 1, 1, 64)
BITMAP_TILES(f16)
BITMAP_TILES(bf16)
