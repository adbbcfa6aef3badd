// What one busy process on the same CPUs costs: decode steps with nothing else running and beside a
// process that only spins, in turns.
//
//   build/release/bench/neighbour [shape] [--neighbours=N] [--rounds=N]
//
// A row: tokens/s alone and beside the other process (medians over the rounds) and their ratio with
// its spread. On a busy machine the first is not alone either, and the ratio means little.

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/compute_pool.h"
#include "tests/bench/step_bench.h"

namespace tandem {
namespace {

constexpr int32_t kContext = 192;
constexpr double kSecondsPerRun = 1.0;

// Processes that spin, in their own group; they end with this object or with this process.
class Neighbours {
 public:
  explicit Neighbours(int count) {
    for (int i = 0; i < count; ++i) {
      const pid_t child = fork();
      if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) asm volatile("");  // so that the compiler keeps the loop
      }
      CHECK_GT(child, 0);
      setpgid(child, group_);
      if (group_ == 0) group_ = child;
      children_.push_back(child);
    }
  }
  ~Neighbours() {
    if (group_ > 0) kill(-group_, SIGKILL);
    for (const pid_t child : children_) waitpid(child, nullptr, 0);
  }
  Neighbours(const Neighbours&) = delete;
  Neighbours& operator=(const Neighbours&) = delete;

 private:
  pid_t group_ = 0;
  std::vector<pid_t> children_;
};

double TokensPerSecond(StepBench* bench, int32_t num_requests) {
  bench->Admit(num_requests, kContext, 1);
  for (int step = 0; step < 5; ++step) bench->Decode();
  const double start = WallSeconds();
  int32_t tokens = 0;
  int steps = 0;
  while (WallSeconds() < start + kSecondsPerRun) {
    if (++steps % 128 == 0) bench->Admit(num_requests, kContext, 1);
    bench->Decode();
    tokens += num_requests;
  }
  return tokens / (WallSeconds() - start);
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void RunCase(StepBench* bench, int32_t num_requests, int num_neighbours, int num_rounds) {
  std::vector<double> quiet, beside, ratios;
  for (int round = 0; round < num_rounds; ++round) {
    quiet.push_back(TokensPerSecond(bench, num_requests));
    const Neighbours neighbours(num_neighbours);
    beside.push_back(TokensPerSecond(bench, num_requests));
    ratios.push_back(beside.back() / quiet.back());
  }
  std::printf(
      "decode %2d: %8.1f tokens/s quiet, %8.1f beside %d, ratio %.0f%% (%.0f%% to %.0f%%)\n",
      num_requests, Median(quiet), Median(beside), num_neighbours, 100 * Median(ratios),
      100 * *std::min_element(ratios.begin(), ratios.end()),
      100 * *std::max_element(ratios.begin(), ratios.end()));
  std::fflush(stdout);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  using namespace tandem;
  std::string name = "160m";
  int num_neighbours = 1, num_rounds = 5;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg.rfind("--neighbours=", 0) == 0) {
      num_neighbours = std::max(1, std::atoi(arg.c_str() + 13));
    } else if (arg.rfind("--rounds=", 0) == 0) {
      num_rounds = std::max(1, std::atoi(arg.c_str() + 9));
    } else if (IsModelShape(arg)) {
      name = arg;
    } else {
      std::fprintf(stderr, "%s is not known\nusage: neighbour [%s] [--neighbours=N] [--rounds=N]\n",
                   argv[i], ModelShapeNames().c_str());
      return 2;
    }
  }
  for (const ModelShape& shape : kModelShapes) {
    if (shape.name != name) continue;
    StepBench bench(shape, NumUsableCpus(), {});
    for (const int32_t num_requests : {1, 8}) {
      RunCase(&bench, num_requests, num_neighbours, num_rounds);
    }
  }
  return 0;
}
