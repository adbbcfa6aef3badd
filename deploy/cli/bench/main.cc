// tandem-bench: what `tandem bench` runs.

#include <string>
#include <vector>

#include "deploy/cli/bench/bench.h"
#include "deploy/cli/command_line.h"

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  tandem::HideKeys(argc, argv);
  return tandem::RunBench(words);
}
