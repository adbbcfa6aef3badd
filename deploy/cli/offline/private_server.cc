#include "deploy/cli/offline/private_server.h"

#include <iostream>
#include <utility>

#include "deploy/cli/command_line.h"
#include "deploy/cli/serve_command_line.h"
#include "engine_core/flags/engine_config.h"
#include "frontend/config.h"

namespace tandem {
namespace {

constexpr double kReadyTimeoutSeconds = 3600;  // large models load for minutes

}  // namespace

StatusOr<FlagOutcome> ParseWithServeFlags(const std::vector<std::string>& args,
                                          const std::vector<Flag>& own, std::string_view about,
                                          PrivateServerConfig* config) {
  FrontendConfig frontend;
  EngineConfig engine;
  const std::vector<Flag> serve = PairFlags(frontend, engine);
  for (const std::string& argument : args) {
    if (argument != "-h" && argument != "--help" && !argument.starts_with("--help=")) continue;
    return ParseFlags(own, args,
                      std::string(about) + "\nAll flags of `tandem serve` are accepted too.");
  }
  ASSIGN_OR_RETURN(PairCommandLine words, SplitCommandLine(args, own, serve));
  for (const std::string& warning : words.warnings) std::cerr << warning << "\n";
  ASSIGN_OR_RETURN(const FlagOutcome outcome, ParseFlags(own, words.frontend, about));
  RETURN_IF_ERROR(ParseFlags(serve, words.engine_core, about).status());
  if (frontend.model.empty()) return InvalidArgumentError("no model: give --model FOLDER");
  if (!frontend.tls.certificate.empty()) {
    return InvalidArgumentError("--ssl-certfile: the server of this command has no network port");
  }
  config->serve_args = std::move(words.engine_core);
  config->serve_args.push_back("--disable-uvicorn-access-log");
  config->model = frontend.model;
  config->served_name =
      frontend.api.served_model_names.empty() ? frontend.model : frontend.api.served_model_names[0];
  config->max_body_bytes = static_cast<int64_t>(frontend.server.limits.body_bytes);
  ASSIGN_OR_RETURN(const std::vector<std::string> keys, ReadApiKeys(frontend));
  if (!keys.empty()) config->api_key = keys[0];
  return outcome;
}

StatusOr<std::unique_ptr<OwnServer>> StartPrivateServer(const PrivateServerConfig& config) {
  return OwnServer::Start(config.serve_args, kReadyTimeoutSeconds);
}

}  // namespace tandem
