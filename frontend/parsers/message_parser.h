#pragma once

// From a model's text to the parts of a message: reasoning first, then content and tool calls. What
// it gives for a text does not depend on how the text is cut into pieces.
// Thread: any one at a time. Owns its state; borrows the rows and the tools.

#include <memory>
#include <string>
#include <string_view>

#include "frontend/parsers/message_sink.h"
#include "frontend/parsers/reasoning_parser.h"
#include "frontend/parsers/text_source.h"
#include "frontend/parsers/tool_parser.h"

namespace tandem {

struct MessageFormat {
  const ReasoningFormat* reasoning = nullptr;  // null: the text has none
  ReasoningStart start = ReasoningStart::kUnknown;
  bool reasoning_may_be_content = false;       // where there is neither content nor a call
  const ToolParserRow* tool_parser = nullptr;  // null: calls are content
  const ToolSet* tools = nullptr;              // with tool_parser
  // kRequired and kNamed: a grammar forces calls.
  enum class Choice { kNone, kAuto, kRequired, kNamed } choice = Choice::kAuto;
  std::string named_tool;      // kNamed
  bool parallel_calls = true;  // false: calls after the first are dropped
  bool is_harmony = false;     // one parser for reasoning, content and calls
  // The checkpoint's own description of such a format, and what the prompt has of the message.
  std::shared_ptr<const ResponseTemplate> response_template;  // null: the format has a name
  std::string prompt_part;
};

class MessageParser {
 public:
  explicit MessageParser(const MessageFormat& format);
  MessageParser(const MessageParser&) = delete;
  MessageParser& operator=(const MessageParser&) = delete;

  ParsedDelta Feed(std::string_view text);
  // The text has ended: what was held back.
  ParsedDelta End();

  // Whether the next byte is reasoning, and whether a token with this text is a marker of it.
  bool in_reasoning() const { return in_reasoning_; }
  bool is_marker(std::string_view token) const {
    return format_.reasoning != nullptr && !token.empty() && token == format_.reasoning->begin;
  }

 private:
  Parse<> StartContent();
  Parse<> StartReasoning();

  const MessageFormat format_;
  MessageSink sink_;
  bool in_reasoning_ = false;
  TextSource text_;
  TextSource content_;  // what is not reasoning
  Parse<> content_parser_;
  Parse<> reasoning_parser_;
};

}  // namespace tandem
