// tandem-offline: what `tandem run-batch` and `tandem complete` run.

#include <cstdio>
#include <string>
#include <vector>

#include "deploy/cli/command_line.h"
#include "deploy/cli/offline/complete.h"
#include "deploy/cli/offline/run_batch.h"

int main(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  tandem::HideKeys(argc, argv);
  const std::string name = words.empty() ? "" : words[0];
  if (!words.empty()) words.erase(words.begin());
  if (name == "run-batch") return tandem::RunBatch(words);
  if (name == "complete") return tandem::RunComplete(words);
  std::fprintf(stderr, "usage: tandem-offline run-batch|complete [flags]\n");
  return 2;
}
