// Dense i8 times u8 on tensor cores: Y[M,N] = W X.
#include "spc/product8.cuh"

namespace spc {

// Tiles8 is a source of all of W as tiles of 16 x 32, those of 16 rows one after another: by lane
// the four registers of a tile.
template <class S> struct Tiles8 : Registers8<S> {
  using typename Registers8<S>::Part;
  const uint4 *values;
  int tiles; // in a row

  __device__ __forceinline__ int count() const { return (tiles * 32 + S::Depth - 1) / S::Depth; }
  __device__ __forceinline__ int row(int i) const { return i * S::Depth; }
  __device__ __forceinline__ Part load(int i, int step, int mw) const {
    int tile = i * (S::Depth / 32) + step;
    Part p;
#pragma unroll
    for (int r = 0; r < S::R; r++) {
      uint4 v = {0, 0, 0, 0};
      if (tile < tiles)
        v = values[(((int64_t(blockIdx.y) * S::MW + mw) * S::R + r) * tiles + tile) * 32 + threadIdx.x % 32];
      p.a[r][0] = v.x;
      p.a[r][1] = v.y;
      p.a[r][2] = v.z;
      p.a[r][3] = v.w;
    }
    return p;
  }
};

} // namespace spc

#define DENSE8(name, MW, NW, KW, R, C, Depth) \
  SPC_KERNEL(s8_dense_##name##_mma, 32 * MW * NW * KW, (const uint4 *values, SPC_OPERANDS8, int tiles, SPC_EPILOGUE8), \
             (spc::tensor_product8<spc::Tile8<MW, NW, KW, R, C, Depth>>(spc::Tiles8<spc::Tile8<MW, NW, KW, R, C, Depth>>{{}, values, tiles}, \
                                                                        spc::Operands8(SPC_OPERANDS8_ARGS), spc::Epilogue8(SPC_EPILOGUE8_ARGS))))
SPC_TILES8(DENSE8)
