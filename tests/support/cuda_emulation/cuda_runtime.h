#pragma once

// The part of CUDA's language and runtime that kernels/cuda uses, run on the host: sources compiled
// with this header in place of NVIDIA's compute the same results on any machine. Blocks run one
// after another, in every other kernel the last one first; the threads of a block as fibers that
// switch at barriers and warp shuffles, so a kernel's indices, shared memory and synchronisation
// are exercised; its speed is not. A warp runs as far ahead of the others as barriers allow, in
// every other block the last warp first.
// Thread: one (the test's), or one for each rank of a model. Devices are one, and what one thread
// waits for or frees concerns its own streams.
// "Device" memory is host memory and starts as NaN bytes, so that reads of unwritten memory show.
// Work in a stream runs as late as possible, when the host waits for it or frees memory, so that
// host memory changed or read too early shows as well; in a stream with exchanges as it comes.
// Limits: barriers and shuffles must be reached by every live thread of the block or warp; there is
// no dynamic shared memory, no textures, no clusters. A kernel that would hang on a device aborts
// with a message.

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static  // blocks run one after another: one copy is enough

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct uint3 {
  unsigned x = 0, y = 0, z = 0;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

namespace cuda_emulation {

// The running fiber's indices.
struct Place {
  uint3 thread_idx;
  uint3 block_idx;
  dim3 block_dim;
  dim3 grid_dim;
};
extern Place place;

void RunGrid(dim3 grid, dim3 block, const std::function<void()>& kernel);
void SyncThreads();
// Lets kernels of other devices run while this one waits for them; they may use the same __shared__
// memory.
void RunOthers();
// Every live lane of the warp passes 8 bytes and receives those of lane `source` (its own if that
// lane is not alive).
uint64_t Exchange(uint64_t value, unsigned source);
// Puts work into a stream.
void Enqueue(struct Stream* stream, std::function<void()> work);
// Work that waits for other streams: from now on a thread runs the stream, as a device does.
void EnqueueExchange(struct Stream* stream, std::function<void()> work);

template <class T>
T Shuffle(T value, unsigned source) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = Exchange(bits, source);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

// mma.sync of bf16 fragments of 16 x 16 and 16 x 8 numbers.
void MultiplyFragments(float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2]);

inline unsigned Lane() {
  const Place& p = place;
  return (p.thread_idx.x + p.block_dim.x * (p.thread_idx.y + p.block_dim.y * p.thread_idx.z)) % 32;
}

}  // namespace cuda_emulation

inline const uint3& threadIdx = cuda_emulation::place.thread_idx;
inline const uint3& blockIdx = cuda_emulation::place.block_idx;
inline const dim3& blockDim = cuda_emulation::place.block_dim;
inline const dim3& gridDim = cuda_emulation::place.grid_dim;

inline void __syncthreads() { cuda_emulation::SyncThreads(); }
inline void __syncwarp(unsigned = 0xffffffff) { cuda_emulation::Exchange(0, 0); }

template <class T>
T __shfl_sync(unsigned, T value, int source, int width = 32) {
  const unsigned lane = cuda_emulation::Lane();
  return cuda_emulation::Shuffle(value,
                                 lane / width * width + static_cast<unsigned>(source) % width);
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask, int width = 32) {
  const unsigned lane = cuda_emulation::Lane(), other = lane ^ static_cast<unsigned>(mask);
  return cuda_emulation::Shuffle(value, other / width == lane / width ? other : lane);
}
template <class T>
T __shfl_down_sync(unsigned, T value, unsigned delta, int width = 32) {
  const unsigned lane = cuda_emulation::Lane(), other = lane + delta;
  return cuda_emulation::Shuffle(value, other / width == lane / width ? other : lane);
}
inline unsigned __ballot_sync(unsigned, int predicate) {
  unsigned bits = predicate ? 1u << cuda_emulation::Lane() : 0u;
  for (int mask = 1; mask < 32; mask *= 2) bits |= __shfl_xor_sync(0xffffffffu, bits, mask);
  return bits;
}
template <class T>
T __ldg(const T* address) {
  return *address;
}
template <class T>
T __ldcg(const T* address) {
  return *address;
}
inline void __threadfence() {}
template <class T>
T atomicAdd(T* address, T value) {
  const T old = *address;
  *address = old + value;
  return old;
}
template <class T>
T atomicOr(T* address, T value) {
  const T old = *address;
  *address = old | value;
  return old;
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selectors) {
  const uint64_t bytes = uint64_t{y} << 32 | x;
  unsigned result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    result |= static_cast<unsigned>(bytes >> (selectors >> 4 * i & 7) * 8 & 0xff) << 8 * i;
  }
  return result;
}
inline int __popc(unsigned x) { return std::popcount(x); }
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }

// ---- runtime ----

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorNotReady = 600,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorPeerAccessAlreadyEnabled = 704,
};
enum cudaMemcpyKind {
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};
enum {
  cudaStreamNonBlocking = 1,
  cudaEventDefault = 0,
  cudaEventDisableTiming = 2,
  cudaHostAllocDefault = 0
};
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal };
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount = 16 };

using cudaStream_t = cuda_emulation::Stream*;
using cudaEvent_t = struct EmulatedEvent*;
using cudaGraph_t = struct EmulatedGraph*;
using cudaGraphExec_t = struct EmulatedGraph*;

struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem;
  int major, minor;
  int multiProcessorCount;
};
enum cudaLaunchAttributeID { cudaLaunchAttributeProgrammaticStreamSerialization = 6 };
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  struct {
    int programmaticStreamSerializationAllowed;
  } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute* attrs = nullptr;
  unsigned numAttrs = 0;
};

template <class... Params, class... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Params...),
                               Args&&... args) {
  const dim3 grid = config->gridDim, block = config->blockDim;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || block.x * block.y * block.z == 0 ||
      block.x * block.y * block.z > 1024 || config->dynamicSmemBytes != 0) {
    return cudaErrorInvalidValue;
  }
  auto call = [kernel](Params... params) { kernel(params...); };
  auto bound = std::bind(call, Params(args)...);
  cuda_emulation::Enqueue(config->stream,
                          [grid, block, bound] { cuda_emulation::RunGrid(grid, block, bound); });
  return cudaSuccess;
}

const char* cudaGetErrorString(cudaError_t error);
const char* cudaGetErrorName(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
// Threads share all memory, processes none.
struct cudaIpcMemHandle_t {
  char reserved[64];
};
enum { cudaIpcMemLazyEnablePeerAccess = 1 };
inline cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t*, void*) { return cudaSuccess; }
inline cudaError_t cudaIpcOpenMemHandle(void**, cudaIpcMemHandle_t, unsigned) {
  return cudaErrorInvalidValue;
}
inline cudaError_t cudaIpcCloseMemHandle(void*) { return cudaSuccess; }
inline cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
cudaError_t cudaMalloc(void** memory, size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, uint64_t flags);
inline cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
