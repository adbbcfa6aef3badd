// tandem-media: decodes and resizes the images of requests, each in a process of its own that it
// forks. tandem-frontend starts it and is the only one to speak with it (media/protocol.h). Exit
// status: 0 when the frontend closes the socket, 1 when it cannot serve, 2 when it was started by
// hand.

#include <cstdio>
#include <utility>

#include "common/forking/forking_program.h"
#include "common/forking/job_reply.h"
#include "media/decoder/image_worker.h"
#include "media/protocol.h"

int main(int argc, char** argv) {
  using namespace tandem;
  if (argc != 2 || argv[1] != kImageProgramArgument) {
    std::fputs("tandem-media: started by tandem-frontend, not by hand\n", stderr);
    return 2;
  }
  if (const Status status = BeginForkingProgram("tandem-media", 0); !status.ok()) {
    return FailWith(kControlSocket, status);
  }
  return ServeForkedJobs({.own_fds = {}, .run = [](ForkedJob job) {
                            return RunImageWorker(std::move(job), {}, DecodeImage);
                          }});
}
