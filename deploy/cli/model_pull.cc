#include "deploy/cli/model_pull.h"

#include <csignal>
#include <vector>

#include "deploy/cli/child_process.h"

namespace tandem {

Status PullModelByName(const ModelPull& pull) {
  ASSIGN_OR_RETURN(const std::string program, ProgramBeside("tandem-hub"));
  std::vector<std::string> argv = {program, "pull", pull.name, "--quiet"};
  if (!pull.revision.empty()) argv.push_back("--revision=" + pull.revision);
  if (!pull.cache.empty()) argv.push_back("--download-dir=" + pull.cache);
  if (!pull.with_weights) argv.emplace_back("--tokenizer-only");
  ASSIGN_OR_RETURN(
      ChildProcess child,
      ChildProcess::Start(argv, {}, {.signal_at_our_death = SIGTERM, .output_path = {}}));
  const ChildProcess::Exit exit = child.Reap();
  if (exit.clean()) return OkStatus();
  return FailedPreconditionError(pull.name + " cannot be downloaded");
}

}  // namespace tandem
