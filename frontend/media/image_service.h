#pragma once

// Has the images of requests decoded and resized by tandem-media, each in a process of its own, so
// that no byte of an image is parsed here.
// Thread: Prepare from any; `done` is called once: on the shard that Prepare was called on, or,
// where it was called elsewhere, at once or on the service's thread, where it must only post. After
// the service has ended it is not called any more. Owns: the program, its thread. Failure, of one
// image: INVALID_ARGUMENT: it is too large, wrong, of another kind, or its decoder crashed, took
// too long or was taken over; RESOURCE_EXHAUSTED: its turn did not come in time; INTERNAL: there is
// no tandem-media.

#include <functional>
#include <string>

#include "common/clock.h"
#include "common/forking/forked_jobs.h"
#include "common/status.h"
#include "media/image_spec.h"

namespace tandem {

struct ImageServiceOptions {
  std::string program;    // tandem-media's path; empty: beside this program
  int max_running = 0;    // images at once; 0: half of the host's cores, at most 8
  double timeout_s = 60;  // of waiting, and of preparing; a limit on CPU time is shorter
};

class ImageService {
 public:
  using Done = std::function<void(StatusOr<PreparedImage>)>;

  ImageService(const ImageServiceOptions& options, const Clock* clock);

  // bytes: of the image's file. is_wanted: asked on the service's thread when its turn comes;
  // false: it is not prepared, and CANCELLED. None: it is.
  void Prepare(std::string bytes, const ImageSpec& spec, Done done,
               std::function<bool()> is_wanted = nullptr);

 private:
  ForkedJobs jobs_;
};

}  // namespace tandem
