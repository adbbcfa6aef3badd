// tandem: the command people type. `tandem serve` starts and watches the pair of processes,
// `tandem chat` is a conversation with a running server, `tandem bench` measures one.

#include <unistd.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "common/version.h"
#include "deploy/cli/chat.h"
#include "deploy/cli/child_process.h"
#include "deploy/cli/serve.h"

namespace {

struct Command {
  std::string_view name;
  int (*run)(const std::vector<std::string>& args);
  std::string_view help;
};

// A program of its own: its libraries would make each start of the server slower.
int RunBench(const std::vector<std::string>& args) {
  const tandem::StatusOr<std::string> path = tandem::ProgramBeside("tandem-bench");
  if (!path.ok()) {
    std::fprintf(stderr, "tandem bench: %s\n", path.status().message().c_str());
    return 1;
  }
  std::vector<std::string> words = args;
  words.insert(words.begin(), *path);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  std::perror(argv[0]);
  return 1;
}

constexpr Command kCommands[] = {
    {"serve", tandem::RunServe, "MODEL [flags]: start and watch frontend and engine core"},
    {"bench", RunBench, "serve|latency|throughput [flags]: measure a server"},
    {"chat", tandem::RunChat, "[flags]: a conversation with a running server in the terminal"},
};

int Usage(std::FILE* out) {
  std::fprintf(out, "usage: tandem <command> [flags], tandem <command> --help, tandem --version\n");
  for (const Command& command : kCommands) {
    std::fprintf(out, "  %-6.*s %.*s\n", static_cast<int>(command.name.size()), command.name.data(),
                 static_cast<int>(command.help.size()), command.help.data());
  }
  return out == stdout ? 0 : 2;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return Usage(stderr);
  const std::string_view name = argv[1];
  if (name == "--help" || name == "-h" || name == "help") return Usage(stdout);
  if (name == "--version") {
    std::printf("tandem %s\n", tandem::kVersion);
    return 0;
  }
  for (const Command& command : kCommands) {
    if (command.name == name) return command.run(std::vector<std::string>(argv + 2, argv + argc));
  }
  std::fprintf(stderr, "tandem: unknown command '%s'\n", argv[1]);
  return Usage(stderr);
}
