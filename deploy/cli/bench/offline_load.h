#pragma once

// What `tandem bench latency` and `tandem bench throughput` share: a server of our own (or the one
// at --base-url), and requests of which only the end matters: one JSON response each, a fixed
// number of tokens, temperature 1. Thread: one, which it blocks.

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/flags.h"
#include "common/status.h"
#include "deploy/cli/bench/load_client.h"
#include "deploy/cli/bench/own_server.h"
#include "deploy/cli/bench/prompts.h"

namespace tandem {

class OfflineLoad {
 public:
  // The flags that both commands have.
  struct Options {
    std::string model;      // folder
    std::string tokenizer;  // folder; empty: the model's
    std::string base_url;   // a running server; empty: start one with serve_args
    int64_t n = 1;          // choices per prompt
    int64_t seed = 0;
    bool chat = false;
    double ready_timeout_s = 600;
    std::vector<std::string> serve_args;  // what follows `tandem serve`
  };

  // Rows for Options, pointing into it.
  static std::vector<Flag> Flags(Options& options);

  // Splits the command line between `own` rows and those of `tandem serve`, which become
  // options.serve_args, parses the former and checks that there is a model. Prefix caching is off
  // unless the command line mentions it.
  static StatusOr<FlagOutcome> Parse(const std::vector<std::string>& args,
                                     const std::vector<Flag>& own, std::string_view about,
                                     Options& options);

  static StatusOr<std::unique_ptr<OfflineLoad>> Start(const Options& options);

  // Sends all prompts at once and waits for all responses. UNAVAILABLE with the first error when
  // any failed.
  StatusOr<LoadRun> Run(const std::vector<BenchPrompt>& prompts);

  const std::string& model_id() const { return options_.model; }
  const Tokenizer* tokenizer() const { return tokenizer_.get(); }  // null when there is none
  int64_t vocab_size() const;

 private:
  explicit OfflineLoad(Options options) : options_(std::move(options)) {}
  std::string Body(const BenchPrompt& prompt, size_t i) const;

  Options options_;
  std::string served_name_;
  std::unique_ptr<OwnServer> server_;
  std::unique_ptr<LoadClient> client_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

}  // namespace tandem
