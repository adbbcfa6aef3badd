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

// The parser of a format whose messages have reasoning, content and calls; null: it is none.
ToolParserFunction WholeParser(const MessageFormat& format) {
  if (format.is_harmony) return &ParseHarmony;
  if (format.response_template != nullptr) return &ParseResponseTemplate;
  return format.reasoning == nullptr ? nullptr : format.reasoning->parse_whole;
}

bool BeginsInReasoning(const MessageFormat& format) {
  if (format.reasoning == nullptr) return false;
  return format.start == ReasoningStart::kReasoning ||
         (format.start == ReasoningStart::kUnknown &&
          format.reasoning->start == ReasoningFormat::Start::kReasoning);
}

// Calls that tool_choice asks for and that a grammar has made JSON.
bool ForcesJson(const MessageFormat& format) {
  return (format.choice == MessageFormat::Choice::kRequired ||
          format.choice == MessageFormat::Choice::kNamed) &&
         format.tool_parser != nullptr && format.tool_parser->forced == ForcedCall::kJson;
}

int32_t MaxCalls(const MessageFormat& format) {
  if (WholeParser(format) != nullptr && format.tool_parser == nullptr) return 0;
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
  const ToolParserFunction whole = WholeParser(format_);
  const ToolParserInput input = {
      .text = content_,
      .tools = tools,
      .sink = sink_,
      .must_call = forced,
      .in_reasoning = &in_reasoning_,
      .response_template = format_.response_template.get(),
      .prefix = format_.prompt_part,
      .reads_reasoning = format_.reasoning != nullptr,
      .reads_calls = format_.tool_parser != nullptr && format_.choice != Choice::kNone};
  if (whole != nullptr && !ForcesJson(format_)) {
    in_reasoning_ = BeginsInReasoning(format_);
    return whole(input);
  }
  if (format_.tool_parser == nullptr) return PassOn(content_, sink_);
  if (format_.choice == Choice::kNone && !format_.tool_parser->hides_calls) {
    return PassOn(content_, sink_);
  }
  if (!ForcesJson(format_)) return format_.tool_parser->parse(input);
  if (format_.choice == Choice::kRequired)
    return ParseRequiredJson(input, format_.tool_parser->parse);
  return ParseNamedJson(input, format_.named_tool);
}

Parse<> MessageParser::StartReasoning() {
  const bool is_whole = WholeParser(format_) != nullptr && !ForcesJson(format_);
  if (format_.reasoning == nullptr || is_whole) return PassOn(text_, content_);
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
