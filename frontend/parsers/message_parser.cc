#include "frontend/parsers/message_parser.h"

#include "frontend/parsers/parse_steps.h"
#include "frontend/parsers/tool_formats.h"

namespace tandem {
namespace {

const ToolSet& NoTools() {
  static const ToolSet none;
  return none;
}

Parse<> PassOn(TextSource& text, MessageSink& sink) {
  co_await CopyRest(text, [&sink](std::string_view part) { sink.AddContent(part); });
}

Parse<> PassOn(TextSource& text, TextSource& to) {
  co_await CopyRest(text, [&to](std::string_view part) { to.Append(part); });
}

int32_t MaxCalls(const MessageFormat& format) {
  if (format.is_harmony && format.tool_parser == nullptr) return 0;
  if (format.choice == MessageFormat::Choice::kNone) return 0;
  return format.parallel_calls ? INT32_MAX : 1;
}

}  // namespace

MessageParser::MessageParser(const MessageFormat& format)
    : format_(format),
      sink_(MaxCalls(format), format.reasoning_may_be_content),
      content_parser_(StartContent()),
      reasoning_parser_(StartReasoning()) {
  content_parser_.Start();
  reasoning_parser_.Start();
}

Parse<> MessageParser::StartContent() {
  using Choice = MessageFormat::Choice;
  const ToolSet& tools = format_.tools != nullptr ? *format_.tools : NoTools();
  const bool forced = format_.choice == Choice::kRequired || format_.choice == Choice::kNamed;
  const ToolParserInput input = {.text = content_,
                                 .tools = tools,
                                 .sink = sink_,
                                 .must_call = forced,
                                 .in_reasoning = &in_reasoning_};
  if (format_.is_harmony) return ParseHarmony(input);
  if (format_.tool_parser == nullptr) return PassOn(content_, sink_);
  if (format_.choice == Choice::kNone && !format_.tool_parser->hides_calls) {
    return PassOn(content_, sink_);
  }
  if (!forced || format_.tool_parser->forced != ForcedCall::kJson) {
    return format_.tool_parser->parse(input);
  }
  if (format_.choice == Choice::kRequired)
    return ParseRequiredJson(input, format_.tool_parser->parse);
  return ParseNamedJson(input, format_.named_tool);
}

Parse<> MessageParser::StartReasoning() {
  if (format_.reasoning == nullptr || format_.is_harmony) return PassOn(text_, content_);
  return ParseReasoning(text_, *format_.reasoning, format_.start, sink_, &in_reasoning_,
                        [this](std::string_view part) { content_.Append(part); });
}

ParsedDelta MessageParser::Feed(std::string_view text) {
  text_.Append(text);
  return sink_.Take();
}

ParsedDelta MessageParser::End() {
  text_.End();
  content_.End();
  sink_.End();
  return sink_.Take();
}

}  // namespace tandem
