#pragma once

// A body of /v1/responses as the chat request that it stands for: items become messages, tools
// become functions, text.format becomes a response_format. Pure; any thread.
// Failure: INVALID_ARGUMENT with the Responses field as param.

#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "frontend/openai/chat_request.h"
#include "frontend/openai/responses_request.h"

namespace tandem {

// A tool of the request and the function that the model sees in its place.
struct ResponseTool {
  std::string function_name;  // "<namespace>__<name>" for a tool of a namespace
  std::string name;           // as the client named it
  std::string name_space;     // empty: none
  bool custom = false;        // takes a free text: a function with the one argument "input"
  std::string field = {};     // where the request has it: "tools[1]", or "tools[0].tools[2]"
};
using ResponseTools = std::vector<ResponseTool>;

// Null for a name that the model made up.
const ResponseTool* FindFunction(const ResponseTools& tools, std::string_view function_name);

struct ChatOfResponses {
  ChatRequest chat;
  ResponseTools tools;
  bool leaves_out_tools = false;  // those that OpenAI's servers run, or its models alone can call
  JsonDocument conversation;      // chat.messages without the instructions; kept only to be stored
};

// earlier: messages of the conversation that the request continues, or null. Uses the request up,
// except its fields that the response repeats (JsonDocuments and texts of ResponsesRequest itself).
StatusOr<ChatOfResponses> ToChatRequest(ResponsesRequest& request, const JsonDocument& earlier);

// Appends the items (a response's output, or a request's input) to the messages.
// *continue_final: the last one is an assistant's message that is not complete.
Status AppendItems(const Json& items, Json* messages, bool* continue_final);

}  // namespace tandem
