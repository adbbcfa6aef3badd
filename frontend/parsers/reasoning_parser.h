#pragma once

// Where a model's reasoning ends and its answer begins. One row per format: two markers and what a
// text without them is. The parser passes reasoning to the sink and the rest on to the parser of
// tool calls.

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string_view>

#include "frontend/parsers/message_sink.h"
#include "frontend/parsers/text_source.h"
#include "frontend/parsers/tool_parser.h"

namespace tandem {

using ContentFunction = std::function<void(std::string_view)>;

struct ReasoningFormat {
  enum class Start {
    kReasoning,  // a text begins with reasoning where the prompt does not decide
    kContent,    // a text is content up to the begin marker
    kWhole,      // a text is reasoning only once its end marker is there
  };
  std::string_view name;  // of --reasoning-parser
  std::string_view aliases;
  std::string_view
      begin;  // empty: the format has none, a text may have it as part of its reasoning
  std::string_view end;
  std::string_view tool_marker = {};  // ends the reasoning as well; is passed on
  Start start = Start::kReasoning;
  bool drops_last_blanks = false;  // of the reasoning; blank reasoning is none
  bool drops_next_blanks = false;  // of the answer, after reasoning
  bool repeats = false;            // more than one block of reasoning
  // Variables of the chat template that switch thinking, separated by blanks, and what holds where
  // the request sets none of them.
  std::string_view switches = {};
  bool thinks_by_default = true;
  std::string_view off_effort = {};  // the reasoning_effort that switches thinking off
  bool takes_suffix = false;         // the markers of a checkpoint may have one: "<think:x>"
  bool ends_in_bracket = false;      // `begin` and `end` go on up to a '>'
  // The variable that makes reasoning the content of a message that has none.
  std::string_view content_switch = {};
  // Instead of all that, for a format that markers do not describe. *in_reasoning as below.
  Parse<> (*parse)(TextSource& text, MessageSink& sink, bool* in_reasoning,
                   ContentFunction add_content) = nullptr;
  // Of a format whose messages have parts for reasoning, content and calls: the parser of them all,
  // also where the server has no parser of calls.
  ToolParserFunction parse_whole = nullptr;
};

std::span<const ReasoningFormat> ReasoningFormats();
// By name or alias; null: there is none.
const ReasoningFormat* FindReasoningFormat(std::string_view name);
// Of the markers that a chat template has; null: it has none that is known.
const ReasoningFormat* ReasoningFormatOfTemplate(std::string_view chat_template);

// The format with the suffix that its markers have in a chat template; null: they have none there.
std::shared_ptr<const ReasoningFormat> WithSuffixOf(std::string_view chat_template,
                                                    const ReasoningFormat& format);

// kUnknown: the prompt does not decide, so the format does; kByText: the text does, it is reasoning
// only if it begins with the begin marker; kOff: the request has switched thinking off.
enum class ReasoningStart { kReasoning, kContent, kUnknown, kByText, kOff };

// What the text after this prompt begins with. template_variables: an object, or null.
ReasoningStart ReasoningStartAfter(const ReasoningFormat& format, std::string_view prompt,
                                   const nlohmann::ordered_json& template_variables);

bool ReasoningMayBeContent(const ReasoningFormat& format,
                           const nlohmann::ordered_json& template_variables);

// *in_reasoning is kept at whether the next byte is reasoning.
Parse<> ParseReasoning(TextSource& text, const ReasoningFormat& format, ReasoningStart start,
                       MessageSink& sink, bool* in_reasoning, ContentFunction add_content);

}  // namespace tandem
