// Kernels with faults that the emulator must find, and what it must compute right.
#include "spc/device.cuh"

namespace {

// turn writes each thread's number to shared memory and reads its neighbour's.
__device__ void turn(int *y, bool wait) {
  using Numbers = int[64];
  SPC_SHARED(Numbers, numbers);
  numbers[threadIdx.x] = threadIdx.x;
  if (wait)
    __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = numbers[(threadIdx.x + 1) % 64];
}

__device__ void outside(float *y, int n) { y[threadIdx.x] = n; }

__device__ void outsideShared(float *y) {
  using Few = float[16];
  SPC_SHARED(Few, few);
  few[threadIdx.x] = 1;
  __syncthreads();
  y[threadIdx.x] = few[threadIdx.x];
}

__device__ void outsideDynamic(float *y) {
  SPC_DYNAMIC(float, some);
  some[threadIdx.x] = 1;
  y[threadIdx.x] = some[threadIdx.x];
}

__device__ void unset(float *y) {
  using Few = float[32];
  SPC_SHARED(Few, few);
  if (threadIdx.x > 0)
    few[threadIdx.x] = threadIdx.x;
  __syncthreads();
  y[threadIdx.x] = few[threadIdx.x];
}

__device__ void half(int *y) {
  if (threadIdx.x < 16)
    __syncwarp();
  y[threadIdx.x] = 1;
}

// collectives gives, by lane, what warp collectives return.
__device__ void collectives(int *y) {
  int lane = threadIdx.x % 32, *mine = y + threadIdx.x * 6;
  mine[0] = __shfl_sync(~0u, lane, 5);
  mine[1] = __shfl_xor_sync(~0u, lane, 3);
  mine[2] = __shfl_down_sync(~0u, lane, 4, 16);
  mine[3] = int(__ballot_sync(~0u, lane % 3 == 0));
  mine[4] = __shfl_sync(~0u, lane, lane + 1);
  mine[5] = int(__shfl_xor_sync(~0u, double(lane) / 4, 1) * 4);
}

// count adds up the numbers of all threads that do not leave before the barrier.
__device__ void count(int *y, int leave) {
  using One = int;
  SPC_SHARED(One, sum);
  if (threadIdx.x == 0)
    sum = 0;
  __syncthreads();
  if (int(threadIdx.x) >= leave)
    return;
  atomicAdd(&sum, int(threadIdx.x));
  __syncthreads();
  if (threadIdx.x == 0)
    y[blockIdx.x] = sum;
}

// places writes where each thread is.
__device__ void places(int *y) {
  int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  y[block * blockDim.x * blockDim.y * blockDim.z + thread] = block * 1000 + thread;
}

// convert rounds f32 to f16 and bf16 and back.
__device__ void convert(const float *x, spc::f16 *h, spc::bf16 *b, float *fromH, float *fromB) {
  int i = blockIdx.x * 32 + threadIdx.x;
  spc::put(h[i], x[i]);
  spc::put(b[i], x[i]);
  fromH[i] = spc::number(h[i]);
  fromB[i] = spc::number(b[i]);
}

} // namespace

SPC_KERNEL(turn_waiting, 64, (int *y), turn(y, true))
SPC_KERNEL(turn_racing, 64, (int *y), turn(y, false))
SPC_KERNEL(write_outside, 32, (float *y, int n), outside(y, n))
SPC_KERNEL(shared_outside, 32, (float *y), outsideShared(y))
SPC_KERNEL(dynamic_outside, 32, (float *y), outsideDynamic(y))
SPC_KERNEL(shared_unset, 32, (float *y), unset(y))
SPC_KERNEL(half_a_warp, 32, (int *y), half(y))
SPC_KERNEL(warp_collectives, 64, (int *y), collectives(y))
SPC_KERNEL(count_threads, 64, (int *y, int leave), count(y, leave))
SPC_KERNEL(list_places, 64, (int *y), places(y))
SPC_KERNEL(convert_halves, 32, (const float *x, spc::f16 *h, spc::bf16 *b, float *fromH, float *fromB), convert(x, h, b, fromH, fromB))
