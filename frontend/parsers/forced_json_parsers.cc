// Calls that tool_choice asks for, in formats without a grammar of their own: JSON.

#include "frontend/parsers/parse_steps.h"
#include "frontend/parsers/tool_parser.h"

namespace tandem {

// [{"name": N, "parameters": A}, …]. A text that does not begin as that is parsed in the model's
// own format.
Parse<> ParseRequiredJson(ToolParserInput in, ToolParserFunction native) {
  const size_t begin = co_await ScanBlanks(in.text, 0);
  const int first = co_await in.text.Peek(begin);
  if (first != '[') {
    co_await native(in);
    co_return;
  }
  in.text.Skip(begin);
  const bool whole = co_await CopyCallList(in.text, StringArguments::kQuoted, &in.sink);
  if (whole || in.sink.num_calls() > 0) co_return;
  const TextFunction add_content = [&in](std::string_view part) { in.sink.AddContent(part); };
  co_await CopyRest(in.text, add_content);
}

// The whole text is the arguments.
Parse<> ParseNamedJson(ToolParserInput in, std::string_view tool) {
  const TextFunction add = [&in](std::string_view part) { in.sink.AddArguments(part); };
  in.sink.BeginCall(tool);
  co_await CopyRest(in.text, add);
}

}  // namespace tandem
