// Prints what this machine can do at best, over one thread and over all it may use.

#include <cstdio>

#include "kernels/compute_pool.h"
#include "tests/bench/machine_ceilings.h"

int main() {
  const int cpus = tandem::NumUsableCpus();
  std::printf("1 thread: %s\n", ToString(tandem::MeasureCeilings(1)).c_str());
  if (cpus > 1) {
    std::printf("%d threads: %s\n", cpus, ToString(tandem::MeasureCeilings(cpus)).c_str());
  }
  return 0;
}
