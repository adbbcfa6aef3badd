#pragma once

// How the text of a chat choice becomes a message: which parsers the server has, and what of them
// one request uses. Thread: any; a plan is immutable once the choices of a request share it.

#include <memory>
#include <string>
#include <string_view>

#include "common/status.h"
#include "frontend/openai/chat_request.h"
#include "frontend/parsers/message_parser.h"

namespace tandem {

// What the server parses; the rows are static, but for one whose markers have a suffix.
struct ParserConfig {
  const ToolParserRow* tool_parser = nullptr;                 // null: none
  const ReasoningFormat* reasoning = nullptr;                 // null: reasoning is content
  std::shared_ptr<const ReasoningFormat> suffixed_reasoning;  // owns `reasoning`, where it has one
  // The checkpoint's own description of its format, where the parsers are those that read it.
  std::shared_ptr<const ResponseTemplate> response_template;
  std::shared_ptr<const ToolParserRow> described_calls;  // owns `tool_parser`: it has a grammar
  bool is_harmony = false;                               // the reasoning parser is gpt-oss'
  bool reasoning_is_special = false;  // its markers are special tokens, which the text must have
  // The template has the markers, if only to drop them: the model may not think at all.
  bool reasoning_is_guessed = false;
  bool enable_auto_tool_choice = true;
  bool enforce_strict_tool_calling = true;        // false: no grammars of formats, only of JSON
  StrictLevel strict_level = StrictLevel::kAuto;  // the least, whatever a tool says
  // --reasoning-config: the text before reasoning, and the one that ends it when its budget is used
  // up. Empty: the markers of the reasoning parser.
  std::string reasoning_begin;
  std::string reasoning_end;
};

// Whether one of these values of the flags names the parser of formats that checkpoints describe
// themselves, which needs a response_template.
bool NamesResponseTemplate(std::string_view tool_parser, std::string_view reasoning_parser);

// The values of --tool-call-parser and --reasoning-parser: a name, "none", or "" for a choice by
// the chat template's markers, then by the model_type of config.json. An unknown name is
// INVALID_ARGUMENT and lists the known ones, and so is one that needs a response_template where
// there is none. rest: what is not chosen here.
StatusOr<ParserConfig> ChooseParsers(std::string_view tool_parser,
                                     std::string_view reasoning_parser,
                                     std::string_view chat_template, ParserConfig rest = {},
                                     std::string_view model_type = {});

struct MessagePlan {
  MessageFormat format;  // its tools are those below
  ToolSet tools;
  bool include_reasoning = true;
  bool logprobs_of_content = false;  // those of other tokens are dropped
  CallIdForm ids = CallIdForm::kRandom;
  bool shows_special_tokens = false;  // the parser reads them in the text

  bool has_reasoning() const { return format.reasoning != nullptr || format.is_harmony; }
  bool forces_calls() const {
    return format.choice == MessageFormat::Choice::kRequired ||
           format.choice == MessageFormat::Choice::kNamed;
  }
  bool looks_for_calls() const {
    return format.tool_parser != nullptr && format.choice != MessageFormat::Choice::kNone;
  }
};

// Null: the text is the content. prompt: what the model goes on from. defaults: the server's
// variables of the template. INVALID_ARGUMENT: the request wants tool calls that this server cannot
// give.
StatusOr<std::shared_ptr<MessagePlan>> PlanMessage(const ParserConfig& config,
                                                   const ChatRequest& request,
                                                   std::string_view prompt,
                                                   const JsonDocument& defaults);

}  // namespace tandem
