// Calls as tags with one element per parameter. A value is text; the parameter's schema decides
// which JSON it is. Texts are passed on as they come, other types once they are complete.

#include "common/strings.h"
#include "frontend/parsers/arguments_writer.h"
#include "frontend/parsers/parse_steps.h"
#include "frontend/parsers/tool_formats.h"

namespace tandem {
namespace {

// ---- <function=N> <parameter=K> V </parameter> </function> ----

constexpr std::string_view kFunction = "<function=";
constexpr std::string_view kParameter = "<parameter=";

// Whether a line end at each end of a value belongs to the tags.
enum class ValueLines { kOfTags, kOfValues };

// After "<function=": up to what ends the function, or the calls.
Parse<> CopyQwenFunction(ToolParserInput in, ValueLines lines) {
  const TextUntil name = co_await TakeUntil(in.text, AnyOf(">", "<"));
  ArgumentsWriter out(in, std::string(StripAscii(name.text)));
  if (name.marker == 1) in.text.Unskip(1);
  // Ends may be missing: the next tag ends a value as well.
  const bool of_tags = lines == ValueLines::kOfTags;
  const Markers value_ends = {of_tags ? "\n</parameter>" : "</parameter>",
                              "</parameter>",
                              of_tags ? "\n<parameter=" : "<parameter=",
                              of_tags ? "\n</function>" : "</function>",
                              "<parameter=",
                              "</function>"};
  bool in_parameter = false;  // "<parameter=" has been consumed
  for (;;) {
    if (!in_parameter) {
      co_await in.text.SkipBlanks();
      if (!co_await in.text.TrySkip(kParameter)) break;
    }
    const TextUntil key = co_await TakeUntil(in.text, AnyOf(">"));
    if (key.marker == kNoMarker) break;
    if (of_tags) co_await in.text.TrySkip("\n");
    // The line end after the key is the one before the end of an empty value as well.
    if (co_await in.text.TrySkip("</parameter>")) {
      out.BeginParameter(key.text);
      out.AddQuote();
      out.AddQuote();
      in_parameter = false;
      continue;
    }
    const int end = co_await CopyValue(in.text, key.text, out.IsText(key.text), value_ends, &out);
    if (end == kNoMarker) co_return;
    in_parameter = end == 2 || end == 4;
    if (end == 3 || end == 5) {
      out.End();
      co_return;
    }
  }
  out.End();
  co_await in.text.TrySkip("</function>");
}

Parse<> ParseQwenCalls(ToolParserInput in, std::string_view open, std::string_view close,
                       ValueLines lines) {
  const TextFunction add_content = [&in](std::string_view part) { in.sink.AddContent(part); };
  while (co_await CopyUntil(in.text, AnyOf(open), add_content) != kNoMarker) {
    for (;;) {
      const size_t begin = co_await ScanBlanks(in.text, 0);
      if (co_await in.text.Peek(begin) != '<') break;
      in.text.Skip(begin);
      if (!co_await in.text.TrySkip(kFunction)) break;
      co_await CopyQwenFunction(in, lines);
    }
    co_await in.text.TrySkip(close);
  }
}

}  // namespace

Parse<> ParseQwen3Coder(ToolParserInput in) {
  return ParseQwenCalls(in, "<tool_call>", "</tool_call>", ValueLines::kOfTags);
}

Parse<> ParseMimo(ToolParserInput in) {
  return ParseQwenCalls(in, "<tool_call>", "</tool_call>", ValueLines::kOfValues);
}

Parse<> ParseSeedOss(ToolParserInput in) {
  return ParseQwenCalls(in, "<seed:tool_call>", "</seed:tool_call>", ValueLines::kOfTags);
}

// <tool_call>N\n(<arg_key>K</arg_key>\n<arg_value>V</arg_value>\n)*</tool_call>; calls of tools
// that the request does not have are dropped.
Parse<> ParseGlm45(ToolParserInput in) {
  constexpr std::string_view kClose = "</tool_call>";
  const TextFunction add_content = [&in](std::string_view part) { in.sink.AddContent(part); };
  while (co_await CopyUntil(in.text, AnyOf("<tool_call>"), add_content) != kNoMarker) {
    const TextUntil name = co_await TakeUntil(in.text, AnyOf("\n", "<arg_key>", kClose));
    const std::string tool(StripAscii(name.text));
    if (!in.tools.Has(tool)) {
      if (name.marker != 2) co_await TakeUntil(in.text, AnyOf(kClose));
      continue;
    }
    ArgumentsWriter out(in, tool);
    bool in_key = name.marker == 1;
    bool cut = false;
    while (name.marker != 2) {
      co_await in.text.SkipBlanks();
      if (!in_key && !co_await in.text.TrySkip("<arg_key>")) break;
      in_key = false;
      const TextUntil key = co_await TakeUntil(in.text, AnyOf("</arg_key>"));
      co_await in.text.SkipBlanks();
      if (!co_await in.text.TrySkip("<arg_value>")) continue;
      const bool is_text = out.IsText(key.text);
      const int end = co_await CopyValue(in.text, key.text, is_text, AnyOf("</arg_value>"), &out);
      cut = end == kNoMarker && is_text;
    }
    if (cut) co_return;
    out.End();
    if (name.marker != 2) co_await in.text.TrySkip(kClose);
  }
}

// ---- <invoke name="N"> <parameter name="K">V</parameter> </invoke> ----

namespace {

struct InvokeFormat {
  std::string_view begin = {};  // empty: invokes stand alone
  std::string_view end = {};
  std::string_view invoke;      // up to the name
  std::string_view invoke_end;  // the closing tag
  std::string_view parameter;
  std::string_view parameter_end;
  bool known_tools_only = false;
  bool drops_rest = false;     // what comes after the calls
  bool strips_values = false;  // which may stand in <![CDATA[…]]>
};

struct TagHead {
  std::string text;  // up to the '>'
  std::string name;
  std::string attributes;
  bool whole = false;
};

// name="N", name='N' or name=N, more attributes, '>'.
Parse<TagHead> TakeTagHead(TextSource& text) {
  const TextUntil head = co_await TakeUntil(text, AnyOf(">"));
  TagHead tag;
  tag.text = head.text;
  tag.whole = head.marker != kNoMarker;
  std::string_view rest = StripAscii(head.text);
  const char quote = rest.empty() ? ' ' : rest.front();
  if (quote == '"' || quote == '\'') {
    rest.remove_prefix(1);
  }
  const size_t end = rest.find(quote == '"' || quote == '\'' ? quote : ' ');
  tag.name = rest.substr(0, end);
  if (end != std::string_view::npos) tag.attributes = rest.substr(end + 1);
  co_return tag;
}

Parse<> CopyInvoke(ToolParserInput in, InvokeFormat format) {
  const TagHead head = co_await TakeTagHead(in.text);
  if (!head.whole || head.name.empty()) co_return;

  if (format.known_tools_only && !in.tools.Has(head.name)) {
    co_await TakeUntil(in.text, AnyOf(format.invoke_end));
    co_return;
  }
  ArgumentsWriter out(in, head.name);
  for (;;) {
    co_await in.text.SkipBlanks();
    if (!co_await in.text.TrySkip(format.parameter)) break;
    const TagHead parameter = co_await TakeTagHead(in.text);
    if (!parameter.whole) break;
    const bool is_text = parameter.attributes.find("string=\"true\"") != std::string::npos ||
                         out.IsText(parameter.name);
    std::string value_end(format.parameter_end);
    if (format.strips_values) {
      co_await in.text.SkipBlanks();
      if (co_await in.text.TrySkip("<![CDATA[")) value_end.insert(0, "]]>");
    }
    const int end = co_await CopyValue(in.text, parameter.name, is_text, AnyOf(value_end), &out,
                                       format.strips_values);
    if (end == kNoMarker && is_text) co_return;
  }
  out.End();
  co_await in.text.TrySkip(format.invoke_end);
}

Parse<> ParseInvokes(ToolParserInput in, InvokeFormat format) {
  const TextFunction add_content = [&in](std::string_view part) { in.sink.AddContent(part); };
  while (co_await CopyUntil(in.text, AnyOf(format.begin), add_content) != kNoMarker) {
    for (;;) {
      const TextUntil gap = co_await TakeUntil(in.text, AnyOf(format.invoke, format.end));
      if (gap.marker != 0) break;
      co_await CopyInvoke(in, format);
    }
    if (format.drops_rest) co_await CopyRest(in.text, [](std::string_view) {});
  }
}

}  // namespace

Parse<> ParseMinimaxM2(ToolParserInput in) {
  return ParseInvokes(in, {.begin = "<minimax:tool_call>",
                           .end = "</minimax:tool_call>",
                           .invoke = "<invoke name=",
                           .invoke_end = "</invoke>",
                           .parameter = "<parameter name=",
                           .parameter_end = "</parameter>",
                           .known_tools_only = true});
}

Parse<> ParseDeepseekV32(ToolParserInput in) {
  return ParseInvokes(in, {.begin = "<｜DSML｜function_calls>",
                           .end = "</｜DSML｜function_calls>",
                           .invoke = "<｜DSML｜invoke name=",
                           .invoke_end = "</｜DSML｜invoke>",
                           .parameter = "<｜DSML｜parameter name=",
                           .parameter_end = "</｜DSML｜parameter>",
                           .drops_rest = true});
}

Parse<> ParseDeepseekV4(ToolParserInput in) {
  return ParseInvokes(in, {.begin = "<｜DSML｜tool_calls>",
                           .end = "</｜DSML｜tool_calls>",
                           .invoke = "<｜DSML｜invoke name=",
                           .invoke_end = "</｜DSML｜invoke>",
                           .parameter = "<｜DSML｜parameter name=",
                           .parameter_end = "</｜DSML｜parameter>",
                           .drops_rest = true});
}

// <dots_function_call>(<invoke name=N>(<parameter name=K>V</parameter>)*</invoke>)*
// </dots_function_call>, names with quotes or without.
Parse<> ParseDots(ToolParserInput in) {
  return ParseInvokes(in, {.begin = "<dots_function_call>",
                           .end = "</dots_function_call>",
                           .invoke = "<invoke name=",
                           .invoke_end = "</invoke>",
                           .parameter = "<parameter name=",
                           .parameter_end = "</parameter>",
                           .known_tools_only = true,
                           .strips_values = true});
}

// <function name="N">(<param name="K">V</param>)*</function>, any number.
Parse<> ParseMinicpm5(ToolParserInput in) {
  constexpr InvokeFormat kFormat = {.invoke = "<function name=",
                                    .invoke_end = "</function>",
                                    .parameter = "<param name=",
                                    .parameter_end = "</param>",
                                    .strips_values = true};
  const TextFunction add_content = [&in](std::string_view part) { in.sink.AddContent(part); };
  while (co_await CopyUntil(in.text, AnyOf(kFormat.invoke), add_content) != kNoMarker) {
    co_await CopyInvoke(in, kFormat);
  }
}

namespace {

// step3's parameters: stripped texts of plain types.
Parse<> CopyPlainInvoke(ToolParserInput in, std::string tool) {
  in.sink.BeginCall(tool);
  std::string separator = "{";
  for (;;) {
    const TextUntil gap =
        co_await TakeUntil(in.text, AnyOf("<steptml:parameter name=", "</steptml:invoke>"));
    if (gap.marker != 0) break;
    const TagHead parameter = co_await TakeTagHead(in.text);
    const TextUntil value = co_await TakeUntil(in.text, AnyOf("</steptml:parameter>"));
    if (value.marker == kNoMarker) break;
    in.sink.AddArguments(separator + QuoteJson(parameter.name) + ": ");
    in.sink.AddArguments(in.tools.ToPlainJson(tool, parameter.name, StripAscii(value.text)));
    separator = ", ";
  }
  in.sink.AddArguments(separator == "{" ? "{}" : "}");
}

}  // namespace

// <｜tool_calls_begin｜>(<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="N">
// (<steptml:parameter name="K">V</steptml:parameter>)*</steptml:invoke><｜tool_call_end｜>)*
// <｜tool_calls_end｜>. The first tag is content where the text's end cuts it off.
Parse<> ParseStep3(ToolParserInput in) {
  constexpr std::string_view kBegin = "<｜tool_calls_begin｜>";
  constexpr std::string_view kInvoke = "<steptml:invoke name=";
  const TextFunction add_content = [&in](std::string_view part) { in.sink.AddContent(part); };
  for (;;) {
    const int begin = co_await CopyUntil(in.text, AnyOf(kBegin), add_content);
    if (begin == kNoMarker) co_return;
    for (;;) {
      const TextUntil gap = co_await TakeUntil(in.text, AnyOf(kInvoke, "<｜tool_calls_end｜>"));
      if (gap.marker == 1) break;
      TagHead head;
      if (gap.marker == 0) head = co_await TakeTagHead(in.text);
      if (!head.whole) {
        if (in.sink.num_calls() > 0) co_return;
        in.sink.AddContent(kBegin);
        in.sink.AddContent(gap.text);
        if (gap.marker == 0) in.sink.AddContent(kInvoke);
        in.sink.AddContent(head.text);
        co_return;
      }
      co_await CopyPlainInvoke(in, head.name);
    }
  }
}

}  // namespace tandem
