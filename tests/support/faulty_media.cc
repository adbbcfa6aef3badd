// tandem-media with small limits, whose decoder does what an image's bytes ask for: "crash",
// "spin", "sleep" and so on; what begins otherwise is decoded as by the real program.

#include <signal.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/forking/job_reply.h"
#include "media/decoder/image_worker.h"
#include "media/protocol.h"

namespace tandem {
namespace {

// Small where the limit is what ends the image: on a slow or busy host others may take longer.
ImageWorkerLimits LimitsFor(std::string_view bytes) {
  return {.decode = {},
          .cpu_ms = bytes == "spin" ? 200 : 600'000,
          .wall_ms = bytes == "sleep" ? 200 : 600'000,
          .memory_bytes = int64_t{256} << 20};
}

// The image's process answers otherwise than it should: nullopt where it is to answer as it should.
bool SendsLies(const ForkedJob& job, std::string_view bytes) {
  if (!bytes.starts_with("lie")) return false;
  const UniqueFd file = *MakeMemoryFile("lie", "");
  std::string reply = static_cast<char>(ReplyKind::kDone) + PackImageSize({32, 32});
  if (bytes == "lie: size") reply = static_cast<char>(ReplyKind::kDone) + PackImageSize({33, 32});
  if (bytes == "lie: packet") reply = "?";
  if (bytes == "lie: huge" && ftruncate(file.get(), int64_t{1} << 50) != 0) _exit(3);
  const int fd = bytes == "lie: socket" ? job.socket.get() : file.get();
  const std::span<const int> fds(&fd, bytes == "lie: no file" ? 0 : 1);
  return SendPacket(job.socket.get(), reply, fds).ok();
}

StatusOr<RgbImage> Decode(std::string_view bytes, const DecodeLimits& limits) {
  volatile int* nowhere = nullptr;
  volatile uint64_t count = 0;
  if (bytes == "crash") *nowhere = 1;
  if (bytes == "fail a check") CHECK(false);
  while (bytes == "spin" || bytes == "compute") count = count + 1;
  while (bytes == "sleep") pause();
  // Not written to: that costs time, not address space.
  std::vector<std::unique_ptr<char[]>> memory;
  while (bytes == "allocate") memory.push_back(std::make_unique_for_overwrite<char[]>(1 << 20));
  if (bytes == "be killed") kill(getpid(), SIGKILL);
  // The program above goes; this process and its image stay.
  if (bytes == "kill the program") kill(getppid(), SIGKILL);
  if (bytes == "kill the program" || bytes == "be gray") {
    return RgbImage{.size = {.height = 64, .width = 64},
                    .rgb = std::vector<uint8_t>(size_t{64} * 64 * 3, 128)};
  }
  return DecodeImage(bytes, limits);
}

int Run(ForkedJob job) {
  const StatusOr<std::string> bytes = ReadMemoryFile(job.input.get());
  if (!bytes.ok() || SendsLies(job, *bytes)) return 0;
  if (*bytes == "wait") return ReceivePacket(job.socket.get()).ok() ? 0 : 1;  // until it is closed
  return RunImageWorker(std::move(job), LimitsFor(*bytes), Decode);
}

}  // namespace
}  // namespace tandem

int main() {
  using namespace tandem;
  if (!BeginForkingProgram("tandem-media", 0).ok()) return 1;
  return ServeForkedJobs({.own_fds = {}, .run = Run});
}
