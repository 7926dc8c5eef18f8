// Any sparse W times dense on tensor cores: Y[M,N] = W X. What is loaded is sparse, a bit for each
// unit of W and the units that are there; what is computed is dense, as in Xia et al., "Flash-LLM: Enabling
// Cost-Effective and Highly-Efficient Large Generative Model Inference with Unstructured Sparsity" (VLDB 2023),
// with the bitmaps of Fan et al., "SpInfer: Leveraging Low-Level Sparsity for Efficient Large
// Language Model Inference on GPUs" (EuroSys 2025). Both order nonzeros so that counting the bits of other
// lanes tells where one's own are; here they are ordered by lane, so that nothing is counted.
#include "spc/product.cuh"

namespace spc {

// Bitmap is a source of W as chunks of 16 rows by 64 columns, those of 16 rows one after another. A lane has 32
// elements of a chunk, in the registers of four tiles of 16 x 16, and 32/E units of E neighbours
// in a row: bit 8*s + 2*q + i (4*s + q where E is 2) is for element i of register q in tile s. A chunk
// is the lanes' bits, and where each one's units begin, in units: u32 and behind them u16, or where E is
// 2 a u32 of both, bits below; and then the units that are not zero, lane by lane and bit by bit. They are
// made up to 16 bytes, in which first counts where chunks begin. Chunks go by copies through
// places of capacity * 16 bytes behind the slabs of X.
template <class S, class T, int E> struct Bitmap {
  static constexpr int P = 1, Steps = S::Depth / S::KW / 16, Header = E == 1 ? 192 : 128;
  static_assert(Steps == 4, "a warp's share of a slab is a chunk for each 16 rows");
  static constexpr bool Staged = true;
  struct Part {
    uint32_t a[S::R][4], bits[S::R], at[S::R]; // at: of the next unit, in bytes of places
  };
  const uint4 *chunks;
  const uint32_t *first;
  int across, down, capacity; // chunks in a row and in a column, and 16 bytes in the largest
  unsigned char *places;
  uint32_t begins[S::R], sizes[S::R]; // of the chunks of slab base + lane
  int base = -32;

  __device__ __forceinline__ Bitmap(const uint4 *chunks, const uint32_t *first, int M, int K, int capacity, unsigned char *places)
      : chunks(chunks), first(first), across((K + 63) / 64), down((M + 15) / 16), capacity(capacity), places(places) {}
  __device__ __forceinline__ int count() const { return (across + S::KW - 1) / S::KW; }
  __device__ __forceinline__ int row(int i) const { return i * S::Depth; }
  // The warp's rows of chunks and their column, which may not be there.
  __device__ __forceinline__ int chunkRow(int r) const { return (blockIdx.y * S::MW + S::mw()) * S::R + r; }
  __device__ __forceinline__ int chunkColumn(int i) const { return i * S::KW + S::kw(); }
  __device__ __forceinline__ uint32_t place(int slot, int r) const {
    return uint32_t(((slot * (S::Threads / 32) + threadIdx.x / 32) * S::R + r) * capacity) * 16;
  }

  __device__ __forceinline__ void bring(int i, int slot) {
    int lane = threadIdx.x % 32;
    if (i - base >= 32) {
      base = i;
#pragma unroll
      for (int r = 0; r < S::R; r++) {
        begins[r] = sizes[r] = 0;
        if (int column = chunkColumn(i + lane); column < across && chunkRow(r) < down) {
          const uint32_t *at = first + int64_t(chunkRow(r)) * across + column;
          begins[r] = at[0];
          sizes[r] = at[1] - at[0];
        }
      }
    }
#pragma unroll
    for (int r = 0; r < S::R; r++) {
      const uint4 *from = chunks + __shfl_sync(~0u, begins[r], i - base);
      int size = __shfl_sync(~0u, sizes[r], i - base);
      uint4 *to = reinterpret_cast<uint4 *>(places + place(slot, r));
      for (int u = lane; u < size; u += 32)
        copy_async<16>(to + u, from + u, 16);
    }
  }

  __device__ __forceinline__ void unpack(Part &p, int s, int i, int slot) const {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < S::R; r++) {
      if (s == 0) {
        p.bits[r] = p.at[r] = 0;
        if (chunkColumn(i) < across && chunkRow(r) < down) {
          uint32_t at = place(slot, r), word = *reinterpret_cast<const uint32_t *>(places + at + 4 * lane);
          p.bits[r] = E == 1 ? word : word & 0xffff;
          p.at[r] = at + Header + 2 * E * (E == 1 ? *reinterpret_cast<const uint16_t *>(places + at + 128 + 2 * lane) : word >> 16);
        }
      }
#pragma unroll
      for (int q = 0; q < 4; q++) {
        uint32_t pair = 0;
        if constexpr (E == 1) {
          uint32_t high = 0;
          if (p.bits[r] & 1 << (8 * s + 2 * q)) {
            pair = *reinterpret_cast<const uint16_t *>(places + p.at[r]);
            p.at[r] += 2;
          }
          if (p.bits[r] & 2 << (8 * s + 2 * q)) {
            high = *reinterpret_cast<const uint16_t *>(places + p.at[r]);
            p.at[r] += 2;
          }
          pair |= high << 16;
        } else if (p.bits[r] & 1 << (4 * s + q)) {
          pair = *reinterpret_cast<const uint32_t *>(places + p.at[r]);
          p.at[r] += 4;
        }
        p.a[r][q] = pair;
      }
    }
  }

  __device__ __forceinline__ void multiply(const Part &p, int, const uint32_t (&b)[S::C][2], Sums<S::R, S::C> &sums) const {
#pragma unroll
    for (int c = 0; c < S::C; c++)
#pragma unroll
      for (int r = 0; r < S::R; r++)
        mma<T>(sums.d[r][c], p.a[r], b[c]);
  }
};

template <class S, class T, int E>
__device__ __forceinline__ void bitmap(const uint4 *chunks, const uint32_t *first, int capacity, const Operands<T> &o, const Epilogue<T> &e) {
  SPC_DYNAMIC(typename S::Memory, memory);
  tensor_product<S>(*memory, Bitmap<S, T, E>(chunks, first, o.M, o.K, capacity, reinterpret_cast<unsigned char *>(memory + 1)), o, e);
}

} // namespace spc

#define BITMAP(T, units, E, name, ...) \
  SPC_KERNEL(T##_##units##_##name##_mma, (spc::Tile<__VA_ARGS__>::Threads), \
             (const uint4 *chunks, const uint32_t *first, SPC_OPERANDS(spc::T), int capacity, SPC_EPILOGUE), \
             (spc::bitmap<spc::Tile<__VA_ARGS__>, spc::T, E>(chunks, first, capacity, spc::Operands<spc::T>(SPC_OPERANDS_ARGS), \
                                                             spc::Epilogue<spc::T>(SPC_EPILOGUE_ARGS))))
// As sparse.BitmapTiles lists them.
#define BITMAP_TILES(T, units, E) \
  BITMAP(T, units, E, 256x64x64, 8, 1, 1, 2, 8, 64, 3) \
  BITMAP(T, units, E, 128x32x128k2, 4, 1, 2, 2, 4, 128, 3) \
  BITMAP(T, units, E, 64x16x256k4, 2, 1, 4, 2, 2, 256, 3) \
  BITMAP(T, units, E, 32x8x512k8, 1, 1, 8, 2, 1, 512, 3) \
  BITMAP(T, units, E, 16x8x256k4, 1, 1, 4, 1, 1, 256, 4)
#define BITMAP_UNITS(T) BITMAP_TILES(T, bitmap, 1) BITMAP_TILES(T, bitmap1x2, 2)
BITMAP_UNITS(f16)
BITMAP_UNITS(bf16)
