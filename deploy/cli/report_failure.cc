#include "deploy/cli/report_failure.h"

#include <iostream>

#include "common/exit_status.h"

namespace tandem {

int ReportFailure(std::string_view command, const Status& why, int exit_status) {
  std::cerr << "tandem " << command << ": " << why.message() << std::endl;
  return exit_status;
}

int ReportFailure(std::string_view command, const Status& why) {
  const bool is_wrong = why.code() == StatusCode::kInvalidArgument;
  return ReportFailure(command, why, is_wrong ? kExitBadFlags : kExitFailed);
}

}  // namespace tandem
