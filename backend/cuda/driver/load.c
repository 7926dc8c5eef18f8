// Every call of the driver that gorgonia.org/cu and this package link against, defined here
// as a jump through a pointer. So the linker needs no libcuda.so, a binary starts without
// one, and gorgonia.org/cu, which calls cuInit as the program starts and ends the program if
// that fails, finds it successful; spc_load opens the library and sets the pointers.

//go:build cuda && linux && amd64

#include "load.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>

enum { notInitialised = 3, notSupported = 801 }; // CUDA_ERROR_NOT_INITIALIZED, CUDA_ERROR_NOT_SUPPORTED

static int uninitialised(void) { return notInitialised; }
static int unsupported(void) { return notSupported; }

// The calls, by the names that cuda.h of CUDA 11 and 12 gives them. One that is missing here
// is an undefined symbol when the program is linked.
#define CALLS(CALL) \
  CALL(cuArray3DCreate_v2) \
  CALL(cuArray3DGetDescriptor_v2) \
  CALL(cuArrayCreate_v2) \
  CALL(cuArrayDestroy) \
  CALL(cuArrayGetDescriptor_v2) \
  CALL(cuCtxCreate_v2) \
  CALL(cuCtxDestroy_v2) \
  CALL(cuCtxDisablePeerAccess) \
  CALL(cuCtxEnablePeerAccess) \
  CALL(cuCtxGetApiVersion) \
  CALL(cuCtxGetCacheConfig) \
  CALL(cuCtxGetCurrent) \
  CALL(cuCtxGetDevice) \
  CALL(cuCtxGetFlags) \
  CALL(cuCtxGetLimit) \
  CALL(cuCtxGetSharedMemConfig) \
  CALL(cuCtxGetStreamPriorityRange) \
  CALL(cuCtxPopCurrent_v2) \
  CALL(cuCtxPushCurrent_v2) \
  CALL(cuCtxResetPersistingL2Cache) \
  CALL(cuCtxSetCacheConfig) \
  CALL(cuCtxSetCurrent) \
  CALL(cuCtxSetLimit) \
  CALL(cuCtxSetSharedMemConfig) \
  CALL(cuCtxSynchronize) \
  CALL(cuDeviceCanAccessPeer) \
  CALL(cuDeviceGet) \
  CALL(cuDeviceGetAttribute) \
  CALL(cuDeviceGetCount) \
  CALL(cuDeviceGetName) \
  CALL(cuDeviceGetP2PAttribute) \
  CALL(cuDeviceGetUuid) \
  CALL(cuDevicePrimaryCtxGetState) \
  CALL(cuDevicePrimaryCtxRelease_v2) \
  CALL(cuDevicePrimaryCtxReset_v2) \
  CALL(cuDevicePrimaryCtxRetain) \
  CALL(cuDevicePrimaryCtxSetFlags_v2) \
  CALL(cuDeviceTotalMem_v2) \
  CALL(cuDriverGetVersion) \
  CALL(cuEventCreate) \
  CALL(cuEventDestroy_v2) \
  CALL(cuEventElapsedTime) \
  CALL(cuEventQuery) \
  CALL(cuEventRecord) \
  CALL(cuEventSynchronize) \
  CALL(cuFuncGetAttribute) \
  CALL(cuFuncSetAttribute) \
  CALL(cuFuncSetCacheConfig) \
  CALL(cuFuncSetSharedMemConfig) \
  CALL(cuGetErrorName) \
  CALL(cuGetErrorString) \
  CALL(cuGraphAddChildGraphNode) \
  CALL(cuGraphAddDependencies) \
  CALL(cuGraphAddEmptyNode) \
  CALL(cuGraphAddHostNode) \
  CALL(cuGraphAddKernelNode) \
  CALL(cuGraphAddKernelNode_v2) \
  CALL(cuGraphAddMemcpyNode) \
  CALL(cuGraphAddMemsetNode) \
  CALL(cuGraphClone) \
  CALL(cuGraphCreate) \
  CALL(cuGraphDestroy) \
  CALL(cuGraphDestroyNode) \
  CALL(cuGraphExecDestroy) \
  CALL(cuGraphGetEdges) \
  CALL(cuGraphInstantiateWithFlags) \
  CALL(cuGraphLaunch) \
  CALL(cuLaunchKernel) \
  CALL(cuLinkAddData_v2) \
  CALL(cuLinkAddFile_v2) \
  CALL(cuLinkComplete) \
  CALL(cuLinkCreate_v2) \
  CALL(cuLinkDestroy) \
  CALL(cuMemAdvise) \
  CALL(cuMemAllocAsync) \
  CALL(cuMemAllocManaged) \
  CALL(cuMemAllocPitch_v2) \
  CALL(cuMemAlloc_v2) \
  CALL(cuMemFreeAsync) \
  CALL(cuMemFreeHost) \
  CALL(cuMemFree_v2) \
  CALL(cuMemGetAddressRange_v2) \
  CALL(cuMemGetInfo_v2) \
  CALL(cuMemHostAlloc) \
  CALL(cuMemPrefetchAsync) \
  CALL(cuMemcpy) \
  CALL(cuMemcpy2DAsync_v2) \
  CALL(cuMemcpy2DUnaligned_v2) \
  CALL(cuMemcpy2D_v2) \
  CALL(cuMemcpy3DAsync_v2) \
  CALL(cuMemcpy3DPeer) \
  CALL(cuMemcpy3DPeerAsync) \
  CALL(cuMemcpy3D_v2) \
  CALL(cuMemcpyAsync) \
  CALL(cuMemcpyAtoA_v2) \
  CALL(cuMemcpyAtoD_v2) \
  CALL(cuMemcpyAtoHAsync_v2) \
  CALL(cuMemcpyAtoH_v2) \
  CALL(cuMemcpyDtoA_v2) \
  CALL(cuMemcpyDtoDAsync_v2) \
  CALL(cuMemcpyDtoD_v2) \
  CALL(cuMemcpyDtoHAsync_v2) \
  CALL(cuMemcpyDtoH_v2) \
  CALL(cuMemcpyHtoAAsync_v2) \
  CALL(cuMemcpyHtoA_v2) \
  CALL(cuMemcpyHtoDAsync_v2) \
  CALL(cuMemcpyHtoD_v2) \
  CALL(cuMemcpyPeer) \
  CALL(cuMemcpyPeerAsync) \
  CALL(cuMemsetD16Async) \
  CALL(cuMemsetD16_v2) \
  CALL(cuMemsetD2D16Async) \
  CALL(cuMemsetD2D16_v2) \
  CALL(cuMemsetD2D32Async) \
  CALL(cuMemsetD2D32_v2) \
  CALL(cuMemsetD2D8Async) \
  CALL(cuMemsetD2D8_v2) \
  CALL(cuMemsetD32Async) \
  CALL(cuMemsetD32_v2) \
  CALL(cuMemsetD8Async) \
  CALL(cuMemsetD8_v2) \
  CALL(cuModuleGetFunction) \
  CALL(cuModuleGetGlobal_v2) \
  CALL(cuModuleGetSurfRef) \
  CALL(cuModuleGetTexRef) \
  CALL(cuModuleLoad) \
  CALL(cuModuleLoadData) \
  CALL(cuModuleLoadDataEx) \
  CALL(cuModuleLoadFatBinary) \
  CALL(cuModuleUnload) \
  CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor) \
  CALL(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags) \
  CALL(cuPointerGetAttribute) \
  CALL(cuPointerSetAttribute) \
  CALL(cuStreamAttachMemAsync) \
  CALL(cuStreamBeginCapture_v2) \
  CALL(cuStreamCreate) \
  CALL(cuStreamCreateWithPriority) \
  CALL(cuStreamDestroy_v2) \
  CALL(cuStreamEndCapture) \
  CALL(cuStreamGetFlags) \
  CALL(cuStreamGetPriority) \
  CALL(cuStreamQuery) \
  CALL(cuStreamSynchronize) \
  CALL(cuStreamWaitEvent) \
  CALL(cuStreamWaitValue32) \
  CALL(cuStreamWaitValue32_v2) \
  CALL(cuStreamWriteValue32) \
  CALL(cuStreamWriteValue32_v2) \
  CALL(cuSurfRefGetArray) \
  CALL(cuSurfRefSetArray) \
  CALL(cuTexRefGetAddressMode) \
  CALL(cuTexRefGetAddress_v2) \
  CALL(cuTexRefGetArray) \
  CALL(cuTexRefGetBorderColor) \
  CALL(cuTexRefGetFilterMode) \
  CALL(cuTexRefGetFlags) \
  CALL(cuTexRefGetFormat) \
  CALL(cuTexRefGetMaxAnisotropy) \
  CALL(cuTexRefSetAddress2D_v3) \
  CALL(cuTexRefSetAddressMode) \
  CALL(cuTexRefSetAddress_v2) \
  CALL(cuTexRefSetArray) \
  CALL(cuTexRefSetBorderColor) \
  CALL(cuTexRefSetFilterMode) \
  CALL(cuTexRefSetFlags) \
  CALL(cuTexRefSetFormat) \
  CALL(cuTexRefSetMaxAnisotropy) \
  CALL(cuTexRefSetMipmapFilterMode) \
  CALL(cuTexRefSetMipmapLevelBias) \
  CALL(cuTexRefSetMipmapLevelClamp) \
  CALL(cuThreadExchangeStreamCaptureMode)

#define POINTER(name) __attribute__((visibility("hidden"), used)) void *spc_##name = (void *)uninitialised;
CALLS(POINTER)

#define JUMP(name) \
  ".globl " #name "\n.hidden " #name "\n.type " #name ", @function\n" #name ": jmp *spc_" #name "(%rip)\n.size " #name ", . - " #name "\n"
__asm__(".text\n" CALLS(JUMP));

__attribute__((visibility("hidden"))) int cuInit(unsigned flags) {
  (void)flags;
  return 0;
}

static struct {
  const char *name;
  void **pointer;
} calls[] = {
#define ENTRY(name) {#name, &spc_##name},
    CALLS(ENTRY)};

static int result = notInitialised;
static const char *problem;

static void load(void) {
  // Kernels are loaded with their modules, not by their first launch, which may be captured.
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    problem = dlerror();
    return;
  }
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    void *found = dlsym(library, calls[i].name);
    *calls[i].pointer = found ? found : (void *)unsupported;
  }
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
  result = init ? init(0) : notSupported;
}

int spc_load(const char **why) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, load);
  *why = problem;
  return result;
}
