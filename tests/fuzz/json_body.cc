// The JSON bodies of every endpoint: refused with a message, or a request whose parts can be used.

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "common/check.h"
#include "frontend/anthropic/chat_body.h"
#include "frontend/anthropic/messages_request.h"
#include "frontend/openai/adapter_request.h"
#include "frontend/openai/chat_request.h"
#include "frontend/openai/completion_request.h"
#include "frontend/openai/decision_request.h"
#include "frontend/openai/derender_request.h"
#include "frontend/openai/generate_request.h"
#include "frontend/openai/generative_scoring_request.h"
#include "frontend/openai/pooling_request.h"
#include "frontend/openai/responses_input.h"
#include "frontend/openai/responses_request.h"
#include "frontend/openai/structured_outputs.h"
#include "frontend/openai/tokenize_request.h"
#include "tests/fuzz/fuzz_input.h"

namespace tandem {
namespace {

void CheckRefusal(const Status& status) { CHECK(status.ok() || !status.message().empty()); }

void UseChat(const ChatRequest& request) {
  for (const bool as_parts : {false, true}) {
    DumpJson(*MessagesForTemplate(request.messages, as_parts));
  }
  DumpJson(*TemplateVariables(request, JsonDocument(Json::object({{"a", 1}}))));
  EchoedText(request, "assistant");
  CheckRefusal(StructuredOutputsOf(request).status());
}

void UseResponses(ResponsesRequest& request) {
  const auto chat = ToChatRequest(request, JsonDocument());
  CheckRefusal(chat.status());
  if (chat.ok()) UseChat(chat->chat);
}

void UseMessages(MessagesRequest& request) {
  const auto chat = ChatBodyOf(std::move(request), {});
  CheckRefusal(chat.status());
  if (!chat.ok()) return;
  const auto parsed = ParseChatRequest(*chat);
  CheckRefusal(parsed.status());
  if (parsed.ok()) UseChat(*parsed);
}

// Parses the body as one endpoint's and uses what comes out.
template <class Parse, class Use>
void Try(const Json& body, const Parse& parse, const Use& use) {
  auto request = parse(body);
  CheckRefusal(request.status());
  if (request.ok()) use(*request);
}

constexpr auto kNoUse = [](const auto&) {};

// Of endpoints whose bodies are small, or become another one's.
void ParseOthers(const Json& body) {
  Try(body, ParseMessagesRequest, UseMessages);
  Try(body, ParseGenerativeScoringRequest, kNoUse);
  Try(body, ParseDecisionRequest, kNoUse);
  Try(body, ParseSystemOneRequest, kNoUse);
  Try(body, ParseEmbeddingRequest, kNoUse);
  Try(body, ParseClassifyRequest, kNoUse);
  Try(body, ParseScoreRequest, kNoUse);
  Try(body, ParseRerankRequest, kNoUse);
  Try(body, ParseCohereEmbedRequest, kNoUse);
  Try(body, ParseLoadAdapterRequest, kNoUse);
  Try(body, ParseUnloadAdapterRequest, kNoUse);
}

void Parse(size_t endpoint, const Json& body) {
  switch (endpoint) {
    case 0:
      return Try(body, ParseChatRequest, UseChat);
    case 1:
      return Try(body, ParseCompletionRequest, [](const CompletionRequest& request) {
        CheckRefusal(StructuredOutputsOf(request).status());
      });
    case 2:
      return Try(body, ParseResponsesRequest, UseResponses);
    case 3:
      return Try(body, ParseTokenizeRequest, kNoUse);
    case 4:
      return Try(body, ParseDetokenizeRequest, kNoUse);
    case 5:
      return Try(body, ParseGenerateRequest, kNoUse);
    case 6:
      return Try(body, ParseDerenderChatRequest, kNoUse);
    case 7:
      return Try(body, ParseDerenderCompletionRequest, kNoUse);
    default: {
      constexpr int64_t kMaxCopiedBytes = 1 << 20;
      const auto batch = ParseChatBatch(body, kMaxCopiedBytes);
      CheckRefusal(batch.status());
      if (batch.ok()) std::for_each(batch->begin(), batch->end(), UseChat);
    }
  }
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  FuzzInput input(data, size);
  const size_t endpoint = input.Below(9);
  const auto body = ParseJson(input.Rest());
  CheckRefusal(body.status());
  if (!body.ok()) return 0;
  const std::string text = DumpJson(**body);
  const auto again = ParseJson(text);
  CHECK(again.ok()) << text;
  CHECK(DumpJson(**again) == text) << text;
  Parse(endpoint, **body);
  ParseOthers(**body);
  return 0;
}
