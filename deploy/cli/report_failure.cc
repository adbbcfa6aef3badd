#include "deploy/cli/report_failure.h"

#include <iostream>

namespace tandem {

int ReportFailure(std::string_view command, const Status& why, int exit_status) {
  std::cerr << "tandem " << command << ": " << why.message() << std::endl;
  return exit_status;
}

}  // namespace tandem
