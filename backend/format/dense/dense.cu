// Dense times dense: Y[M,N] = W X, with sums in f32.
#include "spc/device.cuh"

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

} // namespace spc

#define GEMM(T) \
  SPC_KERNEL(T##_dense_64x64x16_simt, 256, (const spc::T *w, SPC_OPERANDS(spc::T), int64_t w_row, int64_t w_column, int64_t w_batch, SPC_EPILOGUE), \
             (spc::gemm<spc::T>(w, spc::Operands<spc::T>(SPC_OPERANDS_ARGS), w_row, w_column, w_batch, spc::Epilogue<spc::T>(SPC_EPILOGUE_ARGS))))
GEMM(f32)
GEMM(f16)
GEMM(bf16)
