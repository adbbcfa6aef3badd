#include "deploy/cli/chat.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>

#include "common/exit_status.h"
#include "common/flags.h"
#include "common/strings.h"
#include "deploy/cli/http_client.h"
#include "deploy/cli/report_failure.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kCommand = "chat";

struct ChatConfig {
  std::string url = "http://127.0.0.1:8000";
  std::string model;
  std::string system_prompt;
  std::string api_key;
  std::optional<double> temperature;
  std::optional<int64_t> max_tokens;
};

std::vector<Flag> ChatFlags(ChatConfig& c) {
  return {
      {"url", &c.url, "Server's URL"},
      {"model", &c.model, "Model name; empty: the first that the server lists"},
      {"system-prompt", &c.system_prompt, "System message put before the conversation"},
      {"api-key", &c.api_key, "Key sent as a bearer token", {.env = "API_KEY"}},
      {"temperature", &c.temperature, "0 is greedy; default: the server's", {.min = 0, .max = 2}},
      {"max-tokens",
       &c.max_tokens,
       "Most tokens of a response; default: the room that is left",
       {.min = 1}},
  };
}

std::atomic<bool> interrupted = false;

constexpr std::string_view kHelp =
    "/reset  forget the conversation    /system TEXT  set the system message (forgets too)\n"
    "/help   this text                  /exit         end (also Ctrl-D); Ctrl-C stops a response\n";

// Text of an error reply: the API's message if it has one, else the body.
std::string ErrorText(const HttpReply& reply) {
  const Json body = Json::parse(reply.body, nullptr, /*allow_exceptions=*/false);
  if (body.is_object() && body.contains("error") && body["error"].is_object() &&
      body["error"].contains("message") && body["error"]["message"].is_string()) {
    return body["error"]["message"].get<std::string>();
  }
  return "HTTP " + std::to_string(reply.status) + " " + reply.body;
}

StatusOr<std::string> FirstModel(const HttpClient& client) {
  ASSIGN_OR_RETURN(const HttpReply reply, client.Get("/v1/models"));
  if (reply.status != 200) return UnavailableError(ErrorText(reply));
  const Json body = Json::parse(reply.body, nullptr, /*allow_exceptions=*/false);
  const Json::json_pointer first_id("/data/0/id");
  if (!body.is_object() || !body.contains(first_id) || !body[first_id].is_string()) {
    return UnavailableError("the server lists no model; give --model");
  }
  return body[first_id].get<std::string>();
}

class Conversation {
 public:
  Conversation(const HttpClient& client, const ChatConfig& config, std::string model)
      : client_(client), config_(config), model_(std::move(model)), system_(config.system_prompt) {
    Reset();
  }

  void Reset() {
    messages_ = Json::array();
    if (!system_.empty()) messages_.push_back({{"role", "system"}, {"content", system_}});
  }

  void SetSystem(std::string_view text) {
    system_ = std::string(text);
    Reset();
  }

  // Sends the line and prints the response as it arrives. A failed turn leaves the conversation
  // unchanged.
  Status Send(std::string_view line) {
    messages_.push_back({{"role", "user"}, {"content", line}});
    std::string text, failure, finish_reason;
    StatusOr<HttpReply> reply =
        client_.PostForEvents("/v1/chat/completions", RequestJson(), [&](std::string_view data) {
          TakeChunk(data, &text, &finish_reason, &failure);
          return failure.empty() && !interrupted;
        });
    std::cout << std::endl;
    if (interrupted.exchange(false)) {
      std::cout << "[stopped]" << std::endl;
    } else if (!reply.ok() || reply->status != 200 || !failure.empty()) {
      messages_.erase(messages_.size() - 1);
      if (!reply.ok()) return reply.status();
      return UnavailableError(failure.empty() ? ErrorText(*reply) : failure);
    }
    if (finish_reason == "length") std::cout << "[cut: token limit reached]" << std::endl;
    messages_.push_back({{"role", "assistant"}, {"content", text}});
    return OkStatus();
  }

 private:
  std::string RequestJson() const {
    Json request = {{"model", model_}, {"messages", messages_}, {"stream", true}};
    if (config_.temperature) request["temperature"] = *config_.temperature;
    if (config_.max_tokens) request["max_tokens"] = *config_.max_tokens;
    return request.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  static void TakeChunk(std::string_view data, std::string* text, std::string* finish_reason,
                        std::string* failure) {
    const Json chunk = Json::parse(data, nullptr, /*allow_exceptions=*/false);
    if (!chunk.is_object()) return;
    if (chunk.contains("error")) {
      *failure = ErrorText({0, std::string(data)});
      return;
    }
    const Json::json_pointer content("/choices/0/delta/content"),
        reason("/choices/0/finish_reason");
    if (chunk.contains(content) && chunk[content].is_string()) {
      const auto piece = chunk[content].get<std::string>();
      std::cout << piece << std::flush;
      *text += piece;
    }
    if (chunk.contains(reason) && chunk[reason].is_string())
      *finish_reason = chunk[reason].get<std::string>();
  }

  const HttpClient& client_;
  const ChatConfig& config_;
  std::string model_;
  std::string system_;
  Json messages_;
};

void InstallInterrupt() {
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted = true; };  // no SA_RESTART: a blocked read returns
  sigaction(SIGINT, &action, nullptr);
}

Status ChatLoop(Conversation& conversation, bool is_terminal) {
  std::string line;
  while (true) {
    if (is_terminal) std::cout << "> " << std::flush;
    if (!std::getline(std::cin, line)) {
      if (!interrupted.exchange(false)) return OkStatus();
      std::cin.clear();
      clearerr(stdin);
      std::cout << std::endl;
      continue;
    }
    const std::string_view text = StripAscii(line);
    if (text.empty()) continue;
    if (text == "/exit" || text == "/quit") return OkStatus();
    if (text == "/help") {
      std::cout << kHelp;
    } else if (text == "/reset") {
      conversation.Reset();
    } else if (text.starts_with("/system ")) {
      conversation.SetSystem(StripAscii(text.substr(8)));
    } else if (Status status = conversation.Send(text); !status.ok()) {
      if (!is_terminal) return status;
      std::cerr << "error: " << status.message() << std::endl;
    }
  }
}

}  // namespace

int RunChat(const std::vector<std::string>& args) {
  ChatConfig config;
  const StatusOr<FlagOutcome> parsed =
      ParseFlags(ChatFlags(config), args, "tandem chat: a conversation with a running server");
  if (!parsed.ok()) return ReportFailure(kCommand, parsed.status(), kExitBadFlags);
  if (*parsed == FlagOutcome::kHelpShown) return kExitOk;
  const StatusOr<HttpClient> client = HttpClient::ForUrl(config.url, config.api_key);
  if (!client.ok()) return ReportFailure(kCommand, client.status(), kExitBadFlags);
  Status status;
  StatusOr<std::string> model = config.model.empty() ? FirstModel(*client) : config.model;
  if (model.ok()) {
    const bool is_terminal = isatty(STDIN_FILENO) != 0;
    if (is_terminal) std::cout << "Talking to " << *model << " at " << config.url << ".\n" << kHelp;
    InstallInterrupt();
    Conversation conversation(*client, config, *model);
    status = ChatLoop(conversation, is_terminal);
  } else {
    status = model.status();
  }
  return status.ok() ? kExitOk : ReportFailure(kCommand, status, kExitFailed);
}

}  // namespace tandem
