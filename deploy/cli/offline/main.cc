// tandem-offline: what `tandem run-batch` and `tandem complete` run.

#include <cstdio>
#include <string_view>

#include "deploy/cli/offline/complete.h"
#include "deploy/cli/offline/run_batch.h"

int main(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "";
  if (name == "run-batch") return tandem::RunBatch({argv + 2, argv + argc});
  if (name == "complete") return tandem::RunComplete({argv + 2, argv + argc});
  std::fprintf(stderr, "usage: tandem-offline run-batch|complete [flags]\n");
  return 2;
}
