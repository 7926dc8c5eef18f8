// wgmma.cuh is the tensor cores' products of four warps together, which sm_90a has and reaches its
// peak by (PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions"). A warp
// brings 16 rows of A in registers and holds 16 rows of D, both as with mma; B[K,64] is read from shared
// memory. What the other architectures and the emulator do in their place are products by mma.
#pragma once

#include "spc/mma.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define SPC_WARPGROUPS 1

namespace spc {

// descriptor says where B is: lines of 64 elements, 128 bytes, from on, swizzled within 8 lines
// of 1024 bytes, which follow each other.
__device__ __forceinline__ uint64_t descriptor(const void *from) {
  constexpr uint64_t Eight = 1024 >> 4, Swizzled = 1; // by 128 bytes
  return (uint64_t(__cvta_generic_to_shared(from)) & 0x3ffff) >> 4 | uint64_t(1) << 16 | Eight << 32 | Swizzled << 62;
}

// group_fence orders what was done with the registers of A and D before, and group_commit and
// group_wait end the products since then and wait for them.
__device__ __forceinline__ void group_fence() { asm volatile("wgmma.fence.sync.aligned;" : : : "memory"); }
__device__ __forceinline__ void group_commit() { asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory"); }
__device__ __forceinline__ void group_wait() { asm volatile("wgmma.wait_group.sync.aligned 0;" : : : "memory"); }

// group_hold keeps registers that products read or write in their places until here: to the compiler they are
// free once those are issued, which may be long before they are done.
template <class T> __device__ __forceinline__ void group_hold(T &registers) {
  static_assert(sizeof(T) % 4 == 0, "registers are words");
  uint32_t *word = reinterpret_cast<uint32_t *>(&registers);
#pragma unroll
  for (int i = 0; i < int(sizeof(T) / 4); i++)
    asm volatile("" : "+r"(word[i]) : : "memory");
}

// group_visible shows what this thread wrote to shared memory to the tensor cores, after the barrier
// that follows.
__device__ __forceinline__ void group_visible() { asm volatile("fence.proxy.async.shared::cta;" : : : "memory"); }

#define SPC_QUAD(c) "+f"(d[c][0]), "+f"(d[c][1]), "+f"(d[c][2]), "+f"(d[c][3])
#define SPC_D SPC_QUAD(0), SPC_QUAD(1), SPC_QUAD(2), SPC_QUAD(3), SPC_QUAD(4), SPC_QUAD(5), SPC_QUAD(6), SPC_QUAD(7)
#define SPC_D_NAMES \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, {%32,%33,%34,%35}, %36, "
#define SPC_WGMMA(types, T) \
  template <bool Down> __device__ __forceinline__ void wgmma(T, float (&d)[8][4], const uint32_t (&a)[4], uint64_t b) { \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %37, 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32." types " " SPC_D_NAMES "add, 1, 1, %38;\n}" \
                 : SPC_D \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1), "n"(Down ? 0 : 1)); \
  } \
  template <bool Down> __device__ __forceinline__ void wgmmaSparse(T, float (&d)[8][4], const uint32_t (&a)[4], uint64_t b, uint32_t places) { \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %38, 0;\n" \
                 "wgmma.mma_async.sp.sync.aligned.m64n64k32.f32." types " " SPC_D_NAMES "%37, 0, add, 1, 1, %39;\n}" \
                 : SPC_D \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(places), "r"(1), "n"(Down ? 0 : 1)); \
  }

// wgmma adds A[64,16] B[16,64] to D, and wgmmaSparse A[64,32] B[32,64] as mmaSparse takes A. B's columns
// are lines, which is down, or its rows are.
SPC_WGMMA("f16.f16", f16)
SPC_WGMMA("bf16.bf16", bf16)

} // namespace spc
#else
#define SPC_WARPGROUPS 0
#endif
