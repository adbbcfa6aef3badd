#include "frontend/media/image_service.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

#include "common/packets.h"
#include "frontend/net/net.h"
#include "media/protocol.h"

namespace tandem {
namespace {

// Each may take 1 GiB of memory for the largest of images.
constexpr int kMostAtOnce = 8;

ForkedJobsOptions JobsOptions(const ImageServiceOptions& options) {
  const int half = static_cast<int>(std::thread::hardware_concurrency()) / 2;
  return {
      .command = {options.program.empty() ? HelperProgramPath("tandem-media") : options.program,
                  std::string(kImageProgramArgument)},
      .fds = {},
      .thread_name = "images",
      .max_running =
          options.max_running > 0 ? options.max_running : std::clamp(half, 1, kMostAtOnce),
      .timeout_s = options.timeout_s,
      .unavailable = "images are not available",
      .kept_waiting = ResourceExhaustedError("the image waited too long for its decoder"),
      .overdue = InvalidArgumentError("the image takes too long to decode"),
      .resting = InvalidArgumentError("the decoder of the image stops within it, and does nothing"),
      .killed = InvalidArgumentError("the image ends its decoder without a word"),
  };
}

// What the image's process sent. It may have been taken over by the image: nothing is sized by what
// it says before that is checked.
StatusOr<PreparedImage> Take(const ForkedJobResult& result, const ImageSpec& spec) {
  const Packet& packet = result.packet;
  const Status wrong = InvalidArgumentError("the image makes its decoder reply wrongly");
  const StatusOr<ImageSize> size =
      UnpackResizedSize(std::string_view(packet.bytes).substr(1), spec);
  if (!size.ok()) return wrong;
  PreparedImage image = DescribeImage(spec, *size);
  int64_t bytes = sizeof(float);
  for (const int64_t length : image.shape) bytes *= length;
  struct stat about = {};
  if (packet.fds.size() != 1 || fstat(packet.fds[0].get(), &about) != 0 ||
      !S_ISREG(about.st_mode) || about.st_size != bytes) {
    return wrong;
  }
  ASSIGN_OR_RETURN(image.pixels, ReadMemoryFile(packet.fds[0].get()));
  if (static_cast<int64_t>(image.pixels.size()) != bytes) return wrong;
  return image;
}

}  // namespace

ImageService::ImageService(const ImageServiceOptions& options, const Clock* clock)
    : jobs_(JobsOptions(options), clock) {}

void ImageService::Prepare(std::string bytes, const ImageSpec& spec, Done done,
                           std::function<bool()> is_wanted) {
  Shard* home = Shard::Current();
  const auto finish = [home, done = std::move(done)](StatusOr<PreparedImage> image) {
    if (home == nullptr) return done(std::move(image));
    home->Post([done, image = std::move(image)]() mutable { done(std::move(image)); });
  };
  if (static_cast<int64_t>(bytes.size()) > kMaxImageBytes) {
    return finish(InvalidArgumentError("the image has " + std::to_string(bytes.size()) +
                                       " bytes; at most " + std::to_string(kMaxImageBytes) +
                                       " are allowed"));
  }
  jobs_.Submit(
      PackImageSpec(spec), std::move(bytes),
      [finish, spec](StatusOr<ForkedJobResult> result) {
        if (!result.ok()) return finish(result.status());
        finish(Take(*result, spec));
      },
      std::move(is_wanted));
}

}  // namespace tandem
