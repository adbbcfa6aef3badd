#pragma once

// The output of a /v1/responses response: deltas of a message in, output items out, and the events
// that describe how they grow. Items stand in the order in which the model began them, one is open
// at a time, and neither they nor what the events add up to depends on how the output was cut into
// deltas. Thread: one. Pure but for the random ids. A delta of text allocates nothing in the steady
// state.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/openai/json.h"
#include "frontend/openai/responses_input.h"
#include "frontend/processing/message_delta.h"

namespace tandem {

// Numbers a response's events and appends them to a text.
class ResponseEvents {
 public:
  explicit ResponseEvents(std::string* out) : out_(out) {}

  // event: <type>, with the fields, sequence_number and type as data.
  void Append(std::string_view type, Json fields);
  // The same for fields that are text already: "{…,", without a closing brace.
  void AppendText(std::string_view type, std::string_view fields);

 private:
  std::string* const out_;
  int64_t num_events_ = 0;
};

class ResponseItems {
 public:
  // tools and events are borrowed; events is null for a response in one body.
  // top_logprobs: shown with each token of a message; empty: no logprobs.
  ResponseItems(const ResponseTools* tools, std::optional<int64_t> top_logprobs,
                ResponseEvents* events);
  ResponseItems(const ResponseItems&) = delete;

  void Append(MessageDelta& delta);
  // The output has ended; is_whole: no limit cut it off.
  void End(bool is_whole);

  // The items that have ended: an array.
  const Json& output() const { return *output_; }

 private:
  enum class Kind { kNone, kReasoning, kMessage, kFunctionCall, kCustomCall };
  struct Names;
  static const Names& NamesOf(Kind kind);
  bool is_call() const { return kind_ == Kind::kFunctionCall || kind_ == Kind::kCustomCall; }

  void Begin(Kind kind);
  void BeginCall(const ToolCallDelta& call);
  void AddText(Kind kind, std::string_view text, const MessageDelta* logprobs);
  void AddArguments(std::string_view text);
  void End(const char* status);

  // Events of the open item.
  void AppendAdded();
  void AppendDelta(std::string_view delta, const Json* logprobs);
  void AppendDone(const Json& item);

  // The open item, and the one part of a text's content. empty: as it begins.
  Json ItemJson(const char* status, bool empty) const;
  Json PartJson(bool empty) const;

  const ResponseTools* const tools_;
  const std::optional<int64_t> top_logprobs_;
  ResponseEvents* const events_;
  JsonDocument output_;

  // The open item.
  Kind kind_ = Kind::kNone;
  std::string id_;
  std::string text_;  // of reasoning or a message; the arguments of a call
  std::string call_id_;
  std::string name_;
  std::string name_space_;
  JsonDocument logprobs_;  // array; null without top_logprobs_

  std::string fields_;  // of an event, reused
};

// The text that a custom tool is called with, from its arguments {"input": …}, which may be cut
// off. Arguments of another form are the text themselves.
std::string CustomToolInput(const std::string& arguments);

}  // namespace tandem
