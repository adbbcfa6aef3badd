// tandem-hub: what `tandem pull`, `tandem list` and `tandem rm` run, and `tandem serve` for a model
// that is not there yet. A process of its own: it is the only one that talks to other hosts about
// models.

#include <cstdio>
#include <string>
#include <vector>

#include "common/exit_status.h"
#include "deploy/cli/command_line.h"
#include "deploy/cli/hub/pull.h"

int main(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  tandem::HideKeys(argc, argv);
  const std::string command = words.empty() ? "" : words.front();
  if (!words.empty()) words.erase(words.begin());
  if (command == "pull") return tandem::RunPull(words);
  if (command == "list") return tandem::RunList(words);
  if (command == "rm") return tandem::RunRemove(words);
  std::fprintf(stderr, "usage: tandem-hub pull|list|rm; `tandem pull --help` explains\n");
  return tandem::kExitBadFlags;
}
