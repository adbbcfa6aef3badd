#include "deploy/cli/offline/complete.h"

#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/exit_status.h"
#include "common/log.h"
#include "common/strings.h"
#include "deploy/cli/http_client.h"
#include "deploy/cli/offline/private_server.h"
#include "deploy/cli/report_failure.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kCommand = "complete";
constexpr int kHttpOk = 200;

struct CompleteConfig {
  std::string text;
  bool chat = false;
  int64_t max_tokens = 128;
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int64_t> top_k;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<int64_t> sampling_seed;
  std::vector<std::string> stop;
  bool ignore_eos = false;
};

std::vector<Flag> CompleteFlags(CompleteConfig& c) {
  return {
      {"prompt", &c.text, "The text, if it is not the first word; -: from standard input"},
      {"chat", &c.chat, "The text is a user's message, to which the model responds"},
      {"max-tokens", &c.max_tokens, "Most tokens to generate", {.min = 1}},
      {"temperature", &c.temperature, "0 is greedy; default: the model's", {.min = 0, .max = 2}},
      {"top-p", &c.top_p, "Sample from the smallest set with this mass", {.min = 0, .max = 1}},
      {"top-k", &c.top_k, "Most likely tokens kept; 0: all", {.min = -1}},
      {"min-p", &c.min_p, "Lowest probability, relative to the best", {.min = 0, .max = 1}},
      {"repetition-penalty", &c.repetition_penalty, "1 is off", {.min = 0}},
      {"sampling-seed", &c.sampling_seed, "Makes sampling repeatable"},
      {"stop", &c.stop, "Texts that end the generated text"},
      {"ignore-eos", &c.ignore_eos, "Continue after the end token"},
  };
}

Json RequestJson(const CompleteConfig& config, const std::string& served_name) {
  Json request = {{"model", served_name}, {"stream", true}, {"max_tokens", config.max_tokens}};
  if (config.chat) {
    request["messages"] = Json::array({{{"role", "user"}, {"content", config.text}}});
  } else {
    request["prompt"] = config.text;
  }
  const auto set = [&request](const char* name, const auto& value) {
    if (value) request[name] = *value;
  };
  set("temperature", config.temperature);
  set("top_p", config.top_p);
  set("top_k", config.top_k);
  set("min_p", config.min_p);
  set("repetition_penalty", config.repetition_penalty);
  set("seed", config.sampling_seed);
  if (!config.stop.empty()) request["stop"] = config.stop;
  if (config.ignore_eos) request["ignore_eos"] = true;
  return request;
}

std::string ErrorText(const Json& body, const std::string& otherwise) {
  const Json::json_pointer message("/error/message");
  if (body.is_object() && body.contains(message) && body[message].is_string()) {
    return body[message].get<std::string>();
  }
  return otherwise;
}

void PrintText(const Json& chunk) {
  for (const char* const path :
       {"/choices/0/text", "/choices/0/delta/reasoning", "/choices/0/delta/content"}) {
    const Json::json_pointer text(path);
    if (chunk.contains(text) && chunk[text].is_string()) {
      std::cout << chunk[text].get_ref<const std::string&>() << std::flush;
    }
  }
}

Status Run(const CompleteConfig& config, const PrivateServerConfig& server_config) {
  ASSIGN_OR_RETURN(const auto server, StartPrivateServer(server_config));
  ASSIGN_OR_RETURN(const HttpClient client,
                   HttpClient::ForUrl(server->base_url(), server_config.api_key));
  std::string failure;
  const std::string body = RequestJson(config, server_config.served_name)
                               .dump(-1, ' ', false, Json::error_handler_t::replace);
  ASSIGN_OR_RETURN(const HttpReply reply,
                   client.PostForEvents(config.chat ? "/v1/chat/completions" : "/v1/completions",
                                        body, [&](std::string_view data) {
                                          const Json chunk = Json::parse(data, nullptr, false);
                                          if (!chunk.is_object()) return true;
                                          if (chunk.contains("error"))
                                            failure = ErrorText(chunk, "failed");
                                          PrintText(chunk);
                                          return failure.empty();
                                        }));
  std::cout << std::endl;
  if (reply.status != kHttpOk) {
    failure = ErrorText(Json::parse(reply.body, nullptr, false), reply.body);
  }
  return failure.empty() ? OkStatus() : UnavailableError(failure);
}

}  // namespace

int RunComplete(const std::vector<std::string>& args) {
  CompleteConfig config;
  PrivateServerConfig server;
  const bool has_text = !args.empty() && (args[0] == "-" || !args[0].starts_with('-'));
  const StatusOr<FlagOutcome> parsed = ParseWithServeFlags(
      {args.begin() + (has_text ? 1 : 0), args.end()}, CompleteFlags(config),
      "tandem complete TEXT --model FOLDER [flags]: continues one text, without a server", &server);
  if (!parsed.ok()) return ReportFailure(kCommand, parsed.status(), kExitBadFlags);
  if (*parsed == FlagOutcome::kHelpShown) return kExitOk;
  if (has_text) config.text = args[0];
  if (config.text == "-") {
    config.text.assign(std::istreambuf_iterator<char>(std::cin), {});
  }
  if (config.text.empty()) {
    return ReportFailure(
        kCommand,
        InvalidArgumentError("no text: tandem complete TEXT, or - for the standard input"),
        kExitBadFlags);
  }
  if (FindInvalidUtf8(config.text) != std::string::npos) {
    return ReportFailure(kCommand, InvalidArgumentError("the text is not UTF-8"), kExitBadFlags);
  }
  if (const Status status = InitLog("tandem", "WARNING"); !status.ok()) {
    return ReportFailure(kCommand, status, kExitBadFlags);
  }
  const Status status = Run(config, server);
  return status.ok() ? kExitOk : ReportFailure(kCommand, status, kExitFailed);
}

}  // namespace tandem
