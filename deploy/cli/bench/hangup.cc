#include "deploy/cli/bench/hangup.h"

#include <signal.h>

namespace tandem {

bool IsHangupIgnored() {
  struct sigaction now {};
  return sigaction(SIGHUP, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

}  // namespace tandem
