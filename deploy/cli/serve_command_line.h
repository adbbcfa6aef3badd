#pragma once

// What a command line of `tandem serve` asks for: the words for each process, where every value
// came from, and the flags of the command itself. Thread: main; reads the environment, the file
// that
// --config names, and the folders of models.

#include <map>
#include <string>
#include <vector>

#include "common/flags.h"
#include "common/status.h"
#include "deploy/cli/model_pull.h"
#include "engine_core/flags/engine_config.h"
#include "frontend/config.h"

namespace tandem {

// Flags of `tandem serve` alone.
struct ServeFlags {
  std::string config;  // YAML file
  bool check_config = false;
  std::string revision;
  std::string tokenizer_revision;
  std::string download_dir;
  std::string hf_token;
  int64_t prefill = 0;  // engines of a role; 0: the roles are not apart
  int64_t decode = 0;
  bool external_lb = false;
  bool hybrid_lb = false;
  bool fail_on_environ_validation = false;
};

std::vector<Flag> ServeFlagTable(ServeFlags& flags);

struct ServeCommandLine {
  ServeFlags own;
  FrontendConfig frontend;
  EngineConfig engine;
  std::vector<std::string> frontend_words;  // secrets included
  std::vector<std::string> engine_words;
  std::vector<std::string> warnings;
  std::map<std::string, std::string>
      origins;  // of given flags, by name: "command line", "f.yaml:3"
};

// Flags of the command line have precedence over the file's, those over the environment. A model or
// tokenizer named "org/name" becomes what it is in the local hub cache; `pull` (may be empty)
// brings what is not there, unless HF_HUB_OFFLINE or --check-config forbids it. Checks values one
// by one.
StatusOr<ServeCommandLine> ParseServeCommandLine(const std::vector<std::string>& args,
                                                 const ModelPuller& pull = {});

// "command line", "serve.yaml:3", "environment TANDEM_MODEL" or "default".
std::string OriginOf(const Flag& flag, const ServeCommandLine& line);

// Every flag with its value and origin as a YAML file that --config reads; secrets only as
// comments.
std::string EffectiveConfig(ServeCommandLine& line);

// The values that are not defaults, for one line of the log: "port=9000 (command line), ...".
std::string ChangedValues(ServeCommandLine& line);

// All rows of both processes; one that both have is there once, the frontend's.
std::vector<Flag> PairFlags(FrontendConfig& frontend, EngineConfig& engine);

}  // namespace tandem
