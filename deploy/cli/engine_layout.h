#pragma once

// Which engine cores `tandem serve` starts, and where they meet their frontend, by vLLM's flags:
// - one pair, or --data-parallel-size N engines beside a frontend (replicas);
// - --prefill N --decode M: N + M engines beside a frontend; the first N compute prompts and leave
//   their KV to the others;
// - some of the N here (--data-parallel-size-local), the others by `--headless` commands elsewhere,
//   which name the first of their ranks (--data-parallel-start-rank) and the frontend's address;
// - hybrid: the engines here are all that the frontend here knows, others have frontends of their
//   own and something in front of all of them balances. External: the same with one engine.
// Values; thread: main.

#include <string>
#include <vector>

#include "common/status.h"
#include "deploy/cli/serve_command_line.h"

namespace tandem {

struct EngineLayout {
  bool has_frontend = true;
  int num_engines = 1;  // of the frontend
  int start_rank = 0;   // of the frontend's first engine
  int first_rank = 0;   // of the engines here
  int num_local = 1;
  int num_prefill = 0;            // of the frontend's engines, the first ones
  std::string handshake_address;  // empty: in the runtime folder
};

// INVALID_ARGUMENT names the flag that does not fit the others.
StatusOr<EngineLayout> LayoutOf(const ServeCommandLine& line);

// Flags that are given and change nothing in this layout, a sentence for each reason.
std::vector<std::string> IdleFlags(const EngineLayout& layout, const ServeCommandLine& line);

// The word that has an engine leave KV to others, or take theirs: engine_index of the layout, which
// has prefill engines. folder: the command's runtime folder. A prefill engine listens at one of two
// addresses, and both are known to those that read.
std::string KvTransferWord(const EngineLayout& layout, int engine_index, const std::string& folder,
                           bool at_second_address = false);
// The words of a swap for the successor of an engine with these: its role stays, and a prefill
// engine has the address that its predecessor does not have. INVALID_ARGUMENT: they change what the
// roles decide.
StatusOr<std::vector<std::string>> WordsOfSuccessor(const EngineLayout& layout,
                                                    const std::vector<std::string>& before,
                                                    const std::vector<std::string>& changed,
                                                    const std::string& folder);

// The command line's words for the frontend.
std::vector<std::string> FrontendWords(const EngineLayout& layout, const ServeCommandLine& line);

struct LocalEngine {
  std::string name;  // for the log
  std::vector<std::string> words;
  std::vector<std::string> environment;  // "NAME=value"
};
// The engines here, each with its share of the CPUs that --cpu-bind lists and, on cuda, with a
// device of its own for each rank. visible_devices: of CUDA_VISIBLE_DEVICES; nullptr: it is not
// set.
StatusOr<std::vector<LocalEngine>> LocalEngines(const EngineLayout& layout,
                                                const ServeCommandLine& line,
                                                const char* visible_devices);

// INVALID_ARGUMENT: the flags differ in what is decided when the server starts.
Status CheckSameLayout(const FrontendConfig& before, const FrontendConfig& after);
Status CheckSameLayout(const EngineConfig& before, const EngineConfig& after);

}  // namespace tandem
