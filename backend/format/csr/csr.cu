// Compressed sparse rows times dense: Y[M,N] = W X, for any pattern, split by rows as in Gale et al.,
// "Sparse GPU Kernels for Deep Learning" (SC 2020, section 5): rows in the order of their
// lengths, so that those of a block are about as long.
#include "spc/device.cuh"

namespace spc {

// csr gives a row to each warp of a block of 4. Of its lanes NL take V columns each, and the
// others further nonzeros, whose sums are added up at last. Nonzeros are loaded 32 at a time,
// one a lane, and handed round. Grid (ceil(N/(NL*V)), ceil(M/4), batch), block (32, 4).
template <class T, class I, int NL, int V>
__device__ __forceinline__ void csr(const uint32_t *order, const uint32_t *rows, const I *columns, const T *values, const Operands<T> &o, const Epilogue<T> &e) {
  constexpr int KL = 32 / NL; // nonzeros at once
  int lane = threadIdx.x, n0 = (blockIdx.x * NL + lane % NL) * V, place = blockIdx.y * 4 + threadIdx.y;
  if (place >= o.M)
    return;
  int m = int(order[place]);
  uint32_t end = rows[m + 1];
  const T *x = o.x + blockIdx.z * o.xBatch + n0 * o.xColumn;
  bool whole = n0 + V <= o.N && o.vectors(V);
  float sum[V];
  for (int v = 0; v < V; v++)
    sum[v] = 0;
  for (uint32_t base = rows[m]; base < end; base += 32) {
    bool mine = base + lane < end;
    float value = mine ? number(values[base + lane]) : 0;
    uint32_t column = mine ? uint32_t(columns[base + lane]) : 0;
    int left = end - base < 32 ? int(end - base) : 32;
    for (int j = 0; j < left; j += KL) {
      int from = j + lane / NL;
      float w = __shfl_sync(~0u, value, from);
      uint32_t k = __shfl_sync(~0u, column, from);
      if (from >= left) // the rest of a row: what lies there may be no number
        continue;
      const T *at = x + k * o.xRow;
      if (whole) {
        Vec<T, V> part = *reinterpret_cast<const Vec<T, V> *>(at);
#pragma unroll
        for (int v = 0; v < V; v++)
          sum[v] += w * number(part.at[v]);
      } else {
#pragma unroll
        for (int v = 0; v < V; v++)
          if (n0 + v < o.N)
            sum[v] += w * number(at[v * o.xColumn]);
      }
    }
  }
#pragma unroll
  for (int by = NL; by < 32; by *= 2)
#pragma unroll
    for (int v = 0; v < V; v++)
      sum[v] += __shfl_xor_sync(~0u, sum[v], by);
  if (lane < NL)
#pragma unroll
    for (int v = 0; v < V; v++)
      if (n0 + v < o.N)
        o.store(e, sum[v], m, n0 + v);
}

} // namespace spc

#define CSR(T, I, index, columns_, NL, V) \
  SPC_KERNEL(T##_csr_4x##columns_##_##index##_simt, 128, \
             (const uint32_t *order, const uint32_t *rows, const I *columns, const spc::T *values, SPC_OPERANDS(spc::T), SPC_EPILOGUE), \
             (spc::csr<spc::T, I, NL, V>(order, rows, columns, values, spc::Operands<spc::T>(SPC_OPERANDS_ARGS), spc::Epilogue<spc::T>(SPC_EPILOGUE_ARGS))))
#define CSR_TILES(T, I, index) CSR(T, I, index, 1, 1, 1) CSR(T, I, index, 8, 8, 1) CSR(T, I, index, 32, 32, 1) CSR(T, I, index, 128, 32, 4)
#define CSR_INDICES(T) CSR_TILES(T, uint16_t, u16) CSR_TILES(T, uint32_t, u32)
CSR_INDICES(f32)
CSR_INDICES(f16)
CSR_INDICES(bf16)
