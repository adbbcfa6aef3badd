#include "deploy/cli/offline/batch_file.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/strings.h"
#include "frontend/openai/lax_values.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kOk = 200;
constexpr int kBadRequest = 400;
constexpr int kNotFound = 404;

// Those that a server may have; one that lacks a route says so.
constexpr std::string_view kEndpoints[] = {
    "/v1/chat/completions", "/v1/completions", "/v1/responses",         "/v1/messages",
    "/v1/embeddings",       "/v1/score",       "/inference/v1/generate"};
constexpr std::string_view kEndings[] = {"/score", "/rerank"};

bool IsEndpoint(std::string_view url) {
  return std::find(std::begin(kEndpoints), std::end(kEndpoints), url) != std::end(kEndpoints) ||
         std::any_of(std::begin(kEndings), std::end(kEndings),
                     [url](std::string_view ending) { return url.ends_with(ending); });
}

std::string UnknownEndpoint(const std::string& url) {
  std::string text = "URL " + url + " is not a supported endpoint. Supported endpoints: ";
  for (const std::string_view endpoint : kEndpoints) text += std::string(endpoint) + ", ";
  return text + "/rerank.";
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Calls on_line for each line that is not blank; the last one may lack its line end.
template <class F>
Status ForEachLine(std::string_view text, F on_line) {
  int64_t number = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    ++number;
    if (!StripAscii(line).empty()) RETURN_IF_ERROR(on_line(line, number));
    text = end == text.npos ? std::string_view() : text.substr(end + 1);
  }
  return OkStatus();
}

// Whether the API reads it as true: then it would respond with events.
bool IsTrue(const Json& value) {
  if (value.is_string()) return BooleanOfText(value.get_ref<const std::string&>()) == true;
  return value == true || value == 1;
}

Status Invalid(int64_t number, std::string_view why) {
  return InvalidArgumentError("Invalid request on line " + std::to_string(number) + ": " +
                              std::string(why));
}

StatusOr<BatchRequest> ParseRequest(std::string_view line, int64_t number) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Invalid(number, "not a JSON object");
  for (const char* const name : {"custom_id", "method", "url"}) {
    const auto field = json.find(name);
    if (field == json.end() || !field->is_string()) {
      return Invalid(number, std::string(name) + " must be a string");
    }
  }
  if (json["method"] != "POST") return Invalid(number, "method must be POST");
  const auto body = json.find("body");
  if (body == json.end() || !body->is_object()) return Invalid(number, "body must be an object");
  BatchRequest request{json["custom_id"], json["url"], Dump(*body), ""};
  const auto stream = body->find("stream");
  if (!IsEndpoint(request.url)) {
    request.refusal = UnknownEndpoint(request.url);
  } else if (stream != body->end() && IsTrue(*stream)) {
    request.refusal = "Request must not be sent in stream mode";
  }
  return request;
}

bool IsApiError(const Json& body) { return body.is_object() && body.contains("error"); }

// Why the request has no response of the API, neither a result nor an error; empty: it has one.
std::string RefusalOf(const BatchRequest& request, const BatchReply& reply, const Json& body) {
  if (!request.refusal.empty()) return request.refusal;
  if (reply.status_code != kNotFound || IsApiError(body)) return {};
  return "Model does not support endpoint: " + request.url;
}

// The error of a failed reply: the API's object, or a text.
Json ErrorOf(const BatchReply& reply, Json body) {
  if (body.is_object()) return body;
  if (reply.status_code == kOk)
    return "The response is not JSON, which the output file consists of";
  return "HTTP " + std::to_string(reply.status_code) + " " + reply.body;
}

}  // namespace

StatusOr<std::vector<BatchRequest>> ParseBatchInput(std::string_view text) {
  std::vector<BatchRequest> requests;
  std::set<std::string_view> ids;
  RETURN_IF_ERROR(ForEachLine(text, [&](std::string_view line, int64_t number) -> Status {
    ASSIGN_OR_RETURN(BatchRequest request, ParseRequest(line, number));
    requests.push_back(std::move(request));
    return OkStatus();
  }));
  for (const BatchRequest& request : requests) {
    // The output could not show which of them a line belongs to.
    if (!ids.insert(request.custom_id).second) {
      return InvalidArgumentError("custom_id \"" + request.custom_id + "\" occurs twice");
    }
  }
  return requests;
}

void RefuseLargeBodies(int64_t max_bytes, std::vector<BatchRequest>* requests) {
  if (max_bytes == 0) return;
  for (BatchRequest& request : *requests) {
    if (!request.refusal.empty() || static_cast<int64_t>(request.body.size()) <= max_bytes)
      continue;
    request.refusal = "the body has " + std::to_string(request.body.size()) + " bytes; at most " +
                      std::to_string(max_bytes) + " are allowed (--max-request-body-bytes)";
  }
}

BatchLine BatchOutputLine(const BatchRequest& request, const BatchReply& reply) {
  Json body = Json::parse(reply.body, nullptr, /*allow_exceptions=*/false);
  Json error;
  const std::string refusal = RefusalOf(request, reply, body);
  const int status_code = refusal.empty() ? reply.status_code : kBadRequest;
  if (!refusal.empty()) {
    error = refusal;
  } else if (status_code != kOk || body.is_discarded()) {
    error = ErrorOf(reply, std::move(body));
  }
  const bool is_error = !error.is_null();
  if (is_error) body = nullptr;
  const Json line = {{"id", "vllm-" + RandomHex(32)},
                     {"custom_id", request.custom_id},
                     {"response",
                      {{"status_code", status_code},
                       {"request_id", "vllm-batch-" + RandomHex(32)},
                       {"body", std::move(body)}}},
                     {"error", std::move(error)}};
  return {Dump(line) + "\n", is_error};
}

StatusOr<BatchOutputState> ReadBatchOutput(std::string_view text) {
  BatchOutputState state;
  const size_t last_end = text.rfind('\n');
  if (last_end == text.npos) return state;
  text = text.substr(0, last_end + 1);
  RETURN_IF_ERROR(ForEachLine(text, [&](std::string_view line, int64_t number) -> Status {
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("custom_id") || !json["custom_id"].is_string()) {
      return InvalidArgumentError("line " + std::to_string(number) +
                                  " is no result of a batch; give another output file");
    }
    state.done.insert(json["custom_id"].get<std::string>());
    return OkStatus();
  }));
  state.num_whole_bytes = static_cast<int64_t>(text.size());
  return state;
}

}  // namespace tandem
