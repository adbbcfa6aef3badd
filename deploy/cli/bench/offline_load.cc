#include "deploy/cli/bench/offline_load.h"

#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>

#include "deploy/cli/command_line.h"
#include "deploy/cli/serve_command_line.h"
#include "engine_core/flags/engine_config.h"
#include "frontend/config.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kPageTimeoutSeconds = 10;

}  // namespace

std::vector<Flag> OfflineLoad::Flags(Options& o) {
  return {
      {"model", &o.model, "Model folder", {.positional = true}},
      {"tokenizer", &o.tokenizer, "Folder of the tokenizer. Default: --model"},
      {"base-url", &o.base_url, "Measure this running server. Default: start one for --model"},
      {"n", &o.n, "Choices per prompt", {.min = 1, .max = 1024}},
      {"seed", &o.seed, "Of the prompts, and of the engine"},
      {"ready-timeout-sec",
       &o.ready_timeout_s,
       "Seconds the server may take to be ready",
       {.min = 0.1}},
  };
}

StatusOr<FlagOutcome> OfflineLoad::Parse(const std::vector<std::string>& args,
                                         const std::vector<Flag>& own, std::string_view about,
                                         Options& options) {
  FrontendConfig frontend;
  EngineConfig engine;
  const std::vector<Flag> serve = PairFlags(frontend, engine);
  for (const std::string& argument : args) {
    if (argument != "-h" && argument != "--help" && !argument.starts_with("--help=")) continue;
    const std::string note = std::string(about) + "\nAll flags of `tandem serve` are accepted too.";
    return ParseFlags(own, args, note);
  }
  ASSIGN_OR_RETURN(PairCommandLine words, SplitCommandLine(args, own, serve));
  for (const std::string& warning : words.warnings) std::cerr << warning << "\n";
  ASSIGN_OR_RETURN(const FlagOutcome outcome, ParseFlags(own, words.frontend, about));
  if (options.model.empty()) return InvalidArgumentError("no model: give --model FOLDER");

  // With it the prompts of a second, equal iteration would not be computed.
  bool sets_caching = false;
  for (const std::string& word : words.engine_core) {
    const Flag* flag = FindFlag(serve, word);
    sets_caching |= flag != nullptr && flag->name == "enable-prefix-caching";
  }
  if (!sets_caching) words.engine_core.push_back("--no-enable-prefix-caching");
  words.engine_core.insert(words.engine_core.begin(), "--offline");
  RETURN_IF_ERROR(ParseFlags(serve, words.engine_core, about).status());
  options.serve_args = std::move(words.engine_core);
  options.serve_args.push_back("--disable-uvicorn-access-log");
  return outcome;
}

StatusOr<std::unique_ptr<OfflineLoad>> OfflineLoad::Start(const Options& options) {
  std::unique_ptr<OfflineLoad> load(new OfflineLoad(options));
  StatusOr<std::shared_ptr<const Tokenizer>> tokenizer =
      Tokenizer::Load(options.tokenizer.empty() ? options.model : options.tokenizer);
  if (tokenizer.ok()) {
    load->tokenizer_ = *std::move(tokenizer);
  } else if (options.base_url.empty()) {
    return tokenizer.status();
  }

  std::string url = options.base_url;
  if (url.empty()) {
    ASSIGN_OR_RETURN(load->server_, OwnServer::Start(options.serve_args, options.ready_timeout_s));
    url = load->server_->base_url();
  }
  LoadTarget target;
  ASSIGN_OR_RETURN(target.url, ParseServerUrl(url));
  ASSIGN_OR_RETURN(load->client_, LoadClient::Start(std::move(target)));

  ASSIGN_OR_RETURN(const LoadReply reply, load->client_->Get("/v1/models", kPageTimeoutSeconds));
  const Json list = Json::parse(reply.body, nullptr, /*allow_exceptions=*/false);
  const Json::json_pointer id("/data/0/id");
  if (!list.is_object() || !list.contains(id) || !list[id].is_string()) {
    return UnavailableError(url + "/v1/models lists no model");
  }
  load->served_name_ = list[id].get<std::string>();
  return load;
}

int64_t OfflineLoad::vocab_size() const {
  return tokenizer_ == nullptr ? std::numeric_limits<int64_t>::max() : tokenizer_->vocab_size();
}

std::string OfflineLoad::Body(const BenchPrompt& prompt, size_t i) const {
  Json body;
  body["model"] = served_name_;
  if (options_.chat) {
    body["messages"] = Json::array({Json{{"role", "user"}, {"content", prompt.text}}});
    body["max_completion_tokens"] = prompt.output_tokens;
  } else {
    body["prompt"] = prompt.token_ids.empty() ? Json(prompt.text) : Json(prompt.token_ids);
    body["max_tokens"] = prompt.output_tokens;
  }
  body["n"] = options_.n;
  body["temperature"] = 1.0;
  body["top_p"] = 1.0;
  body["seed"] = options_.seed + static_cast<int64_t>(i);
  body["ignore_eos"] = true;
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

StatusOr<LoadRun> OfflineLoad::Run(const std::vector<BenchPrompt>& prompts) {
  const std::string path = options_.chat ? "/v1/chat/completions" : "/v1/completions";
  LoadPlan plan;
  for (size_t i = 0; i < prompts.size(); ++i) {
    plan.requests.push_back(
        {0, client_->PostBytes(path, Body(prompts[i], i), ""), prompts[i].prompt_tokens});
  }
  LoadRun run = client_->Run(std::move(plan));
  for (const RequestOutcome& outcome : run.outcomes) {
    if (!outcome.success) return UnavailableError("a request failed: " + outcome.error);
  }
  return run;
}

}  // namespace tandem
