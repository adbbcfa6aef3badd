#include <algorithm>
#include <array>
#include <bit>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "cuda_runtime.h"
#include "tests/support/cuda_emulation/emulated_cuda_backend.h"

namespace cuda_emulation {

Place place;
int64_t num_kernels = 0;                    // run so far
thread_local bool runs_with_peers = false;  // a thread of RunAsTheyCome
std::optional<int64_t> allocations_left;

struct Stream {
  std::vector<std::function<void()>>* capture = nullptr;  // not null while being captured
  std::deque<std::function<void()>> work;                 // not begun yet
  uint64_t num_begun = 0, num_done = 0;
  std::thread::id owner = std::this_thread::get_id();
  // Of a stream that exchanges with others: a thread that runs its work.
  std::thread runner;
  std::mutex mutex;
  std::condition_variable changed;
  bool ends = false;
};

namespace {

std::mutex mutex;  // of what follows, and of the memory
std::vector<Stream*> streams;
std::mutex kernel_mutex;  // kernels run one after another

// Takes the next item; empty: there is none.
std::function<void()> Next(Stream* stream) {
  if (stream->work.empty()) return {};
  std::function<void()> work = std::move(stream->work.front());
  stream->work.pop_front();
  ++stream->num_begun;
  return work;
}

void RunAsTheyCome(Stream* stream) {
  runs_with_peers = true;
  std::unique_lock lock(stream->mutex);
  for (;;) {
    stream->changed.wait(lock, [&] { return stream->ends || !stream->work.empty(); });
    const std::function<void()> work = Next(stream);
    if (!work) return;
    lock.unlock();
    work();
    lock.lock();
    ++stream->num_done;
    stream->changed.notify_all();
  }
}

// Returns when num_done items of the stream's work are done; without a thread of its own they run
// here, no earlier.
void RunUntil(Stream* stream, uint64_t num_done) {
  std::unique_lock lock(stream->mutex);
  if (stream->runner.joinable()) {
    stream->changed.wait(lock, [&] {
      return stream->num_done >= num_done ||
             (stream->work.empty() && stream->num_done == stream->num_begun);
    });
    return;
  }
  while (stream->num_done < num_done) {
    const std::function<void()> work = Next(stream);
    if (!work) return;
    ++stream->num_done;
    lock.unlock();
    work();
    lock.lock();
  }
}

// The calling thread's, as if the others were on devices of their own.
void RunAll() {
  std::vector<Stream*> own;
  {
    const std::lock_guard lock(mutex);
    for (Stream* stream : streams) {
      if (stream->owner == std::this_thread::get_id()) own.push_back(stream);
    }
  }
  for (Stream* stream : own) RunUntil(stream, UINT64_MAX);
}

}  // namespace

namespace {

constexpr size_t kStackBytes = 64 << 10;
constexpr unsigned kWarp = 32;

// Most of the time of many kernels is for switches: what leads to one is inline, so that each saves
// the registers of its caller once.
#define ALWAYS_INLINE inline __attribute__((always_inline))

// Saves where the caller is on its stack, and the stack's top in *save, then resumes `load`.
// Inline, since the processor would predict a wrong address for each return out of a switch.
ALWAYS_INLINE void SwitchFiber(void** save, void* load) {
  asm volatile(
      "subq $128, %%rsp\n"  // the red zone
      "pushq %%rbp\n"
      "leaq 1f(%%rip), %%rax\n"
      "pushq %%rax\n"
      "movq %%rsp, (%%rdi)\n"
      "movq %%rsi, %%rsp\n"
      "popq %%rax\n"
      "jmpq *%%rax\n"
      "1:\n"
      "popq %%rbp\n"
      "addq $128, %%rsp\n"
      : "+D"(save), "+S"(load)
      :
      : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm0",
        "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
        "xmm12", "xmm13", "xmm14", "xmm15", "cc", "memory");
}

[[noreturn]] void Die(const char* what) {
  std::fprintf(stderr, "cuda emulation: %s (block %u,%u,%u thread %u)\n", what, place.block_idx.x,
               place.block_idx.y, place.block_idx.z, place.thread_idx.x);
  std::abort();
}

// A barrier of some threads: the last one to arrive releases all.
struct Barrier {
  unsigned live = 0;  // threads that have not returned
  unsigned arrived = 0;
  uint64_t generation = 0;
  void Arrive() {
    if (++arrived == live) Open();
  }
  void Leave() {
    --live;
    if (live > 0 && arrived == live) Open();
  }
  void Open() {
    arrived = 0;
    ++generation;
  }
};

// What a lane gives in one exchange.
using Words = std::array<uint64_t, 3>;

struct Warp {
  Barrier barrier;
  // Two sets: the next exchange may start before all lanes have read. A lane may even have returned
  // by then, so each value carries the number of its exchange.
  Words slots[2][kWarp];
  uint64_t given_in[2][kWarp];
};

struct Fiber {
  void* stack_top = nullptr;
  std::unique_ptr<char[]> stack;
  uint3 thread_idx;
  bool done = false;
  unsigned exchanges = 0;
};

// The kernel that a thread runs.
struct Kernel {
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  Barrier block_barrier;
  void* scheduler_top = nullptr;
  size_t current = 0;
  // The warp's threads that run one after another until `last`, before the scheduler runs again.
  size_t last = 0, step = 0;
  size_t left = 0;  // threads of the block that have not returned
  const std::function<void()>* running = nullptr;
};

Kernel* kernel = nullptr;  // the one that runs now
uint64_t num_blocks = 0;   // started so far

// The next thread of the warp that has not returned; none: the scheduler is next.
ALWAYS_INLINE Fiber* NextOfWarp() {
  while (kernel->current != kernel->last) {
    kernel->current += kernel->step;
    Fiber& fiber = kernel->fibers[kernel->current];
    if (fiber.done) continue;
    place.thread_idx = fiber.thread_idx;
    return &fiber;
  }
  return nullptr;
}

ALWAYS_INLINE void Yield() {
  Fiber& own = kernel->fibers[kernel->current];
  const Fiber* next = NextOfWarp();
  SwitchFiber(&own.stack_top, next != nullptr ? next->stack_top : kernel->scheduler_top);
}

// Each thread of [begin, end) runs until it waits or returns.
void RunWarp(size_t begin, size_t end, bool is_reversed) {
  kernel->current = is_reversed ? end : begin - 1;
  kernel->last = is_reversed ? begin : end - 1;
  kernel->step = is_reversed ? size_t{0} - 1 : 1;
  if (const Fiber* first = NextOfWarp()) SwitchFiber(&kernel->scheduler_top, first->stack_top);
}

ALWAYS_INLINE void WaitAt(Barrier& barrier) {
  const uint64_t generation = barrier.generation;
  barrier.Arrive();
  while (barrier.generation == generation) Yield();
}

void FiberMain() {
  (*kernel->running)();
  kernel->fibers[kernel->current].done = true;
  kernel->warps[kernel->current / kWarp].barrier.Leave();
  kernel->block_barrier.Leave();
  --kernel->left;
  Yield();
  Die("a finished thread was resumed");
}

void StartFiber(Fiber* fiber, size_t thread) {
  if (!fiber->stack) fiber->stack.reset(new char[kStackBytes]);
  // Tops at equal places of their stacks would share a few sets of the cache.
  const size_t unused = thread % kWarp * 256;
  auto top =
      reinterpret_cast<uintptr_t>(fiber->stack.get() + kStackBytes - unused) & ~uintptr_t{15};
  // The switch pops the address; the stack is then as at a function's entry.
  auto* words = reinterpret_cast<uintptr_t*>(top) - 2;
  words[0] = reinterpret_cast<uintptr_t>(&FiberMain);
  fiber->stack_top = words;
  fiber->done = false;
  fiber->exchanges = 0;
}

void RunBlock(dim3 block) {
  std::vector<Fiber>& fibers = kernel->fibers;
  std::vector<Warp>& warps = kernel->warps;
  Barrier& block_barrier = kernel->block_barrier;
  size_t& left = kernel->left;
  const size_t num_threads = size_t{block.x} * block.y * block.z;
  fibers.resize(std::max(fibers.size(), num_threads));
  warps.assign((num_threads + kWarp - 1) / kWarp, Warp());
  block_barrier = {.live = static_cast<unsigned>(num_threads)};
  for (size_t t = 0; t < num_threads; ++t) {
    fibers[t].thread_idx = {static_cast<unsigned>(t % block.x),
                            static_cast<unsigned>(t / block.x % block.y),
                            static_cast<unsigned>(t / block.x / block.y)};
    StartFiber(&fibers[t], t);
    ++warps[t / kWarp].barrier.live;
  }
  // A warp runs as far as it can before another one does. The first warp and the first lane change
  // from block to block, so that a missing barrier makes other warps read wrong values.
  const bool is_reversed = ++num_blocks % 2 == 0;
  for (left = num_threads; left > 0;) {
    const uint64_t opened = block_barrier.generation;
    bool has_moved = false;
    for (size_t i = 0; i < warps.size(); ++i) {
      const size_t warp = is_reversed ? warps.size() - 1 - i : i;
      const size_t begin = warp * kWarp, end = std::min(begin + kWarp, num_threads);
      for (bool goes_on = true; goes_on;) {
        const uint64_t exchanged = warps[warp].barrier.generation;
        const size_t left_before = left;
        RunWarp(begin, end, is_reversed);
        goes_on = warps[warp].barrier.generation != exchanged || left != left_before;
        has_moved = has_moved || goes_on;
      }
    }
    if (!has_moved && block_barrier.generation == opened) {
      Die("threads wait for each other for ever");
    }
  }
}

// One exchange of words between a warp's lanes, as one of them sees it until its next exchange.
struct Exchanged {
  const Warp* warp;
  unsigned set, lane;
  uint64_t number;

  // What a lane gave; the own words where it has returned or is none.
  const Words& From(unsigned source) const {
    const bool was_given = source < kWarp && warp->given_in[set][source] == number;
    return warp->slots[set][was_given ? source : lane];
  }
};

// Gives the words to the other lanes, and waits for theirs.
template <size_t n>
ALWAYS_INLINE Exchanged Give(const std::array<uint64_t, n>& words) {
  Warp& warp = kernel->warps[kernel->current / kWarp];
  const unsigned set = kernel->fibers[kernel->current].exchanges++ % 2;
  const unsigned lane = kernel->current % kWarp;
  const uint64_t number = warp.barrier.generation + 1;
  for (size_t i = 0; i < n; ++i) warp.slots[set][lane][i] = words[i];
  warp.given_in[set][lane] = number;
  WaitAt(warp.barrier);
  return {&warp, set, lane, number};
}

}  // namespace

void SyncThreads() { WaitAt(kernel->block_barrier); }

uint64_t Exchange(uint64_t value, unsigned source) { return Give<1>({value}).From(source)[0]; }

void MultiplyFragments(float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  const unsigned row = Lane() / 4, column = Lane() % 4 * 2;
  float left[2][16], right[2][16];
  const auto take = [](float* to, uint64_t pairs) {
    for (int i = 0; i < 4; ++i) {
      to[i / 2 * 8 + i % 2] = std::bit_cast<float>(static_cast<uint32_t>(pairs >> 16 * i) << 16);
    }
  };
  const auto pack = [](uint64_t low, uint64_t high) { return low | high << 32; };
  const Exchanged given = Give<3>({pack(a[0], a[2]), pack(a[1], a[3]), pack(b[0], b[1])});
  for (unsigned p = 0; p < 4; ++p) {
    const Words& of_row = given.From(row * 4 + p);
    take(left[0] + 2 * p, of_row[0]);
    take(left[1] + 2 * p, of_row[1]);
    take(right[0] + 2 * p, given.From(column * 4 + p)[2]);
    take(right[1] + 2 * p, given.From((column + 1) * 4 + p)[2]);
  }
  for (int i = 0; i < 4; ++i) {
    for (int k = 0; k < 16; ++k) sums[i] += left[i / 2][k] * right[i % 2][k];
  }
}

void RunOthers() {
  const Place own_place = place;
  Kernel* own = kernel;
  kernel_mutex.unlock();
  std::this_thread::yield();
  kernel_mutex.lock();
  place = own_place;
  kernel = own;
}

void RunGrid(dim3 grid, dim3 block, const std::function<void()>& code) {
  static thread_local Kernel own;
  const std::lock_guard lock(kernel_mutex);
  ++num_kernels;
  kernel = &own;
  kernel->running = &code;
  place.block_dim = block;
  place.grid_dim = grid;
  // No kernel may count on the order of its blocks; but where a block waits for that of another
  // device, all devices have one order, as only one of their blocks runs at a time.
  const bool is_backward = !runs_with_peers && num_kernels % 2 == 0;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        place.block_idx =
            is_backward ? uint3{grid.x - 1 - x, grid.y - 1 - y, grid.z - 1 - z} : uint3{x, y, z};
        RunBlock(block);
      }
    }
  }
}

void Enqueue(Stream* stream, std::function<void()> work) {
  if (stream->capture != nullptr) return stream->capture->push_back(std::move(work));
  const std::lock_guard lock(stream->mutex);
  stream->work.push_back(std::move(work));
  stream->changed.notify_all();
}

void EnqueueExchange(Stream* stream, std::function<void()> work) {
  if (!stream->runner.joinable()) stream->runner = std::thread(RunAsTheyCome, stream);
  Enqueue(stream, std::move(work));
}

}  // namespace cuda_emulation

void tandem::EnqueueEmulatedExchange(void* stream, std::function<void()> work) {
  cuda_emulation::EnqueueExchange(static_cast<cuda_emulation::Stream*>(stream), std::move(work));
}

int64_t tandem::NumEmulatedKernels() { return cuda_emulation::num_kernels; }

void tandem::EndEmulatedMemoryAfter(std::optional<int64_t> num_allocations) {
  cuda_emulation::allocations_left = num_allocations;
}

struct EmulatedEvent {
  cuda_emulation::Stream* stream = nullptr;
  uint64_t num_done = 0;
  bool is_timed = false;
  // Kernels run before it; shared with the work that writes it, which may outlive the event.
  std::shared_ptr<int64_t> time = {};
};

struct EmulatedGraph {
  std::vector<std::function<void()>> work;
};

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    default:
      return "invalid argument";
  }
}
const char* cudaGetErrorName(cudaError_t) { return "cudaErrorEmulated"; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) {
  *count = tandem::kNumEmulatedDevices;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "emulated device");
  properties->totalGlobalMem = size_t{1} << 30;
  properties->major = 9;
  properties->multiProcessorCount = 4;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = *total = size_t{1} << 30;
  return cudaSuccess;
}

namespace {

// Before and after each allocation, so that freeing it detects a write out of bounds.
constexpr size_t kGuardBytes = 256;
constexpr unsigned char kGuard = 0xa5;
std::unordered_map<void*, size_t> num_bytes;

}  // namespace

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  const std::lock_guard lock(cuda_emulation::mutex);
  if (bytes > size_t{1} << 30) return cudaErrorMemoryAllocation;
  auto& left = cuda_emulation::allocations_left;
  if (left && (*left)-- <= 0) return cudaErrorMemoryAllocation;
  const size_t guarded_bytes =
      (bytes + kGuardBytes - 1) / kGuardBytes * kGuardBytes + 2 * kGuardBytes;
  auto* begin = static_cast<unsigned char*>(std::aligned_alloc(kGuardBytes, guarded_bytes));
  *memory = begin + kGuardBytes;
  std::memset(begin, kGuard, kGuardBytes);
  std::memset(*memory, 0xff, bytes);
  std::memset(begin + kGuardBytes + bytes, kGuard, guarded_bytes - kGuardBytes - bytes);
  num_bytes[*memory] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  cuda_emulation::RunAll();
  if (memory == nullptr) return cudaSuccess;
  const std::lock_guard lock(cuda_emulation::mutex);
  auto* data = static_cast<unsigned char*>(memory);
  const auto entry = num_bytes.extract(memory);
  const auto is_whole = [](unsigned char byte) { return byte == kGuard; };
  if (!std::all_of(data - kGuardBytes, data, is_whole) ||
      !std::all_of(data + entry.mapped(), data + entry.mapped() + kGuardBytes, is_whole)) {
    std::fprintf(stderr, "cuda emulation: a write beside %zu bytes of memory\n", entry.mapped());
    std::abort();
  }
  std::free(data - kGuardBytes);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  return cudaMalloc(memory, bytes);
}
cudaError_t cudaFreeHost(void* memory) { return cudaFree(memory); }
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  cuda_emulation::Enqueue(stream, [=] { std::memmove(to, from, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind, cudaStream_t stream) {
  if (width > to_pitch || width > from_pitch) return cudaErrorInvalidValue;
  cuda_emulation::Enqueue(stream, [=] {
    for (size_t row = 0; row < height; ++row) {
      std::memmove(static_cast<char*>(to) + row * to_pitch,
                   static_cast<const char*>(from) + row * from_pitch, width);
    }
  });
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  cuda_emulation::Enqueue(stream, [=] { std::memset(memory, value, bytes); });
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new cuda_emulation::Stream;
  const std::lock_guard lock(cuda_emulation::mutex);
  cuda_emulation::streams.push_back(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  cuda_emulation::RunUntil(stream, UINT64_MAX);
  if (stream->runner.joinable()) {
    {
      const std::lock_guard lock(stream->mutex);
      stream->ends = true;
      stream->changed.notify_all();
    }
    stream->runner.join();
  }
  const std::lock_guard lock(cuda_emulation::mutex);
  std::erase(cuda_emulation::streams, stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream->capture != nullptr) return cudaErrorInvalidValue;
  cuda_emulation::RunUntil(stream, UINT64_MAX);
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = new EmulatedEvent{.is_timed = flags != cudaEventDisableTiming};
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (stream->capture != nullptr) return cudaErrorInvalidValue;
  if (event->is_timed) {
    event->time = std::make_shared<int64_t>(-1);
    cuda_emulation::Enqueue(stream, [time = event->time] { *time = cuda_emulation::num_kernels; });
  }
  const std::lock_guard lock(stream->mutex);
  event->stream = stream;
  event->num_done = stream->num_begun + stream->work.size();
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  if (!from->time || !to->time) return cudaErrorInvalidValue;
  if (*from->time < 0 || *to->time < 0) return cudaErrorNotReady;
  *ms = static_cast<float>(*to->time - *from->time);
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event->stream != nullptr) cuda_emulation::RunUntil(event->stream, event->num_done);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream->capture != nullptr) return cudaErrorInvalidValue;
  stream->capture = new std::vector<std::function<void()>>;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (stream->capture == nullptr) return cudaErrorInvalidValue;
  *graph = new EmulatedGraph{std::move(*stream->capture)};
  delete stream->capture;
  stream->capture = nullptr;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, uint64_t) {
  *exec = new EmulatedGraph(*graph);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  for (const auto& work : exec->work) cuda_emulation::Enqueue(stream, work);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { return cudaGraphDestroy(exec); }
