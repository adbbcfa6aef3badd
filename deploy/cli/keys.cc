#include "deploy/cli/keys.h"

#include <iostream>

#include "common/exit_status.h"
#include "common/flags.h"
#include "deploy/cli/report_failure.h"
#include "proto_msgpack/tcp_keys.h"

namespace tandem {
namespace {

constexpr std::string_view kCommand = "keys";
constexpr std::string_view kAbout =
    "tandem keys FOLDER: make keys for engines on other hosts. frontend.keys stays with the\n"
    "frontend, engine.keys goes to each host with engines; both take --tcp-keys FOLDER.";

}  // namespace

int RunKeys(const std::vector<std::string>& args) {
  std::string folder;
  const StatusOr<FlagOutcome> outcome = ParseFlags(
      {{"folder", &folder, "Where the files are made", {.positional = true}}}, args, kAbout);
  if (!outcome.ok()) return ReportFailure(kCommand, outcome.status(), kExitBadFlags);
  if (*outcome == FlagOutcome::kHelpShown) return kExitOk;
  if (folder.empty()) {
    return ReportFailure(kCommand,
                         InvalidArgumentError("name the folder of the files: tandem keys FOLDER"),
                         kExitBadFlags);
  }
  if (const Status status = wire::MakeTcpKeys(folder); !status.ok()) {
    return ReportFailure(kCommand, status, kExitFailed);
  }
  for (const wire::TcpSide side : {wire::TcpSide::kFrontend, wire::TcpSide::kEngine}) {
    std::cout << folder << "/" << wire::TcpKeysName(side) << "\n";
  }
  return kExitOk;
}

}  // namespace tandem
