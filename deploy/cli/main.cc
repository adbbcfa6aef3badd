// tandem: the command people type. `tandem serve` starts and watches the pair of processes,
// `tandem swap` and `tandem reload` replace one of them, `tandem chat` is a conversation with a
// running server, `tandem top` shows what it does, `tandem bench` measures one, `tandem record`
// copies the flight recorder of its engine, `tandem run-batch` and `tandem complete` run requests
// without one, `tandem pull`, `tandem list` and `tandem rm` manage the models of a hub that are on
// this host, and `tandem pack` writes what loading a model computes.

#include <unistd.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/exit_status.h"
#include "common/program_start.h"
#include "common/version.h"
#include "deploy/cli/chat.h"
#include "deploy/cli/child_process.h"
#include "deploy/cli/command_line.h"
#include "deploy/cli/keys.h"
#include "deploy/cli/pack.h"
#include "deploy/cli/record.h"
#include "deploy/cli/replace.h"
#include "deploy/cli/report_failure.h"
#include "deploy/cli/serve.h"
#include "deploy/cli/top/top.h"

namespace {

struct Command {
  std::string_view name;
  int (*run)(const std::vector<std::string>& args);
  std::string_view help;
};

// Programs of their own: their libraries would make each start of the server slower.
int RunProgram(const char* program, const char* command, std::vector<std::string> words) {
  const tandem::StatusOr<std::string> path = tandem::ProgramBeside(program);
  if (!path.ok()) return tandem::ReportFailure(command, path.status(), tandem::kExitFailed);
  words.insert(words.begin(), *path);
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  std::perror(argv[0]);
  return 1;
}

int RunBench(const std::vector<std::string>& args) {
  return RunProgram("tandem-bench", "bench", args);
}

int RunOffline(const char* command, std::vector<std::string> args) {
  args.insert(args.begin(), command);
  return RunProgram("tandem-offline", command, std::move(args));
}
int RunBatch(const std::vector<std::string>& args) { return RunOffline("run-batch", args); }
int RunComplete(const std::vector<std::string>& args) { return RunOffline("complete", args); }

int RunHub(const char* command, std::vector<std::string> args) {
  args.insert(args.begin(), command);
  return RunProgram("tandem-hub", command, std::move(args));
}
int RunPull(const std::vector<std::string>& args) { return RunHub("pull", args); }
int RunList(const std::vector<std::string>& args) { return RunHub("list", args); }
int RunRemove(const std::vector<std::string>& args) { return RunHub("rm", args); }

// The engine core packs, with its flags.
int RunPack(const std::vector<std::string>& args) {
  const tandem::StatusOr<std::vector<std::string>> words = tandem::PackWords(args);
  const bool is_help = words.ok() && (words->front() == "-h" || words->front() == "--help");
  if (is_help) {
    std::printf(
        "tandem pack MODEL OUT [flags]: loads the model and writes what loading computes\n"
        "tandem pack --verify OUT: compares the bytes of a packed model with their hashes\n"
        "\nThe flags are those of the program that loads it.\n");
    std::fflush(stdout);
  }
  if (words.ok()) return RunProgram("tandem-engine-core", "pack", *words);
  return tandem::ReportFailure("pack", words.status(), tandem::kExitBadFlags);
}

constexpr Command kCommands[] = {
    {"serve", tandem::RunServe, "MODEL [flags]: start and watch frontend and engine core"},
    {"swap", tandem::RunSwap,
     "[flags]: replace the engine core of a running serve, losing no request"},
    {"reload", tandem::RunReload,
     "[flags]: replace the frontend of a running serve, refusing no connection"},
    {"bench", RunBench, "serve|latency|throughput [flags]: measure a server"},
    {"chat", tandem::RunChat, "[flags]: a conversation with a running server in the terminal"},
    {"top", tandem::RunTop, "[flags]: what a running server does now, in the terminal"},
    {"record", tandem::RunRecord,
     "[--pid PID] [--out FILE]: what a running engine's flight recorder holds"},
    {"pull", RunPull, "org/name[:revision] [flags]: download a model of a hub; org/name:Q4_K_M"},
    {"list", RunList, "[flags]: the models of hubs that are on this host"},
    {"rm", RunRemove, "org/name[:revision] [flags]: remove one of them"},
    {"pack", RunPack,
     "MODEL OUT [flags]: the model's packed matrices as a folder that starts at once; --verify "
     "OUT"},
    {"keys", tandem::RunKeys, "FOLDER: make keys for engines on other hosts"},
    {"run-batch", RunBatch, "-i IN -o OUT --model MODEL [flags]: a file of requests, no server"},
    {"complete", RunComplete, "TEXT --model MODEL [flags]: continue one text, no server"},
};

int Usage(std::FILE* out) {
  std::fprintf(out, "usage: tandem <command> [flags], tandem <command> --help, tandem --version\n");
  for (const Command& command : kCommands) {
    std::fprintf(out, "  %-9.*s %.*s\n", static_cast<int>(command.name.size()), command.name.data(),
                 static_cast<int>(command.help.size()), command.help.data());
  }
  return out == stdout ? 0 : 2;
}

}  // namespace

int main(int argc, char** argv) {
  if (!tandem::StartProgram("tandem")) return tandem::kExitFailed;
  if (argc < 2) return Usage(stderr);
  const std::string_view name = argv[1];
  if (name == "--help" || name == "-h" || name == "help") return Usage(stdout);
  if (name == "--version") {
    std::printf("tandem %s\n", tandem::kVersion);
    return 0;
  }
  for (const Command& command : kCommands) {
    if (command.name != name) continue;
    const std::vector<std::string> words(argv + 2, argv + argc);
    tandem::HideKeys(argc, argv);
    return command.run(words);
  }
  std::fprintf(stderr, "tandem: unknown command '%s'\n", argv[1]);
  return Usage(stderr);
}
