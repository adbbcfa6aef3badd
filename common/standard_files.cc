#include "common/standard_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <initializer_list>

namespace tandem {
namespace {

// So that a log that is cut to nothing while processes write it (logrotate's copytruncate) begins
// anew, in place of zeros up to where they were.
void AppendToFile(int fd) {
  struct stat about {};
  if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode)) return;
  const int flags = fcntl(fd, F_GETFL);
  if (flags >= 0) fcntl(fd, F_SETFL, flags | O_APPEND);
}

}  // namespace

void OpenStandardFiles() {
  AppendToFile(STDOUT_FILENO);
  AppendToFile(STDERR_FILENO);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    // The lowest number that is free is this one: those below it are open.
    if (open("/dev/null", O_RDWR) != fd) return;
  }
}

}  // namespace tandem
