// Uniform ELL times dense: Y[M,N] = W X, where every row of W[M,K] has S nonzeros.
#include "spc/mma.cuh"

namespace spc {

// uspmm is USpMM, the kernel published with the uniform rule: 32 rows and VS columns of Y
// for each block of NW warps. Values and columns are column-major [S][M], so that the rows of
// a warp read them coalesced. A thread multiplies every NW-th nonzero of its row with VS
// columns of X, which it loads VEC at a time; the warps' sums are added up in shared memory.
// Grid (ceil(N/VS), ceil(M/32), batch), block (32, NW).
template <class T, class I, int NW, int VS>
__device__ __forceinline__ void uspmm(const T *values, const I *columns, const Operands<T> &o, int S, const Epilogue<T> &e) {
  constexpr int VEC = VS * sizeof(T) < 16 ? VS : 16 / sizeof(T);
  using Sums = float[NW][32][VS + 1]; // odd rows, so that lanes meet different banks
  SPC_SHARED(Sums, sums);
  int lane = threadIdx.x, warp = threadIdx.y;
  int row = blockIdx.y * 32 + lane, n0 = blockIdx.x * VS;
  const T *x = o.x + blockIdx.z * o.xBatch + n0 * o.xColumn;
  bool whole = n0 + VS <= o.N && o.vectors(VEC);
  float sum[VS];
  for (int v = 0; v < VS; v++)
    sum[v] = 0;
  if (row < o.M) {
    for (int s = warp; s < S; s += NW) {
      size_t at = size_t(s) * o.M + row;
      float w = number(values[at]);
      const T *from = x + columns[at] * o.xRow;
      if (whole) {
#pragma unroll
        for (int v = 0; v < VS; v += VEC) {
          Vec<T, VEC> part = *reinterpret_cast<const Vec<T, VEC> *>(from + v);
#pragma unroll
          for (int i = 0; i < VEC; i++)
            sum[v + i] += w * number(part.at[i]);
        }
      } else {
#pragma unroll
        for (int v = 0; v < VS; v++)
          if (n0 + v < o.N)
            sum[v] += w * number(from[v * o.xColumn]);
      }
    }
  }
#pragma unroll
  for (int v = 0; v < VS; v++)
    sums[warp][lane][v] = sum[v];
  __syncthreads();
  for (int t = warp * 32 + lane; t < 32 * VS; t += NW * 32) {
    // Threads that are neighbours write neighbours.
    int r = o.yColumn == 1 ? t / VS : t % 32, v = o.yColumn == 1 ? t % VS : t / 32;
    int m = blockIdx.y * 32 + r, n = n0 + v;
    float total = 0;
    for (int w = 0; w < NW; w++)
      total += sums[w][r][v];
    if (m < o.M && n < o.N)
      o.store(e, total, m, n);
  }
}

// Group is 8 nonzeros of a row in the order of their columns. The slab is the 256 columns from
// slab*256 on. Of the bytes of steps the first is the first nonzero's column in the slab, each other
// one how far the column of its nonzero is from the one before. A nonzero that is 0 is none.
template <class T> struct Group {
  uint4 values[sizeof(T) / 2];
  uint2 steps;
  uint32_t slab;

  __device__ __forceinline__ float value(int i) const {
    const uint4 &four = values[i * sizeof(T) / 16];
    int word = i * sizeof(T) / 4 % 4;
    uint32_t bits = word == 0 ? four.x : word == 1 ? four.y : word == 2 ? four.z : four.w;
    if constexpr (sizeof(T) == 4)
      return bits2float(bits);
    else
      return number(T{uint16_t(bits >> 16 * (i % 2))});
  }
};

// Groups are those of a weight, as many in each row: first the first groups of two rows, then
// their second ones, and so on.
template <class T> struct Groups {
  const uint4 *values;
  const uint2 *steps;
  const uint8_t *slabs;
  int count; // in a row

  // load is group g of a row of a pair, and zeros behind the last.
  __device__ __forceinline__ Group<T> load(int pair, int row, int g) const {
    constexpr int V = sizeof(T) / 2;
    auto group = Group<T>();
    if (g < count) {
      size_t at = (size_t(pair) * count + g) * 2 + row;
#pragma unroll
      for (int v = 0; v < V; v++)
        group.values[v] = values[at * V + v];
      group.steps = steps[at];
      group.slab = slabs[at];
    }
    return group;
  }
};

// stage_vectors copies count times V elements, the sources step elements apart.
template <int V, class T> __device__ __forceinline__ void stage_vectors(T *staged, const T *from, int64_t step, int count) {
  constexpr int at_once = V * sizeof(T) < 16 ? V : 16 / sizeof(T);
  int threads = 32 * blockDim.y;
#pragma unroll 1
  for (int i = threadIdx.y * 32 + threadIdx.x; i < count; i += threads)
#pragma unroll
    for (int v = 0; v < V; v += at_once)
      copy_async<at_once * sizeof(T)>(staged + i * V + v, from + i * step + v, at_once * sizeof(T));
  copy_commit();
  copy_wait<0>();
}

// stage_rows stages K/R times R rows of so many columns of X, whose elements it loads one by one or
// R of a column at once; many before it stores any, so that all of them are under way.
template <int VS, int R, class T> __device__ __forceinline__ void stage_rows(T *staged, const T *from, const Operands<T> &o, int columns) {
  constexpr int U = VS * sizeof(T) < 32 ? 4 : 2; // as registers allow
  int count = o.K / R, threads = 32 * blockDim.y;
#pragma unroll 1
  for (int first = threadIdx.y * 32 + threadIdx.x; first < count; first += U * threads) {
    Vec<T, R> part[U][VS];
#pragma unroll
    for (int u = 0; u < U; u++) {
      int i = first + u * threads;
      const T *at = from + i * R * (R == 1 ? o.xRow : 1);
#pragma unroll
      for (int v = 0; v < VS; v++) {
        part[u][v] = Vec<T, R>();
        if (i < count && v < columns)
          part[u][v] = *reinterpret_cast<const Vec<T, R> *>(at + v * o.xColumn);
      }
    }
#pragma unroll
    for (int u = 0; u < U; u++) {
      int i = first + u * threads;
      if (i < count)
#pragma unroll
        for (int r = 0; r < R; r++) {
          Vec<T, VS> row;
#pragma unroll
          for (int v = 0; v < VS; v++)
            row.at[v] = part[u][v].at[r];
          reinterpret_cast<Vec<T, VS> *>(staged)[i * R + r] = row;
        }
    }
  }
}

// stage copies columns n0 to n0+VS-1 of X to staged, [K][VS], with zeros behind the last column: by
// 16 bytes where X lies as staged does, by rows where neighbours in a row do, by two rows at once
// where columns are tokens, else by elements.
template <int VS, class T> __device__ __forceinline__ void stage(T *staged, const Operands<T> &o, int n0) {
  constexpr int V = 16 / sizeof(T), bytes = VS * sizeof(T);
  const T *x = o.x + blockIdx.z * o.xBatch + n0 * o.xColumn;
  bool rows = n0 + VS <= o.N && (VS == 1 || o.xColumn == 1);
  uintptr_t place = reinterpret_cast<uintptr_t>(x);
  if (rows && o.xRow == VS && o.K * VS % V == 0 && place % 16 == 0) {
    stage_vectors<V>(staged, x, V, o.K * VS / V);
    return;
  }
  if constexpr (bytes >= 4) {
    if (rows && o.xRow % VS == 0 && place % (bytes < 16 ? bytes : 16) == 0) {
      stage_vectors<VS>(staged, x, o.xRow, o.K);
      return;
    }
  }
  if (VS > 1 && o.xRow == 1 && o.xColumn % 2 == 0 && o.K % 2 == 0 && place % (2 * sizeof(T)) == 0)
    stage_rows<VS, 2>(staged, x, o, o.N - n0);
  else
    stage_rows<VS, 1>(staged, x, o, o.N - n0);
}

// few is for few columns of Y: a block multiplies the nonzeros of some pairs of rows with VS
// columns of X, all of which it stages in shared memory. A warp takes a pair at a time: of its lanes every
// second one has the same row, and of that every 16th group. The next U groups of each lane are
// always under way, the first of them while X comes. Grid (ceil(N/VS), ceil(M/2/pairs), batch),
// block (32, warps).
template <class T, int VS>
__device__ __forceinline__ void few(const Groups<T> &w, const Operands<T> &o, int pairs, const Epilogue<T> &e) {
  constexpr int U = 4;
  constexpr uint32_t bytes = VS * sizeof(T); // of a row of what is staged
  SPC_DYNAMIC(T, staged);
  int lane = threadIdx.x, row = lane % 2, n0 = blockIdx.x * VS;
  int pair = blockIdx.y * pairs + threadIdx.y, first = 0;
  int end = (o.M + 1) / 2 < int(blockIdx.y + 1) * pairs ? (o.M + 1) / 2 : int(blockIdx.y + 1) * pairs;
  Group<T> group[U];
  if (pair < end)
#pragma unroll
    for (int u = 0; u < U; u++)
      group[u] = w.load(pair, row, lane / 2 + 16 * u);
  stage<VS>(staged, o, n0);
  __syncthreads();
  float sum[VS];
#pragma unroll
  for (int v = 0; v < VS; v++)
    sum[v] = 0;
  while (pair < end) {
    bool last = first + 16 * U >= w.count; // of the pair
    int m = 2 * pair + row, next = last ? 0 : first + 16 * U;
    if (last)
      pair += blockDim.y;
#pragma unroll
    for (int u = 0; u < U; u++) {
      if (first + 16 * u < w.count) {
        uint32_t at = group[u].slab * (256 * bytes);
        Vec<T, VS> part[8];
#pragma unroll
        for (int i = 0; i < 8; i++) {
          // Of four steps the sum of the first so many, times the bytes of a row.
          uint32_t from = __dp4a(i < 4 ? group[u].steps.x : group[u].steps.y, (0x01010101u >> (24 - i % 4 * 8)) * bytes, at);
          if (i == 3)
            at = from;
          part[i] = *reinterpret_cast<const Vec<T, VS> *>(reinterpret_cast<const char *>(staged) + from);
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
          float value = group[u].value(i);
#pragma unroll
          for (int v = 0; v < VS; v++) {
            float more = fmaf(value, number(part[i].at[v]), sum[v]);
            sum[v] = value != 0 ? more : sum[v];
          }
        }
      }
      if (pair < end)
        group[u] = w.load(pair, row, next + lane / 2 + 16 * u);
    }
    first = next;
    if (last) {
      // The lanes of a row add up their sums, first half of the columns each, and so on: lane l ends
      // with those of column l*VS/32.
      int by = 16;
#pragma unroll
      for (int half = VS / 2; half > 0; half /= 2, by /= 2)
#pragma unroll
        for (int v = 0; v < half; v++) {
          float give = lane & by ? sum[v] : sum[v + half], keep = lane & by ? sum[v + half] : sum[v];
          sum[v] = keep + __shfl_xor_sync(~0u, give, by);
        }
      for (; by > 1; by /= 2)
        sum[0] += __shfl_xor_sync(~0u, sum[0], by);
      int n = n0 + lane / (32 / VS);
      if (lane % (32 / VS) < 2 && m < o.M && n < o.N)
        o.store(e, sum[0], m, n);
#pragma unroll
      for (int v = 0; v < VS; v++)
        sum[v] = 0;
    }
  }
}

} // namespace spc

#define USPMM(T, I, index, NW, VS) \
  SPC_KERNEL(T##_ell_32x##VS##w##NW##_##index##_simt, 32 * NW, \
             (const spc::T *values, const I *columns, SPC_OPERANDS(spc::T), int S, SPC_EPILOGUE), \
             (spc::uspmm<spc::T, I, NW, VS>(values, columns, spc::Operands<spc::T>(SPC_OPERANDS_ARGS), S, spc::Epilogue<spc::T>(SPC_EPILOGUE_ARGS))))
#define USPMM_TILES(T, I, index) \
  USPMM(T, I, index, 4, 1) USPMM(T, I, index, 8, 1) \
  USPMM(T, I, index, 4, 4) USPMM(T, I, index, 8, 4) USPMM(T, I, index, 16, 4) \
  USPMM(T, I, index, 4, 8) USPMM(T, I, index, 8, 8) \
  USPMM(T, I, index, 4, 16) USPMM(T, I, index, 8, 16)
#define USPMM_INDICES(T) USPMM_TILES(T, uint16_t, u16) USPMM_TILES(T, uint32_t, u32)
USPMM_INDICES(f32)
USPMM_INDICES(f16)
USPMM_INDICES(bf16)

#define FEW(T, VS) \
  SPC_KERNEL(T##_ell_2x##VS##_u8_simt, 512, \
             (const uint4 *values, const uint2 *steps, const uint8_t *slabs, SPC_OPERANDS(spc::T), int groups, int pairs, SPC_EPILOGUE), \
             (spc::few<spc::T, VS>({values, steps, slabs, groups}, spc::Operands<spc::T>(SPC_OPERANDS_ARGS), pairs, spc::Epilogue<spc::T>(SPC_EPILOGUE_ARGS))))
#define FEW_COLUMNS(T) FEW(T, 1) FEW(T, 2) FEW(T, 4) FEW(T, 8)
FEW_COLUMNS(f32)
FEW_COLUMNS(f16)
FEW_COLUMNS(bf16)
