#pragma once

// How models write tool calls: one coroutine per format, over the text that follows the reasoning.
// A parser adds content and calls to the sink as soon as the text decides what they are; text that
// turns out to be no call is content. The row of a format in tool_parsers.cc is all that the rest
// of the server knows of it.

#include <span>
#include <string>
#include <string_view>

#include "frontend/parsers/message_sink.h"
#include "frontend/parsers/text_source.h"
#include "frontend/parsers/tool_set.h"
#include "frontend/parsers/tool_tags.h"

namespace tandem {

class ResponseTemplate;

// What a parser reads and writes; borrowed for as long as it runs.
struct ToolParserInput {
  TextSource& text;
  const ToolSet& tools;
  MessageSink& sink;
  bool must_call = false;  // tool_choice asks for a call
  // Of a format that has the reasoning too: at first whether the text begins with it; kept at
  // whether the next byte is reasoning.
  bool* in_reasoning = nullptr;
  // Of the format that a checkpoint describes itself: its description, what the prompt has of the
  // message, and whether thinking and calls are more than content.
  const ResponseTemplate* response_template = nullptr;
  std::string_view prefix = {};
  bool reads_reasoning = false;
  bool reads_calls = false;
};

using ToolParserFunction = Parse<> (*)(ToolParserInput input);

// Which ids calls get.
enum class CallIdForm {
  kRandom,    // chatcmpl-tool-<16 hex>
  kCall,      // call_<16 hex>
  kNumbered,  // call_<index>_<16 hex>
  kNineLetters,
  kOwn,  // the text that stands for the call; random where there is none
};

// How a call is written when tool_choice asks for one.
enum class ForcedCall {
  kNative,      // as always
  kNativeList,  // as always; a JSON list of {"name", "arguments"} is such a format
  kJson,        // required: a list of {"name", "parameters"}; named: the arguments alone
};

struct ToolParserRow {
  std::string_view name;     // of --tool-call-parser
  std::string_view aliases;  // separated by blanks
  ToolParserFunction parse;
  ForcedCall forced;
  const ToolTags* tags = nullptr;  // the grammar of calls; null: there is none for this format
  CallIdForm ids = CallIdForm::kRandom;
  bool shows_special_tokens = false;  // its markers are special tokens, which the text must have
  bool hides_calls = false;           // tool_choice none: calls are dropped and not content
};

std::span<const ToolParserRow> ToolParsers();
// By name or alias; null: there is none.
const ToolParserRow* FindToolParser(std::string_view name);
// The same format without a grammar of its own: forced calls are JSON.
const ToolParserRow* WithoutTags(const ToolParserRow* row);
// Of the format that a chat template shows its calls in; null: it shows none that is known.
const ToolParserRow* ToolParserOfTemplate(std::string_view chat_template);
// Of the model_type of config.json, for templates that show none; null: it does not tell.
const ToolParserRow* ToolParserOfModelType(std::string_view model_type,
                                           std::string_view chat_template);

// An id for call number `index`; own_id: the one in the text, where there is one.
std::string MakeCallId(CallIdForm form, int index, std::string_view own_id);

// The forms of ForcedCall::kJson.
Parse<> ParseRequiredJson(ToolParserInput input, ToolParserFunction native);
Parse<> ParseNamedJson(ToolParserInput input, std::string_view tool);

}  // namespace tandem
