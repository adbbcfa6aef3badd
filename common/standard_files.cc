#include "common/standard_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <initializer_list>

namespace tandem {

void OpenStandardFiles() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    // The lowest number that is free is this one: those below it are open.
    if (open("/dev/null", O_RDWR) != fd) return;
  }
}

}  // namespace tandem
