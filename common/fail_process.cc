#include "common/fail_process.h"

#include "common/log.h"
#include "common/sd_notify.h"

namespace tandem {

int FailProcess(ExitStatus exit_status, const Status& why) {
  LOG_ERROR << why.message();
  NotifyFailure(why.message());
  return exit_status;
}

}  // namespace tandem
