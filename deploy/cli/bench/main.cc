// tandem-bench: what `tandem bench` runs.

#include "deploy/cli/bench/bench.h"

int main(int argc, char** argv) { return tandem::RunBench({argv + 1, argv + argc}); }
