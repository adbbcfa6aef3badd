#include "frontend/parsers/reasoning_parser.h"

#include <nlohmann/json.hpp>
#include <string>

#include "common/strings.h"
#include "frontend/parsers/parse_steps.h"
#include "frontend/parsers/tool_formats.h"

namespace tandem {
namespace {

using Start = ReasoningFormat::Start;

constexpr std::string_view kThink = "<think>";
constexpr std::string_view kThinkEnd = "</think>";
constexpr std::string_view kEnableThinking = "enable_thinking";
constexpr std::string_view kBothSwitches = "thinking enable_thinking";

// "Here is my thought process: … Here is my response: …", or "Here's".
Parse<> ParseGraniteReasoning(TextSource& text, MessageSink& sink, bool* in_reasoning,
                              ContentFunction add_content) {
  const bool thinks = co_await text.TrySkip("Here is my thought process:") ||
                      co_await text.TrySkip("Here's my thought process:");
  if (thinks) {
    const auto add = [&sink](std::string_view part) { sink.AddReasoning(part); };
    *in_reasoning = true;
    co_await CopyUntil(text, AnyOf("Here is my response:", "Here's my response:"), add);
    *in_reasoning = false;
  }
  co_await CopyRest(text, add_content);
}

// "<think>\n…\n</think>\n<answer>\n…\n</answer>"; without thoughts they are empty.
Parse<> ParseHunyuanReasoning(TextSource& text, MessageSink& sink, bool* in_reasoning,
                              ContentFunction add_content) {
  const bool thinks = co_await text.TrySkip(kThink);
  if (thinks) {
    *in_reasoning = true;
    co_await text.TrySkip("\n");
    co_await CopyUntil(text, AnyOf("\n</think>", kThinkEnd),
                       [&sink](std::string_view part) { sink.AddReasoning(part); });
    *in_reasoning = false;
    co_await text.SkipBlanks();
  }
  const bool has_mark = co_await text.TrySkip("<answer>");
  if (has_mark) {
    co_await text.TrySkip("\n");
    co_await CopyUntil(text, AnyOf("\n</answer>", "</answer>"), add_content);
  }
  co_await CopyRest(text, add_content);
}

// Nothing is split: the marker that the prompt ended with is put in front again.
Parse<> ParseAppendThink(TextSource& text, MessageSink&, bool*, ContentFunction add_content) {
  add_content(kThink);
  co_await CopyRest(text, add_content);
}

constexpr ReasoningFormat kFormats[] = {
    {.name = "cohere_command3",
     .aliases = "",
     .begin = "<|START_THINKING|>",
     .end = "<|END_THINKING|>",
     .start = Start::kContent,
     .parse_whole = &ParseCohere},
    {.name = "cohere_command4",
     .aliases = "",
     .begin = "<|START_THINKING|>",
     .end = "<|END_THINKING|>",
     .parse_whole = &ParseCohere},
    {.name = "deepseek_r1", .aliases = "step5", .begin = kThink, .end = kThinkEnd},
    {.name = "deepseek_v3",
     .aliases = "",
     .begin = kThink,
     .end = kThinkEnd,
     .switches = kBothSwitches,
     .thinks_by_default = false},
    {.name = "deepseek_v4",
     .aliases = "deepseek_v41",
     .begin = kThink,
     .end = kThinkEnd,
     .tool_marker = "<｜DSML｜tool_calls>",
     .drops_last_blanks = true,
     .switches = kBothSwitches},
    {.name = "ernie45", .aliases = "", .begin = kThink, .end = kThinkEnd},
    {.name = "gemma4",
     .aliases = "",
     .begin = "<|channel>thought\n",
     .end = "<channel|>",
     .start = Start::kContent,
     .drops_last_blanks = true,
     .repeats = true},
    {.name = "glm45",
     .aliases = "glm47 ling3",
     .begin = kThink,
     .end = kThinkEnd,
     .tool_marker = "<tool_call>",
     .drops_last_blanks = true,
     .switches = kBothSwitches},
    {.name = "granite", .aliases = "", .begin = "", .end = "", .parse = &ParseGraniteReasoning},
    {.name = "granite_thinking_parser",
     .aliases = "mimo minicpmv poolside_v1",
     .begin = kThink,
     .end = kThinkEnd,
     .drops_last_blanks = true,
     .drops_next_blanks = true,
     .switches = kEnableThinking},
    {.name = "hf",
     .aliases = "beam",
     .begin = "",
     .end = "",
     .switches = kEnableThinking,
     .parse_whole = &ParseResponseTemplate},
    {.name = "holo2", .aliases = "", .begin = kThink, .end = kThinkEnd, .switches = kBothSwitches},
    {.name = "hunyuan_a13b",
     .aliases = "",
     .begin = kThink,
     .end = kThinkEnd,
     .parse = &ParseHunyuanReasoning},
    {.name = "hy_v3",
     .aliases = "",
     .begin = kThink,
     .end = kThinkEnd,
     .thinks_by_default = false,
     .off_effort = "no_think",
     .takes_suffix = true},
    {.name = "hy_v4",
     .aliases = "",
     .begin = kThink,
     .end = kThinkEnd,
     .off_effort = "no_think",
     .takes_suffix = true},
    {.name = "inkling",
     .aliases = "",
     .begin = "<|content_thinking|>",
     .end = "<|end_message|>",
     .start = Start::kContent,
     .parse_whole = &ParseInkling},
    {.name = "k2_horizon",  // <ifm|think>, <ifm|think_fast>, <ifm|think_faster>, by the effort
     .aliases = "",
     .begin = "<ifm|think",
     .end = "</ifm|think",
     .tool_marker = "<ifm|tool_calls>",
     .ends_in_bracket = true},
    {.name = "kimi_k3",
     .aliases = "",
     .begin = "<|open|>think<|sep|>",
     .end = "<|close|>think<|sep|>",
     .switches = kBothSwitches,
     .parse_whole = &ParseKimiK3},
    {.name = "kimi_k2",
     .aliases = "",
     .begin = kThink,
     .end = kThinkEnd,
     .tool_marker = "<|tool_calls_section_begin|>",
     .drops_last_blanks = true,
     .switches = kBothSwitches},
    {.name = "minimax_m2",
     .aliases = "",
     .begin = kThink,
     .end = kThinkEnd,
     .tool_marker = "<minimax:tool_call>",
     .drops_last_blanks = true},
    {.name = "minimax_m2_append_think",
     .aliases = "",
     .begin = "",
     .end = "",
     .parse = &ParseAppendThink},
    {.name = "minimax_m3",
     .aliases = "",
     .begin = "<mm:think>",
     .end = "</mm:think>",
     .start = Start::kContent,
     .repeats = true},
    {.name = "mistral",
     .aliases = "",
     .begin = "[THINK]",
     .end = "[/THINK]",
     .tool_marker = "[TOOL_CALLS]",
     .start = Start::kContent,
     .drops_last_blanks = true,
     .repeats = true},
    {.name = "muse",
     .aliases = "musespark1x",
     .begin = "",
     .end = "",
     .start = Start::kContent,
     .parse_whole = &ParseMuse},
    {.name = "muse_glimmer",
     .aliases = "",
     .begin = "",
     .end = "",
     .start = Start::kContent,
     .parse_whole = &ParseMuseGlimmer},
    {.name = "nemotron_v3",
     .aliases = "",
     .begin = kThink,
     .end = kThinkEnd,
     .drops_last_blanks = true,
     .switches = kEnableThinking,
     .content_switch = "force_nonempty_content"},
    {.name = "olmo3", .aliases = "", .begin = kThink, .end = kThinkEnd, .start = Start::kWhole},
    {.name = "plamo3",
     .aliases = "",
     .begin = "<|plamo:begin_think:plamo|>",
     .end = "<|plamo:end_think:plamo|>",
     .tool_marker = "<|plamo:begin_tool_requests:plamo|>",
     .switches = kEnableThinking},
    {.name = "qwen3",
     .aliases = "",
     .begin = kThink,
     .end = kThinkEnd,
     .tool_marker = "<tool_call>",
     .switches = kEnableThinking},
    {.name = "seed_oss",
     .aliases = "",
     .begin = "<seed:think>",
     .end = "</seed:think>",
     .tool_marker = "<seed:tool_call>"},
    {.name = "step3", .aliases = "", .begin = "", .end = kThinkEnd},
    {.name = "step3p5", .aliases = "", .begin = kThink, .end = kThinkEnd},
};

// Passes reasoning on; its last blanks only when more follows.
class ReasoningWriter {
 public:
  ReasoningWriter(MessageSink* sink, bool drops_last_blanks)
      : sink_(sink), drops_last_blanks_(drops_last_blanks) {}

  void Add(std::string_view text) {
    if (!drops_last_blanks_) return sink_->AddReasoning(text);
    held_.Pass(text, [this](std::string_view part) { sink_->AddReasoning(part); });
  }
  void EndBlock() { held_.Take(); }

 private:
  MessageSink* const sink_;
  const bool drops_last_blanks_;
  HeldBlanks held_;
};

// Text up to the end marker; what comes before it is only then reasoning.
Parse<> ParseWhole(TextSource& text, const ReasoningFormat& format, MessageSink& sink,
                   ContentFunction add_content) {
  TextUntil block = co_await TakeUntil(text, AnyOf(format.end));
  std::string_view reasoning = block.text;
  if (block.marker == kNoMarker) {
    add_content(reasoning);
    co_return;
  }
  if (reasoning.substr(0, format.begin.size()) == format.begin) {
    reasoning.remove_prefix(format.begin.size());
  }
  sink.AddReasoning(reasoning);
  co_await CopyRest(text, add_content);
}

// Consumes blanks and `word` if that is what the text goes on with.
Parse<bool> TrySkipAfterBlanks(TextSource& text, std::string_view word) {
  const size_t offset = co_await ScanBlanks(text, 0);
  for (size_t i = 0; i < word.size(); ++i) {
    const int byte = co_await text.Peek(offset + i);
    if (byte != static_cast<unsigned char>(word[i])) co_return false;
  }
  text.Skip(offset + word.size());
  co_return true;
}

// Reasoning up to its end; the begin marker may stand in it and is dropped. True: content follows.
Parse<bool> CopyReasoning(TextSource& text, const ReasoningFormat& format,
                          ReasoningWriter* reasoning, ContentFunction add_content) {
  Markers markers = {format.end};
  if (!format.begin.empty()) markers.push_back(format.begin);
  if (!format.tool_marker.empty()) markers.push_back(format.tool_marker);
  for (;;) {
    const int marker = co_await CopyUntil(
        text, markers, [reasoning](std::string_view part) { reasoning->Add(part); });
    if (marker == kNoMarker) co_return false;
    const std::string_view found = markers[static_cast<size_t>(marker)];
    if (format.ends_in_bracket && found != format.tool_marker) co_await TakeUntil(text, AnyOf(">"));
    if (found == format.begin) continue;
    reasoning->EndBlock();
    if (found == format.tool_marker) add_content(found);
    co_return true;
  }
}

}  // namespace

std::span<const ReasoningFormat> ReasoningFormats() { return kFormats; }

const ReasoningFormat* FindReasoningFormat(std::string_view name) {
  if (name.empty()) return nullptr;
  for (const ReasoningFormat& format : kFormats) {
    if (format.name == name) return &format;
    for (const std::string_view alias : Split(format.aliases, ' ')) {
      if (alias == name) return &format;
    }
  }
  return nullptr;
}

const ReasoningFormat* ReasoningFormatOfTemplate(std::string_view chat_template) {
  const auto has = [&](std::string_view marker) {
    return chat_template.find(marker) != std::string_view::npos;
  };
  if (has("<seed:think>")) return FindReasoningFormat("seed_oss");
  if (has("[THINK]")) return FindReasoningFormat("mistral");
  if (has("<|channel>thought")) return FindReasoningFormat("gemma4");
  if (has("<mm:think>")) return FindReasoningFormat("minimax_m3");
  if (has("<ifm|think")) return FindReasoningFormat("k2_horizon");
  if (has("<|plamo:begin_think:plamo|>")) return FindReasoningFormat("plamo3");
  if (has("<|content_thinking|>")) return FindReasoningFormat("inkling");
  if (has("<|START_THINKING|>")) {
    return FindReasoningFormat(has("<|START_TEXT|>") ? "cohere_command4" : "cohere_command3");
  }
  if (has("<|open|>") && has("<|sep|>")) return FindReasoningFormat("kimi_k3");
  if (has("<atem:function_calls>")) return FindReasoningFormat("muse");
  if (!has(kThink) && !has(kThinkEnd)) {
    return has("<think:") && has("</think:") ? FindReasoningFormat("hy_v4") : nullptr;
  }
  if (has("<minimax:tool_call>")) return FindReasoningFormat("minimax_m2");
  if (has("<|tool_calls_section_begin|>")) return FindReasoningFormat("kimi_k2");
  if (has("<arg_key>")) return FindReasoningFormat("glm45");
  if (has(kEnableThinking)) return FindReasoningFormat("qwen3");
  return FindReasoningFormat("deepseek_r1");
}

std::shared_ptr<const ReasoningFormat> WithSuffixOf(std::string_view chat_template,
                                                    const ReasoningFormat& format) {
  if (!format.takes_suffix) return nullptr;
  constexpr size_t kLongest = 64;
  const std::string opening = std::string(format.begin.substr(0, format.begin.size() - 1)) + ':';
  const size_t found = chat_template.find(opening);
  if (found == std::string_view::npos) return nullptr;
  const std::string_view rest = chat_template.substr(found + opening.size() - 1);
  const size_t length = rest.find_first_of("> \t\n\"'<{}");
  if (length == std::string_view::npos || rest[length] != '>' || length > kLongest) return nullptr;
  struct Suffixed {
    std::string begin, end;
    ReasoningFormat format;
  };
  const auto with = [suffix = rest.substr(0, length)](std::string_view marker) {
    return std::string(marker.substr(0, marker.size() - 1)).append(suffix) + '>';
  };
  auto own = std::make_shared<Suffixed>(Suffixed{with(format.begin), with(format.end), format});
  own->format.begin = own->begin;
  own->format.end = own->end;
  return {own, &own->format};
}

namespace {

using Json = nlohmann::ordered_json;

Json Variable(const Json& variables, std::string_view name) {
  if (!variables.is_object()) return nullptr;
  const auto it = variables.find(name);
  return it == variables.end() ? Json() : *it;
}

bool Thinks(const ReasoningFormat& format, const Json& variables) {
  bool thinks = format.thinks_by_default;
  for (const std::string_view name : Split(format.switches, ' ')) {
    const Json value = Variable(variables, name);
    if (value.is_boolean()) thinks = value.get<bool>();
  }
  if (!format.off_effort.empty()) {
    const Json effort = Variable(variables, "reasoning_effort");
    if (effort.is_string()) thinks = effort != format.off_effort;
  }
  return thinks;
}

}  // namespace

ReasoningStart ReasoningStartAfter(const ReasoningFormat& format, std::string_view prompt,
                                   const nlohmann::ordered_json& template_variables) {
  if (!Thinks(format, template_variables)) return ReasoningStart::kOff;
  if (format.end.empty()) return ReasoningStart::kUnknown;
  const size_t end = prompt.rfind(format.end);
  const size_t begin = format.begin.empty() ? std::string_view::npos : prompt.rfind(format.begin);
  if (end != std::string_view::npos && (begin == std::string_view::npos || end > begin)) {
    return ReasoningStart::kContent;
  }
  return begin == std::string_view::npos ? ReasoningStart::kUnknown : ReasoningStart::kReasoning;
}

bool ReasoningMayBeContent(const ReasoningFormat& format,
                           const nlohmann::ordered_json& template_variables) {
  if (format.content_switch.empty()) return false;
  return Variable(template_variables, format.content_switch) == Json(true);
}

Parse<> ParseReasoning(TextSource& text, const ReasoningFormat& format, ReasoningStart start,
                       MessageSink& sink, bool* in_reasoning, ContentFunction add_content) {
  if (format.parse != nullptr && start == ReasoningStart::kUnknown) {
    co_await format.parse(text, sink, in_reasoning, add_content);
    co_return;
  }
  if (start == ReasoningStart::kOff || format.end.empty()) {
    co_await CopyRest(text, add_content);
    co_return;
  }
  const bool decided = start == ReasoningStart::kContent || start == ReasoningStart::kByText;
  if (format.start == Start::kWhole && !decided) {
    co_await ParseWhole(text, format, sink, add_content);
    co_return;
  }
  ReasoningWriter reasoning(&sink, format.drops_last_blanks);
  *in_reasoning = start == ReasoningStart::kReasoning ||
                  (start == ReasoningStart::kUnknown && format.start == Start::kReasoning);
  if (start == ReasoningStart::kByText && !format.begin.empty()) {
    *in_reasoning = co_await TrySkipAfterBlanks(text, format.begin);
  }
  for (;;) {
    if (*in_reasoning) {
      const bool ended = co_await CopyReasoning(text, format, &reasoning, add_content);
      *in_reasoning = false;
      if (!ended) co_return;
      if (format.drops_next_blanks) co_await text.SkipBlanks();
    }
    if (!format.repeats) break;
    const int marker = co_await CopyUntil(text, AnyOf(format.begin, format.end), add_content);
    if (marker == kNoMarker) co_return;
    *in_reasoning = marker == 0;
  }
  co_await CopyRest(text, add_content);
}

}  // namespace tandem
