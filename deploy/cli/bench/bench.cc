#include "deploy/cli/bench/bench.h"

#include <cstdio>
#include <string_view>

#include "deploy/cli/bench/bench_latency.h"
#include "deploy/cli/bench/bench_serve.h"
#include "deploy/cli/bench/bench_sweep.h"
#include "deploy/cli/bench/bench_throughput.h"
#include "deploy/cli/bench/bench_tune.h"
#include "deploy/cli/bench/load_plot.h"

namespace tandem {
namespace {

struct Subcommand {
  std::string_view name;
  int (*run)(const std::vector<std::string>& args);
  std::string_view help;
};

constexpr Subcommand kSubcommands[] = {
    {"serve", RunBenchServe,
     "[flags]: load any OpenAI-compatible server and measure its responses"},
    {"latency", RunBenchLatency, "--model FOLDER [flags]: how long one batch of requests takes"},
    {"throughput", RunBenchThroughput, "--model FOLDER [flags]: all requests at once"},
    {"sweep", RunBenchSweep, "serve|plot [flags]: every combination of server and load settings"},
    {"tune", RunBenchTune, "MODEL [flags]: the flags that give the most tokens within limits"},
    {"plot", RunBenchPlot, "[flags]: draw the results of several loads"},
};

int Usage(std::FILE* out) {
  std::fprintf(out, "usage: tandem bench <what> [flags], tandem bench <what> --help\n");
  for (const Subcommand& subcommand : kSubcommands) {
    std::fprintf(out, "  %-10.*s %.*s\n", static_cast<int>(subcommand.name.size()),
                 subcommand.name.data(), static_cast<int>(subcommand.help.size()),
                 subcommand.help.data());
  }
  return out == stdout ? 0 : 2;
}

}  // namespace

int RunBench(const std::vector<std::string>& args) {
  if (args.empty()) return Usage(stderr);
  const std::string& name = args[0];
  if (name == "--help" || name == "-h" || name == "help") return Usage(stdout);
  for (const Subcommand& subcommand : kSubcommands) {
    if (subcommand.name == name) {
      return subcommand.run(std::vector<std::string>(args.begin() + 1, args.end()));
    }
  }
  std::fprintf(stderr, "tandem bench: unknown '%s'\n", name.c_str());
  return Usage(stderr);
}

}  // namespace tandem
