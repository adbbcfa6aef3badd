#include "media/decoder/image_worker.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <string>
#include <utility>

#include "common/forking/crash_report.h"
#include "common/forking/job_reply.h"
#include "media/decoder/resize.h"
#include "media/decoder/tower_pixels.h"
#include "media/protocol.h"

namespace tandem {
namespace {

// Of pixels: six numbers at most for each of an image that is resized to the largest size.
constexpr int64_t kMaxOutputBytes = kMaxResizedPixels * 3 * 16 * int64_t{sizeof(float)};

// Descriptors that are open stay so; there will be no new ones.
void OpenNothingMore() {
  const rlimit none = {0, 0};
  setrlimit(RLIMIT_NOFILE, &none);
}

// What stops a process that no longer gets the signals of CrashReport's timers.
void LimitCpuTimeForGood(int cpu_ms) {
  const auto seconds = static_cast<rlim_t>(cpu_ms) / 1000 + 2;
  const rlimit both = {seconds, seconds};
  setrlimit(RLIMIT_CPU, &both);
}

// The other end of the socket is closed when nobody waits for the image: SIGIO, whose default is
// the end. Nothing is sent to this process that would raise it as well.
void EndWithCaller(int socket) {
  signal(SIGIO, SIG_DFL);
  fcntl(socket, F_SETOWN, getpid());
  fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_ASYNC);
  pollfd closed = {socket, 0, 0};
  if (poll(&closed, 1, 0) > 0) _exit(0);  // it was already
}

// A file's memory while it lives.
class Mapping {
 public:
  Mapping(int fd, size_t bytes)
      : bytes_(bytes), memory_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) {}
  ~Mapping() {
    if (memory_ != MAP_FAILED) munmap(memory_, bytes_);
  }
  Mapping(const Mapping&) = delete;

  bool ok() const { return memory_ != MAP_FAILED; }
  std::span<float> numbers() const {
    return {static_cast<float*>(memory_), bytes_ / sizeof(float)};
  }

 private:
  size_t bytes_;
  void* memory_;
};

Status WritePixels(const ImageSpec& spec, const RgbImage& image, int file) {
  int64_t bytes = sizeof(float);
  for (const int64_t size : DescribeImage(spec, image.size).shape) bytes *= size;
  if (ftruncate(file, bytes) != 0) return ErrnoError(errno, "memory of the image's pixels");
  const Mapping memory(file, static_cast<size_t>(bytes));
  if (!memory.ok()) return ErrnoError(errno, "memory of the image's pixels");
  WriteTowerPixels(spec, image, memory.numbers());
  return OkStatus();
}

// The size that the image was resized to.
StatusOr<ImageSize> Prepare(const ForkedJob& job, const ImageWorkerLimits& limits,
                            const ImageDecoder& decode, int file) {
  ASSIGN_OR_RETURN(const ImageSpec spec, UnpackImageSpec(job.head));
  ASSIGN_OR_RETURN(const std::string bytes, ReadMemoryFile(job.input.get()));
  ASSIGN_OR_RETURN(RgbImage image, decode(bytes, limits.decode));
  ASSIGN_OR_RETURN(const ImageSize size, ResizedSize(spec, image.size));
  image = Resize(std::move(image), size, spec.resample);
  RETURN_IF_ERROR(WritePixels(spec, image, file));
  return size;
}

}  // namespace

int RunImageWorker(ForkedJob job, const ImageWorkerLimits& limits, const ImageDecoder& decode) {
  EndWithCaller(job.socket.get());
  CrashReport::Install(job.socket.get(), "the image", "its decoder");
  const StatusOr<UniqueFd> file = MakeMemoryFile("image-pixels", "");
  if (!file.ok()) return FailWith(job.socket.get(), file.status());
  CrashReport::LimitMemory(limits.memory_bytes, kMaxOutputBytes);
  CrashReport::LimitCpuTime(limits.cpu_ms);
  CrashReport::LimitWallTime(limits.wall_ms);
  LimitCpuTimeForGood(limits.cpu_ms);
  OpenNothingMore();
  const StatusOr<ImageSize> size = Prepare(job, limits, decode, file->get());
  if (!size.ok()) return FailWith(job.socket.get(), size.status());
  const int fd = file->get();
  const std::string reply = static_cast<char>(ReplyKind::kDone) + PackImageSize(*size);
  return SendPacket(job.socket.get(), reply, std::span(&fd, 1)).ok() ? 0 : 1;
}

}  // namespace tandem
