#pragma once

// The arguments of a call whose format has an element per parameter, and the values in them.
// Thread: the parser's.

#include <string>
#include <string_view>
#include <utility>

#include "frontend/parsers/parse_steps.h"
#include "frontend/parsers/tool_parser.h"

namespace tandem {

// Writes the arguments of one call as a JSON object.
class ArgumentsWriter {
 public:
  ArgumentsWriter(const ToolParserInput& in, std::string tool)
      : tools_(in.tools), sink_(in.sink), tool_(std::move(tool)) {
    sink_.BeginCall(tool_);
  }
  void BeginParameter(std::string_view name) {
    sink_.AddArguments(is_first_ ? "{" : ", ");
    sink_.AddArguments(QuoteJson(name) + ": ");
    is_first_ = false;
  }
  bool IsText(std::string_view name) const { return tools_.IsText(tool_, name); }
  void AddQuote() { sink_.AddArguments("\""); }
  void AddText(std::string_view text) { sink_.AddArguments(EscapeJson(text)); }
  void AddValue(std::string_view name, std::string_view text) {
    sink_.AddArguments(tools_.ToJson(tool_, name, text));
  }
  void End() { sink_.AddArguments(is_first_ ? "{}" : "}"); }

 private:
  const ToolSet& tools_;
  MessageSink& sink_;
  const std::string tool_;
  bool is_first_ = true;
};

// Reads a value up to one of `ends` and writes it, strips: without the blanks around it; gives the
// end's index. A value that the text's end cuts off stays unfinished where it is text, and is left
// out where it is not.
Parse<int> CopyValue(TextSource& text, std::string name, bool is_text, Markers ends,
                     ArgumentsWriter* out, bool strips = false);

}  // namespace tandem
