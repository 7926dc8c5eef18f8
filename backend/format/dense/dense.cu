// Dense times dense: Y[M,N] = W X, with sums in f32.
#include "spc/product.cuh"

namespace spc {

// gemm gives 64 x 64 elements of Y to a block of 256 threads, 4 x 4 to each, 16 apart. Tiles
// of 16 columns of W and as many rows of X go through shared memory. Element (m,k) of W is
// at m*wRow + k*wColumn + b*wBatch for matrix b. Grid (ceil(N/64), ceil(M/64), batch).
template <class T>
__device__ __forceinline__ void gemm(const T *w, const Operands<T> &o, int64_t wRow, int64_t wColumn, int64_t wBatch, const Epilogue<T> &e) {
  constexpr int Tile = 64, Depth = 16, Threads = 256, Each = Tile * Depth / Threads;
  using Slab = float[Depth][Tile + 1];
  SPC_SHARED(Slab, ws);
  SPC_SHARED(Slab, xs);
  int thread = threadIdx.x, across = thread % 16, down = thread / 16;
  int m0 = blockIdx.y * Tile, n0 = blockIdx.x * Tile;
  w += blockIdx.z * wBatch;
  const T *x = o.x + blockIdx.z * o.xBatch;
  float sum[4][4];
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++)
      sum[i][j] = 0;
  for (int k0 = 0; k0 < o.K; k0 += Depth) {
#pragma unroll
    for (int i = 0; i < Each; i++) {
      // Neighbours load neighbours, whichever way the operand lies.
      int at = i * Threads + thread;
      int k = wColumn == 1 ? at % Depth : at / Tile, m = wColumn == 1 ? at / Depth : at % Tile;
      ws[k][m] = m0 + m < o.M && k0 + k < o.K ? number(w[(m0 + m) * wRow + (k0 + k) * wColumn]) : 0;
      k = o.xRow == 1 ? at % Depth : at / Tile;
      int n = o.xRow == 1 ? at / Depth : at % Tile;
      xs[k][n] = n0 + n < o.N && k0 + k < o.K ? number(x[(k0 + k) * o.xRow + (n0 + n) * o.xColumn]) : 0;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < Depth; k++) {
      float a[4], b[4];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        a[i] = ws[k][down + 16 * i];
        b[i] = xs[k][across + 16 * i];
      }
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
          sum[i][j] += a[i] * b[j];
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) {
      int m = m0 + down + 16 * i, n = n0 + across + 16 * j;
      if (m < o.M && n < o.N)
        o.store(e, sum[i][j], m, n);
    }
}

// Tiles is a source of all of W as tiles of 16 x 16: by lane the four registers of a tile.
template <class S, class T> struct Tiles : Registers<S, T>, Grid<S, 1> {
  const uint4 *values;

  __device__ __forceinline__ void load(typename Registers<S, T>::Part &p, int s, int i) const {
#pragma unroll
    for (int r = 0; r < S::R; r++) {
      int64_t tile;
      bool inside = this->find(tile, r, s, i);
      fragment(p.a[s][r], values, tile, inside);
    }
  }
#if SPC_WARPGROUPS
  static constexpr int Share = S::Rows / 16 * Grid<S, 1>::Each * 512;
  __device__ __forceinline__ void fetch(unsigned char *to, int i, int thread) const { Grid<S, 1>::template fetch<32, false>(to, values, i, thread); }
  __device__ __forceinline__ void take(typename Registers<S, T>::Part &p, const unsigned char *from) const {
#pragma unroll
    for (int s = 0; s < Registers<S, T>::Steps; s++)
#pragma unroll
      for (int r = 0; r < S::R; r++)
        fragment(p.a[s][r], reinterpret_cast<const uint4 *>(from), this->taken(r, s));
  }
#endif
};

// Strided is a source of W as it lies, of which element (m,k) is at m*row + k*column + b*batch
// for matrix b.
template <class S, class T> struct Strided : Registers<S, T> {
  const T *w;
  int M, K;
  int64_t rowStride, column;

  __device__ Strided(const T *w, int M, int K, int64_t row, int64_t column, int64_t batch)
      : w(w + blockIdx.z * batch), M(M), K(K), rowStride(row), column(column) {}
  __device__ __forceinline__ int count() const { return (K + S::Depth - 1) / S::Depth; }
  __device__ __forceinline__ int row(int i) const { return i * S::Depth; }
  __device__ __forceinline__ void load(typename Registers<S, T>::Part &p, int s, int i) const {
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, m0 = (blockIdx.y * S::MW + S::mw()) * 16 * S::R;
#pragma unroll
    for (int r = 0; r < S::R; r++)
#pragma unroll
      for (int q = 0; q < 4; q++) {
        int m = m0 + 16 * r + g + 8 * (q % 2), k = i * S::Depth + 16 * s + 8 * (q / 2) + 2 * t;
        const T *at = w + m * rowStride + k * column;
        uint32_t pair = 0;
        if (m < M && k < K)
          pair = at[0].bits;
        if (m < M && k + 1 < K)
          pair |= uint32_t(at[column].bits) << 16;
        p.a[s][r][q] = pair;
      }
  }
};

} // namespace spc

#define GEMM(T) \
  SPC_KERNEL(T##_dense_64x64x16_simt, 256, (const spc::T *w, SPC_OPERANDS(spc::T), int64_t w_row, int64_t w_column, int64_t w_batch, SPC_EPILOGUE), \
             (spc::gemm<spc::T>(w, spc::Operands<spc::T>(SPC_OPERANDS_ARGS), w_row, w_column, w_batch, spc::Epilogue<spc::T>(SPC_EPILOGUE_ARGS))))
GEMM(f32)

#define TILES_OF(T, name, ...) \
  SPC_KERNEL_WITHIN(T##_dense_##name##_mma, (__VA_ARGS__::Threads, __VA_ARGS__::Blocks), \
                    (const uint4 *values, SPC_OPERANDS(spc::T), int tiles, SPC_EPILOGUE), \
                    (spc::tensor_product<__VA_ARGS__>(spc::Tiles<__VA_ARGS__, spc::T>{{}, {tiles, M}, values}, \
                                                      spc::Operands<spc::T>(SPC_OPERANDS_ARGS), spc::Epilogue<spc::T>(SPC_EPILOGUE_ARGS))))
#define TILES(T, name, ...) TILES_OF(T, name, spc::GroupTile<__VA_ARGS__>)
#define STRIDED(T, name, ...) \
  SPC_KERNEL(T##_dense_strided_##name##_mma, (spc::Tile<__VA_ARGS__>::Threads), \
             (const spc::T *w, SPC_OPERANDS(spc::T), int64_t w_row, int64_t w_column, int64_t w_batch, SPC_EPILOGUE), \
             (spc::tensor_product<spc::Tile<__VA_ARGS__>>(spc::Strided<spc::Tile<__VA_ARGS__>, spc::T>(w, M, K, w_row, w_column, w_batch), \
                                                          spc::Operands<spc::T>(SPC_OPERANDS_ARGS), spc::Epilogue<spc::T>(SPC_EPILOGUE_ARGS))))
#define TENSOR(T) \
  SPC_TILES(TILES, T) \
  TILES_OF(T, 256x128x64, SPC_GROUPS) \
  STRIDED(T, 64x64x32, 4, 1, 1, 1, 8, 32, 3)
TENSOR(f16)
TENSOR(bf16)
