#include "frontend/api/response_items.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/strings.h"
#include "frontend/api/render.h"

namespace tandem {
namespace {

using std::string_view_literals::operator""sv;  // gcc 12 calls strlen for other literals

// The "input" of a JSON object, or nothing.
std::optional<std::string> InputOf(const std::string& json) {
  const auto parsed = ParseJson(json);
  if (!parsed.ok() || !(*parsed)->is_object()) return std::nullopt;
  const auto input = (*parsed)->find("input");
  if (input == (*parsed)->end() || !input->is_string()) return std::nullopt;
  return input->get<std::string>();
}

}  // namespace

std::string CustomToolInput(const std::string& arguments) {
  if (auto input = InputOf(arguments)) return *std::move(input);
  // A text that is cut off is closed at its end, or before an escape sequence that is not whole;
  // the longest is a pair of surrogates less one digit.
  constexpr size_t kLongestEscape = 11;
  for (size_t cut = 0; cut <= std::min(kLongestEscape, arguments.size()); ++cut) {
    if (auto input = InputOf(arguments.substr(0, arguments.size() - cut) + "\"}")) {
      return *std::move(input);
    }
  }
  return arguments;
}

// ---- Events ----

void ResponseEvents::Append(std::string_view type, Json fields) {
  fields["sequence_number"] = num_events_++;
  fields["type"] = type;
  out_->append("event: "sv).append(type).append("\ndata: "sv);
  out_->append(DumpJson(fields)).append("\n\n"sv);
}

void ResponseEvents::AppendText(std::string_view type, std::string_view fields) {
  out_->append("event: "sv).append(type).append("\ndata: "sv).append(fields);
  out_->append("\"sequence_number\":"sv);
  AppendInteger(num_events_++, out_);
  out_->append(",\"type\":\""sv).append(type).append("\"}\n\n"sv);
}

// ---- Items ----

struct ResponseItems::Names {
  const char* type;
  const char* id_prefix;
  std::string_view delta_event;
  std::string_view done_event;
};

const ResponseItems::Names& ResponseItems::NamesOf(Kind kind) {
  static constexpr Names kNames[] = {
      {"", "", "", ""},
      {"reasoning", "rs_", "response.reasoning_text.delta", "response.reasoning_text.done"},
      {"message", "msg_", "response.output_text.delta", "response.output_text.done"},
      {"function_call", "fc_", "response.function_call_arguments.delta",
       "response.function_call_arguments.done"},
      {"custom_tool_call", "ctc_", "response.custom_tool_call_input.delta",
       "response.custom_tool_call_input.done"}};
  return kNames[static_cast<size_t>(kind)];
}

ResponseItems::ResponseItems(const ResponseTools* tools, std::optional<int64_t> top_logprobs,
                             ResponseEvents* events)
    : tools_(tools), top_logprobs_(top_logprobs), events_(events), output_(Json::array()) {}

void ResponseItems::Append(MessageDelta& delta) {
  // A delta's logprobs go with its first content, or with the message that it adds nothing to.
  const MessageDelta* logprobs = top_logprobs_ && !delta.logprobs.empty() ? &delta : nullptr;
  delta.ForEach([&](std::string_view text) { AddText(Kind::kReasoning, text, nullptr); },
                [&](std::string_view text) {
                  AddText(Kind::kMessage, text, std::exchange(logprobs, nullptr));
                },
                [&](ToolCallDelta& call) {
                  if (!call.id.empty()) BeginCall(call);  // its name may be empty
                  AddArguments(call.arguments);
                });
  if (logprobs != nullptr && !delta.has_message() && kind_ == Kind::kMessage) {
    AddText(Kind::kMessage, {}, logprobs);
  }
}

void ResponseItems::End(bool is_whole) { End(is_whole ? "completed" : "incomplete"); }

void ResponseItems::Begin(Kind kind) {
  End("completed");
  kind_ = kind;
  id_ = NamesOf(kind).id_prefix + RandomHex(32);
  text_.clear();
  logprobs_ = JsonDocument(top_logprobs_ ? Json::array() : Json(nullptr));
}

void ResponseItems::BeginCall(const ToolCallDelta& call) {
  const ResponseTool* const tool = FindFunction(*tools_, call.name);
  Begin(tool != nullptr && tool->custom ? Kind::kCustomCall : Kind::kFunctionCall);
  call_id_ = call.id;
  name_ = tool != nullptr ? tool->name : call.name;
  name_space_ = tool != nullptr ? tool->name_space : "";
  AppendAdded();
}

void ResponseItems::AddText(Kind kind, std::string_view text, const MessageDelta* logprobs) {
  if (kind_ != kind) {
    Begin(kind);
    AppendAdded();
  }
  text_ += text;
  if (logprobs == nullptr) return AppendDelta(text, nullptr);
  const Json added = ChatLogprobsJson(logprobs->logprobs, *top_logprobs_)["content"];
  Json& all = logprobs_.mutable_value();
  all.insert(all.end(), added.begin(), added.end());
  AppendDelta(text, &added);
}

void ResponseItems::AddArguments(std::string_view text) {
  if (!is_call()) return;
  text_ += text;
  // What a custom tool gets is inside its arguments; it is shown once they are whole.
  if (kind_ == Kind::kFunctionCall && !text.empty()) AppendDelta(text, nullptr);
}

void ResponseItems::End(const char* status) {
  if (kind_ == Kind::kNone) return;
  // A stop string may cut a call short, too.
  if (is_call() && !text_.empty() && !Json::accept(text_)) status = "incomplete";
  if (kind_ == Kind::kCustomCall) {
    text_ = CustomToolInput(text_);
    AppendDelta(text_, nullptr);
  }
  Json item = ItemJson(status, false);
  AppendDone(item);
  output_.mutable_value().push_back(std::move(item));
  kind_ = Kind::kNone;
}

// ---- Events of the open item ----

void ResponseItems::AppendAdded() {
  if (events_ == nullptr) return;
  const size_t index = output_->size();
  events_->Append("response.output_item.added",
                  {{"item", ItemJson("in_progress", true)}, {"output_index", index}});
  if (is_call()) return;
  events_->Append(
      "response.content_part.added",
      {{"content_index", 0}, {"item_id", id_}, {"output_index", index}, {"part", PartJson(true)}});
}

void ResponseItems::AppendDelta(std::string_view delta, const Json* logprobs) {
  if (events_ == nullptr) return;
  fields_.assign(is_call() ? "{\"delta\":\""sv : "{\"content_index\":0,\"delta\":\""sv);
  AppendEscaped(delta, &fields_);
  fields_.append("\",\"item_id\":\""sv).append(id_).append("\","sv);
  if (logprobs != nullptr) {
    fields_.append("\"logprobs\":"sv).append(DumpJson(*logprobs)).append(","sv);
  } else if (kind_ == Kind::kMessage) {
    fields_.append("\"logprobs\":[],"sv);
  }
  fields_.append("\"output_index\":"sv);
  AppendInteger(static_cast<int64_t>(output_->size()), &fields_);
  fields_.push_back(',');
  events_->AppendText(NamesOf(kind_).delta_event, fields_);
}

void ResponseItems::AppendDone(const Json& item) {
  if (events_ == nullptr) return;
  const size_t index = output_->size();
  Json done = {{"item_id", id_}, {"output_index", index}};
  if (kind_ == Kind::kFunctionCall) {
    done.update({{"arguments", text_}, {"name", name_}});
  } else if (kind_ == Kind::kCustomCall) {
    done.update({{"input", text_}, {"name", name_}});
  } else {
    done.update({{"content_index", 0}, {"text", text_}});
    if (kind_ == Kind::kMessage) done["logprobs"] = top_logprobs_ ? *logprobs_ : Json::array();
  }
  events_->Append(NamesOf(kind_).done_event, std::move(done));
  if (!is_call()) {
    events_->Append("response.content_part.done", {{"content_index", 0},
                                                   {"item_id", id_},
                                                   {"output_index", index},
                                                   {"part", PartJson(false)}});
  }
  events_->Append("response.output_item.done", {{"item", item}, {"output_index", index}});
}

// ---- Items as JSON ----

Json ResponseItems::PartJson(bool empty) const {
  const std::string text = empty ? "" : text_;
  if (kind_ == Kind::kReasoning) return {{"text", text}, {"type", "reasoning_text"}};
  return {{"annotations", Json::array()},
          {"text", text},
          {"type", "output_text"},
          {"logprobs", empty ? Json::array() : *logprobs_}};
}

Json ResponseItems::ItemJson(const char* status, bool empty) const {
  const char* const type = NamesOf(kind_).type;
  if (kind_ == Kind::kReasoning) {
    return {{"id", id_},
            {"summary", Json::array()},
            {"type", type},
            {"content", empty ? Json(nullptr) : Json::array({PartJson(false)})},
            {"encrypted_content", nullptr},
            {"status", status}};
  }
  if (kind_ == Kind::kMessage) {
    return {
        {"id", id_},           {"content", empty ? Json::array() : Json::array({PartJson(false)})},
        {"role", "assistant"}, {"status", status},
        {"type", type},        {"phase", nullptr}};
  }
  Json call = {{kind_ == Kind::kFunctionCall ? "arguments" : "input", empty ? "" : text_},
               {"call_id", call_id_},
               {"name", name_},
               {"type", type},
               {"id", id_},
               {"status", status}};
  // The official client's tool runner refuses a null here.
  if (!name_space_.empty()) call["namespace"] = name_space_;
  return call;
}

}  // namespace tandem
